"""GPU traces of `nsys stats` as CSV: detection and parser.

`nsys stats --report cuda_gpu_trace --format csv` (older: `gputrace`) prints one line for each
kernel, copy and set. A second form pairs lines: `Enter` and `Leave` of each, as the Pipit library
stores what it read of such a report. Times count from the session's start, which is not in the
file. Neither form says what launched a row: there are no steps.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import pyarrow as pa

    from ..sources import Source

_STATS = re.compile(
    rb'^"?Start ?\((?:ns|nsec|us|ms|s|sec)\)"?,"?Duration ?\([a-z]{1,4}\)"?,"?CorrId"?,'
)
_PAIRS = re.compile(rb"^Name,streamId,type,bytes,Trace Type,Event Type,Timestamp \(ns\)")


def looks_like(head: bytes, name: str) -> bool:
    """Whether a line within the first few is the heading of a GPU trace."""
    lines = head[:8192].lstrip(b"\xef\xbb\xbf").splitlines()[:12]
    return any(_STATS.match(line) or _PAIRS.match(line) for line in lines)


def peek_rank(source: Source) -> int | None:
    """The rank in the file's name; nothing else can tell it."""
    from .surroundings import rank_in_name

    return rank_in_name(source.name)


def parse(
    source: Source, *, rank: int | None = None, threads: int = 1
) -> Iterator[tuple[str, pa.RecordBatch]]:
    """Yields (table name, batch) of one CSV file, which is one rank's.

    Raises UnusableInput where no heading is found, RankUnknown where neither `rank` nor the
    file's name tells the rank.
    """
    from .stats_rows import tables_of

    yield from tables_of(source, rank)
