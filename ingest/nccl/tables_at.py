"""Compiled tables on one array of numbers each: codes of texts and of triples, and what is kept.

Importing this module costs numba. `tables_of_texts` makes and clears the tables. Nothing here
allocates.
"""

# pyright cannot see through numba's decorators.
# pyright: reportCallIssue=false, reportGeneralTypeIssues=false

from __future__ import annotations

import numpy as np

from .bytes_at import byte, jit, store8, word
from .tables_of_texts import ABSENT


@jit
def _mixed(h, value):
    h = (h ^ value) * np.uint64(0xFF51AFD7ED558CCD)
    return h ^ (h >> np.uint64(32))


@jit
def _hash(buf, start, end, seed):
    h = np.uint64(seed) ^ (np.uint64(end - start) * np.uint64(0x9E3779B97F4A7C15))
    p = start
    while p + 8 <= end:
        h = _mixed(h, word(buf, p))
        p += 8
    if p < end:
        tail = word(buf, p) & ((np.uint64(1) << np.uint64(8 * (end - p))) - np.uint64(1))
        h = _mixed(h, tail)
    h *= np.uint64(0xC4CEB9FE1A85EC53)
    return h ^ (h >> np.uint64(29))


@jit
def _same(buf, start, end, arena, at):
    p = start
    while p + 8 <= end:
        if word(buf, p) != word(arena, at):
            return False
        p += 8
        at += 8
    if p < end:
        mask = (np.uint64(1) << np.uint64(8 * (end - p))) - np.uint64(1)
        return (word(buf, p) & mask) == (word(arena, at) & mask)
    return True


COUNT, SEED, MOST, ARENA_BYTES = range(4)
"""A table is one array of 64-bit numbers: these four, twice MOST slots (of each the code and one
more, 0 for none: an empty table is memory that nobody has touched), then what it holds."""
_HEAD = 4

FULL = -2


@jit
def intern(buf, start, end, table):
    """The code of the bytes from start to end in a table of `Texts`, a new one if need be.

    FULL where no room is.
    """
    most = table[MOST]
    offsets = _HEAD + 2 * most
    hashes = offsets + most + 1
    arena = 8 * (hashes + most)
    h = np.int64(_hash(buf, start, end, table[SEED]))
    mask = 2 * most - 1
    i = h & mask
    while True:
        code = table[_HEAD + i] - 1
        if code < 0:
            break
        if table[hashes + code] == h:
            at = table[offsets + code]
            if table[offsets + code + 1] - at == end - start and _same(
                buf, start, end, table, arena + at
            ):
                return code
        i = (i + 1) & mask
    code = table[COUNT]
    at = table[offsets + code]
    if code >= most or at + (end - start) + 16 > table[ARENA_BYTES]:
        return FULL
    for k in range(end - start):
        store8(table, arena + at + k, byte(buf, start + k))
    table[offsets + code + 1] = at + (end - start)
    table[hashes + code] = h
    table[_HEAD + i] = code + 1
    table[COUNT] = code + 1
    return code


@jit
def ends_text(buf, low, end, code, table):
    """Where the text of a code in a table of `Texts` begins that ends before `end`, if it does.

    -1 where it does not, or would begin before `low`.
    """
    most = table[MOST]
    offsets = _HEAD + 2 * most
    at = table[offsets + code]
    start = end - (table[offsets + code + 1] - at)
    arena = 8 * (offsets + 2 * most + 1)
    if start < low or not _same(buf, start, end, table, arena + at):
        return np.int64(-1)
    return start


@jit
def _place(a, b, c, seed):
    mixed = _mixed(_mixed(_mixed(np.uint64(seed), np.uint64(a)), np.uint64(b)), np.uint64(c))
    mixed *= np.uint64(0xC4CEB9FE1A85EC53)
    return np.int64(mixed ^ (mixed >> np.uint64(29)))


@jit
def intern_numbers(a, b, c, table):
    """The code of three numbers in a table of `Triples`, a new one if need be; FULL as above."""
    most = table[MOST]
    keys = _HEAD + 2 * most
    mask = 2 * most - 1
    i = _place(a, b, c, table[SEED]) & mask
    while True:
        code = table[_HEAD + i] - 1
        if code < 0:
            break
        at = keys + 3 * code
        if table[at] == a and table[at + 1] == b and table[at + 2] == c:
            return code
        i = (i + 1) & mask
    code = table[COUNT]
    if code >= most:
        return FULL
    at = keys + 3 * code
    table[at] = a
    table[at + 1] = b
    table[at + 2] = c
    table[_HEAD + i] = code + 1
    table[COUNT] = code + 1
    return code


@jit
def find_numbers(a, b, c, table):
    """The code of three numbers in a table of `Triples`; -1 where they are not in it."""
    if table[COUNT] == 0:
        return np.int64(-1)
    most = table[MOST]
    keys = _HEAD + 2 * most
    mask = 2 * most - 1
    i = _place(a, b, c, table[SEED]) & mask
    while True:
        code = table[_HEAD + i] - 1
        if code < 0:
            return code
        at = keys + 3 * code
        if table[at] == a and table[at + 1] == b and table[at + 2] == c:
            return code
        i = (i + 1) & mask


@jit
def kept(a, b, c, tables, values):
    """What was kept for three numbers in a `Lately`; ABSENT for nothing."""
    newer = values[2, 0]
    for which in (newer, 1 - newer):
        code = find_numbers(a, b, c, tables[which])
        if code >= 0:
            return values[which, code]
    return np.int64(ABSENT)


@jit
def keep(a, b, c, value, tables, values):
    """Keeps a number (or ABSENT) for three; where the newer table is full, the older one goes."""
    newer = values[2, 0]
    code = intern_numbers(a, b, c, tables[newer])
    if code == FULL:
        newer = 1 - newer
        values[2, 0] = newer
        tables[newer, COUNT] = 0
        for i in range(2 * tables[newer, MOST]):
            tables[newer, _HEAD + i] = 0
        code = intern_numbers(a, b, c, tables[newer])
    values[newer, code] = value
