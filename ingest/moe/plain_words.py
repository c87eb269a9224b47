"""Compiled pieces that the scans of CSV and of JSON share: words, texts and lists of small ids.

Importing this module costs numba.
"""

# pyright cannot see through numba's decorators.
# pyright: reportCallIssue=false, reportGeneralTypeIssues=false

from __future__ import annotations

import numpy as np

from .plain_columns import CLASSES, MOST_WORDS, SPACES, TEXTS
from .text_numbers import byte, jit

_CLASS, _SPACE = TEXTS.index("token_class"), TEXTS.index("id_space")
_KNOWN = np.frombuffer("".join((*CLASSES, *SPACES)).encode(), np.uint8)
_KNOWN_ENDS = np.cumsum([0, *map(len, (*CLASSES, *SPACES))])
_N_CLASSES, _N_SPACES = len(CLASSES), len(SPACES)


@jit
def word_code(buf, start, end, column, row, texts, words, n_words, class_of):
    """(code, number of words) of a text; code -2 where there is no room for a new one, or it is
    none of those that its column may have."""
    if row > 0:
        code = np.int64(texts[column, row - 1])
        if code >= 0 and _same(buf, start, end, words[code, 1], words[code, 2]):
            return code, n_words
    for i in range(n_words):
        if words[i, 0] == column and _same(buf, start, end, words[i, 1], words[i, 2]):
            return i, n_words
    if n_words == MOST_WORDS:
        return -2, n_words
    class_of[n_words] = 0
    if column == _CLASS:
        class_of[n_words] = _among(buf, start, end, 0, _N_CLASSES)
    elif column == _SPACE:
        class_of[n_words] = _among(buf, start, end, _N_CLASSES, _N_SPACES)
    if class_of[n_words] < 0:
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


@jit
def _among(buf, start, end, first, n):
    """Which of the `n` known words from `first` on a text is; -1 for none."""
    for k in range(first, first + n):
        at = _KNOWN_ENDS[k]
        if _KNOWN_ENDS[k + 1] - at == end - start:
            i = 0
            while i < end - start and byte(buf, start + i) == _KNOWN[at + i]:
                i += 1
            if i == end - start:
                return k - first
    return -1


@jit
def is_word(buf, p, word):
    """Whether this word stands at p; a line's end is in none of them."""
    i = 0
    while i < word.size and byte(buf, p + i) == word[i]:
        i += 1
    return i == word.size


@jit
def small_ids(buf, p, ids, k, between, closing):
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
