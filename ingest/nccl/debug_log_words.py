"""Compiled reading of what lines of an NCCL debug log are made of: mark, header, numbers, words.

A line's end is in none of them, so that nothing here goes on beyond it.
"""

# pyright cannot see through numba's decorators.
# pyright: reportCallIssue=false, reportGeneralTypeIssues=false

from __future__ import annotations

import numpy as np

from .bytes_at import (
    LANES,
    NEWLINES,
    any_of,
    byte,
    check_vector,
    inlined,
    jit,
    lowest_bit,
    vector_scan,
    word_at,
)

MARKED = vector_scan(any_of(b" NCCL "))
_MAY_MARK, _MARK = vector_scan(any_of(b" NC")), word_at(b" NCCL ")


@inlined
def mark(buf, p, end):
    """Where the mark stands between p and `end`; -1 where it does not."""
    while p < end:
        check_vector(buf, p, 8)
        bits = MARKED(buf, p)
        if bits:
            at = p + lowest_bit(bits)
            return at if at + 6 <= end else -1
        p += LANES
    return -1


@inlined
def marked_line(buf, p, n):
    """(end of the line at p, where its first mark stands, and its second); -1 where none does."""
    first = np.int64(-1)
    second = np.int64(-1)
    while p < n:
        check_vector(buf, p, 8)
        ends = NEWLINES(buf, p)
        bits = _MAY_MARK(buf, p)
        if ends:
            bits &= (ends & -ends) - 1
        while bits:
            at = p + lowest_bit(bits)
            if _MARK(buf, at) and at + 6 <= n:
                if first >= 0 and at >= first + 6:
                    second = at
                    break
                if first < 0:
                    first = at
            bits &= bits - 1
        if ends:
            return min(p + lowest_bit(ends), n), first, second
        p += LANES
    return n, first, second


@inlined
def _digits_back(buf, p, low):
    """Where the digits begin that end before p (not before `low`)."""
    while p > low and 0x30 <= byte(buf, p - 1) <= 0x39:
        p -= 1
    return p


@jit
def is_host(c):
    """Whether this byte may be one of a host's name."""
    return (
        0x61 <= c <= 0x7A
        or 0x30 <= c <= 0x39
        or 0x41 <= c <= 0x5A
        or c == 0x2D
        or c == 0x2E
        or c == 0x5F
    )


@inlined
def header(buf, low, at):
    """Where `host:pid:tid [device]` begins that ends before `at`; -1 where it is not plain."""
    p = at - 1
    if p <= low or byte(buf, p) != 0x5D:
        return -1
    q = _digits_back(buf, p, low)
    if not 1 <= p - q <= 5 or q - 2 <= low:
        return -1
    if byte(buf, q - 1) != 0x5B or byte(buf, q - 2) != 0x20:
        return -1
    for _ in range(2):
        p = q - 2 if _ == 0 else q - 1
        q = _digits_back(buf, p, low)
        if not 1 <= p - q <= 10 or q - 1 <= low or byte(buf, q - 1) != 0x3A:
            return -1
    end = q - 1
    p = end
    letters = False
    while p > low and is_host(byte(buf, p - 1)):
        p -= 1
        if end - p > 200:
            return -1
    while p < end and (byte(buf, p) == 0x2D or byte(buf, p) == 0x2E):
        p += 1
    for k in range(p, end):
        if not 0x30 <= byte(buf, k) <= 0x39:
            letters = True
    # A host of digits alone may stand within the numbers behind it, too.
    return p if letters else -1


@inlined
def number(buf, p, most):
    """(value of up to `most` digits at p, where they end); the end is p where there are none."""
    value = np.int64(0)
    start = p
    while True:
        d = byte(buf, p) - 0x30
        if d < 0 or d > 9:
            return value, p
        if p - start == most:
            return value, start
        value = value * 10 + d
        p += 1


@jit
def word_end(buf, p, most):
    """Where the blank stands that ends a word of 1 to `most` bytes at p; -1 where none does."""
    for k in range(most + 1):
        c = byte(buf, p + k)
        if c == 0x20:
            return p + k if k else -1
        if 0x09 <= c <= 0x0D:
            return -1
    return -1


@inlined
def hex_number(buf, p, most):
    """(value of up to `most` digits of lower hex at p, where they end or p)."""
    value = np.uint64(0)
    start = p
    while True:
        c = byte(buf, p)
        if 0x30 <= c <= 0x39:
            d = c - 0x30
        elif 0x61 <= c <= 0x66:
            d = c - 0x57
        else:
            return np.int64(value), p
        if p - start == most:
            return np.int64(value), start
        value = (value << np.uint64(4)) | np.uint64(d)
        p += 1
