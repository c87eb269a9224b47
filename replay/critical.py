"""The critical path of each step, and what it is made of: what a faithful replay rests on.

From the end of a step back to its beginning, always to the predecessor that ended last. The path
covers the whole step, so what each kind of time has of it are shares of the step. Measured gaps
that no recorded dependency explains make any graph replay its own measurement; their share says
how much of the step the replay takes over without knowing why.
"""

from __future__ import annotations

from typing import NamedTuple

import numba
import numpy as np

from .graph import NULL, Kind, TaskGraph
from .kineto_host import GAP

WORK, HOST, TRANSFER, UNEXPLAINED = range(4)


class CriticalPath(NamedTuple):
    """Shares of the steps' critical paths, from 0 to 1; they add up to 1 (0 without a path)."""

    work_share: float
    """Measured work: kernels, copies, named host operations."""
    host_share: float
    """Host time between calls."""
    transfer_share: float
    """Communication, from the moment the last participant had arrived."""
    unexplained_share: float
    """Gaps behind the last predecessor, kept as measured."""


def critical_path(
    graph: TaskGraph, start: np.ndarray, end: np.ndarray, steps: np.ndarray
) -> CriticalPath:
    """What the critical paths of these steps are made of in a replay (start, end int64 [n], ns).

    A traced job's step is that of the rank on which it ends last, between its marks; a recorded
    job's lasts from its first start to its last end. Time before a task without predecessors
    counts as unexplained.
    """
    classes = _classes(graph)
    total = np.zeros(4, np.int64)
    for task, since in _windows(graph, start, end, steps):
        _walk(
            graph.gap_ns, graph.pred_ptr, graph.pred, start, end, classes, task, since, total
        )  # fmt: skip
    return CriticalPath(*(total / max(int(total.sum()), 1)).tolist())


def _classes(graph: TaskGraph) -> np.ndarray:
    """int8 [n]: what the duration of each task counts as."""
    out = np.full(graph.n, WORK, np.int8)
    out[np.isin(graph.kind, (Kind.TRANSFER, Kind.OTHER))] = TRANSFER
    out[(graph.kind == Kind.HOST) & graph.ops(GAP)] = HOST
    return out


def _windows(
    graph: TaskGraph, start: np.ndarray, end: np.ndarray, steps: np.ndarray
) -> list[tuple[int, int]]:
    """For each step the task at its end, and the moment it begins."""
    out = []
    if "begins" not in graph.extra:
        for step in steps:
            inside = np.flatnonzero(graph.step == step)
            out.append((int(inside[np.argmax(end[inside])]), int(start[inside].min())))
        return out
    begins, ends = graph.extra["begins"], graph.extra["ends"]
    opens, closes = np.flatnonzero(begins != NULL), np.flatnonzero(ends != NULL)
    for step in steps:
        of = closes[ends[closes] == step]
        last = int(of[np.argmax(start[of])])
        first = opens[(begins[opens] == step) & (graph.rank[opens] == graph.rank[last])]
        out.append((last, int(start[first].min())))
    return out


@numba.njit(cache=True)
def _walk(gap, pred_ptr, pred, start, end, classes, task, since, total):  # pragma: no cover
    i, now = task, end[task]
    while now > since:
        total[classes[i]] += now - max(start[i], since)
        now = start[i]
        if now <= since:
            break
        ready = now - gap[i]
        a, b = pred_ptr[i], pred_ptr[i + 1]
        if a == b:
            # Nothing led to it: the rest of the step is not explained either.
            total[3] += now - since
            break
        total[3] += now - max(ready, since)
        now = ready
        i = pred[a]
        for e in range(a + 1, b):
            if end[pred[e]] > end[i]:
                i = pred[e]
