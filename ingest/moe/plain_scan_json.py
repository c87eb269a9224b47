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
    NAMES,
    NULL,
    SKIPPED,
    STATE,
    SUM,
    WEIGHTS,
)
from .plain_words import is_word, small_ids, word_code
from .text_numbers import byte, decimal, integer, jit, trailing_zeros, word

_AT, _N_WORDS = STATE.at, STATE.n_words

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
_NULL = np.frombuffer(b"null", np.uint8)


@jit
def _space(buf, p):
    while byte(buf, p) == 0x20 or byte(buf, p) == 0x09:
        p += 1
    return p


@jit
def _before(buf, p):
    """Where the last byte before p is that is no blank."""
    p -= 1
    while byte(buf, p) == 0x20 or byte(buf, p) == 0x09:
        p -= 1
    return p


@jit
def _key(buf, p, guess):
    """(column of the key whose text begins at p, where it ends), SKIPPED for another, -1 for one
    that is not plain."""
    if guess < SKIPPED:
        first = (word(buf, p) ^ _KEY_WORDS[guess, 0]) & _KEY_MASKS[guess, 0]
        second = (word(buf, p + 8) ^ _KEY_WORDS[guess, 1]) & _KEY_MASKS[guess, 1]
        if first | second == np.uint64(0):
            return guess, p + _KEY_LENGTH[guess]
    end = _string(buf, p)
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
def _string(buf, p):
    """Where the quote is that ends the string in which p is; -1 where it is not plain."""
    while byte(buf, p) != 0x22:
        if byte(buf, p) < 0x20 or byte(buf, p) == 0x5C or byte(buf, p) >= 0x80:
            return -1
        p += 1
    return p


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
        p = _space(buf, p + 1)
        if f == EXPERTS:
            p, k = small_ids(buf, p, ids, k, 0x2C, 0x5D)
            p = _space(buf, p)
            if byte(buf, p) == 0x5D and byte(buf, _before(buf, p)) == 0x2C:
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
        p = _space(buf, p)
        if byte(buf, p) == 0x2C:
            p = _space(buf, p + 1)
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
            # Elements of a list are not repeated: the first of them is read.
            most = 0
            while most < n_keys - 1 and not (EXPERTS <= order[most] < SKIPPED):
                most += 1
            at = _alike(buf, line, p, begins, most)
            for i in range(at):
                seen |= 1 << order[i]
                if filled >> order[i] & 1:
                    _repeat(order[i], row, integers, texts, sums)
        wrote = seen
        line = p
        if at > 0:
            p += begins[at]
        else:
            p = _space(buf, p)
            if byte(buf, p) != 0x7B:
                return -1
            p += 1
        while True:
            if at == MOST_FIELDS:
                return -1
            begins[at] = p - line
            p = _space(buf, p)
            if byte(buf, p) != 0x22:
                return -1
            f, p = _key(buf, p + 1, order[at])
            if f < 0 or (f < SKIPPED and seen & (1 << f)):
                return -1
            order[at] = f
            at += 1
            seen |= 1 << f
            p = _space(buf, p + 1)
            if byte(buf, p) != 0x3A:
                return -1
            p = _space(buf, p + 1)
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
                    p = _string(buf, p + 1) + 1
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
                    p = -1 if c != 0x22 else _string(buf, start)
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
            p = _space(buf, p)
            if byte(buf, p) == 0x2C:
                p += 1
                continue
            if byte(buf, p) != 0x7D:
                return -1
            p = _space(buf, p + 1)
            if byte(buf, p) == 0x0D:
                p += 1
            if byte(buf, p) != 0x0A:
                return -1
            p += 1
            break
        n_keys = at
        for f in range(EXPERTS):
            if (filled & ~wrote) >> f & 1:
                _clear(f, row, row + 1, integers, texts, sums)
        row += 1
    state[_AT] = p
    state[_N_WORDS] = n_words
    return row
