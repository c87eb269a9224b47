"""When hosts collect garbage or load data: view `_host_marks`, of large jobs."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
import pyarrow as pa

from ..matching.participations import ints
from ..schema import TABLES
from ..writer import PartWriter
from . import causes
from .aligned import UNKNOWN, Clock, Odd, within
from .events import GARBAGE, KINDS, _dictionary, coded, of_rows
from .segmented import LEAST, runs

TABLE = "_made_marks"

MOST_ROWS = 10_000_000
"""Of more marks the job is left to the view."""


class Rows(NamedTuple):
    """Marks of a rank; arrays of one length."""

    garbage: np.ndarray
    start_ns: np.ndarray
    dur_ns: np.ndarray


class Marks:
    """The marks of a job, as they are found among its events."""

    def __init__(self) -> None:
        self._of: dict[int, list[Rows]] = {}
        self._rows = 0

    def take(self, piece: pa.Table) -> None:
        """Keeps those among these rows of `events`. Raises Odd for what is left to the view."""
        kind, kinds = _dictionary(piece["kind"])
        if not set(kinds).intersection(causes.MARKED_KINDS):
            return
        at = np.array([KINDS.index(k) if k in KINDS else -1 for k in kinds] + [-1], np.int8)
        marks = of_rows(at[kind], *coded(piece["name"]))
        rows = np.flatnonzero(marks)
        if len(rows):
            self._keep(piece.take(pa.array(rows)), (marks[rows] & GARBAGE) > 0)

    def _keep(self, piece: pa.Table, garbage: np.ndarray) -> None:
        rank, start, dur = (ints(piece, c, int(LEAST)) for c in ("rank", "start_ns", "dur_ns"))
        there = dur > 0
        rank, start, dur, garbage = (c[there] for c in (rank, start, dur, garbage))
        if np.any(rank == LEAST) or np.any(start == LEAST):
            raise Odd
        within(np.abs(start.astype(np.float64)) + dur)
        self._rows += len(rank)
        if self._rows > MOST_ROWS:
            raise Odd
        by = runs(rank)
        for rows in np.split(by.order, by.first[1:]):
            if len(rows):
                found = Rows(garbage[rows], start[rows], dur[rows])
                self._of.setdefault(int(rank[rows[0]]), []).append(found)

    def write(self, writer: PartWriter, clocks: dict[int, Clock]) -> None:
        """Writes them by rank, on the job's clock."""
        for rank in sorted(self._of):
            rows = Rows(*map(np.concatenate, zip(*self._of[rank], strict=True)))
            clock = clocks.get(rank, UNKNOWN)
            columns = {
                "rank": np.full(len(rows.dur_ns), rank),
                "garbage": rows.garbage,
                "start_ns": clock.align(rows.start_ns),
                "end_ns": clock.align(rows.start_ns + rows.dur_ns),
            }
            batch = TABLES[TABLE].batch({c: pa.array(v) for c, v in columns.items()})
            writer.write(TABLE, batch)
