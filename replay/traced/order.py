"""The order of a graph's tasks: by time, each after its predecessors. Compiled."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from ...ingest.compiled import compiled
from ...ingest.tasks.sorting import grown, pop, push, sort
from ..graph import a_cycle, lists

BITS = 11
"""Of a key that one pass of the sort looks at: its counters stay in the cache."""

MOST_TASKS = 1 << 31
"""Numbers of tasks are of 32 bits while a graph is put together."""

SHORT = 64
"""A run that is sorted by insertion."""


def by_key(feed: np.ndarray, key: np.ndarray) -> np.ndarray:
    """int32 [n]: the tasks of `feed` (int32 [n]) by their key (int64 [n], by task).

    Equal ones stay in the order of `feed`. Linear in tasks, for each 11 bits that keys span.
    """
    if not len(feed):
        return feed.copy()
    low = int(key.min())
    passes = -(-(int(key.max()) - low).bit_length() // BITS)
    return _radix(feed.copy(), key, np.int64(low), passes)


def topological(task_of: np.ndarray, ptr: np.ndarray, src: np.ndarray) -> np.ndarray:
    """Kahn's order: of the tasks that are free to go always the first of `task_of`.

    `ptr` and `src` are the predecessors of each task in CSR form. int32 [k]; k < n where a circle
    keeps tasks from being placed. The same as with a heap of all free tasks: nothing that is free
    comes before the first of `task_of` but what waited for the task placed last, and only that is
    kept in a heap.
    """
    return placed(task_of, inverse(task_of), ptr, src)


def placed(
    task_of: np.ndarray, place: np.ndarray, ptr: np.ndarray, src: np.ndarray,
    order: np.ndarray | None = None, room: Sequence[np.ndarray] = (),
) -> np.ndarray:  # fmt: skip
    """`topological`, with `place` the inverse of `task_of`; into `order` (int32 [n]) where given.

    `place` becomes, of tasks that have one in the order, the complement of that. `room` are three
    arrays (int32 [n]) to work in.
    """
    if order is None:
        order = np.empty(len(task_of), np.int32)
    edge, next_one, waiting = room or np.empty((3, len(task_of)), np.int32)
    return order[: _topological(task_of, place, ptr, src, order, edge, next_one, waiting)]


def inverse(order: np.ndarray) -> np.ndarray:
    """int32 [n]: where each task is in an order of all."""
    place = np.empty(len(order), np.int32)
    _inverse(order, place)
    return place


def in_order(order: np.ndarray, ptr: np.ndarray, src: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Predecessors (CSR, sorted, each once; int64 both) of tasks that are numbered by `order`."""
    place = inverse(order)
    pred_ptr = np.zeros(len(order) + 1, np.int64)
    pred = np.empty(len(src), np.int64)
    kept = _in_order(order, place, ptr, src, pred_ptr, pred)
    return pred_ptr, pred if kept == len(pred) else pred[:kept].copy()


def runs(task_of: np.ndarray, chosen: np.ndarray, key: np.ndarray) -> np.ndarray:
    """int64 [r, 2]: where runs of tasks of `task_of` lie that are chosen and of one key."""
    return _runs(task_of, chosen, key).reshape(-1, 2)


def settle(task_of: np.ndarray, runs: np.ndarray, then: np.ndarray, last: np.ndarray) -> None:
    """Puts the tasks of each run into the order of two further keys (by task), in place."""
    for a, b in _settle(task_of, runs, then, last).tolist():
        run = task_of[a:b]
        task_of[a:b] = run[np.lexsort((last[run], then[run]))]


def first_seen(codes: np.ndarray, n: int) -> np.ndarray:
    """int64: the codes (-1 to n - 2; -1 counts as n - 1) in the order in which they first come."""
    return _first_seen(codes, n)


def cycle(n: int, src: np.ndarray, dst: np.ndarray, placed: np.ndarray) -> list[int]:
    """One circle among the tasks that are not placed, in the direction of its edges."""
    ptr, succ = lists(n, src, dst)
    return a_cycle(n, np.repeat(np.arange(n), np.diff(ptr)), succ, placed)


@compiled
def _radix(tasks, key, low, passes):  # pragma: no cover - compiled
    n = len(tasks)
    keys, other_keys = np.empty(n, np.uint64), np.empty(n, np.uint64)
    other = np.empty(n, np.int32)
    for i in range(n):
        keys[i] = np.uint64(key[tasks[i]] - low)
    size = 1 << 11
    for p in range(passes):
        shift = np.uint64(11 * p)
        count = np.zeros(size + 1, np.int64)
        for i in range(n):
            count[((keys[i] >> shift) & np.uint64(size - 1)) + np.uint64(1)] += 1
        for d in range(size):
            count[d + 1] += count[d]
        for i in range(n):
            d = (keys[i] >> shift) & np.uint64(size - 1)
            at = count[d]
            count[d] = at + 1
            other[at] = tasks[i]
            other_keys[at] = keys[i]
        tasks, other = other, tasks
        keys, other_keys = other_keys, keys
    return tasks


@compiled
def _inverse(order, place):  # pragma: no cover - compiled
    for i in range(len(order)):
        place[order[i]] = i


@compiled
def _topological(
    task_of, place, ptr, src, order, edge, next_one, waiting
):  # pragma: no cover - compiled
    """Of a task that waits `edge` becomes which of its edges it waits at, `next_one` the next that
    waits for the same one; `waiting` of any the first that waits for it."""
    n = len(task_of)
    waiting[:] = -1
    heap = np.empty(64, np.int32)
    size = 0
    k = 0
    for p in range(n):
        t = task_of[p]
        e = ptr[t]
        stop = ptr[t + 1]
        while e < stop and place[src[e]] < 0:
            e += 1
        if e < stop:
            edge[t] = e + 1 - ptr[t]
            next_one[t] = waiting[src[e]]
            waiting[src[e]] = t
            continue
        while True:
            place[t] = ~k
            order[k] = t
            k += 1
            u = waiting[t]
            while u >= 0:
                following = next_one[u]
                e = ptr[u] + edge[u]
                stop = ptr[u + 1]
                while e < stop and place[src[e]] < 0:
                    e += 1
                if e < stop:
                    edge[u] = e + 1 - ptr[u]
                    next_one[u] = waiting[src[e]]
                    waiting[src[e]] = u
                else:
                    if size == len(heap):
                        heap = grown(heap, 2 * size)
                    push(heap, size, place[u])
                    size += 1
                u = following
            if size == 0:
                break
            t = task_of[pop(heap, size)]
            size -= 1
    return k


@compiled
def _in_order(order, place, ptr, src, pred_ptr, pred):  # pragma: no cover - compiled
    kept = 0
    for i in range(len(order)):
        t = order[i]
        since = kept
        if ptr[t + 1] - ptr[t] > SHORT:
            many = np.empty(ptr[t + 1] - ptr[t], np.int64)
            for e in range(ptr[t], ptr[t + 1]):
                many[e - ptr[t]] = place[src[e]]
            sort(many, 0, len(many))
            for value in many:
                if kept == since or pred[kept - 1] != value:
                    pred[kept] = value
                    kept += 1
            pred_ptr[i + 1] = kept
            continue
        for e in range(ptr[t], ptr[t + 1]):
            value = np.int64(place[src[e]])
            j = kept
            while j > since and pred[j - 1] > value:
                j -= 1
            if j > since and pred[j - 1] == value:
                continue
            for m in range(kept, j, -1):
                pred[m] = pred[m - 1]
            pred[j] = value
            kept += 1
        pred_ptr[i + 1] = kept
    return kept


@compiled
def _runs(task_of, chosen, key):  # pragma: no cover - compiled
    """Where runs of two or more tasks that are chosen and of one key lie, int64 [2 r]."""
    out = np.empty(128, np.int64)
    r = 0
    begun = 0
    n = len(task_of)
    last = key[task_of[0]] if n else 0
    for i in range(1, n + 1):
        value = key[task_of[i]] if i < n else 0
        if i < n and value == last and chosen[task_of[i]] == chosen[task_of[begun]]:
            continue
        if i - begun > 1 and chosen[task_of[begun]]:
            if 2 * r == len(out):
                out = grown(out, 2 * len(out))
            out[2 * r] = begun
            out[2 * r + 1] = i
            r += 1
        begun = i
        last = value
    return grown(out, 2 * r)


@compiled
def _settle(task_of, runs, then, last):  # pragma: no cover - compiled
    """Settles the short runs; gives the others, int64 [r, 2]."""
    left = np.empty_like(runs)
    n = 0
    for r in range(len(runs)):
        a, b = runs[r, 0], runs[r, 1]
        if b - a > SHORT:
            left[n, 0] = a
            left[n, 1] = b
            n += 1
            continue
        for k in range(a + 1, b):
            t = task_of[k]
            j = k
            while j > a:
                u = task_of[j - 1]
                if then[u] < then[t] or (then[u] == then[t] and last[u] <= last[t]):
                    break
                task_of[j] = u
                j -= 1
            task_of[j] = t
    return left[:n]


@compiled
def _first_seen(codes, n):  # pragma: no cover - compiled
    seen = np.zeros(n, np.bool_)
    out = np.empty(n, np.int64)
    k = 0
    for c in codes:
        at = c if c >= 0 else n - 1
        if not seen[at]:
            seen[at] = True
            out[k] = at
            k += 1
    return out[:k]
