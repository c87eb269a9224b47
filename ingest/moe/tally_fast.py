"""Compiled counts of choices by expert; what is odd among them is counted too.

Importing this module costs numba: `tally_fast_code` says what of it is kept as machine code.
"""

# pyright cannot see through numba's decorators.
# pyright: reportCallIssue=false, reportGeneralTypeIssues=false

from __future__ import annotations

import numpy as np

from .text_numbers import byte, integer, jit

WITHOUT_CHOICE, MISSING, BEYOND, BAD_WEIGHTS, END = range(5)
"""Places in `told`: tokens without a choice, choices of none of tokens with others, ids beyond all
experts, weights that are no finite number, and one past the largest id met."""


@jit
def used_columns(ids, used):
    """Marks in `used` each column of `ids` [tokens, choices] in which a row has a choice; gives how
    many are marked."""
    n = 0
    for j in range(ids.shape[1]):
        n += used[j]
    for i in range(ids.shape[0]):
        if n == ids.shape[1]:
            break
        for j in range(ids.shape[1]):
            if ids[i, j] != -1 and not used[j]:
                used[j] = 1
                n += 1
    return n


@jit
def dropped(ids, used):
    """Choices of none in the columns that are `used`, of tokens that have another."""
    n = 0
    for i in range(ids.shape[0]):
        some = False
        missing = 0
        for j in range(ids.shape[1]):
            some = some or ids[i, j] != -1
            missing += ids[i, j] == -1 and used[j] != 0
        if some:
            n += missing
    return n


@jit
def count_into(ids, weights, tokens, sums, told):
    """Adds `ids` [tokens, choices] to `tokens`, and `weights` of that shape (or [0, 0] for none) to
    `sums`, both by expert, and what is odd to `told`."""
    n, k = ids.shape
    most = np.int64(-1)
    for i in range(n):
        for j in range(k):
            most = max(most, ids[i, j])
    # Not of `most + 1`, which may be one more than 64 bits hold.
    told[END] = max(told[END], min(most, tokens.size - 1) + 1)
    for i in range(n):
        good = 0
        for j in range(k):
            expert = ids[i, j]
            if 0 <= expert < tokens.size:
                tokens[expert] += 1
                good += 1
        if good < k:
            _tell(ids, i, tokens.size, told)
    if weights.shape[0] > 0:
        _weigh(ids, weights, sums, told)


@jit
def _tell(ids, i, n_experts, told):
    """Adds what is odd about the choices of a row."""
    none = 0
    for j in range(ids.shape[1]):
        if ids[i, j] == -1:
            none += 1
        elif ids[i, j] < 0 or ids[i, j] >= n_experts:
            told[BEYOND] += 1
    if none == ids.shape[1]:
        told[WITHOUT_CHOICE] += 1
    else:
        told[MISSING] += none


@jit
def _weigh(ids, weights, sums, told):
    """Adds the weights of experts that can be to `sums`."""
    for i in range(ids.shape[0]):
        for j in range(ids.shape[1]):
            if 0 <= ids[i, j] < sums.size:
                weight = weights[i, j]
                if weight - weight == 0.0:
                    sums[ids[i, j]] += weight
                else:
                    told[BAD_WEIGHTS] += 1


@jit
def count_bytes(ids, tokens):
    """Adds `ids` [tokens, choices], none of which can be -1, to `tokens` by expert."""
    for i in range(ids.shape[0]):
        for j in range(ids.shape[1]):
            tokens[ids[i, j]] += 1


@jit
def _space(buf, p):
    while byte(buf, p) == 0x20 or byte(buf, p) == 0x09:
        p += 1
    return p


@jit
def _small(buf, p, ids, k):
    """(where it stopped, integers so far) of integers of up to five digits from p on, each followed
    by a comma and at most one blank; the last, before anything else, is left."""
    while True:
        start = p
        value = byte(buf, p) - 0x30
        # No zero before other digits: JSON has none.
        if value < 0 or value > 9:
            return start, k
        p += 1
        d = byte(buf, p) - 0x30
        while 0 <= d <= 9:
            if value == 0 or p - start == 5:
                return start, k
            value = value * 10 + d
            p += 1
            d = byte(buf, p) - 0x30
        if d != 0x2C - 0x30:
            return start, k
        p += 1
        if byte(buf, p) == 0x20:
            p += 1
        ids[k] = value
        k += 1


@jit
def rows(buf, p, ids, shape):
    """One past the array of arrays of integers at p, which go to `ids`; -1 where it is none, or
    ragged. `shape` becomes its rows and the integers of each."""
    n = 0
    k = 0
    width = 0
    p = _space(buf, p + 1)
    while True:
        if byte(buf, p) != 0x5B:
            return -1
        first = k
        p = _space(buf, p + 1)
        while True:
            p, k = _small(buf, p, ids, k)
            p = _space(buf, p)
            start = p + 1 if byte(buf, p) == 0x2D else p
            value, p, good = integer(buf, p)
            # JSON has no zero before other digits, and what reads it knows no -0.
            zero = byte(buf, start) == 0x30
            if not good or (zero and (p - start > 1 or byte(buf, start - 1) == 0x2D)):
                return -1
            ids[k] = value
            k += 1
            p = _space(buf, p)
            if byte(buf, p) != 0x2C:
                break
            p = _space(buf, p + 1)
        if byte(buf, p) != 0x5D:
            return -1
        if n == 0:
            width = k
        elif k - first != width:
            return -1
        n += 1
        p = _space(buf, p + 1)
        if byte(buf, p) == 0x2C:
            p = _space(buf, p + 1)
            continue
        shape[0] = n
        shape[1] = width
        return p + 1 if byte(buf, p) == 0x5D else -1


@jit
def count_rows(buf, p, tokens, shape):
    """As `rows`, but adds each integer to `tokens` by expert; -1, too, where one is below 0, from
    the size of `tokens` on, or followed by more than a blank. `shape` becomes the rows, the
    integers of each, and one past the largest that was added, whatever is returned."""
    n = 0
    width = 0
    end = 0
    shape[2] = 0
    p = _space(buf, p + 1)
    while byte(buf, p) == 0x5B:
        k = 0
        p = _space(buf, p + 1)
        while True:
            start = p
            value = byte(buf, p) - 0x30
            if value < 0 or value > 9:
                return -1
            p += 1
            d = byte(buf, p) - 0x30
            while 0 <= d <= 9:
                # JSON has no zero before other digits.
                if value == 0 or p - start == 5:
                    return -1
                value = value * 10 + d
                p += 1
                d = byte(buf, p) - 0x30
            if value >= end:
                if value >= tokens.size:
                    return -1
                end = value + 1
                shape[2] = end
            tokens[value] += 1
            k += 1
            if d != 0x2C - 0x30:
                break
            p += 1
            if byte(buf, p) == 0x20:
                p += 1
        p = _space(buf, p)
        if byte(buf, p) != 0x5D:
            return -1
        if n == 0:
            width = k
        elif k != width:
            return -1
        n += 1
        p = _space(buf, p + 1)
        if byte(buf, p) == 0x2C:
            p = _space(buf, p + 1)
            continue
        shape[0] = n
        shape[1] = width
        return p + 1 if byte(buf, p) == 0x5D else -1
    return -1
