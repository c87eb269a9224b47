"""Compiled scan of the plain form's lines of JSON into columns of a chunk of rows.

Importing this module costs numba. What a line begins with as the line before did is not read again:
in a log of tokens that is all but the token's number and its experts. Where a line holds anything
but the ordinary (escapes, a value of another type) the scan says so, and the forgiving reader of
`plain_read` gets the block.
"""

# pyright cannot see through numba's decorators.
# pyright: reportCallIssue=false, reportGeneralTypeIssues=false

from __future__ import annotations

import numpy as np

from .plain_columns import (
    EXPERTS,
    MOST_FIELDS,
    N_INTEGERS,
    NULL,
    SKIPPED,
    STATE,
    SUM,
    WEIGHTS,
)
from .plain_keys import before_blanks, key_at, skip_blanks, string_end
from .plain_words import is_word, small_ids, word_code
from .text_numbers import byte, decimal, integer, jit, trailing_zeros, word

_AT, _N_WORDS = STATE.at, STATE.n_words

_NULL = np.frombuffer(b"null", np.uint8)


@jit
def _json_integer(buf, p):
    """As `integer`, of a number that JSON allows."""
    first = p + 1 if byte(buf, p) == 0x2D else p
    value, end, good = integer(buf, p)
    if good and byte(buf, first) == 0x30 and (end - first > 1 or first > p):
        good = False
    return value, end, good


@jit
def _alike(buf, p, q, begins, most):
    """The last of the keys 0 to `most` that all before it is alike for, in lines from p and q on;
    `begins` says where in its line each is."""
    same = 0
    end = begins[most]
    while same < end:
        differing = word(buf, p + same) ^ word(buf, q + same)
        if differing != np.uint64(0):
            same += trailing_zeros(differing) >> 3
            break
        same += 8
    at = most
    while at > 0 and begins[at] > same:
        at -= 1
    return at


@jit
def _clear(f, first, last, integers, texts, sums):
    """Makes rows of a column null."""
    for row in range(first, last):
        if f < N_INTEGERS:
            integers[f, row] = NULL
        elif f < SUM:
            texts[f - N_INTEGERS, row] = -1
        else:
            sums[row] = np.nan


@jit
def _repeat(f, row, integers, texts, sums):
    """Gives a row the value of the row before."""
    if f < N_INTEGERS:
        integers[f, row] = integers[f, row - 1]
    elif f < SUM:
        texts[f - N_INTEGERS, row] = texts[f - N_INTEGERS, row - 1]
    else:
        sums[row] = sums[row - 1]


@jit
def _list(buf, p, f, k, ids, weights):
    """(one past the value of `experts` or `weights` at p, elements in all); -1 where it is not
    plain. `k` are the elements before it."""
    several = byte(buf, p) == 0x5B
    good = True
    if several:
        p = skip_blanks(buf, p + 1)
        if f == EXPERTS:
            p, k = small_ids(buf, p, ids, k, 0x2C, 0x5D)
            p = skip_blanks(buf, p)
            if byte(buf, p) == 0x5D and byte(buf, before_blanks(buf, p)) == 0x2C:
                return -1, k
    while not (several and byte(buf, p) == 0x5D):
        if f == EXPERTS:
            value, p, good = _json_integer(buf, p)
            ids[k] = value
        else:
            number, p, good = decimal(buf, p, True)
            weights[k] = number
        k += 1
        if not (good and several):
            break
        p = skip_blanks(buf, p)
        if byte(buf, p) == 0x2C:
            p = skip_blanks(buf, p + 1)
            if byte(buf, p) == 0x5D:
                return -1, k
        elif byte(buf, p) != 0x5D:
            return -1, k
    if not good:
        return -1, k
    return (p + 1 if several else p), k


@jit
def scan_json(buf, n, order, begins, words, state, integers, texts, sums, ids, id_ends, listed,
              weights, weight_ends, weighed, used, class_of):  # fmt: skip
    """Rows read of the lines from the state's place on in the first `n` bytes of `buf`, an object
    each, the last line's end included, PAD more behind them, as many as there is room for; -1 where
    a line is not plain.

    `order` [MOST_FIELDS] guesses the columns of a line's keys, `begins` is room of the same size.
    """
    p = state[_AT]
    row = 0
    n_words = state[_N_WORDS]
    n_keys = 0
    most = 0
    line = -1
    filled = 0
    for f in range(EXPERTS):
        filled |= used[f] << f
    while p < n and row < sums.size:
        listed[row] = 0
        weighed[row] = 0
        id_ends[row + 1] = id_ends[row]
        weight_ends[row + 1] = weight_ends[row]
        at = 0
        seen = 0
        if line >= 0:
            at = _alike(buf, line, p, begins, most)
            for i in range(at):
                seen |= 1 << order[i]
                if filled >> order[i] & 1:
                    _repeat(order[i], row, integers, texts, sums)
        wrote = seen
        strange = False
        line = p
        if at > 0:
            p += begins[at]
        else:
            p = skip_blanks(buf, p)
            if byte(buf, p) != 0x7B:
                return -1
            p += 1
        while True:
            if at == MOST_FIELDS:
                return -1
            begins[at] = p - line
            p = skip_blanks(buf, p)
            if byte(buf, p) != 0x22:
                return -1
            f, p = key_at(buf, p + 1, order[at])
            if f < 0 or (f < SKIPPED and seen & (1 << f)):
                return -1
            strange = strange or f != order[at]
            order[at] = f
            at += 1
            seen |= 1 << f
            p = skip_blanks(buf, p + 1)
            if byte(buf, p) != 0x3A:
                return -1
            p = skip_blanks(buf, p + 1)
            c = byte(buf, p)
            good = True
            if c == 0x6E and is_word(buf, p, _NULL):
                p += 4
            elif f == EXPERTS:
                p, k = _list(buf, p, f, id_ends[row], ids, weights)
                id_ends[row + 1] = k
                listed[row] = 1
                good = p >= 0
            elif f == WEIGHTS:
                p, k = _list(buf, p, f, weight_ends[row], ids, weights)
                weight_ends[row + 1] = k
                weighed[row] = 1
                good = p >= 0
            elif f == SKIPPED:
                if c == 0x22:
                    p = string_end(buf, p + 1) + 1
                    good = p > 0
                else:
                    _, p, good = decimal(buf, p, True)
            else:
                if not filled >> f & 1:
                    _clear(f, 0, row, integers, texts, sums)
                    filled |= 1 << f
                    used[f] = 1
                wrote |= 1 << f
                if f < N_INTEGERS:
                    value, p, good = _json_integer(buf, p)
                    integers[f, row] = value
                elif f == SUM:
                    number, p, good = decimal(buf, p, True)
                    sums[row] = number
                else:
                    start = p + 1
                    p = -1 if c != 0x22 else string_end(buf, start)
                    if p < 0:
                        return -1
                    code, n_words = word_code(
                        buf, start, p, f - N_INTEGERS, row, texts, words, n_words, class_of
                    )
                    texts[f - N_INTEGERS, row] = code
                    good = code >= 0
                    p += 1
            if not good:
                return -1
            p = skip_blanks(buf, p)
            if byte(buf, p) == 0x2C:
                p += 1
                continue
            if byte(buf, p) != 0x7D:
                return -1
            p = skip_blanks(buf, p + 1)
            if byte(buf, p) == 0x0D:
                p += 1
            if byte(buf, p) != 0x0A:
                return -1
            p += 1
            break
        if at != n_keys or strange:
            n_keys = at
            # Elements of a list are not repeated: the first of them is read.
            most = 0
            while most < n_keys - 1 and not (EXPERTS <= order[most] < SKIPPED):
                most += 1
        if filled & ~wrote:
            for f in range(EXPERTS):
                if (filled & ~wrote) >> f & 1:
                    _clear(f, row, row + 1, integers, texts, sums)
        row += 1
    state[_AT] = p
    state[_N_WORDS] = n_words
    return row
