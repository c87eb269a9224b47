"""Whether an NCCL debug log is read by compiled code, or line by line: the rows are the same."""

from __future__ import annotations

import contextlib
import sys
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from .. import machine_code
from .debug_log_scan_code import CODE

if TYPE_CHECKING:
    from ..sources import Source
    from .debug_log_compiled import Compiled

WORTH_LOADING_BYTES = 1 << 20
"""From so many bytes (decompressed, estimated) on, loading machine code that is kept pays."""

WORTH_COMPILING_BYTES = 24 << 20
"""From so many on, making it pays: line by line, this is five seconds."""

USUAL_RATIO = 12
"""Decompressed to compressed size of a log, for that estimate."""


def prepare(n_bytes: int) -> None:
    """Told how many (decompressed) bytes this process is about to parse, in all files together."""
    if n_bytes >= WORTH_LOADING_BYTES:
        machine_code.load(CODE)


def compiled(source: Source) -> Compiled | None:
    """The compiled reader where it pays, or is there already; else None."""
    size = source.size_bytes * (USUAL_RATIO if source.compressed else 1)
    here = f"{__package__}.debug_log_scan" in sys.modules
    if not here and size < WORTH_LOADING_BYTES and not machine_code.is_loaded(CODE):
        return None
    functions = machine_code.load(CODE)
    if functions is None and not here and size < WORTH_COMPILING_BYTES:
        return None
    from .debug_log_compiled import Compiled

    return Compiled(functions or _made())


def _made() -> dict[str, Callable[..., Any]]:
    """The functions compiled here, and kept for the next run where that can be."""
    if not machine_code.plain():
        with contextlib.suppress(OSError, RuntimeError):
            machine_code.make(CODE)
            if (functions := machine_code.load(CODE)) is not None:
                return functions
    from . import debug_log_scan

    return {f.name: getattr(debug_log_scan, f.name) for f in CODE.functions}
