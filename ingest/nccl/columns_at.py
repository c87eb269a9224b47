"""Compiled columns out of rows of numbers: as many bits as they need, and which are there.

Importing this module costs numba; `number_rows` is what to import. Nothing here allocates.
"""

# pyright cannot see through numba's decorators.
# pyright: reportCallIssue=false, reportGeneralTypeIssues=false

from __future__ import annotations

import numpy as np

from .bytes_at import jit
from .number_rows import NARROW, NULL, WIDE

_AT_ONCE = 512
"""Rows, a multiple of 8: their bytes stay in the processor's cache from one column to the next."""


@jit
def columns(rows, kinds, narrow, wide, valid, missing):
    """Puts each column of `rows` in the next row of `narrow` or of `wide`, as its kind says.

    Codes of texts are narrow, -1 for none; elsewhere a NULL is 0 in 32 bits and itself in 64. Bit i
    of a row of `valid` says that the column's value i is there, `missing` how many are not.
    """
    n = rows.shape[0]
    missing[:] = 0
    for start in range(0, n, _AT_ONCE):
        end = min(start + _AT_ONCE, n)
        n_narrow = 0
        n_wide = 0
        for c in range(kinds.size):
            if kinds[c] == WIDE:
                out = wide[n_wide]
                n_wide += 1
                missing[c] += _wide(rows, c, start, end, out, valid[c])
            else:
                out = narrow[n_narrow]
                n_narrow += 1
                none = np.int32(0) if kinds[c] == NARROW else np.int32(-1)
                missing[c] += _narrow(rows, c, start, end, none, out, valid[c])


@jit
def _narrow(rows, c, start, end, none, out, valid):
    missing = 0
    for base in range(start, end, 8):
        bits = 0
        for i in range(base, min(base + 8, end)):
            value = rows[i, c]
            there = value != NULL
            out[i] = np.int32(value) if there else none
            bits |= np.int64(there) << (i - base)
            missing += not there
        valid[base >> 3] = bits
    return missing


@jit
def _wide(rows, c, start, end, out, valid):
    missing = 0
    for base in range(start, end, 8):
        bits = 0
        for i in range(base, min(base + 8, end)):
            value = rows[i, c]
            there = value != NULL
            out[i] = value
            bits |= np.int64(there) << (i - base)
            missing += not there
        valid[base >> 3] = bits
    return missing


@jit
def recode(column, place, used):
    """Puts codes by order of first use in place of a column's own; how many `used` has of them.

    `place` has room for each code and is -1 throughout, before and after. -1 stays what it is.
    """
    n = 0
    for i in range(column.size):
        code = column[i]
        if code < 0:
            continue
        if place[code] < 0:
            place[code] = n
            used[n] = code
            n += 1
        column[i] = place[code]
    for i in range(n):
        place[used[i]] = -1
    return n
