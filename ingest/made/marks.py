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
from .events import _dictionary
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
        self._known: dict[tuple[str, str], int] = {}
        self._rows = 0

    def take(self, piece: pa.Table) -> None:
        """Keeps those among these rows of `events`. Raises Odd for what is left to the view."""
        kind, kinds = _dictionary(piece["kind"])
        name, names = _dictionary(piece["name"])
        for code, its in enumerate(kinds):
            if its not in causes.MARKED_KINDS:
                continue
            what = np.append(self._what(its, names), -1)[name]
            rows = np.flatnonzero((kind == code) & (what >= 0))
            if len(rows):
                self._keep(piece.take(rows), what[rows] > 0)

    def _what(self, kind: str, names: list[str | None]) -> list[int]:
        """Of each name 1 garbage, 0 loading, -1 no mark."""
        if new := [n for n in names if n is not None and (kind, n) not in self._known]:
            loads = causes.loads_data(new)[kind].tolist()
            garbage = causes.collects_garbage(new, kind).tolist()
            for n, load, collects in zip(new, loads, garbage, strict=True):
                self._known[kind, n] = 1 if collects else 0 if load else -1
        return [-1 if n is None else self._known[kind, n] for n in names]

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
