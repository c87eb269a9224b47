"""Loops over a task graph's arrays that do less than re-timing it: what its memory alone costs."""

from __future__ import annotations

from typing import Any

import numba
import numpy as np

from benchmarks.suite.clock import fastest


def bare(tasks: str) -> dict[str, Any]:
    """One pass in order over gaps, durations, pointers and predecessors, ends written.

    The arrays are those of `ways.replay.loop`; no task waits for another.
    """
    from benchmarks.suite.ways.replay import random_graph

    arrays = random_graph(int(tasks))
    fastest(lambda: _pass(*arrays), 5)
    return {"rows": int(tasks)}


def count(tasks: str) -> dict[str, Any]:
    """Tasks counted in a tight loop, by their durations: one array read, nothing written."""
    from benchmarks.suite.ways.replay import random_graph

    dur = random_graph(int(tasks))[1]
    return {"rows": int(fastest(lambda: _count(dur), 5))}


def pairs(gpus: str) -> dict[str, Any]:
    """Every flow of an all-to-all looked at once: its bytes added to sender and receiver."""
    n = int(gpus)
    sent, received = np.zeros(n), np.zeros(n)
    fastest(lambda: _pairs(n, 1.0, sent, received), 1)
    return {"rows": n * (n - 1)}


@numba.njit(cache=True)
def _pass(gap, dur, pred_ptr, pred, release, end):  # pragma: no cover - compiled
    for i in range(len(dur)):
        ready = release[i]
        for e in range(pred_ptr[i], pred_ptr[i + 1]):
            ready = max(ready, pred[e])
        end[i] = ready + gap[i] + dur[i]


@numba.njit(cache=True)
def _count(dur):  # pragma: no cover - compiled
    n = 0
    for i in range(len(dur)):
        if dur[i] > 500:
            n += 1
    return n


@numba.njit(cache=True)
def _pairs(n, size, sent, received):  # pragma: no cover - compiled
    for i in range(n):
        for j in range(n):
            if i != j:
                sent[i] += size
                received[j] += size
