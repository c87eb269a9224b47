"""How long each step of a job took, and what communication cost in it, in a replay."""

from __future__ import annotations

from typing import NamedTuple

import numba
import numpy as np

from .codes import distinct
from .engine import step_spans
from .graph import NULL, Kind, TaskGraph


def step_times(
    graph: TaskGraph, start: np.ndarray, end: np.ndarray
) -> tuple[np.ndarray, np.ndarray]:
    """Steps (sorted, int64 [s]) and the time each took (float64 [s], ns).

    Where the graph has marks (traced jobs: `begins` and `ends` in `extra`), a step on a rank
    lasts from the mark that begins it to the one that ends it (where the next step's work
    begins), and the job's step is the mean over ranks: the iteration time that a training loop
    prints. Else (recorded operations) it is the last end less the first start.
    """
    if "begins" not in graph.extra:
        steps, spans = step_spans(graph, start, end)
        return steps, spans.astype(np.float64)
    marks = Marks(graph)
    return marks.steps, marks.times(start[marks.tasks])


class Marks:
    """The marks of a traced job's graph, for many replays of it."""

    def __init__(self, graph: TaskGraph):
        begins, ends = graph.extra["begins"], graph.extra["ends"]
        opens, closes = np.flatnonzero(begins != NULL), np.flatnonzero(ends != NULL)
        opens = opens[np.lexsort((graph.rank[opens], begins[opens]))]
        closes = closes[np.lexsort((graph.rank[closes], ends[closes]))]
        self.steps, self._index = np.unique(begins[opens], return_inverse=True)
        """Steps, sorted, int64 [s]."""
        self.tasks, place = distinct(np.concatenate([opens, closes]))
        """The marks, sorted, int64 [k]."""
        self._opens, self._closes = place[: len(opens)], place[len(opens) :]

    def times(self, start: np.ndarray) -> np.ndarray:
        """float64 [s], ns: what each step takes where its marks start so (int64 [k])."""
        took = (start[self._closes] - start[self._opens]).astype(np.float64)
        return np.bincount(self._index, took) / np.bincount(self._index)


def within(graph: TaskGraph, step: int) -> np.ndarray:
    """bool [n]: tasks of a step; between its marks on their rank, by measured start, if it has any.

    Where there are marks the host runs ahead of the device, so that a task's own step says which
    work it is for, not when it ran.
    """
    if "begins" not in graph.extra:
        return graph.step == step
    n_ranks = int(graph.rank.max(initial=-1)) + 1
    first = np.full(n_ranks + 1, np.iinfo(np.int64).max)
    last = np.full(n_ranks + 1, np.iinfo(np.int64).min)
    opens = np.flatnonzero(graph.extra["begins"] == step)
    closes = np.flatnonzero(graph.extra["ends"] == step)
    first[graph.rank[opens]] = graph.start_ns[opens]
    last[graph.rank[closes]] = graph.start_ns[closes]
    return (graph.start_ns >= first[graph.rank]) & (graph.start_ns < last[graph.rank])


def of_steps(graph: TaskGraph, wanted: np.ndarray) -> np.ndarray:
    """bool [n]: tasks whose own step is one of those wanted."""
    numbers, place = graph.steps
    there = np.append(np.isin(numbers, wanted), False)
    return there[place]


def measured(graph: TaskGraph) -> tuple[np.ndarray, np.ndarray]:
    """`step_times` of the measurement itself."""
    if "begins" in graph.extra:
        return step_times(graph, graph.start_ns, graph.end_ns)
    known = graph.start_ns != NULL
    if known.all():
        return step_times(graph, graph.start_ns, graph.end_ns)
    return step_times(
        graph.with_(step=np.where(known, graph.step, -1)), graph.start_ns, graph.end_ns
    )


class Communication(NamedTuple):
    """What communication cost a rank in a step, means over ranks and steps, ns."""

    wait_ns: float
    transfer_ns: float
    exposed_ns: float


def communication(
    graph: TaskGraph, start: np.ndarray, end: np.ndarray, steps: np.ndarray
) -> Communication:
    """Waiting, moving bytes, and communication with no computation beside it.

    A participation waits from its arrival to the start of its transfer. Exposed is the part of
    the union of its rank's participations that no computation overlaps (on a rank without a
    device: no host segment).
    """
    inside = of_steps(graph, steps)
    arrive, transfer = participations(graph)
    keep = inside[transfer]
    arrive, transfer = arrive[keep], transfer[keep]
    ranks = len(distinct(graph.rank[inside & (graph.rank >= 0)])[0])
    per = max(1, ranks * len(steps))
    if not len(transfer):
        return Communication(0.0, 0.0, 0.0)
    on_device = graph.is_(Kind.COMPUTE, Kind.COPY)
    # The last place is that of tasks of no rank.
    bare = np.ones(int(graph.rank.max(initial=-1)) + 2, bool)
    bare[graph.rank[on_device]] = False
    bare = bare[graph.rank]
    work = np.flatnonzero((graph.kind == Kind.COMPUTE) | ((graph.kind == Kind.HOST) & bare))
    exposed = _alone(
        graph.rank[transfer], end[arrive], end[transfer], graph.rank[work], start[work], end[work]
    )
    return Communication(
        float((start[transfer] - end[arrive]).sum()) / per,
        float((end[transfer] - start[transfer]).sum()) / per,
        exposed / per,
    )


def participations(graph: TaskGraph) -> tuple[np.ndarray, np.ndarray]:
    """The arrive and the transfer task of each participation, int64 [p] each."""
    pairs = []
    for kind in (Kind.ARRIVE, Kind.TRANSFER):
        tasks = np.flatnonzero(graph.kind == kind)
        event = graph.extra.get("event_id", graph.start_ns)[tasks]
        pairs.append(tasks[np.lexsort((event, graph.rank[tasks], graph.collective[tasks]))])
    return pairs[0], pairs[1]


def _alone(rank_a, start_a, end_a, rank_b, start_b, end_b) -> float:
    """Time in the union of a's intervals and in none of b's, summed over ranks."""
    n_ranks = int(max(rank_a.max(initial=-1), rank_b.max(initial=-1))) + 1
    one = (rank_a.astype(np.int64), start_a, end_a)
    other = (rank_b.astype(np.int64), start_b, end_b)
    return float(_uncovered(n_ranks, *one, *other))


@numba.njit(cache=True, nogil=True)
def _grouped(n_ranks, rank, start, end):  # pragma: no cover - compiled
    """Intervals of each rank together, by start: where each rank's begin, starts and ends."""
    first = np.zeros(n_ranks + 1, np.int64)
    for r in rank:
        first[r + 1] += 1
    for r in range(n_ranks):
        first[r + 1] += first[r]
    at = first[:-1].copy()
    low, high = np.empty(len(rank), np.int64), np.empty(len(rank), np.int64)
    for i in range(len(rank)):
        low[at[rank[i]]], high[at[rank[i]]] = start[i], end[i]
        at[rank[i]] += 1
    for r in range(n_ranks):
        a, b = first[r], first[r + 1]
        # Tasks are in the order in which they were measured: most ranks' are sorted.
        for i in range(a + 1, b):
            if low[i] < low[i - 1]:
                order = np.argsort(low[a:b])
                low[a:b] = low[a:b][order]
                high[a:b] = high[a:b][order]
                break
    return first, low, high


@numba.njit(cache=True, nogil=True)
def _uncovered(n_ranks, rank_a, start_a, end_a, rank_b, start_b, end_b):  # pragma: no cover
    first_a, low_a, high_a = _grouped(n_ranks, rank_a, start_a, end_a)
    first_b, low_b, high_b = _grouped(n_ranks, rank_b, start_b, end_b)
    total = 0
    for r in range(n_ranks):
        i, j, stop = first_a[r], first_b[r], first_b[r + 1]
        if i == first_a[r + 1]:
            continue
        # `done`: all of a's union before it is accounted for; `until`: b's union reaches there.
        done, until = low_a[i], low_a[i]
        while i < first_a[r + 1]:
            low, high = max(low_a[i], done), high_a[i]
            i += 1
            while low < high:
                while j < stop and low_b[j] <= low:
                    until = max(until, high_b[j])
                    j += 1
                if until > low:
                    low = min(until, high)
                    continue
                free = high if j >= stop else min(high, low_b[j])
                total += free - low
                low = free
            done = max(done, high)
    return total
