"""Compiled scans of the plain form's lines, CSV and JSON, into columns of a block of rows.

Importing this module costs numba. A scan takes a block whole or not at all: where a line holds
anything but the ordinary (quotes in CSV, escapes, a value of another type) it says so, and the
forgiving reader of `plain_read` gets the block.
"""

# pyright cannot see through numba's decorators.
# pyright: reportCallIssue=false, reportGeneralTypeIssues=false

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from .plain import COLUMNS
from .text_numbers import byte, decimal, integer, jit, word

NULL = int(np.iinfo(np.int64).min)
"""No integer of a text: those here have 18 digits at most."""

INTEGERS = ("step", "microbatch", "layer", "rank", "token", "count", "tokens", "expert",
            "physical_expert", "expert_rank")  # fmt: skip
TEXTS = ("block", "token_class", "id_space", "source")
MOST_WORDS = 256
"""Distinct texts of a block; more are for the forgiving reader."""
MOST_FIELDS = 1000

_N_INTEGERS, _N_TEXTS = len(INTEGERS), len(TEXTS)
_TEXT = _N_INTEGERS
_SUM = _TEXT + _N_TEXTS
_EXPERTS, _WEIGHTS, SKIPPED = _SUM + 1, _SUM + 2, _SUM + 3
_NAMES = (*INTEGERS, *TEXTS, "weight_sum", "experts", "weights")
PLACE = {n: i for i, n in enumerate(_NAMES)}
"""Number of each column in a scan; `SKIPPED` is one that is not read."""
assert set(_NAMES) == set(COLUMNS)

_KEY = np.zeros((len(_NAMES), 16), np.uint8)
for _i, _n in enumerate(_NAMES):
    _KEY[_i, : len(_n)] = np.frombuffer(_n.encode(), np.uint8)
_KEY_LENGTH = np.array([len(n) for n in _NAMES])
_KEY_WORDS = np.array(
    [np.frombuffer((n + '"').encode().ljust(16, b"\0"), np.uint64) for n in _NAMES]
)
_KEY_MASKS = np.array(
    [np.frombuffer((b"\xff" * (len(n) + 1)).ljust(16, b"\0"), np.uint64) for n in _NAMES]
)
PAD = 16
"""Bytes of room behind the lines: a key is compared eight bytes at once."""


class Columns(NamedTuple):
    """Columns of the rows of a block: `NULL`, -1 for a text and NaN for a sum are null."""

    integers: np.ndarray
    """[rows, INTEGERS]"""
    texts: np.ndarray
    """[rows, TEXTS], codes in `words`"""
    sums: np.ndarray
    ids: np.ndarray
    """the elements of `experts`, those of row i from `id_ends[i]` to `id_ends[i + 1]`"""
    id_ends: np.ndarray
    listed: np.ndarray
    """whether `experts` is there"""
    weights: np.ndarray
    weight_ends: np.ndarray
    weighed: np.ndarray
    words: np.ndarray
    """[words, 3]: the text's column, and where it stands in the block"""
    given: np.ndarray
    """columns that have a value in any row, by `PLACE`"""


def room(n_bytes: int, n_lines: int) -> Columns:
    """Empty columns for a block of so many bytes and lines."""
    n, most = n_lines + 1, n_bytes // 2 + 2
    return Columns(
        np.empty((n, _N_INTEGERS), np.int64), np.empty((n, _N_TEXTS), np.int32), np.empty(n),
        np.empty(most, np.int64), np.zeros(n + 1, np.int64), np.empty(n, np.bool_),
        np.empty(most), np.zeros(n + 1, np.int64), np.empty(n, np.bool_),
        np.zeros((MOST_WORDS, 3), np.int64), np.zeros(len(_NAMES) + 1, np.bool_),
    )  # fmt: skip


# The columns are handed to the functions one by one: of a tuple of arrays each call would count
# its references.


@jit
def _word(buf, start, end, column, row, texts, words, n_words):
    """(code, number of words) of a text; code -2 where there is no room for a new one."""
    if row > 0:
        code = np.int64(texts[row - 1, column])
        if code >= 0 and _same(buf, start, end, words[code, 1], words[code, 2]):
            return code, n_words
    for i in range(n_words):
        if words[i, 0] == column and _same(buf, start, end, words[i, 1], words[i, 2]):
            return i, n_words
    if n_words == MOST_WORDS:
        return -2, n_words
    words[n_words, 0] = column
    words[n_words, 1] = start
    words[n_words, 2] = end
    return n_words, n_words + 1


@jit
def _same(buf, start, end, first, last):
    if last - first != end - start:
        return False
    i = 0
    while i < end - start and byte(buf, start + i) == byte(buf, first + i):
        i += 1
    return i == end - start


_ROLE = np.zeros(256, np.uint8)
_ROLE[list(b",\r\n")] = 1
_ROLE[list(b" ;|\t[]()'")] = 2


@jit
def _ends(c):
    """Whether a byte ends a field of CSV."""
    return _ROLE[c] == 1


@jit
def _between(c):
    """Whether a byte stands between elements of a list in CSV."""
    return _ROLE[c] == 2


@jit
def _is_word(buf, p, word):
    """Whether this word stands at p; a line's end is in none of them."""
    i = 0
    while i < word.size and byte(buf, p + i) == word[i]:
        i += 1
    return i == word.size


_NA, _NONE, _NULL_UPPER, _NULL_LOWER = (
    np.frombuffer(w, np.uint8) for w in (b"NA", b"None", b"NULL", b"null")
)


@jit
def _null_word(buf, p):
    """Bytes of the word for null that a CSV field is, 0 where it is none."""
    c = byte(buf, p)
    if c != 0x6E and c != 0x4E:
        return 0
    if _is_word(buf, p, _NA):
        return 2
    if _is_word(buf, p, _NONE) or _is_word(buf, p, _NULL_UPPER) or _is_word(buf, p, _NULL_LOWER):
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
def _small_ids(buf, p, ids, k, between, closing):
    """(where it stopped, elements so far) of ids of up to five digits from p on, each followed by
    `between` and at most one blank, or by what is `closing`: no more than the ordinary."""
    while True:
        start = p
        value = byte(buf, p) - 0x30
        # No zero before other digits: JSON has none, and the slower reader takes them of CSV.
        if value < 0 or value > 9:
            return start, k
        p += 1
        d = byte(buf, p) - 0x30
        if 0 <= d <= 9:
            if value == 0:
                return start, k
            value = value * 10 + d
            p += 1
            d = byte(buf, p) - 0x30
            while 0 <= d <= 9:
                value = value * 10 + d
                p += 1
                d = byte(buf, p) - 0x30
                if p - start > 5:
                    return start, k
        c = d + 0x30
        if c == between:
            p += 1
            if byte(buf, p) == 0x20:
                p += 1
        elif c != closing:
            return start, k
        ids[k] = value
        k += 1
        if c == closing:
            return p, k


def scan_csv(buf: np.ndarray, n: int, fields: np.ndarray, to: Columns) -> tuple[int, int]:
    """(rows, words) of the lines in the `n` bytes of `buf`, which end with a line's end; rows -1
    where a line is not plain. `fields` are the header's columns by `PLACE`."""
    return _scan_csv(buf, n, fields, *to)


@jit
def _scan_csv(buf, n, fields, integers, texts, sums, ids, id_ends, listed, weights, weight_ends,
              weighed, words, given):  # fmt: skip
    p = 0
    row = 0
    n_words = 0
    last = fields.size - 1
    while p < n:
        if byte(buf, p) == 0x0A:
            p += 1
            continue
        for i in range(_N_INTEGERS):
            integers[row, i] = NULL
        for i in range(_N_TEXTS):
            texts[row, i] = -1
        sums[row] = np.nan
        listed[row] = False
        weighed[row] = False
        id_ends[row + 1] = id_ends[row]
        weight_ends[row + 1] = weight_ends[row]
        for at in range(last + 1):
            f = fields[at]
            c = byte(buf, p)
            skip = 0 if _ends(c) or c < 0x4E or f == SKIPPED else _null_word(buf, p)
            if skip:
                p += skip
            elif f == SKIPPED:
                p = _plain_text(buf, p)
            elif _ends(c):
                pass
            elif f < _TEXT:
                while byte(buf, p) == 0x20:
                    p += 1
                value, p, good = integer(buf, p)
                if not good:
                    return -1, n_words
                integers[row, f] = value
                while byte(buf, p) == 0x20:
                    p += 1
            elif f == _EXPERTS:
                closing = 0x0A if at == last else 0x2C
                p, k = _small_ids(buf, p, ids, id_ends[row], 0x20, closing)
                while True:
                    while _between(byte(buf, p)):
                        p += 1
                    if _ends(byte(buf, p)):
                        break
                    value, p, good = integer(buf, p)
                    if not good or _ROLE[byte(buf, p)] == 0:
                        return -1, n_words
                    ids[k] = value
                    k += 1
                id_ends[row + 1] = k
                listed[row] = True
            elif f == _WEIGHTS:
                k = weight_ends[row]
                while True:
                    while _between(byte(buf, p)):
                        p += 1
                    if _ends(byte(buf, p)):
                        break
                    number, p, good = decimal(buf, p, False)
                    if not good or _ROLE[byte(buf, p)] == 0:
                        return -1, n_words
                    weights[k] = number
                    k += 1
                weight_ends[row + 1] = k
                weighed[row] = True
            elif f == _SUM:
                number, p, good = decimal(buf, p, False)
                if not good:
                    return -1, n_words
                sums[row] = number
            else:
                start = p
                p = _plain_text(buf, p)
                code, n_words = _word(buf, start, p, f - _TEXT, row, texts, words, n_words)
                if code < 0:
                    return -1, n_words
                texts[row, f - _TEXT] = code
            c = byte(buf, p)
            if at < last:
                if c != 0x2C:
                    return -1, n_words
            else:
                if c == 0x0D:
                    p += 1
                if byte(buf, p) != 0x0A:
                    return -1, n_words
            p += 1
        row += 1
    return row, n_words


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


def scan_json(buf: np.ndarray, n: int, to: Columns) -> tuple[int, int]:
    """(rows, words) of the objects in the first `n` bytes of `buf`, one a line, the last line's end
    included, PAD more behind them; rows -1 where a line is not plain."""
    return _scan_json(buf, n, *to)


@jit
def _scan_json(buf, n, integers, texts, sums, ids, id_ends, listed, weights, weight_ends, weighed,
               words, given):  # fmt: skip
    p = 0
    row = 0
    n_words = 0
    order = np.full(MOST_FIELDS, SKIPPED, np.int64)
    while p < n:
        for i in range(_N_INTEGERS):
            integers[row, i] = NULL
        for i in range(_N_TEXTS):
            texts[row, i] = -1
        sums[row] = np.nan
        listed[row] = False
        weighed[row] = False
        id_ends[row + 1] = id_ends[row]
        weight_ends[row + 1] = weight_ends[row]
        p = _space(buf, p)
        if byte(buf, p) != 0x7B:
            return -1, n_words
        p += 1
        seen = 0
        at = 0
        while True:
            p = _space(buf, p)
            if byte(buf, p) != 0x22 or at == MOST_FIELDS:
                return -1, n_words
            f, p = _key(buf, p + 1, order[at])
            if f < 0 or (f < SKIPPED and seen & (1 << f)):
                return -1, n_words
            order[at] = f
            at += 1
            seen |= 1 << f
            p = _space(buf, p + 1)
            if byte(buf, p) != 0x3A:
                return -1, n_words
            p = _space(buf, p + 1)
            c = byte(buf, p)
            good = True
            if c == 0x6E and _is_word(buf, p, _NULL_LOWER):
                p += 4
            elif f < _TEXT:
                value, p, good = _json_integer(buf, p)
                integers[row, f] = value
                given[f] = True
            elif f in (_EXPERTS, _WEIGHTS):
                several = c == 0x5B
                k = id_ends[row] if f == _EXPERTS else weight_ends[row]
                if several:
                    p = _space(buf, p + 1)
                    if f == _EXPERTS:
                        p, k = _small_ids(buf, p, ids, k, 0x2C, 0x5D)
                        p = _space(buf, p)
                        if byte(buf, p) == 0x5D and byte(buf, _before(buf, p)) == 0x2C:
                            return -1, n_words
                while not (several and byte(buf, p) == 0x5D):
                    if f == _EXPERTS:
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
                            return -1, n_words
                    elif byte(buf, p) != 0x5D:
                        return -1, n_words
                if several:
                    p += 1
                if f == _EXPERTS:
                    id_ends[row + 1] = k
                    listed[row] = True
                else:
                    weight_ends[row + 1] = k
                    weighed[row] = True
                given[f] = True
            elif c == 0x22 and f != _SUM:
                start = p + 1
                p = _string(buf, start)
                if p < 0:
                    return -1, n_words
                if f != SKIPPED:
                    code, n_words = _word(buf, start, p, f - _TEXT, row, texts, words, n_words)
                    if code < 0:
                        return -1, n_words
                    texts[row, f - _TEXT] = code
                    given[f] = True
                p += 1
            elif f in (_SUM, SKIPPED):
                number, p, good = decimal(buf, p, True)
                if f == _SUM:
                    sums[row] = number
                    given[f] = True
            else:
                good = False
            if not good:
                return -1, n_words
            p = _space(buf, p)
            if byte(buf, p) == 0x2C:
                p += 1
                continue
            if byte(buf, p) != 0x7D:
                return -1, n_words
            p = _space(buf, p + 1)
            if byte(buf, p) == 0x0D:
                p += 1
            if byte(buf, p) != 0x0A:
                return -1, n_words
            p += 1
            break
        row += 1
    return row, n_words
