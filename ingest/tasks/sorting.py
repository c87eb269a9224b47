"""What compiled functions sort, search and grow with: numba's own costs each of them a second more
of compiling."""

from __future__ import annotations

import numpy as np

from ..compiled import compiled

STEPS = 64
"""Halvings after which a selection sorts what is left: its pivots were all badly chosen."""


@compiled
def push(heap, size, value):  # pragma: no cover - compiled
    """Adds a value to a heap of `size` (its least first) that has room for it."""
    at = size
    while at > 0 and heap[(at - 1) // 2] > value:
        heap[at] = heap[(at - 1) // 2]
        at = (at - 1) // 2
    heap[at] = value


@compiled
def pop(heap, size):  # pragma: no cover - compiled
    """Takes the least value from a heap of `size` values: it has one less then."""
    least = heap[0]
    last = heap[size - 1]
    at = 0
    while True:
        child = 2 * at + 1
        if child >= size - 1:
            break
        if child + 1 < size - 1 and heap[child + 1] < heap[child]:
            child += 1
        if heap[child] >= last:
            break
        heap[at] = heap[child]
        at = child
    heap[at] = last
    return least


@compiled
def sort(values, a, b):  # pragma: no cover - compiled
    """Sorts `values[a:b]` in place."""
    for end in range(b - a, 1, -1):
        # First all are put into a heap (the greatest first), then that one goes to the end.
        begin = (end - 2) // 2 if end == b - a else 0
        for root in range(begin, -1, -1):
            _sift(values, a, root, end)
        values[a], values[a + end - 1] = values[a + end - 1], values[a]


@compiled
def _sift(values, a, root, end):  # pragma: no cover - compiled
    value = values[a + root]
    at = root
    while True:
        child = 2 * at + 1
        if child >= end:
            break
        if child + 1 < end and values[a + child + 1] > values[a + child]:
            child += 1
        if values[a + child] <= value:
            break
        values[a + at] = values[a + child]
        at = child
    values[a + at] = value


@compiled
def sort_rows(rows, key, a, b):  # pragma: no cover - compiled
    """Sorts `rows[a:b]` (row numbers) by their `key`, equal ones by their number, in place."""
    for end in range(b - a, 1, -1):
        begin = (end - 2) // 2 if end == b - a else 0
        for root in range(begin, -1, -1):
            _sift_rows(rows, key, a, root, end)
        rows[a], rows[a + end - 1] = rows[a + end - 1], rows[a]


@compiled
def _sift_rows(rows, key, a, root, end):  # pragma: no cover - compiled
    row = rows[a + root]
    at = root
    while True:
        child = 2 * at + 1
        if child >= end:
            break
        if child + 1 < end:
            u, v = rows[a + child], rows[a + child + 1]
            if key[v] > key[u] or (key[v] == key[u] and v > u):
                child += 1
        u = rows[a + child]
        if key[u] < key[row] or (key[u] == key[row] and u <= row):
            break
        rows[a + at] = u
        at = child
    rows[a + at] = row


@compiled
def select(values, a, b, k):  # pragma: no cover - compiled
    """`values[k]` as if `values[a:b]` were sorted; none before it is greater then. In place."""
    low, high = a, b - 1
    for _ in range(STEPS):
        if low >= high:
            return values[k]
        pivot = values[(low + high) // 2]
        i, j = low, high
        while i <= j:
            while values[i] < pivot:
                i += 1
            while values[j] > pivot:
                j -= 1
            if i <= j:
                values[i], values[j] = values[j], values[i]
                i += 1
                j -= 1
        if k <= j:
            high = j
        elif k >= i:
            low = i
        else:
            return values[k]
    sort(values, low, high + 1)
    return values[k]


@compiled
def first_not_below(values, a, b, value):  # pragma: no cover - compiled
    """The first place of sorted `values[a:b]` that has `value` or more, else b."""
    while a < b:
        middle = (a + b) // 2
        if values[middle] < value:
            a = middle + 1
        else:
            b = middle
    return a


@compiled
def first_above(values, a, b, value):  # pragma: no cover - compiled
    """The first place of sorted `values[a:b]` that has more than `value`, else b."""
    while a < b:
        middle = (a + b) // 2
        if values[middle] <= value:
            a = middle + 1
        else:
            b = middle
    return a


@compiled
def grown(values, n):  # pragma: no cover - compiled
    """An array [n] that begins with `values`, or with as many of them as there is room for."""
    out = np.empty(n, values.dtype)
    for i in range(min(n, len(values))):
        out[i] = values[i]
    return out


@compiled
def grown_rows(values, n):  # pragma: no cover - compiled
    """`grown` of a table [rows, columns], to n rows. One array put into another by numba's own way
    costs five seconds of compiling: what is said where their shapes differ."""
    out = np.empty((n, values.shape[1]), values.dtype)
    for i in range(min(n, len(values))):
        for k in range(values.shape[1]):
            out[i, k] = values[i, k]
    return out
