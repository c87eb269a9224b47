"""Ranks of a communicator in two groups by their work: then a median is nobody's usual time."""

from __future__ import annotations

import numpy as np

from ...ingest.tasks.codes import distinct
from ..graph import TaskGraph

LEAST = 2
"""Ranks of the group with less work: one alone is no group."""

APART = 3.0
"""Groups stand apart where the gap between them is so many times what the ranks of the group with
less work differ by, and WORTH of what they take."""

WORTH = 0.02


def apart(graph: TaskGraph, arrive: np.ndarray, spent_ns: np.ndarray) -> list[str]:
    """A sentence for each communicator half of whose ranks or more have clearly more work.

    `spent_ns` (int64 [a]) is what each arrival's (`arrive`, tasks of the graph) own work took.
    """
    comm, rank = graph.comm[arrive].astype(np.int64), graph.rank[arrive].astype(np.int64)
    many = int(rank.max(initial=-1)) + 1
    pairs, place = distinct(comm * many + rank)
    mean = np.bincount(place, spent_ns) / np.bincount(place)
    out = []
    for c in np.unique(pairs // max(many, 1)).tolist():
        mine = np.flatnonzero(pairs // many == c)
        who, usual = pairs[mine] % many, mean[mine]
        order = np.argsort(usual, kind="stable")
        more = _above(usual[order])
        if more <= 0:
            continue
        late, gap = np.sort(who[order][-more:]), np.diff(usual[order])[-more]
        name = graph.comm_names[c] if graph.comm_names else str(c)
        out.append(
            f"align-arrivals: {more} of {len(who)} ranks of {name} have {gap / 1e6:.3g} ms more "
            "work before a collective than any of the others: the median, which all are aligned "
            f"with, is theirs in part; ranks={'+'.join(map(str, late.tolist()))} aligns them with "
            "the others"
        )
    return out


def _above(usual: np.ndarray) -> int:
    """How many of sorted values stand above the others: half of them or more; 0: none do."""
    n = len(usual)
    best, found = 0.0, 0
    for low in range(LEAST, n // 2 + 1):
        gap = usual[low] - usual[low - 1]
        within = usual[low - 1] - usual[0]
        if gap > max(best, APART * within, WORTH * usual[low - 1]):
            best, found = gap, n - low
    return found
