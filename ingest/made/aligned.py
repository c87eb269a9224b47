"""The job's one clock: what the views `_rank_clocks` and `_step_windows` make of times."""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
import pyarrow as pa

LIMIT = 1 << 62
"""Of numbers that are added up here: what is beyond is left to SQL, which sees an overflow."""


class Odd(Exception):
    """Something that is left to the views."""


def within(values: np.ndarray) -> np.ndarray:
    """The same numbers. Raises Odd where one is not within `LIMIT`."""
    if not (values.min(initial=0) > -LIMIT and values.max(initial=0) < LIMIT):  # nor is NaN
        raise Odd
    return values


class Clock(NamedTuple):
    """A rank's clock; texts are None where the rank has none."""

    host: str | None
    offset_ns: int
    drift_ppm: float
    anchor_ns: int
    error_ns: int | None
    own: str
    name: str
    """ranks with the same one can be compared"""

    def align(self, host_ns: np.ndarray) -> np.ndarray:
        """Times on the job's clock, as the macro `_aligned_ns` rounds them.

        Raises Odd for times that are too far off.
        """
        moved = within(within(host_ns) + self.offset_ns)
        if self.drift_ppm == 0:
            return moved
        drifted = within((host_ns - self.anchor_ns) * self.drift_ppm / 1e6)
        return within(moved - rounded(drifted))


def rounded(x: np.ndarray) -> np.ndarray:
    """Whole numbers, halves away from zero, as SQL rounds."""
    whole = np.trunc(x)
    return (whole + np.copysign(np.abs(x - whole) >= 0.5, x)).astype(np.int64)


UNKNOWN = Clock(None, 0, 0.0, 0, None, "", "")
"""Of a rank that is not in `ranks`: its times stay as they are."""


def clocks(ranks: pa.Table) -> dict[int, Clock]:
    """The clock of each rank.

    Raises Odd for a rank that is there twice or is none, and for one whose clock is too far off.
    """
    rows: list[Any] = ranks.select(
        ["rank", "host", "clock", "start_ns", "end_ns", "clock_offset_ns", "clock_drift_ppm",
         "clock_error_ns"]
    ).to_pylist()  # fmt: skip
    first: dict[str, int] = {}
    last: dict[str, int] = {}
    own = []
    for r in rows:
        name = _own_clock(r)
        own.append(name)
        begin, end = r["start_ns"], r["end_ns"]
        if begin is not None:
            first[name] = min(int(begin), first.get(name, int(begin)))
        if end is not None:
            last[name] = max(int(end), last.get(name, int(end)))
    found: dict[int, Clock] = {}
    for r, name in zip(rows, own, strict=True):
        drift, error = r["clock_drift_ppm"] or 0.0, r["clock_error_ns"]
        known = name in first and name in last
        if r["rank"] is None or r["rank"] in found or (drift and not known):
            raise Odd
        anchor = 0
        if known:
            span = last[name] - first[name]
            anchor = first[name] + (span // 2 if span >= 0 else -(-span // 2))
            within(np.array([span, anchor], np.float64))
        within(np.array([r["clock_offset_ns"] or 0], np.float64))
        found[r["rank"]] = Clock(
            r["host"], r["clock_offset_ns"] or 0, drift, anchor, error, name,
            "job" if error is not None else name,
        )  # fmt: skip
    return found


def _own_clock(row: dict[str, Any]) -> str:
    host, clock = row["host"], row["clock"]
    if host is None or clock == "process":
        return f"rank {row['rank']}"
    if clock not in (None, "host", "recorded", "none"):
        return f"{clock} of host {host}"
    return f"host {host}"


def moments(ranks: pa.Table, steps: pa.Table, known: dict[int, Clock]) -> dict[int, np.ndarray]:
    """When each rank, and the host of each of its steps, begins and ends, on the job's clock."""
    found: dict[int, list[int]] = {}
    for table, names in ((ranks, ("start_ns", "end_ns")), (steps, ("host_start_ns", "start_ns"))):
        for name in names:
            for rank, at in zip(table["rank"].to_pylist(), table[name].to_pylist(), strict=True):
                if rank is not None and at is not None:
                    found.setdefault(rank, []).append(at)
    return {
        rank: known.get(rank, UNKNOWN).align(np.array(at, np.int64)) for rank, at in found.items()
    }


class Windows(NamedTuple):
    """A rank's steps on the job's clock, in order of time; the n-th has ordinal n + 1."""

    step: np.ndarray
    start_ns: np.ndarray
    end_ns: np.ndarray


def step_windows(steps: pa.Table, known: dict[int, Clock]) -> dict[int, Windows]:
    """The steps of each rank. Raises Odd for one that lacks a time or number or has no length."""
    if not len(steps):
        return {}
    columns = []
    for name in ("rank", "step", "start_ns", "end_ns"):
        if steps[name].null_count:
            raise Odd
        columns.append(steps[name].to_numpy().astype(np.int64))
    rank, step, start, end = columns
    found = {}
    order = np.lexsort((step, start, rank))
    bounds = np.flatnonzero(np.diff(rank[order])) + 1
    for rows in np.split(order, bounds):
        of = known.get(int(rank[rows[0]]), UNKNOWN)
        s, begin, finish = step[rows], of.align(start[rows]), of.align(end[rows])
        if np.any((begin[1:] == begin[:-1]) & (s[1:] <= s[:-1])):
            raise Odd
        again = np.lexsort((s, begin))  # drift may bring two starts together
        s, begin, finish = s[again], begin[again], finish[again]
        finish[:-1] = np.minimum(finish[:-1], begin[1:])
        if np.any(finish <= begin):
            raise Odd
        found[int(rank[rows[0]])] = Windows(s, begin, finish)
    return found
