"""Loads of bytes, and compares of many at once, for compiled scans.

Every load of a scan goes through here, and checks its bounds where NUMBA_BOUNDSCHECK=1.
"""

# pyright cannot see through numba's decorators.
# pyright: reportCallIssue=false, reportGeneralTypeIssues=false

from __future__ import annotations

import os

from llvmlite import ir
from numba import njit, types
from numba.extending import intrinsic
from numba.np.arrayobj import make_array

CHECKED = os.environ.get("NUMBA_BOUNDSCHECK") == "1"

_OPTIONS = {"nogil": True, "error_model": "numpy"}
_INSIDE = {**_OPTIONS, "no_cpython_wrapper": True, "no_cfunc_wrapper": True}

jit = njit(**_INSIDE, forceinline=True)
"""For what a scan does all the time: left to itself, the compiler inlines now one half of it, now
another, and the result may be twice as slow. Nothing is in numba's own cache, which would not see
that a function of another module has changed, or that bounds are checked: `machine_code` keeps it.
"""

rarely = njit(**_INSIDE)
"""For what compiled functions seldom call."""

called = njit(**_OPTIONS)
"""For what Python calls."""

LANES = 32
WIDE = 64
"""Bytes that a vector's compare sees at once, and a wide one's; `blocks.PAD` is no less."""


def _pointer(context, builder, array_type, array, index):
    data = make_array(array_type)(context, builder, array).data
    return builder.gep(data, [index])


def _vector(context, builder, array_type, array, index, lanes):
    kind = ir.VectorType(ir.IntType(8), lanes)
    at = _pointer(context, builder, array_type, array, index)
    loaded = builder.load(builder.bitcast(at, kind.as_pointer()))
    loaded.align = 1
    return loaded


def _bits(builder, hits, lanes):
    """One integer of 64 bits from a vector's truth values, the first in bit 0."""
    bits = builder.bitcast(hits, ir.IntType(lanes))
    return bits if lanes == 64 else builder.zext(bits, ir.IntType(64))


@intrinsic
def _load8(typingctx, buf, p):
    def codegen(context, builder, signature, args):
        loaded = builder.load(_pointer(context, builder, signature.args[0], *args))
        return builder.zext(loaded, ir.IntType(64))

    return types.int64(buf, types.int64), codegen


@intrinsic
def _load64(typingctx, buf, p):
    def codegen(context, builder, signature, args):
        at = _pointer(context, builder, signature.args[0], *args)
        loaded = builder.load(builder.bitcast(at, ir.IntType(64).as_pointer()))
        loaded.align = 1
        return loaded

    return types.uint64(buf, types.int64), codegen


@intrinsic
def _equal(typingctx, buf, p, other, q):
    """Bit i set where byte p + i of one array equals byte q + i of the other, of 64."""

    def codegen(context, builder, signature, args):
        kinds = signature.args
        left = _vector(context, builder, kinds[0], args[0], args[1], WIDE)
        right = _vector(context, builder, kinds[2], args[2], args[3], WIDE)
        return _bits(builder, builder.icmp_unsigned("==", left, right), WIDE)

    return types.uint64(buf, types.int64, other, types.int64), codegen


def classes(matches, lanes=LANES):
    """An intrinsic (buf, p) -> bit i set where byte p + i of `lanes` is one that `matches` marks.

    The bits are an int64 of 32 lanes, a uint64 of 64.
    """
    result = types.uint64 if lanes == 64 else types.int64

    @intrinsic
    def scan(typingctx, buf, p):
        def codegen(context, builder, signature, args):
            loaded = _vector(context, builder, signature.args[0], *args, lanes)
            splats = ir.VectorType(ir.IntType(8), lanes)

            def splat(value):
                return ir.Constant(splats, [value] * lanes)

            return _bits(builder, matches(builder, loaded, splat), lanes)

        return result(buf, types.int64), codegen

    return scan


def one_of(values):
    """Marks the bytes among `values`."""

    def matches(builder, v, splat):
        out = None
        for value in values:
            hit = builder.icmp_unsigned("==", v, splat(value))
            out = hit if out is None else builder.or_(out, hit)
        return out

    return matches


def below(limit):
    """Marks the bytes below `limit`."""
    return lambda builder, v, splat: builder.icmp_unsigned("<", v, splat(limit))


def folded(value):
    """Marks the bytes that are `value` once bit 0x20 is set: both kinds of a bracket."""
    return lambda builder, v, splat: builder.icmp_unsigned(
        "==", builder.or_(v, splat(0x20)), splat(value)
    )


def either(*parts):
    """Marks the bytes that any of the parts marks."""

    def matches(builder, v, splat):
        out = parts[0](builder, v, splat)
        for part in parts[1:]:
            out = builder.or_(out, part(builder, v, splat))
        return out

    return matches


def none_of(part):
    """Marks the bytes that the part does not mark."""
    return lambda builder, v, splat: builder.not_(part(builder, v, splat))


@intrinsic
def lowest_bit(typingctx, bits):
    """The number of the lowest bit that is set; the word's width where none is."""

    def codegen(context, builder, signature, args):
        return builder.cttz(args[0], ir.Constant(ir.IntType(1), 0))

    return types.int64(bits), codegen


@intrinsic
def count_bits(typingctx, bits):
    """How many bits are set."""

    def codegen(context, builder, signature, args):
        return builder.ctpop(args[0])

    return types.int64(bits), codegen


@jit
def byte(buf, p):
    """The byte at p."""
    if CHECKED and not 0 <= p < buf.size:
        raise IndexError("byte")
    return _load8(buf, p)


@jit
def word(buf, p):
    """The 8 bytes from p on as a little-endian number."""
    if CHECKED and not 0 <= p <= buf.size - 8:
        raise IndexError("word")
    return _load64(buf, p)


@jit
def equal(buf, p, other, q):
    """Bit i set where byte p + i of one array equals byte q + i of the other, of WIDE."""
    if CHECKED and not (0 <= p <= buf.size - WIDE and 0 <= q <= other.size - WIDE):
        raise IndexError("equal")
    return _equal(buf, p, other, q)


@jit
def check_vector(buf, p):
    """Raises IndexError, where bounds are checked, unless LANES bytes from p on are there."""
    if CHECKED and not 0 <= p <= buf.size - LANES:
        raise IndexError("vector")


@jit
def check_wide(buf, p):
    """The same of WIDE bytes."""
    if CHECKED and not 0 <= p <= buf.size - WIDE:
        raise IndexError("vector")
