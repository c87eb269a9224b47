"""Compiled reading of the choices in a router call's line: the digits of `top_indices` to an array.

Importing this module costs numba.
"""

# pyright cannot see through numba's decorators.
# pyright: reportCallIssue=false, reportGeneralTypeIssues=false

from __future__ import annotations

import re

import numpy as np

from .text_numbers import byte, integer, jit

_START = re.compile(rb'(?<!\\)"top_indices"[ \t]*:[ \t]*(?=\[)')
_KEY = b'"top_indices"'
_NUMBER = -(1 << 62)
STAND_IN = [[_NUMBER]]
"""What stands in the line for the choices that were taken out of it."""


def choices(line: bytes) -> tuple[bytes, np.ndarray] | None:
    """The line with `STAND_IN` for its choices, and these [tokens, choices]; None where they are
    not ordinary: not there just once, ragged, or anything but integers."""
    found = _START.search(line)
    if found is None or line.count(_KEY) != 1:
        return None
    # No line's end is within a line: with one behind it the scan cannot leave the bytes.
    buf = np.frombuffer(line + b"\n", np.uint8)
    ids = np.empty((len(line) - found.end()) // 2 + 1, np.int64)
    end, n, width = _rows(buf, found.end(), ids)
    if end < 0:
        return None
    rest = line[: found.end()] + b"[[%d]]" % _NUMBER + line[end:]
    return rest, ids[: n * width].reshape(n, width)


@jit
def _space(buf, p):
    while byte(buf, p) == 0x20 or byte(buf, p) == 0x09:
        p += 1
    return p


@jit
def _rows(buf, p, ids):
    """(one past the array of arrays at p, its rows, integers of each); -1 where it is none."""
    none = (-1, 0, 0)
    n = 0
    k = 0
    width = 0
    p = _space(buf, p + 1)
    while True:
        if byte(buf, p) != 0x5B:
            return none
        first = k
        while True:
            p = _space(buf, p + 1)
            start = p + 1 if byte(buf, p) == 0x2D else p
            value, p, good = integer(buf, p)
            # JSON has no zero before other digits, and what reads it knows no -0.
            zero = byte(buf, start) == 0x30
            if not good or (zero and (p - start > 1 or byte(buf, start - 1) == 0x2D)):
                return none
            ids[k] = value
            k += 1
            p = _space(buf, p)
            if byte(buf, p) != 0x2C:
                break
        if byte(buf, p) != 0x5D:
            return none
        if n == 0:
            width = k
        elif k - first != width:
            return none
        n += 1
        p = _space(buf, p + 1)
        if byte(buf, p) == 0x2C:
            p = _space(buf, p + 1)
            continue
        return (p + 1, n, width) if byte(buf, p) == 0x5D else none
