"""What communication costs a rank in a step of a replay: waits, transfers, what nothing hides."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from ..ingest.compiled import compiled
from ..ingest.tasks.codes import distinct
from ..ingest.tasks.sorting import sort_rows
from .graph import Kind, TaskGraph
from .steps import of_steps, participations


class Communication(NamedTuple):
    """What communication cost a rank in a step, means over ranks and steps, ns."""

    wait_ns: float
    transfer_ns: float
    exposed_ns: float


class _Looked(NamedTuple):
    """The tasks that tell it, whatever their times, rank by rank; int64 all."""

    steps: bytes
    """Of which steps."""
    shares: int
    """Ranks times steps."""
    arrive: np.ndarray
    """By participation [p], as is `transfer`."""
    transfer: np.ndarray
    first: np.ndarray
    """[ranks + 1]: where those of each rank begin."""
    work: np.ndarray
    """Work that hides what runs beside it, [w]."""
    first_work: np.ndarray
    """[ranks + 1]"""


def communication(
    graph: TaskGraph, start: np.ndarray, end: np.ndarray, steps: np.ndarray
) -> Communication:
    """Waiting, moving bytes, and communication with no computation beside it.

    A participation waits from its arrival to the start of its transfer. Exposed is the part of
    the union of its rank's participations that no computation overlaps (on a rank without a
    device: no host segment).
    """
    looked = graph.shared.get("spending")
    if looked is None or looked.steps != steps.tobytes():
        looked = graph.shared["spending"] = _looked(graph, steps)
    if not len(looked.transfer):
        return Communication(0.0, 0.0, 0.0)
    parts = _times(looked.first, looked.arrive, end, looked.transfer, end)
    work = _times(looked.first_work, looked.work, start, looked.work, end)
    exposed = _uncovered(looked.first, *parts, looked.first_work, *work)
    began = start[looked.transfer]
    return Communication(
        float((began - end[looked.arrive]).sum()) / looked.shares,
        float((end[looked.transfer] - began).sum()) / looked.shares,
        float(exposed) / looked.shares,
    )


def _looked(graph: TaskGraph, steps: np.ndarray) -> _Looked:
    inside = of_steps(graph, steps)
    arrive, transfer = participations(graph)
    keep = inside[transfer]
    arrive, transfer = arrive[keep], transfer[keep]
    ranks = len(distinct(graph.rank[inside & (graph.rank >= 0)])[0])
    on_device = graph.is_(Kind.COMPUTE, Kind.COPY)
    # The last place is that of tasks of no rank.
    bare = np.ones(int(graph.rank.max(initial=-1)) + 2, bool)
    bare[graph.rank[on_device]] = False
    work = np.flatnonzero(
        (graph.kind == Kind.COMPUTE) | ((graph.kind == Kind.HOST) & bare[graph.rank])
    )
    # Tasks are in the order in which they were measured: most ranks' are sorted by time.
    order = np.lexsort((transfer, graph.rank[transfer]))
    arrive, transfer = arrive[order], transfer[order]
    work = work[np.argsort(graph.rank[work], kind="stable")]
    each = np.arange(len(bare))
    return _Looked(
        steps.tobytes(),
        max(1, ranks * len(steps)),
        arrive,
        transfer,
        np.searchsorted(graph.rank[transfer], each),
        work,
        np.searchsorted(graph.rank[work], each),
    )


@compiled
def _times(first, low_task, low_of, high_task, high_of):  # pragma: no cover - compiled
    """Intervals of tasks rank by rank, by start: where they begin and end."""
    low, high = np.empty(len(low_task), np.int64), np.empty(len(low_task), np.int64)
    rows = other = low[:0]
    for r in range(len(first) - 1):
        a, b = first[r], first[r + 1]
        sorted_so_far = True
        for i in range(a, b):
            low[i], high[i] = low_of[low_task[i]], high_of[high_task[i]]
            if i > a and low[i] < low[i - 1]:
                sorted_so_far = False
        if not sorted_so_far:
            if not len(rows):
                rows, other = np.empty_like(low), np.empty_like(low)
            for i in range(a, b):
                rows[i] = i
            sort_rows(rows, low, a, b)
            for i in range(a, b):
                other[i] = low[rows[i]]
            for i in range(a, b):
                low[i] = other[i]
                other[i] = high[rows[i]]
            for i in range(a, b):
                high[i] = other[i]
    return low, high


@compiled
def _uncovered(first_a, low_a, high_a, first_b, low_b, high_b):  # pragma: no cover - compiled
    """Time in the union of a's intervals and in none of b's, summed over ranks."""
    total = 0
    for r in range(len(first_a) - 1):
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
