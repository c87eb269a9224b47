"""The ideal of each operation: what it would take if all that are like it took the same.

By the straggler study (OSDI'25): the mean over workers for computations, the median for
transfers. Launch delays, which the study leaves out, go to their median here.
"""

from __future__ import annotations

import numpy as np

from ..graph import Kind, TaskGraph

WORK = (Kind.COMPUTE, Kind.COPY, Kind.HOST)


def likeness(graph: TaskGraph) -> np.ndarray:
    """int64 [n]: tasks that should take the same share a code, those of other kinds never do.

    `graph.extra["like"]` where the source of the graph knows better (a position in the step);
    else the same kind, op and size.
    """
    like = graph.extra.get("like")
    code = graph.kind.astype(np.int64)
    for column in (graph.op, graph.bytes) if like is None else (like,):
        # Codes of codes: at most n of each, so that their product fits.
        found = _ranked(column)
        code = _ranked(code * (int(found.max(initial=0)) + 1) + found)
    return code


def _ranked(values: np.ndarray) -> np.ndarray:
    """int64 [n]: 0, 1, ... by value, equal ones alike."""
    return np.unique(values, return_inverse=True)[1].reshape(-1)


def durations_ns(graph: TaskGraph) -> np.ndarray:
    """int64 [n]: ideal duration of computations and transfers; the rest keep theirs."""
    code = likeness(graph)
    work, moved = np.isin(graph.kind, WORK), graph.kind == Kind.TRANSFER
    out = graph.dur_ns.copy()
    out[work] = _mean_of_like(code[work], graph.dur_ns[work])
    out[moved] = median_of_like(code[moved], graph.dur_ns[moved])
    return out


def gaps_ns(graph: TaskGraph) -> np.ndarray:
    """int64 [n]: the median launch delay of like tasks."""
    return median_of_like(likeness(graph), graph.gap_ns)


def _mean_of_like(code: np.ndarray, values: np.ndarray) -> np.ndarray:
    if not len(code):
        return values
    n = np.bincount(code)
    return np.rint(np.bincount(code, values) / np.maximum(n, 1)).astype(np.int64)[code]


def median_of_like(code: np.ndarray, values: np.ndarray) -> np.ndarray:
    """int64 [n]: the median of the values of each row's group (halves of a ns are dropped)."""
    if not len(code):
        return values
    order = np.lexsort((values, code))
    n = np.bincount(code)
    first = np.cumsum(n) - n
    ordered = values[order]
    low, high = first + (n - 1) // 2, first + n // 2
    there = n > 0
    median = np.zeros(len(n), np.int64)
    median[there] = (ordered[low[there]] + ordered[high[there]]) // 2
    return median[code]
