"""Compiled pieces of a scan of JSON: blanks, strings, and which column a key is.

Importing this module costs numba.
"""

# pyright cannot see through numba's decorators.
# pyright: reportCallIssue=false, reportGeneralTypeIssues=false

from __future__ import annotations

import numpy as np

from .plain_columns import NAMES, SKIPPED
from .text_numbers import byte, jit, word

_KEY = np.zeros((len(NAMES), 16), np.uint8)
for _i, _n in enumerate(NAMES):
    _KEY[_i, : len(_n)] = np.frombuffer(_n.encode(), np.uint8)
_KEY_LENGTH = np.array([len(n) for n in NAMES])
_KEY_WORDS = np.array(
    [np.frombuffer((n + '"').encode().ljust(16, b"\0"), np.uint64) for n in NAMES]
)
_KEY_MASKS = np.array(
    [np.frombuffer((b"\xff" * (len(n) + 1)).ljust(16, b"\0"), np.uint64) for n in NAMES]
)


@jit
def skip_blanks(buf, p):
    while byte(buf, p) == 0x20 or byte(buf, p) == 0x09:
        p += 1
    return p


@jit
def before_blanks(buf, p):
    """Where the last byte before p is that is no blank."""
    p -= 1
    while byte(buf, p) == 0x20 or byte(buf, p) == 0x09:
        p -= 1
    return p


@jit
def key_at(buf, p, guess):
    """(column of the key whose text begins at p, where it ends), SKIPPED for another, -1 for one
    that is not plain."""
    if guess < SKIPPED:
        first = (word(buf, p) ^ _KEY_WORDS[guess, 0]) & _KEY_MASKS[guess, 0]
        second = (word(buf, p + 8) ^ _KEY_WORDS[guess, 1]) & _KEY_MASKS[guess, 1]
        if first | second == np.uint64(0):
            return guess, p + _KEY_LENGTH[guess]
    end = string_end(buf, p)
    if end < 0:
        return -1, p
    for f in range(SKIPPED):
        if _KEY_LENGTH[f] == end - p:
            i = 0
            while i < end - p and byte(buf, p + i) == _KEY[f, i]:
                i += 1
            if i == end - p:
                return f, end
    return SKIPPED, end


@jit
def string_end(buf, p):
    """Where the quote is that ends the string in which p is; -1 where it is not plain."""
    while byte(buf, p) != 0x22:
        if byte(buf, p) < 0x20 or byte(buf, p) == 0x5C or byte(buf, p) >= 0x80:
            return -1
        p += 1
    return p
