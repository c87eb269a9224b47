"""Strings as codes, compiled: each distinct text once in an arena, found by its hash."""

# pyright cannot see through numba's decorators.
# pyright: reportCallIssue=false, reportGeneralTypeIssues=false

from __future__ import annotations

import numpy as np

from .scan_tables import N_SYMBOLS, SEED
from .vectors import called, jit, word

NO_ROOM = -2
"""For a code: the tables are to be made larger first."""


@jit
def _hash(buf, start, end, seed):
    h = np.uint64(seed) ^ (np.uint64(end - start) * np.uint64(0x9E3779B97F4A7C15))
    p = start
    while p + 8 <= end:
        h = (h ^ word(buf, p)) * np.uint64(0xFF51AFD7ED558CCD)
        h ^= h >> np.uint64(32)
        p += 8
    if p < end:
        last = word(buf, p) & ((np.uint64(1) << np.uint64(8 * (end - p))) - np.uint64(1))
        h = (h ^ last) * np.uint64(0xFF51AFD7ED558CCD)
        h ^= h >> np.uint64(32)
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


@jit
def intern(buf, start, end, guess, state, slots, offsets, hashes, arena):
    """The code of the bytes from start to end, a new one if need be; NO_ROOM where there is none.

    `guess` is a code that it may well be, or -1.
    """
    if guess >= 0:
        at = offsets[guess]
        if offsets[guess + 1] - at == end - start and _same(buf, start, end, arena, at):
            return guess
    h = _hash(buf, start, end, state[SEED])
    mask = slots.size - 1
    i = np.int64(h & np.uint64(mask))
    while True:
        code = np.int64(slots[i])
        if code < 0:
            break
        if hashes[code] == h:
            at = offsets[code]
            if offsets[code + 1] - at == end - start and _same(buf, start, end, arena, at):
                return code
        i = (i + 1) & mask
    code = state[N_SYMBOLS]
    at = offsets[code]
    if code + 2 > offsets.size - 1 or 2 * (code + 1) > slots.size:
        return NO_ROOM
    if at + (end - start) + 16 > arena.size:
        return NO_ROOM
    for k in range(end - start):
        arena[at + k] = buf[start + k]
    offsets[code + 1] = at + (end - start)
    hashes[code] = h
    slots[i] = code
    state[N_SYMBOLS] = code + 1
    return code


@called
def rebuild_slots(slots, hashes, count):
    """Enters the first `count` hashes into empty `slots` (a power of two of them)."""
    mask = slots.size - 1
    for code in range(count):
        i = np.int64(hashes[code] & np.uint64(mask))
        while slots[i] >= 0:
            i = (i + 1) & mask
        slots[i] = code
