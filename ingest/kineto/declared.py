"""Declared keys, compiled: by length and both ends in a table made at import."""

# pyright cannot see through numba's decorators.
# pyright: reportCallIssue=false, reportGeneralTypeIssues=false

from __future__ import annotations

import numpy as np

from .scan_tables import KEY_BYTES, N_SLOTS, NO_FIELD
from .vectors import byte, jit, word


@jit
def field_of(buf, start, end, where, key_field, key_text, key_length, key_first, key_last):
    """The number of the declared key from start to end, -1 for other keys."""
    length = end - start
    if length <= 0 or length >= KEY_BYTES:
        return NO_FIELD
    lo = word(buf, start)
    if length < 8:
        lo &= (np.uint64(1) << np.uint64(8 * length)) - np.uint64(1)
        hi = lo
    else:
        hi = word(buf, end - 8)
    h = lo ^ (hi * np.uint64(0x9E3779B97F4A7C15)) ^ np.uint64(length * 31 + where * 7)
    h *= np.uint64(0xFF51AFD7ED558CCD)
    slot = np.int64(h >> np.uint64(56))
    tagged = length + KEY_BYTES * where
    while True:
        number = key_field[slot]
        if number < 0:
            return NO_FIELD
        if key_length[slot] == tagged and key_first[slot] == lo and key_last[slot] == hi:
            same = True
            # The 16 bytes above say all of a key that is no longer than that.
            for k in range(8, length - 8):
                if np.int64(key_text[slot, k]) != byte(buf, start + k):
                    same = False
            if same:
                return number
        slot = (slot + 1) & (N_SLOTS - 1)
