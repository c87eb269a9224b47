"""Gaps and spans that make the replay of an unchanged graph follow the measurement."""

from __future__ import annotations

import numpy as np

from ...ingest.compiled import compiled
from ..graph import NULL


def fill(
    pred_ptr: np.ndarray,
    pred: np.ndarray,
    start_ns: np.ndarray,
    end_ns: np.ndarray,
    release_ns: np.ndarray,
    dur_ns: np.ndarray,
    pin: np.ndarray,
) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Gaps, spans, and how much later than measured each task ends, int64 [n] each.

    Of a graph's columns; `pin` int8 [n] says for each task with a measurement what is kept. A gap
    is never negative: a task whose predecessors (as replayed) end after it started is forced later,
    and what follows it is given a smaller gap, so that an error of the clocks does not add up along
    a chain. A task that ends when it did is late by 0.
    """
    gap, late = np.zeros(len(dur_ns), np.int64), np.zeros(len(dur_ns), np.int64)
    dur = dur_ns.copy()
    _fill(pin, start_ns, end_ns, pred_ptr, pred, release_ns, gap, dur, late, int(NULL))
    return gap, dur, late


@compiled
def _fill(pin, start, end, pred_ptr, pred, release, gap, dur, late, null):  # pragma: no cover
    n = len(dur)
    ends = np.empty(n, np.int64)
    for i in range(n):
        a, b = pred_ptr[i], pred_ptr[i + 1]
        ready = release[i] if a == b else ends[pred[a]]
        for e in range(a + 1, b):
            ready = max(ready, ends[pred[e]])
        if start[i] == null:
            ends[i] = ready + dur[i]
            continue
        if pin[i] == 1:
            dur[i] = max(0, end[i] - ready)
        else:
            gap[i] = max(0, start[i] - ready)
        ends[i] = ready + gap[i] + dur[i]
        late[i] = max(0, ends[i] - end[i])
