"""Compiled reading of the numbers of a routing log's text: digits to int64 and to double.

Importing this module costs numba. A number that is not read here (too many digits, a tie that needs
more of them) is none that is wrong: whoever asked has a reader that takes its time.
"""

# pyright cannot see through numba's decorators.
# pyright: reportCallIssue=false, reportGeneralTypeIssues=false

from __future__ import annotations

import os

import numpy as np
from llvmlite import ir
from numba import types
from numba.extending import intrinsic
from numba.np.arrayobj import make_array

from ..compiled import compiled

CHECKED = os.environ.get("NUMBA_BOUNDSCHECK") == "1"

jit = compiled(error_model="numpy")

MOST_DIGITS = 18
"""Of an integer: more may not fit 64 bits."""

_LOW, _HIGH = -65, 55
"""Powers of ten that are read: those of all weights that a model gives, and then some."""


def _powers() -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """(high and low word, exponent of two) of 10**e as the first 128 bits of it, cut off."""
    high, low, shift = [], [], []
    for e in range(_LOW, _HIGH + 1):
        # So many bits that the quotient has 128 of them or more.
        n, up = (10**e, 0) if e >= 0 else ((1 << 512) // 10**-e, -512)
        down = n.bit_length() - 128
        m = n >> down if down >= 0 else n << -down
        high.append(m >> 64)
        low.append(m & (2**64 - 1))
        shift.append(down + up)
    return np.array(high, np.uint64), np.array(low, np.uint64), np.array(shift, np.int64)


_TEN_HIGH, _TEN_LOW, _TEN_SHIFT = _powers()
_EXACT_TENS = np.array([float(10**e) for e in range(23)])
_TWO_LOW = -420
_TWOS = np.array([2.0**e for e in range(_TWO_LOW, 421)])


@intrinsic
def _high_word(typingctx, a, b):
    """The upper 64 bits of a product."""

    def codegen(context, builder, signature, args):
        wide = ir.IntType(128)
        product = builder.mul(builder.zext(args[0], wide), builder.zext(args[1], wide))
        return builder.trunc(builder.lshr(product, ir.Constant(wide, 64)), ir.IntType(64))

    return types.uint64(types.uint64, types.uint64), codegen


@intrinsic
def _leading_zeros(typingctx, a):
    def codegen(context, builder, signature, args):
        return builder.ctlz(args[0], ir.Constant(ir.IntType(1), 0))

    return types.uint64(types.uint64), codegen


@intrinsic
def _trailing_zeros(typingctx, a):
    def codegen(context, builder, signature, args):
        return builder.cttz(args[0], ir.Constant(ir.IntType(1), 0))

    return types.uint64(types.uint64), codegen


@jit
def trailing_zeros(a):
    """How many of the lowest bits of 64 are 0."""
    return np.int64(_trailing_zeros(a))


@intrinsic
def _load(typingctx, buf, p):
    def codegen(context, builder, signature, args):
        data = make_array(signature.args[0])(context, builder, args[0]).data
        return builder.zext(builder.load(builder.gep(data, [args[1]])), ir.IntType(64))

    return types.int64(buf, types.int64), codegen


@intrinsic
def _load64(typingctx, buf, p):
    def codegen(context, builder, signature, args):
        data = make_array(signature.args[0])(context, builder, args[0]).data
        at = builder.bitcast(builder.gep(data, [args[1]]), ir.IntType(64).as_pointer())
        number = builder.load(at)
        number.align = 1
        return number

    return types.uint64(buf, types.int64), codegen


@jit
def word(buf, p):
    """The eight bytes from p on, the first the least."""
    if CHECKED and not 0 <= p <= buf.size - 8:
        raise IndexError("word")
    return _load64(buf, p)


@jit
def byte(buf, p):
    """The byte at p, which is not counted from the end where it is below 0."""
    if CHECKED and not 0 <= p < buf.size:
        raise IndexError("byte")
    return _load(buf, p)


@jit
def integer(buf, p):
    """(value, one past it, True) of the integer at p, (_, where it stopped, False) for none."""
    negative = byte(buf, p) == 0x2D
    if negative:
        p += 1
    start = p
    value = 0
    while True:
        d = byte(buf, p) - 0x30
        if d < 0 or d > 9:
            break
        value = value * 10 + d
        p += 1
    n = p - start
    return (-value if negative else value), p, 0 < n <= MOST_DIGITS


@jit
def times_power(w, e):
    """(the double nearest to w * 10**e, True); (_, False) where this cannot tell it."""
    if w == np.uint64(0):
        return 0.0, True
    if w <= np.uint64(1 << 53) and -22 <= e <= 22:
        # Both are exact, so that the one rounding is right.
        return (np.float64(w) * _EXACT_TENS[e] if e >= 0 else np.float64(w) / _EXACT_TENS[-e]), True
    if e < _LOW or e > _HIGH:
        return 0.0, False
    at = e - _LOW
    left = _leading_zeros(w)
    w = w << left
    # Three words of w times the power: what was cut off the power adds less than one to `middle`.
    middle = w * _TEN_HIGH[at]
    high = _high_word(w, _TEN_HIGH[at])
    more = _high_word(w, _TEN_LOW[at])
    low = w * _TEN_LOW[at]
    middle = middle + more
    if middle < more:
        high += np.uint64(1)
    power = _TEN_SHIFT[at] - np.int64(left) + 128
    if high >> np.uint64(63) == np.uint64(0):
        high = (high << np.uint64(1)) | (middle >> np.uint64(63))
        middle = (middle << np.uint64(1)) | (low >> np.uint64(63))
        low = low << np.uint64(1)
        power -= 1
    mantissa = high >> np.uint64(11)
    rest = high & np.uint64(0x7FF)
    exact = e >= 0
    if rest == np.uint64(0x400) and middle == np.uint64(0) and low == np.uint64(0):
        if not exact:
            return 0.0, False
        mantissa += mantissa & np.uint64(1)
    elif rest >= np.uint64(0x400):
        mantissa += np.uint64(1)
    elif rest == np.uint64(0x3FF) and middle >= np.uint64(2**64 - 4) and not exact:
        return 0.0, False
    return np.float64(mantissa) * _TWOS[power + 11 - _TWO_LOW], True


@jit
def decimal(buf, p, strict):
    """(value, one past it, True) of the decimal number at p, or (_, where it stopped, False).

    With `strict` the number has to be one of JSON: no dot at its ends, no zero before it.
    """
    negative = byte(buf, p) == 0x2D
    if negative:
        p += 1
    start = p
    w = np.uint64(0)
    while True:
        d = byte(buf, p) - 0x30
        if d < 0 or d > 9:
            break
        w = w * np.uint64(10) + np.uint64(d)
        p += 1
    whole = p - start
    if strict and (whole == 0 or (whole > 1 and byte(buf, start) == 0x30)):
        return 0.0, p, False
    power = 0
    if byte(buf, p) == 0x2E:
        p += 1
        first = p
        while True:
            d = byte(buf, p) - 0x30
            if d < 0 or d > 9:
                break
            w = w * np.uint64(10) + np.uint64(d)
            p += 1
        power = first - p
        if power == 0 and (strict or whole == 0):
            return 0.0, p, False
    elif whole == 0:
        return 0.0, p, False
    if whole - power > 19:
        # Zeros in front count for nothing.
        zeros = start
        while byte(buf, zeros) == 0x30 or byte(buf, zeros) == 0x2E:
            zeros += 1
        if p - zeros > 19 or whole > 19 or power < -30:
            return 0.0, p, False
    c = byte(buf, p)
    if c == 0x65 or c == 0x45:
        p += 1
        below = byte(buf, p) == 0x2D
        if below or byte(buf, p) == 0x2B:
            p += 1
        first = p
        e = 0
        while p - first < 4:
            d = byte(buf, p) - 0x30
            if d < 0 or d > 9:
                break
            e = e * 10 + d
            p += 1
        if p == first or p - first > 3:
            return 0.0, p, False
        power += -e if below else e
    value, good = times_power(w, power)
    return (-value if negative else value), p, good
