"""The order in which the tasks of a rank lie side by side in memory: a graph is walked faster."""

from __future__ import annotations

import numpy as np

from ..ingest.compiled import compiled
from .graph import TaskGraph


def order(graph: TaskGraph) -> np.ndarray:
    """int64 [n]: the tasks in a topological order that keeps to a rank for as long as it can.

    By how often the longest way to a task changes ranks, then by rank. The order of a graph is
    that of time, in which neighbours are of different ranks: going along one rank of many then
    reads a line of memory a task.
    """
    changes = np.zeros(graph.n, np.int64)
    _changes(graph.pred_ptr, graph.pred, graph.rank, changes)
    n_ranks = int(graph.rank.max(initial=-1)) + 2
    return np.argsort(changes * n_ranks + graph.rank + 1, kind="stable")


def edges(graph: TaskGraph, order: np.ndarray) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """`pred_ptr` and `pred` with the tasks in another topological order; and their places.

    `place[i]` (int64 [n]) is where task i has gone. Predecessors of a task stay in their order.
    """
    place = np.empty(graph.n, np.int64)
    place[order] = np.arange(graph.n)
    pred_ptr = np.zeros(graph.n + 1, np.int64)
    np.cumsum(np.diff(graph.pred_ptr)[order], out=pred_ptr[1:])
    pred = np.empty_like(graph.pred)
    _edges(graph.pred_ptr, graph.pred, order, place, pred_ptr, pred)
    return pred_ptr, pred, place


@compiled
def _changes(pred_ptr, pred, rank, changes):  # pragma: no cover - compiled
    for i in range(len(rank)):
        most = 0
        for e in range(pred_ptr[i], pred_ptr[i + 1]):
            j = pred[e]
            most = max(most, changes[j] + (1 if rank[j] != rank[i] else 0))
        changes[i] = most


@compiled
def _edges(old_ptr, old, order, place, new_ptr, new):  # pragma: no cover - compiled
    for i in range(len(order)):
        at = new_ptr[i]
        for e in range(old_ptr[order[i]], old_ptr[order[i] + 1]):
            new[at] = place[old[e]]
            at += 1
