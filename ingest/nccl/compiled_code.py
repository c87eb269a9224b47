"""When texts are read by compiled code, and where that is had from: the rows are the same."""

from __future__ import annotations

import contextlib
import importlib
import sys
from typing import TYPE_CHECKING

from .. import machine_code

if TYPE_CHECKING:
    from ..sources import Source

WORTH_LOADING_BYTES = 1 << 20
"""From so many bytes (decompressed, estimated) on, loading machine code that is kept pays."""

WORTH_COMPILING_BYTES = 24 << 20
"""From so many on, making it pays: line by line, this is five seconds."""

USUAL_RATIO = 12
"""Decompressed to compressed size of a log, for that estimate."""


def prepare(n_bytes: int, code: machine_code.Code) -> None:
    """Told how many bytes a process is about to parse: many small logs are worth it as one large.

    Loads what is kept; nothing is compiled for this.
    """
    if n_bytes >= WORTH_LOADING_BYTES:
        machine_code.load(code)


def functions(source: Source, code: machine_code.Code) -> machine_code.Functions | None:
    """The compiled functions where they pay for this source, or are there already; else None."""
    size = source.size_bytes * (USUAL_RATIO if source.compressed else 1)
    here = code.module in sys.modules
    if not here and size < WORTH_LOADING_BYTES and not machine_code.is_loaded(code):
        return None
    found = machine_code.load(code)
    if found is None and not here and size < WORTH_COMPILING_BYTES:
        return None
    return found or made(code)


def made(code: machine_code.Code) -> machine_code.Functions:
    """The functions compiled here, and kept for the next run where that can be."""
    if not machine_code.plain():
        with contextlib.suppress(OSError, RuntimeError):
            machine_code.make(code)
            if (found := machine_code.load(code)) is not None:
                return found
    module = importlib.import_module(code.module)
    return {f.name: getattr(module, f.name) for f in code.functions}
