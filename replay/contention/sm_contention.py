"""Compute kernels beside communication run slower: by how much, and what that costs elsewhere.

A communication kernel holds SMs and memory bandwidth from when it is launched: also while it waits
for the others. The slow-down is that of kernels of one name and shape on one rank: the median of
those beside communication for at least half of their time over the median of those beside none,
where there are three of each; over all of them the mean, weighted by time. The view `sm_budget`
measures it so.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
import polars as pl

from ...ingest.compiled import compiled
from ...ingest.tasks.sorting import first_above, sort_rows
from ..graph import Kind, TaskGraph
from ..steps import participations

ASSUMED = 1.19
"""Where nothing compares: the mean of arXiv 2507.03114 (GEMMs of four A100, H100 and MI200)."""

LEAST_KERNELS = 3

MOST = 4.0
"""No kernel is taken to be slowed by more: beyond it names hide different shapes."""


class Beside(NamedTuple):
    """Compute tasks and participations of ranks with a device, each by rank; and the slow-down."""

    task: np.ndarray
    """int64 [k]: compute tasks, those of a rank together."""
    first: np.ndarray
    """int64 [ranks + 1]: where those of each rank begin."""
    opens: np.ndarray
    closes: np.ndarray
    """int64 [p]: the task with which a communication kernel begins and the one it ends with."""
    part_first: np.ndarray
    """The same of communication kernels."""
    slowdown: float
    words: str
    work_ns: np.ndarray
    """float64 [k]: what each would take beside no communication."""
    factor: np.ndarray
    """float64 [k]: how much longer it took."""


def recorded(graph: TaskGraph, start: np.ndarray, end: np.ndarray) -> Beside | None:
    """What communication cost computation in the unchanged replay; None without kernels or comm.

    Jobs of recorded operations have none: an operation is many kernels, some of them
    communication.
    """
    if "begins" not in graph.extra:
        return None
    task = np.flatnonzero((graph.kind == Kind.COMPUTE) & (graph.rank >= 0) & (graph.dur_ns > 0))
    arrive, transfer = participations(graph)
    if not len(task) or not len(arrive):
        return None
    n_ranks = int(graph.rank.max()) + 1
    task, first = _by_rank(graph.rank, task, n_ranks)
    order, part_first = _by_rank(graph.rank[arrive], np.arange(len(arrive)), n_ranks)
    made = Beside(
        task, first, arrive[order], transfer[order], part_first, 1.0, "", *[np.empty(0)] * 2
    )
    beside = np.empty(len(task), np.int64)
    _overlap(*_args(made, start, end), end[task], beside)
    return _taken(made, graph, start, end, beside, *fitted(graph, task, beside))


def stated(
    was: Beside, graph: TaskGraph, start: np.ndarray, end: np.ndarray, slowdown: float
) -> Beside:
    """`recorded` with another slow-down than was fitted: what ran beside communication keeps its
    time, and what comes to run beside it is slowed by this."""
    beside = np.empty(len(was.task), np.int64)
    _overlap(*_args(was, start, end), end[was.task], beside)
    words = f"computation beside communication runs {slowdown:.3g} times as long (given)"
    return _taken(was, graph, start, end, beside, slowdown, words)


def _taken(made: Beside, graph, start, end, beside_ns, slowdown: float, words: str) -> Beside:
    took = graph.dur_ns[made.task].astype(np.float64)
    work = took - (1 - 1 / slowdown) * beside_ns
    made = made._replace(slowdown=slowdown, words=words, work_ns=work)
    return made._replace(factor=factors(made, start, end, np.ones(len(work))))


def fitted(graph: TaskGraph, task: np.ndarray, beside_ns: np.ndarray) -> tuple[float, str]:
    """The slow-down of compute tasks beside communication (at least 1), and what it rests on."""
    shape = graph.extra.get("shape", np.full(graph.n, -1))
    rows = pl.DataFrame(
        {
            "rank": graph.rank[task],
            "op": graph.op[task],
            "shape": shape[task],
            "dur": graph.dur_ns[task],
            "beside": beside_ns,
        }
    )
    under, alone = 2 * pl.col("beside") >= pl.col("dur"), pl.col("beside") == 0
    groups = (
        rows.group_by("rank", "op", "shape")
        .agg(
            under=pl.col("dur").filter(under).median(),
            alone=pl.col("dur").filter(alone).median(),
            n_under=under.sum(),
            n_alone=alone.sum(),
            spent=pl.col("dur").filter(under).sum(),
        )
        .filter((pl.col("n_under") >= LEAST_KERNELS) & (pl.col("n_alone") >= LEAST_KERNELS))
    )
    if not len(groups):
        return ASSUMED, (
            f"computation beside communication runs {ASSUMED} times as long (assumed: no kernel of "
            "the job ran both beside communication and without)"
        )
    found = groups.select(
        ((pl.col("under") / pl.col("alone")) * pl.col("spent")).sum() / pl.col("spent").sum()
    ).item()
    kernels = int(groups["n_under"].sum())
    slow = min(MOST, max(1.0, float(found)))
    return slow, (
        f"computation beside communication runs {slow:.3g} times as long (of {kernels} kernels "
        "that ran beside it, against those of their name and shape that did not)"
    )


def factors(
    was: Beside,
    start: np.ndarray,
    end: np.ndarray,
    ratio: np.ndarray,
    slowdown: float | None = None,
) -> np.ndarray:
    """How much longer than beside nothing each compute task takes in a replay, float64 [k].

    `ratio` [k] is what a policy made of its time; `slowdown` what it made of the slow-down.
    """
    took = np.empty(len(was.task))
    work = was.work_ns * ratio
    _take(*_args(was, start, end), work, was.slowdown if slowdown is None else slowdown, took)
    return np.divide(took, work, out=np.ones(len(work)), where=work > 0)


def _args(was: Beside, start, end):
    return was.first, start[was.task], was.part_first, start[was.opens], end[was.closes]


def _by_rank(rank: np.ndarray, of: np.ndarray, n_ranks: int) -> tuple[np.ndarray, np.ndarray]:
    order = np.argsort(rank[of], kind="stable")
    return of[order], np.searchsorted(rank[of][order], np.arange(n_ranks + 1))


@compiled
def _busy(begin, until):  # pragma: no cover - compiled
    """The union of intervals as disjoint ones in order: how many, begins, ends, sums before."""
    order = np.arange(len(begin))
    sort_rows(order, begin, 0, len(order))
    low, high = np.empty(len(order), np.int64), np.empty(len(order), np.int64)
    n = 0
    for i in order:
        if until[i] <= begin[i]:
            continue
        if n > 0 and begin[i] <= high[n - 1]:
            high[n - 1] = max(high[n - 1], until[i])
        else:
            low[n], high[n] = begin[i], until[i]
            n += 1
    return low[:n], high[:n]


@compiled
def _overlap(first, start, part_first, begin, until, end, out):  # pragma: no cover - compiled
    for r in range(len(first) - 1):
        a, b = part_first[r], part_first[r + 1]
        low, high = _busy(begin[a:b], until[a:b])
        for i in range(first[r], first[r + 1]):
            total = 0
            k = first_above(high, 0, len(high), start[i])
            while k < len(low) and low[k] < end[i]:
                total += min(high[k], end[i]) - max(low[k], start[i])
                k += 1
            out[i] = total


@compiled
def _take(first, start, part_first, begin, until, work, slowdown, out):  # pragma: no cover
    """How long work takes that goes on at 1 / slowdown while communication is under way."""
    for r in range(len(first) - 1):
        a, b = part_first[r], part_first[r + 1]
        low, high = _busy(begin[a:b], until[a:b])
        for i in range(first[r], first[r + 1]):
            left, spent = work[i], 0.0
            at = start[i]
            k = first_above(high, 0, len(high), at)
            while left > 0:
                if k >= len(low):
                    spent += left
                    break
                free = max(0, low[k] - at)
                if left <= free:
                    spent += left
                    break
                left -= free
                spent += free
                at = max(at, low[k])
                held = high[k] - at
                if left * slowdown <= held:
                    spent += left * slowdown
                    break
                left -= held / slowdown
                spent += held
                at = high[k]
                k += 1
            out[i] = spent
