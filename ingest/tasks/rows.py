"""Rows in order and rows found again: what building a graph does over and over, compiled."""

from __future__ import annotations

import numpy as np

from ..compiled import compiled

SLOTS = 1 << 14
"""A table of so many stays in the cache."""

MOVES_A_ROW = 8
"""Rows are nearly in order: insertion sorts them in fewer moves than this, or a whole sort does."""


def ordered(*keys: np.ndarray) -> np.ndarray:
    """int64 [n]: the rows by up to four keys (int64 [n]), the first first; equal ones as they come.

    Linear where they are nearly in this order.
    """
    n = len(keys[0])
    order = np.arange(n)
    a, b, c, d = (*keys, *(keys[-1:] * (4 - len(keys))))
    if _inserted(a, b, c, d, order, MOVES_A_ROW * n):
        return order
    return np.lexsort(keys[::-1])


def grouped(group: np.ndarray, groups: int) -> tuple[np.ndarray, np.ndarray]:
    """Rows by their group (0 to `groups` - 1), as they come in each; and where each begins.

    int64 [n] and [groups + 1]. Linear in rows.
    """
    first = np.zeros(groups + 1, np.int64)
    order = np.empty(len(group), np.int64)
    _grouped(group, first, order)
    return order, first


def first_of(
    group: np.ndarray, value: np.ndarray, for_group: np.ndarray, for_value: np.ndarray, null: int
) -> np.ndarray:
    """int64: the first row with each wanted group and value, -1 where none is or it is null."""
    # In many slots those that are not there mostly end at once; what is large is not to be larger.
    size = 64
    while size < 2 * len(group) or size < min(16 * len(group), SLOTS):
        size *= 2
    slots, out = np.full(size, -1, np.int32), np.full(len(for_group), -1, np.int64)
    _first_of(group, value, for_group, for_value, null, slots, out)
    return out


def last_at(
    first: np.ndarray, order: np.ndarray, time: np.ndarray, group: np.ndarray, until: np.ndarray
) -> np.ndarray:
    """int64: the last row of a group at or before a time; -1 where none is.

    `order` has the rows by group, then `time`; those of group g begin at `first[g]`. Groups that
    are negative have no rows.
    """
    return _last_at(first, order, time, group, until)


def by_time(first: np.ndarray, time: np.ndarray) -> np.ndarray:
    """int64 [n]: rows that lie group by group (`first`, [groups + 1]), by time in each."""
    order = np.empty(len(time), np.int64)
    for a, b in zip(first[:-1].tolist(), first[1:].tolist(), strict=True):
        order[a:b] = a + np.argsort(time[a:b], kind="stable")
    return order


@compiled
def _inserted(a, b, c, d, order, most):  # pragma: no cover - compiled
    """Sorts rows in place; False, and no order at all, where it takes too many moves."""
    moves = 0
    for k in range(1, len(order)):
        i = order[k]
        j = k
        while j > 0:
            u = order[j - 1]
            if a[u] != a[i]:
                later = a[u] > a[i]
            elif b[u] != b[i]:
                later = b[u] > b[i]
            elif c[u] != c[i]:
                later = c[u] > c[i]
            else:
                later = d[u] > d[i]
            if not later:
                break
            order[j] = u
            j -= 1
        order[j] = i
        moves += k - j
        if moves > most:
            return False
    return True


@compiled
def _grouped(group, first, order):  # pragma: no cover - compiled
    for g in group:
        first[g + 1] += 1
    for g in range(len(first) - 1):
        first[g + 1] += first[g]
    at = first[:-1].copy()
    for i in range(len(group)):
        order[at[group[i]]] = i
        at[group[i]] += 1


@compiled
def slot(group, value, size):  # pragma: no cover - compiled
    """MurmurHash3's 64-bit finaliser (Appleby, public domain), of both."""
    mixed = np.uint64(value) ^ (np.uint64(group) * np.uint64(0x9E3779B97F4A7C15))
    mixed = (mixed ^ (mixed >> np.uint64(33))) * np.uint64(0xFF51AFD7ED558CCD)
    mixed = (mixed ^ (mixed >> np.uint64(33))) * np.uint64(0xC4CEB9FE1A85EC53)
    return np.int64(mixed >> np.uint64(32)) & (size - 1)


@compiled
def _first_of(group, value, for_group, for_value, null, slots, out):  # pragma: no cover - compiled
    size = len(slots)
    for i in range(len(group)):
        if value[i] == null:
            continue
        at = slot(group[i], value[i], size)
        while slots[at] >= 0 and (value[slots[at]] != value[i] or group[slots[at]] != group[i]):
            at = (at + 1) & (size - 1)
        if slots[at] < 0:
            slots[at] = i
    for k in range(len(for_group)):
        if for_value[k] == null:
            continue
        at = slot(for_group[k], for_value[k], size)
        while slots[at] >= 0:
            i = slots[at]
            if value[i] == for_value[k] and group[i] == for_group[k]:
                out[k] = i
                break
            at = (at + 1) & (size - 1)


@compiled
def _last_at(first, order, time, group, until):  # pragma: no cover - compiled
    out = np.full(len(group), -1, np.int64)
    for k in range(len(group)):
        if group[k] < 0:
            continue
        a, b = first[group[k]], first[group[k] + 1]
        start = a
        while a < b:
            middle = (a + b) // 2
            if time[order[middle]] <= until[k]:
                a = middle + 1
            else:
                b = middle
        if a > start:
            out[k] = order[a - 1]
    return out
