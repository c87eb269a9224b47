"""Compiled scan of the plain form's lines of CSV into columns of a chunk of rows.

Importing this module costs numba. Where a line holds anything but the ordinary (quotes, a value of
another type) the scan says so, and the forgiving reader of `plain_read` gets the block.
"""

# pyright cannot see through numba's decorators.
# pyright: reportCallIssue=false, reportGeneralTypeIssues=false

from __future__ import annotations

import numpy as np

from .plain_columns import EXPERTS, N_INTEGERS, NULL, SKIPPED, STATE, SUM, WEIGHTS
from .plain_words import is_word, small_ids, word_code
from .text_numbers import byte, decimal, integer, jit

_AT, _N_WORDS = STATE.at, STATE.n_words

_ROLE = np.zeros(256, np.uint8)
_ROLE[list(b",\r\n")] = 1
_ROLE[list(b" ;|\t[]()'")] = 2

_NA, _NONE, _NULL_UPPER, _NULL_LOWER = (
    np.frombuffer(w, np.uint8) for w in (b"NA", b"None", b"NULL", b"null")
)


@jit
def _ends(c):
    """Whether a byte ends a field."""
    return _ROLE[c] == 1


@jit
def _between(c):
    """Whether a byte stands between elements of a list."""
    return _ROLE[c] == 2


@jit
def _null_word(buf, p):
    """Bytes of the word for null that a field is, 0 where it is none."""
    c = byte(buf, p)
    if c != 0x6E and c != 0x4E:
        return 0
    if is_word(buf, p, _NA):
        return 2
    if is_word(buf, p, _NONE) or is_word(buf, p, _NULL_UPPER) or is_word(buf, p, _NULL_LOWER):
        return 4
    return 0


@jit
def _plain_text(buf, p):
    """Where the field that p is in ends: at a byte that is no part of a plain one."""
    while True:
        c = byte(buf, p)
        if c < 0x20 or c >= 0x80 or c == 0x22 or c == 0x5C or c == 0x2C:
            return p
        p += 1


@jit
def scan_csv(buf, n, fields, words, state, integers, texts, sums, ids, id_ends, listed, weights,
             weight_ends, weighed, used, class_of):  # fmt: skip
    """Rows read of the lines from the state's place on in the `n` bytes of `buf`, which end with a
    line's end, as many as there is room for; -1 where a line is not plain.

    `fields` are the header's columns by `PLACE`, all of them in `used`.
    """
    p = state[_AT]
    row = 0
    n_words = state[_N_WORDS]
    last = fields.size - 1
    while p < n and row < sums.size:
        if byte(buf, p) == 0x0A:
            p += 1
            continue
        listed[row] = 0
        weighed[row] = 0
        id_ends[row + 1] = id_ends[row]
        weight_ends[row + 1] = weight_ends[row]
        for at in range(last + 1):
            f = fields[at]
            c = byte(buf, p)
            null = _ends(c)
            if not null and c >= 0x4E and f != SKIPPED:
                skip = _null_word(buf, p)
                null = skip > 0
                p += skip
            if f == SKIPPED:
                p = _plain_text(buf, p)
            elif null:
                if f < N_INTEGERS:
                    integers[f, row] = NULL
                elif f < SUM:
                    texts[f - N_INTEGERS, row] = -1
                elif f == SUM:
                    sums[row] = np.nan
            elif f < N_INTEGERS:
                while byte(buf, p) == 0x20:
                    p += 1
                value, p, good = integer(buf, p)
                if not good:
                    return -1
                integers[f, row] = value
                while byte(buf, p) == 0x20:
                    p += 1
            elif f == EXPERTS:
                closing = 0x0A if at == last else 0x2C
                p, k = small_ids(buf, p, ids, id_ends[row], 0x20, closing)
                while True:
                    while _between(byte(buf, p)):
                        p += 1
                    if _ends(byte(buf, p)):
                        break
                    value, p, good = integer(buf, p)
                    if not good or _ROLE[byte(buf, p)] == 0:
                        return -1
                    ids[k] = value
                    k += 1
                id_ends[row + 1] = k
                listed[row] = 1
            elif f == WEIGHTS:
                k = weight_ends[row]
                while True:
                    while _between(byte(buf, p)):
                        p += 1
                    if _ends(byte(buf, p)):
                        break
                    number, p, good = decimal(buf, p, False)
                    if not good or _ROLE[byte(buf, p)] == 0:
                        return -1
                    weights[k] = number
                    k += 1
                weight_ends[row + 1] = k
                weighed[row] = 1
            elif f == SUM:
                number, p, good = decimal(buf, p, False)
                if not good:
                    return -1
                sums[row] = number
            else:
                start = p
                p = _plain_text(buf, p)
                code, n_words = word_code(
                    buf, start, p, f - N_INTEGERS, row, texts, words, n_words, class_of
                )
                if code < 0:
                    return -1
                texts[f - N_INTEGERS, row] = code
            c = byte(buf, p)
            if at < last:
                if c != 0x2C:
                    return -1
            else:
                if c == 0x0D:
                    p += 1
                if byte(buf, p) != 0x0A:
                    return -1
            p += 1
        row += 1
    state[_AT] = p
    state[_N_WORDS] = n_words
    return row
