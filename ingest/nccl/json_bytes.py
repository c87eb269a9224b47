"""Compiled reading of JSON as programs print it, on its bytes: without blanks and escapes.

Each function gives the position behind what it reads, or -1 where it will not take it. Numbers and
places of texts go to an array of the caller's.
"""

# pyright cannot see through numba's decorators.
# pyright: reportCallIssue=false, reportGeneralTypeIssues=false

from __future__ import annotations

import numpy as np

from .bytes_at import LANES, byte, check_vector, jit, lowest_bit, vector_scan, word_at

_MOST_DEPTH = 30


def _string_stop(builder, load, splat):
    v = load(0)
    quote = builder.icmp_unsigned("==", v, splat(0x22))
    slash = builder.icmp_unsigned("==", v, splat(0x5C))
    control = builder.icmp_signed("<", v, splat(0x20))  # and all that is not ASCII
    return builder.or_(builder.or_(quote, slash), control)


_STRING = vector_scan(_string_stop)
_TRUE, _FALSE, _NULL = word_at(b"true"), word_at(b"false"), word_at(b"null")


@jit
def string(buf, p):
    """Behind the string whose quote stands at p."""
    at = p + np.int64(1)
    bits = np.int64(0)
    while bits == 0:
        check_vector(buf, at, 0)
        bits = _STRING(buf, at)
        if bits == 0:
            at += LANES
    at += lowest_bit(bits)
    return at + 1 if byte(buf, at) == 0x22 else np.int64(-1)


@jit
def _digits(buf, p):
    while 0x30 <= byte(buf, p) <= 0x39:
        p += 1
    return p


@jit
def _number(buf, p):
    start = p
    if byte(buf, p) == 0x2D:
        p += 1
    first = p
    p = _digits(buf, p)
    if p == first or (byte(buf, first) == 0x30 and p > first + 1):
        return -1
    if byte(buf, p) == 0x2E:
        first = p + 1
        p = _digits(buf, first)
        if p == first:
            return -1
    if byte(buf, p) | 0x20 == 0x65:
        p += 1
        if byte(buf, p) == 0x2B or byte(buf, p) == 0x2D:
            p += 1
        first = p
        p = _digits(buf, first)
        if p == first:
            return -1
    return p if p - start <= 200 else -1


@jit
def _scalar(buf, p):
    c = byte(buf, p)
    if c == 0x22:
        return string(buf, p)
    if c == 0x2D or 0x30 <= c <= 0x39:
        return _number(buf, p)
    if _TRUE(buf, p) or _NULL(buf, p):
        return p + 4
    return p + 5 if _FALSE(buf, p) else -1


@jit
def value(buf, p):
    """Behind a value of any kind."""
    depth = 0
    objects = np.int64(0)  # a bit for each open bracket: whether it is a brace
    while True:
        c = byte(buf, p)
        opened = c == 0x7B or c == 0x5B
        if opened:
            depth += 1
            if depth > _MOST_DEPTH:
                return -1
            objects = (objects << 1) | (1 if c == 0x7B else 0)
            p += 1
            c = byte(buf, p)
            if c == 0x5D or c == 0x7D:
                opened = False
        else:
            p = _scalar(buf, p)
            if p < 0:
                return -1
        if not opened:
            while depth and (byte(buf, p) == 0x7D or byte(buf, p) == 0x5D):
                if (byte(buf, p) == 0x7D) != (objects & 1 == 1):
                    return -1
                objects >>= 1
                depth -= 1
                p += 1
            if depth == 0:
                return p
            if byte(buf, p) != 0x2C:
                return -1
            p += 1
        if objects & 1 == 1:
            if byte(buf, p) != 0x22:
                return -1
            p = string(buf, p)
            if p < 0 or byte(buf, p) != 0x3A:
                return -1
            p += 1


@jit
def integer(buf, p, state, place):
    """Behind an integer of at most 18 digits, which goes to that place of the state."""
    negative = byte(buf, p) == 0x2D
    first = p + 1 if negative else p
    value = np.int64(0)
    p = first
    while True:
        d = byte(buf, p) - 0x30
        if d < 0 or d > 9:
            break
        if p - first == 18:
            return -1
        value = value * 10 + d
        p += 1
    if p == first or (byte(buf, first) == 0x30 and p > first + 1):
        return -1
    c = byte(buf, p)
    if c == 0x2E or c | 0x20 == 0x65:
        return -1
    state[place] = -value if negative else value
    return p


@jit
def other_member(buf, p):
    """Behind a member (name and value) that nothing is read of."""
    if byte(buf, p) != 0x22:
        return -1
    p = string(buf, p)
    if p < 0 or byte(buf, p) != 0x3A:
        return -1
    return value(buf, p + 1)


@jit
def text(buf, p, state, place):
    """Behind a string, whose bounds go to that place of the state and the next."""
    if byte(buf, p) != 0x22:
        return -1
    end = string(buf, p)
    if end < 0 or end - p > 200:
        return -1
    state[place] = p + 1
    state[place + 1] = end - 1
    return end
