"""`retime files` on a terminal: whole paths, a line each, which can be pasted."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from itertools import groupby
from typing import TYPE_CHECKING, Any

from . import units
from .columns import cells, show_table
from .screen import clean

if TYPE_CHECKING:
    from rich.console import Console


def show_files(out: Console, rows: Sequence[Mapping[str, Any]], limit: int) -> None:
    """A table where the paths fit whole; else the files of each table below a line about them."""
    shown = rows[:limit]
    wide = cells(shown, raw=True).widths() if shown else []
    if sum(wide) + 2 * len(wide) <= out.width:
        return show_table(out, rows, raw=True, limit=limit, empty="no files")
    for (job, table), files in groupby(shown, lambda r: (r["job"], r["table"])):
        found = list(files)
        n, size = sum(r["rows"] for r in found), sum(r["bytes"] for r in found)
        about = f"{units.counted(n, 'row')}, {units.size(size)}"
        out.print(clean(f"{job} {table}: {about}"), style="bold", soft_wrap=True)
        for r in found:
            out.print(clean(r["file"]), soft_wrap=True)
    if len(shown) < len(rows):
        out.print(
            f"({len(shown)} of {len(rows):,} files; --limit N or --json for more)", style="dim"
        )
