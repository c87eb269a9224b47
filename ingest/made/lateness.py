"""Who started last in each collective, and what that cost: views `_lateness`, `late_ranks`."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from .aligned import within
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


class OfRanks(NamedTuple):
    """A row a rank that could be compared (view `late_ranks`); arrays of one length, by rank."""

    rank: np.ndarray
    host: np.ndarray
    """code in the participations' `hosts`, -1 null"""
    collectives: np.ndarray
    times_last: np.ndarray
    wait_caused_ns: np.ndarray
    wait_ns: np.ndarray
    """`LEAST` where none of its participations decides"""
    median_lateness_ns: np.ndarray
    times_within_error: np.ndarray


def of_ranks(p: Participations, late: Lateness, median: np.ndarray) -> OfRanks:
    """The view's rows, from what `find` gives. Raises Odd for times that are too far off."""
    rows = np.flatnonzero(median != LEAST)
    by = runs(p.rank[rows])
    rows = rows[by.order]
    rank = p.rank[rows][by.first]
    start = p.start_ns[rows]
    wait = np.maximum(0, np.minimum(p.ready_ns[rows], p.end_ns[rows]) - start)
    decides = p.decides[rows]

    def total(values: np.ndarray) -> np.ndarray:
        return np.add.reduceat(values, by.first) if len(rank) else values[:0]

    of = runs(late.last_rank)
    last = late.last_rank[of.order[of.first]]
    caused = np.where(late.caused_ns == LEAST, 0, late.caused_ns)
    unsure = (late.behind_ns <= late.clock_error_ns) & (late.clock_error_ns > 0)
    for values in (wait, caused):
        within(values.astype(np.float64).sum(keepdims=True))
    at = np.minimum(np.searchsorted(last, rank), max(len(last) - 1, 0))
    there = last[at] == rank if len(last) else np.zeros(len(rank), bool)

    def blamed(values: np.ndarray) -> np.ndarray:
        return np.where(there, values[at], 0) if len(last) else np.zeros(len(rank), np.int64)

    return OfRanks(
        rank, p.host[rows][by.first], by.length, blamed(of.length), blamed(of.total(caused)),
        np.where(total(decides.astype(np.int64)) > 0, total(np.where(decides, wait, 0)), LEAST),
        _middles(start - median[rows], by.first), blamed(of.total(unsure.astype(np.int64))),
    )  # fmt: skip


def _middles(values: np.ndarray, first: np.ndarray) -> np.ndarray:
    """The lower median of each run of values, of which the first begins at 0."""
    found = []
    for its in np.split(values, first[1:]) if len(first) else ():
        middle = (len(its) - 1) // 2
        found.append(np.partition(its, middle)[middle])
    return np.array(found, np.int64)
