"""Who started last in each collective, and what that cost the others: view `_lateness`."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from .participations import FROM_ROOT, PAIRED, TO_ROOT, Participations, by_text
from .segmented import LEAST, runs


class Lateness(NamedTuple):
    """A row a collective and clock; arrays of one length, `LEAST` null."""

    collective: np.ndarray
    clock: np.ndarray
    comm: np.ndarray
    """code, -1 null"""
    paired: np.ndarray
    last_rank: np.ndarray
    n_comparable: np.ndarray
    behind_ns: np.ndarray
    behind_median_ns: np.ndarray
    median_start_ns: np.ndarray
    clock_error_ns: np.ndarray
    sure: np.ndarray
    """1 or 0; -1 where the clock error is not known"""
    caused_ns: np.ndarray


def find(p: Participations) -> tuple[Lateness, np.ndarray]:
    """The view's rows, and for each participation the median start of its row (`LEAST` none)."""
    rooted = np.isin(p.op, [i for i, o in enumerate(p.ops) if o in (*FROM_ROOT, *TO_ROOT)])
    use = p.timed & (p.n_comparable > 1) & ~rooted & (p.collective != LEAST)
    rows = np.flatnonzero(use)
    of = runs(p.same_clock.run[rows])
    n, last = of.length, of.first + of.length - 1
    start = p.start_ns[rows]
    sorted_start = start[np.lexsort((start, of.run))]
    median = sorted_start[of.first + (n - 1) // 2] if len(rows) else start
    second = sorted_start[np.maximum(last - 1, of.first)] if len(rows) else start
    one = rows[of.order[of.first]]
    last_start, error = p.last_start_ns[one], p.clock_error_ns[one]
    others = p.decides[rows] & (p.rank[rows] != p.last_rank[rows])
    lost = np.minimum(p.last_start_ns[rows], p.end_ns[rows]) - np.maximum(start, second[of.run])
    caused = of.total(np.where(others, np.maximum(0, lost), 0))
    comm = p.comm[rows]
    most = np.iinfo(np.int64).max
    least_comm = of.least(np.where(comm < 0, most, by_text(p.comms)[comm]))
    paired = np.isin(p.op[rows], [i for i, o in enumerate(p.ops) if o in PAIRED])
    behind = last_start - second
    back = np.argsort(by_text(p.comms)[:-1])
    found = Lateness(
        p.collective[one], p.clock[one],
        np.where(least_comm == most, -1, np.append(back, -1)[np.minimum(least_comm, len(back))]),
        of.most(paired.astype(np.int64)) > 0, p.last_rank[one], p.n_comparable[one], behind,
        last_start - median, median, error,
        np.where(error == LEAST, -1, ~((behind <= error) & (error > 0))),
        np.where(of.total(others.astype(np.int64)) > 0, caused, LEAST),
    )  # fmt: skip
    by_run = np.full(len(p.same_clock.first), LEAST)
    by_run[p.same_clock.run[one]] = median
    return found, np.where(p.timed & (p.collective != LEAST), by_run[p.same_clock.run], LEAST)
