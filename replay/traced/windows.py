"""Tasks by time, from runs that are in order each: spread over short windows, sorted in each."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any

import numpy as np

from ...ingest.compiled import compiled
from ...ingest.tasks import stored
from ...ingest.tasks.sorting import grown_rows

IN_WINDOW = 4096
"""Tasks of a window where they are evenly spread: they stay in the cache."""

SHORT = 64
"""A run of tasks that start together is sorted by insertion."""

TRANSFER, LAST, JOIN = stored.TRANSFER, stored.LAST_ACTIVITY, stored.JOIN

TIES = ("what", "dur_ns", "event_id", "op")

Ties = tuple[np.ndarray, ...]
"""What says how tasks that start together go: the place of each `what`, the columns `TIES` of
tasks (of arrivals and transfers `op` is the participation), and the rows of participations."""


def by_time(
    key: np.ndarray, ties: Ties, task_of: np.ndarray, place: np.ndarray,
    run: Callable[..., list[Any]], *others: Callable[[], Any],
) -> list[Any]:  # fmt: skip
    """Puts tasks by their keys (int64 [n], n > 0) into `task_of`, int32 [n], and the place of each
    among them into `place`.

    Equal ones go by what they are (those past the last `what` are joins), then participations by
    their row, activities by their end and event, then as they are numbered. `run` makes calls; what
    `others` give is returned.
    """
    n, low = len(key), int(key.min())
    span = int(key.max()) - low
    shift = max(0, span.bit_length() - max(1, n // IN_WINDOW).bit_length())
    first = np.zeros((span >> shift) + 2, np.int64)
    _spread(key, np.int64(low), np.int64(shift), first, task_of)

    def some(a: int, b: int) -> None:
        runs = _sort(task_of, place, first, a, b, key, np.int64(low), np.int64(shift))
        for u, v in _settle(task_of, place, runs, *ties).tolist():
            together = task_of[u:v]
            keys = np.array([_tie(t, *ties) for t in together.tolist()])
            task_of[u:v] = together[np.lexsort((together, *keys.T[::-1]))]
            place[task_of[u:v]] = np.arange(u, v)

    halfway = int(np.searchsorted(first, n // 2))
    _, *given, _ = run(partial(some, 0, halfway), *others, partial(some, halfway, len(first) - 1))
    return given


@compiled
def _spread(key, low, shift, first, task_of):  # pragma: no cover - compiled
    """Tasks by window, as they come in each; and where each window begins."""
    for k in key:
        first[((k - low) >> shift) + 1] += 1
    for w in range(len(first) - 1):
        first[w + 1] += first[w]
    at = first.copy()
    for t in range(len(key)):
        w = (key[t] - low) >> shift
        task_of[at[w]] = t
        at[w] += 1


@compiled
def _sort(task_of, place, first, a, b, key, low, shift):  # pragma: no cover - compiled
    """Sorts windows `a` to `b` by key, 8 bits at a time; gives where runs of equal ones are, int64
    [r, 2]."""
    runs = np.empty((64, 2), np.int64)
    many = 0
    most = 0
    for w in range(a, b):
        most = max(most, first[w + 1] - first[w])
    tasks, other = np.empty(most, np.int32), np.empty(most, np.int32)
    keys, other_keys = np.empty(most, np.uint64), np.empty(most, np.uint64)
    count = np.empty(257, np.int64)
    for w in range(a, b):
        begin = first[w]
        n = first[w + 1] - begin
        bits = np.uint64(0)
        for i in range(n):
            tasks[i] = task_of[begin + i]
            keys[i] = np.uint64(key[tasks[i]] - low - (np.int64(w) << shift))
            bits |= keys[i]
        down = np.uint64(0)
        while bits >> down:
            count[:] = 0
            for i in range(n):
                count[((keys[i] >> down) & np.uint64(255)) + np.uint64(1)] += 1
            for d in range(256):
                count[d + 1] += count[d]
            for i in range(n):
                d = (keys[i] >> down) & np.uint64(255)
                other[count[d]] = tasks[i]
                other_keys[count[d]] = keys[i]
                count[d] += 1
            tasks, other = other, tasks
            keys, other_keys = other_keys, keys
            down += np.uint64(8)
            if down > np.uint64(56):
                break
        for i in range(n):
            task_of[begin + i] = tasks[i]
            place[tasks[i]] = begin + i
        i = 1
        while i < n:
            if keys[i] != keys[i - 1]:
                i += 1
                continue
            if many == len(runs):
                runs = grown_rows(runs, 2 * many)
            runs[many, 0] = begin + i - 1
            while i < n and keys[i] == keys[i - 1]:
                i += 1
            runs[many, 1] = begin + i
            many += 1
    return runs[:many]


@compiled
def _tie(t, place, what, dur, event, op, row):  # pragma: no cover - compiled
    if t >= len(what):
        return JOIN, 0, 0
    w = what[t]
    if w <= TRANSFER:
        return place[w], row[op[t]], 0
    if w <= LAST:
        return place[w], dur[t], event[t]
    return place[w], 0, 0


@compiled
def _settle(task_of, at, runs, place, what, dur, event, op, row):  # pragma: no cover - compiled
    """Settles the short runs; gives the others, int64 [r, 2]."""
    left = np.empty_like(runs)
    n = 0
    for r in range(len(runs)):
        a, b = runs[r, 0], runs[r, 1]
        if b - a > SHORT:
            left[n, 0], left[n, 1] = a, b
            n += 1
            continue
        for k in range(a + 1, b):
            t = task_of[k]
            own = _tie(t, place, what, dur, event, op, row)
            j = k
            while j > a:
                u = task_of[j - 1]
                others = _tie(u, place, what, dur, event, op, row)
                if others < own or (others == own and u < t):
                    break
                task_of[j] = u
                j -= 1
            task_of[j] = t
        for k in range(a, b):
            at[task_of[k]] = k
    return left[:n]
