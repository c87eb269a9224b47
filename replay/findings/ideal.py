"""The ideal of each operation: what it would take if all that are like it took the same.

By the straggler study (OSDI'25): the mean over workers for computations, the median for
transfers. Launch delays, which the study leaves out, go to their median here.
"""

from __future__ import annotations

import numpy as np

from ...ingest.compiled import compiled
from ...ingest.tasks.codes import distinct
from ...ingest.tasks.sorting import select
from ..graph import Kind, TaskGraph

WORK = (Kind.COMPUTE, Kind.COPY, Kind.HOST)


def likeness(graph: TaskGraph) -> np.ndarray:
    """int64 [n]: tasks that should take the same share a code, those of other kinds never do.

    `graph.extra["like"]` where the source of the graph knows better (a position in the step);
    else the same kind, op and size.
    """
    kind = graph.kind.astype(np.int64)
    like = graph.extra.get("like")
    if like is None:
        kind = kind * (len(graph.op_names) + 1) + graph.op + 1
        like = graph.bytes
    # Codes, not sizes: so that the product fits.
    found, code = distinct(like)
    return distinct(kind * len(found) + code)[1]


def durations_ns(graph: TaskGraph) -> np.ndarray:
    """int64 [n]: ideal duration of computations and transfers; the rest keep theirs."""
    code = likeness(graph)
    work, moved = graph.is_(*WORK), graph.is_(Kind.TRANSFER)
    n = np.bincount(code, work)
    mean = np.rint(np.bincount(code, np.where(work, graph.dur_ns, 0)) / np.maximum(n, 1))
    median = medians(code, graph.dur_ns, moved, len(n))
    # Tasks of two kinds never share a code.
    usual = np.where(n > 0, mean.astype(np.int64), median)
    return np.where(work | moved, usual[code], graph.dur_ns)


def gaps_ns(graph: TaskGraph) -> np.ndarray:
    """int64 [n]: the median launch delay of like tasks."""
    return median_of_like(likeness(graph), graph.gap_ns)


def median_of_like(
    code: np.ndarray, values: np.ndarray, counts: np.ndarray | None = None
) -> np.ndarray:
    """int64 [n]: the median of the values of each row's group (halves of a ns are dropped).

    `code` is the group of each row, 0 or more; of a group only rows that `counts` (bool [n]), if
    it has such.
    """
    if not len(code):
        return values
    code, values = (np.ascontiguousarray(x, np.int64) for x in (code, values))
    if counts is None:
        counts = np.ones(len(code), bool)
    else:
        counts = counts | (np.bincount(code, counts) == 0)[code]
    return medians(code, values, counts, int(code.max()) + 1)[code]


@compiled
def medians(code, values, counts, groups):  # pragma: no cover - compiled
    """int64 [groups]: the median of the rows that count, 0 where none does."""
    first = np.zeros(groups + 1, np.int64)
    for i in range(len(code)):
        first[code[i] + 1] += counts[i]
    for g in range(groups):
        first[g + 1] += first[g]
    at = first[:-1].copy()
    grouped = np.empty(first[groups], np.int64)
    for i in range(len(values)):
        if counts[i]:
            grouped[at[code[i]]] = values[i]
            at[code[i]] += 1
    out = np.zeros(groups, np.int64)
    for g in range(groups):
        n = first[g + 1] - first[g]
        if n:
            middle = first[g] + n // 2
            high = select(grouped, first[g], first[g + 1], middle)
            if n % 2:
                out[g] = high
                continue
            low = grouped[first[g]]
            for i in range(first[g] + 1, middle):
                low = max(low, grouped[i])
            out[g] = (low + high) // 2
    return out
