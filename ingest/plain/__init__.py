"""Retime's plain form of a rank's timeline, as JSON lines: a line is a row of a table.

For programs that no known profiler watched. `{"table": "events", "start_ns": ..., ...}`, with the
columns that `retime tables` lists; see docs/plain.md.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import pyarrow as pa

    from ..sources import Source

_FIRST = re.compile(rb'\s{0,8}\{\s{0,8}"table"\s{0,8}:\s{0,8}"ranks"\s{0,8},')


def looks_like(head: bytes, name: str) -> bool:
    """Whether it begins with the row of a rank."""
    return _FIRST.match(head.removeprefix(b"\xef\xbb\xbf")) is not None


def peek_rank(source: Source) -> int | None:
    """The rank that the first line names."""
    from .rows import rank_of_head

    return rank_of_head(source.head(4096))


def parse(
    source: Source, *, rank: int | None = None, threads: int = 1
) -> Iterator[tuple[str, pa.RecordBatch]]:
    """Yields the rows of one rank's file, by table, and `problems`.

    Raises UnusableInput where no line is a row, UsageError where `rank` contradicts the file.
    """
    from .rows import tables_of

    yield from tables_of(source, rank)
