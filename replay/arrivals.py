"""What each arrival at a collective waited for on its own rank: the chain that made it late."""

from __future__ import annotations

import numba
import numpy as np

from .graph import TaskGraph
from .steps import participations


def waited_for(graph: TaskGraph, end: np.ndarray, arrive: np.ndarray) -> np.ndarray:
    """For each task the arrival (position in `arrive`) that waited for it, -1 for none; int64 [n].

    Back from each arrival to the task of its rank that ended last, past other collectives (from a
    transfer to the rank's own arrival), until the rank's arrival before it. Work beside that chain
    (a host that runs ahead of its device, another stream) delayed nobody. `end` is that of a
    replay, int64 [n] in ns. Where steps do not depend on each other, each is looked at by itself.
    """
    out = np.full(graph.n, -1, np.int64)
    owner = np.repeat(np.arange(graph.n), np.diff(graph.pred_ptr))
    chained = bool((graph.step[graph.pred] != graph.step[owner]).any())
    step = np.zeros(len(arrive), np.int64) if chained else graph.step[arrive]
    order = np.lexsort((end[arrive], step, graph.rank[arrive]))
    same = graph.rank[arrive[order[1:]]] == graph.rank[arrive[order[:-1]]]
    same &= step[order[1:]] == step[order[:-1]]
    since = np.full(len(arrive), np.iinfo(np.int64).min)
    since[order[1:][same]] = end[arrive[order[:-1][same]]]
    own = np.full(graph.n, -1, np.int64)
    arrivals, transfers = participations(graph)
    own[transfers] = arrivals
    _walk(graph.pred_ptr, graph.pred, graph.rank, own, end, arrive, since, out)
    return out


@numba.njit(cache=True)
def _walk(pred_ptr, pred, rank, own, end, arrive, since, out):  # pragma: no cover - compiled
    for k in range(len(arrive)):
        i = arrive[k]
        while i >= 0:
            out[i] = k
            last = own[i]
            if last < 0:
                for e in range(pred_ptr[i], pred_ptr[i + 1]):
                    j = pred[e]
                    if rank[j] == rank[i] and (last < 0 or end[j] > end[last]):
                        last = j
            i = last if last >= 0 and end[last] > since[k] else -1
