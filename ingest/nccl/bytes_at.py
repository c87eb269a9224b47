"""Compiled loads and searches on the bytes of a text: what the line scanners stand on.

Importing this module costs numba. Buffers have `line_blocks.PAD` bytes of room behind their lines,
so that no load leaves them; with NUMBA_BOUNDSCHECK=1 each load is checked. Nothing here allocates.
"""

# pyright cannot see through numba's decorators.
# pyright: reportCallIssue=false, reportGeneralTypeIssues=false

from __future__ import annotations

import os

from llvmlite import ir
from numba import types
from numba.extending import intrinsic
from numba.np.arrayobj import make_array

from ..compiled import compiled

CHECKED = os.environ.get("NUMBA_BOUNDSCHECK") == "1"

# No array is owned here: to count who holds them would take a fifth of a scan.
jit = compiled(error_model="numpy", _nrt=False)
inlined = compiled(error_model="numpy", forceinline=True, _nrt=False)

LANES = 32
"""Bytes that are looked at together."""

# --- loads ---------------------------------------------------------------------------------


def _pointer(context, builder, array_type, array, index):
    """Of the byte at an index of an array of any type."""
    data = make_array(array_type)(context, builder, array).data
    return builder.gep(builder.bitcast(data, ir.IntType(8).as_pointer()), [index])


def _loaded(builder, at, bits):
    number = builder.load(builder.bitcast(at, ir.IntType(bits).as_pointer()))
    number.align = 1
    return number


@intrinsic
def _load8(typingctx, buf, p):
    def codegen(context, builder, signature, args):
        at = _pointer(context, builder, signature.args[0], *args)
        return builder.zext(builder.load(at), ir.IntType(64))

    return types.int64(buf, types.int64), codegen


@intrinsic
def _load64(typingctx, buf, p):
    def codegen(context, builder, signature, args):
        return _loaded(builder, _pointer(context, builder, signature.args[0], *args), 64)

    return types.uint64(buf, types.int64), codegen


@intrinsic
def store8(typingctx, buf, p, value):
    def codegen(context, builder, signature, args):
        at = _pointer(context, builder, signature.args[0], args[0], args[1])
        builder.store(builder.trunc(args[2], ir.IntType(8)), at)
        return context.get_dummy_value()

    return types.void(buf, types.int64, types.int64), codegen


def word_at(word: bytes):
    """An intrinsic (buf, p) -> whether this word stands at p, be it beyond the end of a line."""

    @intrinsic
    def stands(typingctx, buf, p):
        def codegen(context, builder, signature, args):
            start = _pointer(context, builder, signature.args[0], *args)
            same, k = None, 0
            while k < len(word):
                size = next(n for n in (8, 4, 2, 1) if n <= len(word) - k)
                at = builder.gep(start, [ir.Constant(ir.IntType(64), k)])
                wanted = int.from_bytes(word[k : k + size], "little")
                here = builder.icmp_unsigned(
                    "==",
                    _loaded(builder, at, 8 * size),
                    ir.Constant(ir.IntType(8 * size), wanted),
                )
                same = here if same is None else builder.and_(same, here)
                k += size
            return same

        return types.boolean(buf, types.int64), codegen

    return stands


def vector_scan(matches):
    """An intrinsic (buf, p) -> bit i set where `matches` marks byte p + i of `LANES`.

    `matches(builder, load, splat)` gets `load(k)`, the bytes from p + k on, and `splat(byte)`; it
    returns a vector of bits. With the largest k it reads LANES + k bytes.
    """

    @intrinsic
    def scan(typingctx, buf, p):
        def codegen(context, builder, signature, args):
            lanes = ir.VectorType(ir.IntType(8), LANES)
            start = _pointer(context, builder, signature.args[0], *args)
            loaded = {}

            def load(k):
                if k not in loaded:
                    at = builder.gep(start, [ir.Constant(ir.IntType(64), k)])
                    loaded[k] = builder.load(builder.bitcast(at, lanes.as_pointer()))
                    loaded[k].align = 1
                return loaded[k]

            def splat(byte):
                return ir.Constant(lanes, [byte] * LANES)

            bits = builder.bitcast(matches(builder, load, splat), ir.IntType(LANES))
            return builder.zext(bits, ir.IntType(64))

        return types.int64(buf, types.int64), codegen

    return scan


def any_of(*words: bytes):
    """For `vector_scan`: marks where one of these words begins."""

    def matches(builder, load, splat):
        found = None
        for word in words:
            here = None
            for k, byte in enumerate(word):
                same = builder.icmp_unsigned("==", load(k), splat(byte))
                here = same if here is None else builder.and_(here, same)
            found = here if found is None else builder.or_(found, here)
        return found

    return matches


@intrinsic
def lowest_bit(typingctx, bits):
    """The number of the lowest bit that is set."""

    def codegen(context, builder, signature, args):
        return builder.cttz(args[0], ir.Constant(ir.IntType(1), 0))

    return types.int64(types.int64), codegen


@jit
def byte(buf, p):
    """The byte at p."""
    if CHECKED and not 0 <= p < buf.size * buf.itemsize:
        raise IndexError("byte")
    return _load8(buf, p)


@jit
def word(buf, p):
    """The eight bytes from p on, the first the least."""
    if CHECKED and not 0 <= p <= buf.size * buf.itemsize - 8:
        raise IndexError("word")
    return _load64(buf, p)


@jit
def check_vector(buf, p, more):
    """Raises IndexError where a vector of LANES + `more` bytes at p would leave the buffer."""
    if CHECKED and not 0 <= p <= buf.size * buf.itemsize - LANES - more:
        raise IndexError("vector")


NEWLINES = vector_scan(any_of(b"\n"))


@jit
def line_end(buf, p, n):
    """Where the line at p ends: its newline, or `n`."""
    while p < n:
        check_vector(buf, p, 0)
        bits = NEWLINES(buf, p)
        if bits:
            return min(p + lowest_bit(bits), n)
        p += LANES
    return n


@jit
def line_start(buf, p):
    """Where the line that holds p begins."""
    while p > 0 and byte(buf, p - 1) != 0x0A:
        p -= 1
    return p
