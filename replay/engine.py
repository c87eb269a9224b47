"""The replay engine: start and end of every task from gaps, durations and predecessors."""

from __future__ import annotations

import numba
import numpy as np

from .graph import TaskGraph
from .sweep import over


def replay(graph: TaskGraph) -> tuple[np.ndarray, np.ndarray]:
    """Start and end of each task, int64 [n] in ns each.

    A task starts `gap_ns` after the last of its predecessors ends (without any: after its
    `release_ns`) and lasts `dur_ns`. Time is linear in tasks and edges.
    """
    start = np.empty(graph.n, np.int64)
    end = np.empty(graph.n, np.int64)
    _run(graph.gap_ns, graph.dur_ns, graph.pred_ptr, graph.pred, graph.release_ns, start, end)
    return start, end


def replay_many(
    graph: TaskGraph, dur_ns: np.ndarray, gap_ns: np.ndarray | None = None
) -> tuple[np.ndarray, np.ndarray]:
    """`replay` of k what-ifs that share one graph: start and end, int64 [k, n] each.

    `dur_ns` and `gap_ns` are int64 [k, n]; a `gap_ns` of None or shape [n] serves all k. On all
    cores.
    """
    dur = np.ascontiguousarray(dur_ns, np.int64)
    if dur.ndim != 2 or dur.shape[1] != graph.n:
        raise ValueError(f"dur_ns has shape {dur.shape}, expected (k, {graph.n})")
    gap = graph.gap_ns if gap_ns is None else np.asarray(gap_ns, np.int64)
    gap = np.ascontiguousarray(gap)
    gaps = gap if gap.ndim == 2 else [gap] * len(dur)
    start = np.empty_like(dur)
    end = np.empty_like(dur)
    edges = graph.pred_ptr, graph.pred, graph.release_ns
    over(lambda k: _run(gaps[k], dur[k], *edges, start[k], end[k]), range(len(dur)), tasks=0)
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
    inside = graph.step >= 0
    steps, index = np.unique(graph.step[inside], return_inverse=True)
    first = _by_step(start[..., inside], index, len(steps), np.minimum)
    last = _by_step(end[..., inside], index, len(steps), np.maximum)
    return steps, last - first


def _by_step(times: np.ndarray, index: np.ndarray, n_steps: int, least: np.ufunc) -> np.ndarray:
    info = np.iinfo(np.int64)
    worst = info.max if least is np.minimum else info.min
    out = np.full((*times.shape[:-1], n_steps), worst, np.int64)
    if times.ndim == 1:
        least.at(out, index, times)
    else:
        for k in range(len(out)):
            least.at(out[k], index, times[k])
    return out


@numba.njit(cache=True, nogil=True)
def _run(gap, dur, pred_ptr, pred, release, start, end):  # pragma: no cover - compiled
    for i in range(len(dur)):
        a, b = pred_ptr[i], pred_ptr[i + 1]
        ready = release[i] if a == b else end[pred[a]]
        for e in range(a + 1, b):
            ready = max(ready, end[pred[e]])
        start[i] = ready + gap[i]
        end[i] = start[i] + dur[i]


@numba.njit(cache=True, nogil=True)
def _ends(gap, dur, pred_ptr, pred, release, end):  # pragma: no cover - compiled
    for i in range(len(dur)):
        a, b = pred_ptr[i], pred_ptr[i + 1]
        ready = release[i] if a == b else end[pred[a]]
        for e in range(a + 1, b):
            ready = max(ready, end[pred[e]])
        end[i] = ready + gap[i] + dur[i]
