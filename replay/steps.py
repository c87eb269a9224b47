"""How long each step of a job took, and what communication cost in it, in a replay."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

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
    begins, ends = graph.extra["begins"], graph.extra["ends"]
    opens, closes = np.flatnonzero(begins != NULL), np.flatnonzero(ends != NULL)
    opens = opens[np.lexsort((graph.rank[opens], begins[opens]))]
    closes = closes[np.lexsort((graph.rank[closes], ends[closes]))]
    steps, index = np.unique(begins[opens], return_inverse=True)
    took = (start[closes] - start[opens]).astype(np.float64)
    return steps, np.bincount(index, took) / np.bincount(index)


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


def measured(graph: TaskGraph) -> tuple[np.ndarray, np.ndarray]:
    """`step_times` of the measurement itself."""
    if "begins" in graph.extra:
        return step_times(graph, graph.start_ns, graph.end_ns)
    known = graph.start_ns != NULL
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
    inside = np.isin(graph.step, steps)
    arrive, transfer = participations(graph)
    keep = inside[transfer]
    arrive, transfer = arrive[keep], transfer[keep]
    ranks = len(np.unique(graph.rank[inside & (graph.rank >= 0)]))
    per = max(1, ranks * len(steps))
    if not len(transfer):
        return Communication(0.0, 0.0, 0.0)
    on_device = np.isin(graph.kind, (Kind.COMPUTE, Kind.COPY))
    bare = ~np.isin(graph.rank, np.unique(graph.rank[on_device]))
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
    time = np.concatenate([start_a, end_a, start_b, end_b])
    rank = np.concatenate([rank_a, rank_a, rank_b, rank_b])
    a, b = len(rank_a), len(rank_b)
    in_a = np.concatenate([np.ones(a), -np.ones(a), np.zeros(2 * b)])
    in_b = np.concatenate([np.zeros(2 * a), np.ones(b), -np.ones(b)])
    order = np.lexsort((time, rank))
    time, rank = time[order], rank[order]
    open_a, open_b = np.cumsum(in_a[order]), np.cumsum(in_b[order])
    # Every interval ends on its rank, so nothing is open between two ranks.
    lasts = np.diff(time, append=time[-1:])
    return float(lasts[(open_a > 0) & (open_b <= 0)].sum())
