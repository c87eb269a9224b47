"""Numbers for equal values without sorting them all: columns of graphs have few different ones."""

from __future__ import annotations

import numba
import numpy as np


def distinct(values: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """The different values, sorted, and the place of each row's own among them (int64 [n]).

    `np.unique(values, return_inverse=True)` of an integer column [n]. Time is linear in rows where
    few values differ, as here, and never worse than a sort of the different ones.
    """
    values = np.ascontiguousarray(values, np.int64)
    found, code = _numbered(values)
    order = np.argsort(found)
    place = np.empty(len(found), np.int64)
    place[order] = np.arange(len(found))
    return found[order], place[code]


def alike(*columns: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Rows that are equal in all of some integer columns ([n] each) share a kind.

    Returns a row of each kind (int64 [kinds]) and the kind of each row (int64 [n]).
    """
    code = np.zeros(len(columns[0]), np.int64)
    kinds = 1
    for column in columns:
        # Codes of codes: at most n of each, so that their product fits.
        values, place = distinct(column)
        codes, code = distinct(code * len(values) + place)
        kinds = len(codes)
    one = np.zeros(kinds if len(code) else 0, np.int64)
    one[code[::-1]] = np.arange(len(code))[::-1]
    return one, code


@numba.njit(cache=True, nogil=True)
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
                more = np.empty(size, np.int64)
                more[:n] = found[:n]
                found = more
                for k in range(n):
                    at = _slot(found[k], size)
                    while slots[at] >= 0:
                        at = (at + 1) & (size - 1)
                    slots[at] = k
            code[i] = n - 1
        else:
            code[i] = slots[at]
    return found[:n].copy(), code


@numba.njit(cache=True, nogil=True)
def _slot(value, size):  # pragma: no cover - compiled
    """MurmurHash3's 64-bit finaliser (Appleby, public domain), shortened: all bits mix.

    Values that differ only by high powers of 2 are spread as well as those that differ by low ones.
    """
    mixed = np.uint64(value)
    mixed = (mixed ^ (mixed >> np.uint64(32))) * np.uint64(0xFF51AFD7ED558CCD)
    mixed = (mixed ^ (mixed >> np.uint64(33))) * np.uint64(0xC4CEB9FE1A85EC53)
    return np.int64(mixed >> np.uint64(32)) & (size - 1)
