"""The replay engine: start and end of every task from gaps, durations and predecessors."""

from __future__ import annotations

import numpy as np

from ..ingest.compiled import compiled
from .graph import TaskGraph


def replay(graph: TaskGraph) -> tuple[np.ndarray, np.ndarray]:
    """Start and end of each task, int64 [n] in ns each.

    A task starts `gap_ns` after the last of its predecessors ends (without any: after its
    `release_ns`) and lasts `dur_ns`. Time is linear in tasks and edges.
    """
    start = np.empty(graph.n, np.int64)
    end = np.empty(graph.n, np.int64)
    _run(graph.gap_ns, graph.dur_ns, graph.pred_ptr, graph.pred, graph.release_ns, start, end)
    return start, end


def ends(
    gap: np.ndarray,
    dur: np.ndarray,
    pred_ptr: np.ndarray,
    pred: np.ndarray,
    release: np.ndarray,
    out: np.ndarray,
) -> None:
    """The ends of `replay` alone, written to `out` (int64 [n]): for many replays of one graph."""
    _ends(gap, dur, pred_ptr, pred, release, out)


def step_spans(
    graph: TaskGraph, start: np.ndarray, end: np.ndarray
) -> tuple[np.ndarray, np.ndarray]:
    """Steps (sorted, int64 [s]) and how long each took, last end less first start.

    `start` and `end` are [n] or [k, n]; the result's second part is [s] or [k, s], ns.
    Tasks outside every step (step -1) are left out.
    """
    steps, index = graph.steps
    rows = np.atleast_2d(start), np.atleast_2d(end)
    spans = np.empty((len(rows[0]), len(steps)), np.int64)
    for k in range(len(spans)):
        _spans(index, rows[0][k], rows[1][k], spans[k])
    return steps, spans if start.ndim == 2 else spans[0]


@compiled
def _spans(index, start, end, out):  # pragma: no cover - compiled
    first = np.full(len(out), np.iinfo(np.int64).max)
    last = np.full(len(out), np.iinfo(np.int64).min)
    for i in range(len(index)):
        s = index[i]
        if s >= 0:
            first[s] = min(first[s], start[i])
            last[s] = max(last[s], end[i])
    for s in range(len(out)):
        out[s] = last[s] - first[s]


@compiled
def _run(gap, dur, pred_ptr, pred, release, start, end):  # pragma: no cover - compiled
    for i in range(len(dur)):
        a, b = pred_ptr[i], pred_ptr[i + 1]
        ready = release[i] if a == b else end[pred[a]]
        for e in range(a + 1, b):
            ready = max(ready, end[pred[e]])
        start[i] = ready + gap[i]
        end[i] = start[i] + dur[i]


@compiled
def _ends(gap, dur, pred_ptr, pred, release, end):  # pragma: no cover - compiled
    for i in range(len(dur)):
        a, b = pred_ptr[i], pred_ptr[i + 1]
        ready = release[i] if a == b else end[pred[a]]
        for e in range(a + 1, b):
            ready = max(ready, end[pred[e]])
        end[i] = ready + gap[i] + dur[i]
