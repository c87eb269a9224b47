"""One step of a replayed job as each rank spends it: when it begins and ends, and what it does."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
import polars as pl

from ...replay import steps as timing
from ...replay.graph import NULL, Kind, TaskGraph
from ..report.stretches import CLASSES, merged

IDLE, COMPUTE, WITH_COMM, WAIT, TRANSFER, COPY = (
    CLASSES.index(name)
    for name in ("idle", "compute", "compute_with_comm", "exposed_wait", "exposed_transfer",
                 "exposed_memcpy")
)  # fmt: skip
"""Classes by number, as the report has them: a replay knows all waits, so none is unsplit."""


class Side(NamedTuple):
    """A step in one replay; times int64 ns from the moment at which its first rank begins it."""

    graph: TaskGraph
    start_ns: np.ndarray
    """[n]."""
    end_ns: np.ndarray
    zero_ns: int
    """That moment in the job's clock."""
    ranks: np.ndarray
    """[r]: ranks that have the step, sorted."""
    begin_ns: np.ndarray
    """[r]: when each begins it."""
    until_ns: np.ndarray
    """[r]: when each ends it."""
    step_ns: float
    """What the step takes, as `replay.steps.step_times` has it."""
    arrive: np.ndarray
    """[p]: of each participation (of all steps) the task that arrives."""
    transfer: np.ndarray
    """[p]: and the one that moves its bytes."""

    @property
    def ends_ns(self) -> int:
        """When the last rank ends the step."""
        return int(self.until_ns.max())

    def window(self, tasks: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """When the step begins and ends on the rank of each task; (0, 0) where it never does."""
        at = np.minimum(np.searchsorted(self.ranks, self.graph.rank[tasks]), len(self.ranks) - 1)
        here = self.ranks[at] == self.graph.rank[tasks]
        return np.where(here, self.begin_ns[at], 0), np.where(here, self.until_ns[at], 0)

    def begun(self) -> np.ndarray:
        """bool [n]: tasks that start within the step on their rank."""
        begin, until = self.window(np.arange(self.graph.n))
        return (self.start_ns >= begin) & (self.start_ns < until)


def of(graph: TaskGraph, start: np.ndarray, end: np.ndarray, step: int) -> Side:
    """The step of a replay whose tasks start and end then.

    A step lasts on a rank from its mark to the next (traced jobs), or from its first task to its
    last (recorded operations).
    """
    ranks, begin, until = _windows(graph, start, end, step)
    steps, times = timing.step_times(graph, start, end)
    zero = int(begin.min())
    return Side(
        graph, start - zero, end - zero, zero, ranks, begin - zero, until - zero,
        float(times[steps == step][0]), *timing.participations(graph),
    )  # fmt: skip


def _windows(graph: TaskGraph, start: np.ndarray, end: np.ndarray, step: int):
    if "begins" in graph.extra:
        opens = np.flatnonzero(graph.extra["begins"] == step)
        closes = np.flatnonzero(graph.extra["ends"] == step)
        times = start[opens], start[closes]
    else:
        opens = closes = np.flatnonzero((graph.step == step) & (graph.rank >= 0))
        times = start[opens], end[closes]
    n_ranks = int(graph.rank.max(initial=-1)) + 1
    begin = np.full(n_ranks, np.iinfo(np.int64).max)
    until = np.full(n_ranks, NULL)
    np.minimum.at(begin, graph.rank[opens], times[0])
    np.maximum.at(until, graph.rank[closes], times[1])
    ranks = np.flatnonzero(until >= begin)
    return ranks, begin[ranks], until[ranks]


def intervals(side: Side) -> dict[int, tuple[np.ndarray, np.ndarray, np.ndarray]]:
    """By class (compute, wait, transfer, copy) a task, a start and an end of all that runs.

    Where a rank has no device, its host's segments are its computation.
    """
    graph = side.graph
    on_device = np.isin(graph.kind, (Kind.COMPUTE, Kind.COPY))
    bare = ~np.isin(graph.rank, np.unique(graph.rank[on_device]))
    work = np.flatnonzero((graph.kind == Kind.COMPUTE) | ((graph.kind == Kind.HOST) & bare))
    copy = np.flatnonzero(graph.kind == Kind.COPY)
    arrived, ready = side.end_ns[side.arrive], side.start_ns[side.transfer]
    return {
        COMPUTE: (work, side.start_ns[work], side.end_ns[work]),
        WAIT: (side.transfer, arrived, ready),
        TRANSFER: (side.transfer, ready, side.end_ns[side.transfer]),
        COPY: (copy, side.start_ns[copy], side.end_ns[copy]),
    }


def stretches(side: Side) -> pl.DataFrame:
    """What each rank does in the step: `rank`, `start_ns`, `end_ns`, `class` (of CLASSES).

    Back to back from the step's begin on the rank to its end; neighbours differ in class.
    Computation is shown above communication, a transfer above a wait, both above copies.
    """
    kinds = list(intervals(side).items())
    rank, time, column, delta = [], [], [], []
    inside = (side.ranks, side.begin_ns, side.until_ns)
    for k, (of_rank, a, b) in enumerate([inside, *(_clipped(side, *v) for _, v in kinds)]):
        rank += [of_rank, of_rank]
        time += [a, b]
        column += [np.full(2 * len(a), k)]
        delta += [np.ones(len(a), np.int64), np.full(len(b), -1)]
    ranks, times = np.concatenate(rank), np.concatenate(time)
    changes = np.zeros((len(times), 1 + len(kinds)), np.int64)
    changes[np.arange(len(times)), np.concatenate(column)] = np.concatenate(delta)
    order = np.lexsort((times, ranks))
    ranks, times = ranks[order], times[order]
    # Running counts go back to 0 at the end of each rank.
    runs = np.cumsum(changes[order], 0) > 0
    within, busy = runs[:, 0], {c: runs[:, 1 + i] for i, (c, _) in enumerate(kinds)}
    comm = busy[WAIT] | busy[TRANSFER]
    kind = np.select(
        [busy[COMPUTE] & comm, busy[COMPUTE], busy[TRANSFER], busy[WAIT], busy[COPY]],
        [WITH_COMM, COMPUTE, TRANSFER, WAIT, COPY],
        IDLE,
    )
    until = np.append(times[1:], 0)
    keep = within & (until > times)
    return merged(
        pl.DataFrame(
            {
                "rank": ranks[keep].astype(np.int64),
                "start_ns": times[keep],
                "end_ns": until[keep],
                "class": kind[keep].astype(np.int8),
            }
        )
    )


def _clipped(side: Side, task: np.ndarray, start: np.ndarray, end: np.ndarray):
    """Rank, start and end of what of the intervals lies in the step."""
    begin, until = side.window(task)
    start, end = np.maximum(start, begin), np.minimum(end, until)
    keep = end > start
    return side.graph.rank[task[keep]], start[keep], end[keep]


def by_rank(rows: pl.DataFrame, ranks: np.ndarray) -> np.ndarray:
    """Time of each class on each rank, int64 [r, classes], of what `stretches` gives."""
    out = np.zeros((len(ranks), len(CLASSES)), np.int64)
    at = np.searchsorted(ranks, rows["rank"].to_numpy())
    took = (rows["end_ns"] - rows["start_ns"]).to_numpy()
    np.add.at(out, (at, rows["class"].to_numpy().astype(np.int64)), took)
    return out
