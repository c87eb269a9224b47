"""What communication costs a rank in a step of a replay: waits, transfers, what nothing hides."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from ..ingest.compiled import compiled
from ..ingest.tasks.codes import distinct
from ..ingest.tasks.sorting import sort_rows
from .graph import Kind, TaskGraph
from .steps import of_steps, participations

ROOM = 7
"""Times of one rank's tasks that are held at once: begins and ends of both sides, and a sort's."""


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
    # Room for one rank: what is as long as the graph comes new from the system every time.
    longest = max(int(np.diff(first).max(initial=0)) for first in (looked.first, looked.first_work))
    exposed = _exposed(
        start, end, looked.arrive, looked.transfer, looked.first, looked.work, looked.first_work,
        np.empty((ROOM, longest), np.int64),
    )  # fmt: skip
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
def _exposed(
    start, end, arrive, transfer, first, work, first_work, room
):  # pragma: no cover - compiled
    """Time in the union of participations and in none of the work, rank by rank, summed.

    `room` is int64 [ROOM, tasks of a rank].
    """
    low_a, high_a, low_b, high_b = room[0], room[1], room[2], room[3]
    total = 0
    for r in range(len(first) - 1):
        a, b = first[r], first[r + 1]
        if a == b:
            continue
        _times(a, b, arrive, end, transfer, end, low_a, high_a, room)
        c, d = first_work[r], first_work[r + 1]
        _times(c, d, work, start, work, end, low_b, high_b, room)
        total += _uncovered(b - a, low_a, high_a, d - c, low_b, high_b)
    return total


@compiled
def _times(a, b, low_task, low_of, high_task, high_of, low, high, room):  # pragma: no cover
    """Intervals of a rank's tasks, `a` to `b`, by start: where they begin and end."""
    n, in_order = b - a, True
    for i in range(n):
        low[i], high[i] = low_of[low_task[a + i]], high_of[high_task[a + i]]
        if i and low[i] < low[i - 1]:
            in_order = False
    if in_order:
        return
    rows, lows, highs = room[4], room[5], room[6]
    for i in range(n):
        rows[i], lows[i], highs[i] = i, low[i], high[i]
    sort_rows(rows, lows, 0, n)
    for i in range(n):
        low[i], high[i] = lows[rows[i]], highs[rows[i]]


@compiled
def _uncovered(n_a, low_a, high_a, n_b, low_b, high_b):  # pragma: no cover - compiled
    """Time in the union of a's first intervals and in none of b's first ones, both by start."""
    total, j = 0, 0
    # `done`: all of a's union before it is accounted for; `until`: b's union reaches there.
    done, until = low_a[0], low_a[0]
    for i in range(n_a):
        low, high = max(low_a[i], done), high_a[i]
        while low < high:
            while j < n_b and low_b[j] <= low:
                until = max(until, high_b[j])
                j += 1
            if until > low:
                low = min(until, high)
                continue
            free = high if j >= n_b else min(high, low_b[j])
            total += free - low
            low = free
        done = max(done, high)
    return total
