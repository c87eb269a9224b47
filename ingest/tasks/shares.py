"""A job's Parquet files of events in shares of some ranks each: what is read at a time."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import partial
from typing import Any, NamedTuple

import pyarrow.parquet as pq

from ..errors import WarehouseError
from ..store import is_address, reading
from .events import Events, Needed, Words
from .events import of_files as events_of_files
from .job import ALL, SHARE_ROWS, Share


class _File(NamedTuple):
    """A file, the ranks that it may have rows of, how many rows, and its footer."""

    path: str
    low: int
    high: int
    rows: int
    meta: pq.FileMetaData


def of_files(
    paths: Sequence[Any], categories: Mapping[str, str], least: int | None = None
) -> list[Share]:
    """Shares of a job's ranks by its files of events, in the order of ranks.

    `least` is how many events a share has but where no more are left (`SHARE_ROWS`).

    All files that may have a rank's rows, as their own statistics have it, are in one.
    """
    least = SHARE_ROWS if least is None else least
    texts = [str(p) for p in paths]
    files = reading.side_by_side(_looked_at, texts, remote=any(map(is_address, texts)))
    files = sorted((f for f in files if f.rows), key=lambda f: (f.low, f.high))
    groups: list[list[_File]] = []
    high, rows = ALL.min, 0
    for file in files:
        if not groups or (file.low > high and rows + file.rows > least):
            groups.append([])
            rows = 0
        groups[-1].append(file)
        high = max(high, file.high)
        rows += file.rows
    if not groups:
        return [Share(ALL.min, ALL.max, partial(events_of_files, (), categories=categories))]
    lows = [ALL.min, *(group[0].low for group in groups[1:])]
    highs = [*(low - 1 for low in lows[1:]), ALL.max]
    return [
        Share(
            low,
            high,
            partial(_read, [(f.path, f.meta) for f in group], (low, high), categories),
            sum(f.rows for f in group),
        )
        for low, high, group in zip(lows, highs, groups, strict=True)
    ]


def _read(
    files: Sequence[tuple[str, pq.FileMetaData]],
    span: tuple[int, int],
    categories: Mapping[str, str],
    words: Words,
    needed: Needed,
) -> Events:
    """The rows that count. Raises WarehouseError where a rank is not among those that were told."""
    found = events_of_files(files, words, needed, categories)
    if len(found.rank) and not span[0] <= found.rank.min() <= found.rank.max() <= span[1]:
        raise WarehouseError(
            f"{files[0][0]}: it, or a file read with it, has rows of other ranks than its own "
            "statistics say, so no graph can be made of the job; ingest it again"
        )
    return found


def _looked_at(path: str) -> _File:
    with reading.parquet(path) as file:
        meta = file.metadata
        column = file.schema_arrow.names.index("rank")
        spans = [meta.row_group(g).column(column).statistics for g in range(meta.num_row_groups)]
        if not all(s is not None and s.has_min_max and not s.null_count for s in spans):
            return _File(path, ALL.min, ALL.max, meta.num_rows, meta)
        low = min((s.min for s in spans), default=ALL.min)
        high = max((s.max for s in spans), default=ALL.max)
        return _File(path, int(low), int(high), meta.num_rows, meta)
