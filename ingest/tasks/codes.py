"""Numbers for equal values without sorting them all: columns of graphs have few different ones."""

from __future__ import annotations

import numpy as np

from ..compiled import compiled
from .sorting import grown

NARROW = 1 << 12
"""Values that span no more than this, or than there are rows, are counted in a table."""

WIDE = 1 << 20
"""Columns that span more are told apart by the codes of their values."""

MOST = 1 << 62
"""A code of several columns is less than this."""


def distinct(values: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """The different values, sorted, and the place of each row's own among them (int64 [n]).

    `np.unique(values, return_inverse=True)` of an integer column [n]. Time is linear in rows where
    few values differ, as here, and never worse than a sort of the different ones.
    """
    values = np.ascontiguousarray(values, np.int64)
    if len(values):
        low, span = int(values.min()), int(values.max()) - int(values.min()) + 1
        if span <= max(NARROW, len(values)):
            return _by_table(values, low, span)
    if not values.flags.writeable:
        # Of another type to the compiler: one more function that it would compile.
        values = values.copy()
    found, code = _numbered(values)
    order = np.argsort(found)
    place = np.empty(len(found), np.int64)
    place[order] = np.arange(len(found))
    _placed(place, code)
    return found[order], code


def alike(*columns: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Rows that are equal in all of some integer columns ([n] each) share a kind.

    Returns a row of each kind (int64 [kinds]) and the kind of each row (int64 [n]).
    """
    code = np.zeros(len(columns[0]), np.int64)
    if not len(code):
        return code, code
    kinds = 1
    for column in columns:
        place = np.ascontiguousarray(column, np.int64)
        low = int(place.min())
        many = int(place.max()) - low + 1
        if many > WIDE:
            found, place = distinct(place)
            low, many = 0, len(found)
        if many < 2:
            continue
        if kinds * many >= MOST:
            # Codes of codes: at most n of each, so that their product fits.
            found, code = distinct(code)
            kinds = len(found)
        _paired(code, many, place, low)
        kinds *= many
    codes, code = distinct(code)
    one = np.zeros(len(codes), np.int64)
    _first_rows(code, one)
    return one, code


@compiled
def _by_table(values, low, span):  # pragma: no cover - compiled
    """`distinct` of values from `low` to `low + span - 1`."""
    place = np.zeros(span, np.int64)
    for v in values:
        place[v - low] = 1
    n = 0
    for s in range(span):
        if place[s]:
            place[s] = n
            n += 1
        else:
            place[s] = -1
    found = np.empty(n, np.int64)
    for s in range(span):
        if place[s] >= 0:
            found[place[s]] = low + s
    code = np.empty(len(values), np.int64)
    for i in range(len(values)):
        code[i] = place[values[i] - low]
    return found, code


@compiled
def _paired(code, many, place, low):  # pragma: no cover - compiled
    """Two codes as one, in place of the first; the second counts from `low`."""
    for i in range(len(code)):
        code[i] = code[i] * many + (place[i] - low)


@compiled
def _first_rows(code, one):  # pragma: no cover - compiled
    for i in range(len(code) - 1, -1, -1):
        one[code[i]] = i


@compiled
def _numbered(values):  # pragma: no cover - compiled
    """Values in the order in which they first appear, and each row's place among these."""
    size = 64
    slots = np.full(size, -1, np.int64)
    found = np.empty(size, np.int64)
    code = np.empty(len(values), np.int64)
    n = 0
    for i in range(len(values)):
        value = values[i]
        if i and value == values[i - 1]:
            code[i] = code[i - 1]
            continue
        at = _slot(value, size)
        while slots[at] >= 0 and found[slots[at]] != value:
            at = (at + 1) & (size - 1)
        if slots[at] < 0:
            slots[at] = n
            found[n] = value
            n += 1
            if 2 * n > size:
                # Twice the slots, and everything found so far put into them.
                size *= 2
                slots = np.full(size, -1, np.int64)
                found = grown(found, size)
                for k in range(n):
                    at = _slot(found[k], size)
                    while slots[at] >= 0:
                        at = (at + 1) & (size - 1)
                    slots[at] = k
            code[i] = n - 1
        else:
            code[i] = slots[at]
    return grown(found, n), code


@compiled
def _placed(place, code):  # pragma: no cover - compiled
    """Codes by their places, in place."""
    for i in range(len(code)):
        code[i] = place[code[i]]


@compiled
def _slot(value, size):  # pragma: no cover - compiled
    """MurmurHash3's 64-bit finaliser (Appleby, public domain), shortened: all bits mix.

    Values that differ only by high powers of 2 are spread as well as those that differ by low ones.
    """
    mixed = np.uint64(value)
    mixed = (mixed ^ (mixed >> np.uint64(32))) * np.uint64(0xFF51AFD7ED558CCD)
    mixed = (mixed ^ (mixed >> np.uint64(33))) * np.uint64(0xC4CEB9FE1A85EC53)
    return np.int64(mixed >> np.uint64(32)) & (size - 1)
