"""Tokens of JSON text in bytes, compiled: where each ends, and what numbers say.

Each function gives the position where it stopped. The zero padding behind the text stops all of
them there.
"""

# pyright cannot see through numba's decorators.
# pyright: reportCallIssue=false, reportGeneralTypeIssues=false

from __future__ import annotations

import numpy as np

from .vectors import (
    LANES,
    WIDE,
    below,
    byte,
    check_vector,
    check_wide,
    classes,
    count_bits,
    either,
    folded,
    jit,
    lowest_bit,
    none_of,
    one_of,
    rarely,
    word,
)

# Quote, backslash, control character (which is also the padding).
_string_bits = classes(either(one_of(b'"\\'), below(0x20)))
_nested_bits = classes(either(folded(0x7B), folded(0x7D), one_of(b'"\0')))
_space_bits = classes(none_of(one_of(b" \n\r\t")))
_after_number_bits = classes(none_of(one_of(b"0123456789+-.")))

_quotes = classes(one_of(b'"'), WIDE)
_slashes = classes(one_of(b"\\"), WIDE)
_controls = classes(below(0x20), WIDE)
_zeros = classes(one_of(b"\0"), WIDE)
_openings = classes(folded(0x7B), WIDE)
_closings = classes(folded(0x7D), WIDE)
_after_string = classes(one_of(b",]}: \n\r\t"), WIDE)


@jit
def space(buf, p):
    """The first byte from p on that is not white space."""
    if byte(buf, p) > 0x20:
        return p
    if byte(buf, p) == 0x20 and byte(buf, p + 1) > 0x20:
        return p + 1
    while True:
        check_vector(buf, p)
        bits = _space_bits(buf, p)
        if bits:
            return p + lowest_bit(bits)
        p += LANES


@jit
def string(buf, p):
    """(position of the quote that ends the string whose text begins at p, any escapes).

    The position of another byte where a control character or the window's end comes first.
    """
    escaped = False
    while True:
        check_vector(buf, p)
        bits = _string_bits(buf, p)
        if bits == 0:
            p += LANES
            continue
        p += lowest_bit(bits)
        if byte(buf, p) != 0x5C:
            return p, escaped
        escaped = True
        # The escaped byte is stepped over unless it is a control character or padding.
        p += 1
        if byte(buf, p) >= 0x20:
            p += 1


@rarely
def _nested(buf, p):
    """The same, a bracket or string at a time."""
    depth = 0
    while True:
        check_vector(buf, p)
        bits = _nested_bits(buf, p)
        if bits == 0:
            p += LANES
            continue
        at = p
        while bits:
            at = p + lowest_bit(bits)
            bits &= bits - 1
            c = byte(buf, at)
            if c == 0x22:
                at, _ = string(buf, at + 1)
                if byte(buf, at) != 0x22:
                    return at, False
                at += 1
                c = byte(buf, at)
                # A string is followed by structure; anything else is a quote out of place.
                if not (c == 0x2C or c == 0x5D or c == 0x7D or c == 0x3A or c == 0x20
                        or c == 0x0A or c == 0x0D or c == 0x09):  # fmt: skip
                    return at, False
                break
            if c == 0:
                return at, False
            if c == 0x7B or c == 0x5B:
                depth += 1
            else:
                depth -= 1
                if depth == 0:
                    return at + 1, True
            at += 1
            if bits == 0:
                at = p + LANES
        p = at


@jit
def nested(buf, p):
    """(one past the bracket that closes the one at p, True), or (where it stopped, False)."""
    first = p
    depth = 0
    inside = np.uint64(0)
    closed = np.uint64(0)
    while True:
        check_wide(buf, p)
        quotes = _quotes(buf, p)
        # From each opening quote up to the closing one, which is left out.
        strings = quotes
        for shift in (1, 2, 4, 8, 16, 32):
            strings ^= strings << np.uint64(shift)
        strings ^= inside
        ends = quotes & ~strings
        follows = (ends << np.uint64(1)) | closed
        if (
            _slashes(buf, p)
            | _zeros(buf, p)
            | (_controls(buf, p) & strings)
            | (follows & ~_after_string(buf, p))
        ):
            # Escapes, the text's end or something out of place, perhaps beyond the bracket.
            return _nested(buf, first)
        openings = _openings(buf, p) & ~strings
        closings = _closings(buf, p) & ~strings
        n_closings = count_bits(closings)
        if n_closings < depth:
            depth += count_bits(openings) - n_closings
        else:
            brackets = openings | closings
            while brackets:
                lowest = brackets & (~brackets + np.uint64(1))
                depth += 1 if openings & lowest else -1
                if depth == 0:
                    return p + lowest_bit(lowest) + 1, True
                brackets ^= lowest
        inside = ~np.uint64(0) if strings >> np.uint64(63) else np.uint64(0)
        closed = ends >> np.uint64(63)
        p += WIDE


_ZEROS = np.uint64(0x3030303030303030)


@jit
def _digit_bytes(text):
    """How many of the low bytes of `text`, a word less _ZEROS, are digits before one that is not.

    A carry of the sum comes out of a byte that is no digit, so it spoils only what is behind one.
    """
    other = ((text + np.uint64(0x7676767676767676)) | text) & np.uint64(0x8080808080808080)
    return lowest_bit(other) >> 3


@jit
def _eight_digits(text):
    """The number of 8 bytes of 0 to 9, the first digit in the lowest."""
    pairs = text * np.uint64(10) + (text >> np.uint64(8))
    every_other = np.uint64(0x000000FF000000FF)
    return (
        (pairs & every_other) * np.uint64(100 + (1000000 << 32))
        + ((pairs >> np.uint64(16)) & every_other) * np.uint64(1 + (10000 << 32))
    ) >> np.uint64(32)


@jit
def _power_of_ten(n):
    """10 to the n, up to 8."""
    out = np.uint64(1)
    if n & 1:
        out = np.uint64(10)
    if n & 2:
        out *= np.uint64(100)
    if n & 4:
        out *= np.uint64(10000)
    if n & 8:
        out *= np.uint64(100000000)
    return out


@jit
def digits(buf, p):
    """(value of up to 20 digits, their number, where they end); beyond 64 bits the number is 99."""
    text = word(buf, p) ^ _ZEROS
    count = _digit_bytes(text)
    if count < 8:
        if count == 0:
            return np.uint64(0), 0, p
        # Zeros in front are moved in from below.
        return _eight_digits(text << np.uint64(64 - 8 * count)), count, p + count
    value = _eight_digits(text)
    text = word(buf, p + 8) ^ _ZEROS
    count = _digit_bytes(text)
    if count < 8:
        if count:
            more = _eight_digits(text << np.uint64(64 - 8 * count))
            value = value * _power_of_ten(count) + more
        return value, 8 + count, p + 8 + count
    value = value * np.uint64(100000000) + _eight_digits(text)
    count = 16
    p += 16
    while True:
        d = byte(buf, p) - 0x30
        if d < 0 or d > 9:
            return value, count, p
        if count >= 19 and (
            count > 19
            or value > np.uint64(1844674407370955161)
            or (value == np.uint64(1844674407370955161) and d > 5)
        ):
            return value, 99, p
        value = value * np.uint64(10) + np.uint64(d)
        count += 1
        p += 1


@jit
def integer(buf, p):
    """(int64, one past it, True) of the integer at p, or (_, where it stopped, False)."""
    negative = byte(buf, p) == 0x2D
    value, count, end = digits(buf, p + 1 if negative else p)
    if count == 0 or count > 20 or value == np.uint64(1 << 63):
        return 0, end, False
    c = byte(buf, end)
    if c == 0x2E or c == 0x65 or c == 0x45:
        return 0, end, False
    if negative:
        if count > 18:
            return 0, end, False
        return -np.int64(value), end, True
    return np.int64(value), end, True


@rarely
def hexadecimal(buf, p):
    """The same of hex digits, as in "0x1f"."""
    value = 0
    start = p
    while True:
        c = byte(buf, p)
        if 0x30 <= c <= 0x39:
            d = c - 0x30
        elif 0x61 <= (c | 0x20) <= 0x66:
            d = (c | 0x20) - 0x57
        else:
            break
        value = value * 16 + d
        p += 1
        if p - start > 15:
            return 0, p, False
    return value, p, p > start


@jit
def nanoseconds(buf, p):
    """(integer ns of the microseconds at p rounded half to even, one past, True) or as above."""
    negative = byte(buf, p) == 0x2D
    if negative:
        p += 1
    value, count, p = digits(buf, p)
    if count == 0 or count > 18 or value >= np.uint64(9_223_372_036_854_774):
        return 0, p, False
    ns = np.int64(value) * 1000
    if byte(buf, p) == 0x2E:
        p += 1
        text = word(buf, p) ^ _ZEROS
        if _digit_bytes(text) == 3:
            ns += np.int64(_eight_digits((text & np.uint64(0xFFFFFF)) << np.uint64(40)))
            c = byte(buf, p + 3)
            if c == 0x65 or c == 0x45:
                return 0, p + 3, False
            return -ns if negative else ns, p + 3, True
        first = p
        scale = 100
        half = 0
        rest = False
        while True:
            d = byte(buf, p) - 0x30
            if d < 0 or d > 9:
                break
            if scale > 0:
                ns += d * scale
                scale //= 10
            elif p - first == 3:
                half = d
            elif d != 0:
                rest = True
            p += 1
        if p == first:
            return 0, p, False
        if half > 5 or (half == 5 and (rest or ns % 2 == 1)):
            ns += 1
    c = byte(buf, p)
    if c == 0x65 or c == 0x45:
        return 0, p, False
    return -ns if negative else ns, p, True


@jit
def literal(buf, p):
    """(1 true, 2 false, 3 null, 0 other; one past it)."""
    # The window's padding is long enough for the loads, and matches no letter.
    text = word(buf, p) & np.uint64(0xFFFFFFFF)
    if text == np.uint64(0x65757274):
        return 1, p + 4
    if text == np.uint64(0x736C6166) and byte(buf, p + 4) == 0x65:
        return 2, p + 5
    if text == np.uint64(0x6C6C756E):
        return 3, p + 4
    return 0, p


@jit
def is_letter(c):
    return 0x61 <= (c | 0x20) <= 0x7A


@jit
def scalar(buf, p):
    """(one past the number or word at p, whether it is a word that JSON does not know)."""
    if is_letter(byte(buf, p)):
        kind, end = literal(buf, p)
        if kind:
            return end, False
    odd = False
    while True:
        check_vector(buf, p)
        bits = _after_number_bits(buf, p)
        if bits == 0:
            p += LANES
            continue
        p += lowest_bit(bits)
        c = byte(buf, p)
        if not is_letter(c):
            return p, odd
        # An exponent's letter is the only one that a number has.
        if (c | 0x20) != 0x65 or odd:
            odd = True
        p += 1
