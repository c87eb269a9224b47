"""Whether Inspector's lines are read by compiled code, or one by one: the rows are the same."""

from __future__ import annotations

from typing import TYPE_CHECKING

from . import compiled_code
from .inspector_scan_code import CODE

if TYPE_CHECKING:
    from ..sources import Source
    from .inspector_compiled import Compiled


def compiled(source: Source, threads: int) -> Compiled | None:
    """The compiled reader where it pays, or is there already; else None."""
    functions = compiled_code.functions(source, CODE)
    if functions is None:
        return None
    from .inspector_compiled import Compiled

    return Compiled(functions, hashed=threads == 1)
