"""Compiled loads, searches and interning on the bytes of a text: what the line scanners stand on.

Importing this module costs numba. Buffers have `line_blocks.PAD` bytes of room behind their lines,
so that no load leaves them; with NUMBA_BOUNDSCHECK=1 each load is checked. Nothing here allocates.
"""

# pyright cannot see through numba's decorators.
# pyright: reportCallIssue=false, reportGeneralTypeIssues=false

from __future__ import annotations

import os

import numpy as np
from llvmlite import ir
from numba import njit, types
from numba.extending import intrinsic
from numba.np.arrayobj import make_array

from .number_rows import NULL

CHECKED = os.environ.get("NUMBA_BOUNDSCHECK") == "1"

jit = njit(nogil=True, cache=True, error_model="numpy")

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
def _store8(typingctx, buf, p, value):
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


_newlines = vector_scan(any_of(b"\n"))


@jit
def line_end(buf, p, n):
    """Where the line at p ends: its newline, or `n`."""
    while p < n:
        check_vector(buf, p, 0)
        bits = _newlines(buf, p)
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


# --- symbols -------------------------------------------------------------------------------


@jit
def _mixed(h, value):
    h = (h ^ value) * np.uint64(0xFF51AFD7ED558CCD)
    return h ^ (h >> np.uint64(32))


@jit
def _hash(buf, start, end, seed):
    h = np.uint64(seed) ^ (np.uint64(end - start) * np.uint64(0x9E3779B97F4A7C15))
    p = start
    while p + 8 <= end:
        h = _mixed(h, word(buf, p))
        p += 8
    if p < end:
        tail = word(buf, p) & ((np.uint64(1) << np.uint64(8 * (end - p))) - np.uint64(1))
        h = _mixed(h, tail)
    h *= np.uint64(0xC4CEB9FE1A85EC53)
    return h ^ (h >> np.uint64(29))


@jit
def _same(buf, start, end, arena, at):
    p = start
    while p + 8 <= end:
        if word(buf, p) != word(arena, at):
            return False
        p += 8
        at += 8
    if p < end:
        mask = (np.uint64(1) << np.uint64(8 * (end - p))) - np.uint64(1)
        return (word(buf, p) & mask) == (word(arena, at) & mask)
    return True


COUNT, SEED, MOST, ARENA_BYTES = range(4)
"""A table is one array of 64-bit numbers: these four, twice MOST slots, then what it holds."""
_HEAD = 4

FULL = -2


@jit
def intern(buf, start, end, table):
    """The code of the bytes from start to end in a table of `Texts`, a new one if need be.

    FULL where no room is.
    """
    most = table[MOST]
    offsets = _HEAD + 2 * most
    hashes = offsets + most + 1
    arena = 8 * (hashes + most)
    h = np.int64(_hash(buf, start, end, table[SEED]))
    mask = 2 * most - 1
    i = h & mask
    while True:
        code = table[_HEAD + i]
        if code < 0:
            break
        if table[hashes + code] == h:
            at = table[offsets + code]
            if table[offsets + code + 1] - at == end - start and _same(
                buf, start, end, table, arena + at
            ):
                return code
        i = (i + 1) & mask
    code = table[COUNT]
    at = table[offsets + code]
    if code >= most or at + (end - start) + 16 > table[ARENA_BYTES]:
        return FULL
    for k in range(end - start):
        _store8(table, arena + at + k, byte(buf, start + k))
    table[offsets + code + 1] = at + (end - start)
    table[hashes + code] = h
    table[_HEAD + i] = code
    table[COUNT] = code + 1
    return code


@jit
def intern_numbers(a, b, c, table):
    """The code of three numbers in a table of `Triples`, a new one if need be; FULL as above."""
    most = table[MOST]
    keys = _HEAD + 2 * most
    mixed = _mixed(_mixed(_mixed(np.uint64(table[SEED]), np.uint64(a)), np.uint64(b)), np.uint64(c))
    mixed *= np.uint64(0xC4CEB9FE1A85EC53)
    mixed ^= mixed >> np.uint64(29)
    mask = 2 * most - 1
    i = np.int64(mixed) & mask
    while True:
        code = table[_HEAD + i]
        if code < 0:
            break
        at = keys + 3 * code
        if table[at] == a and table[at + 1] == b and table[at + 2] == c:
            return code
        i = (i + 1) & mask
    code = table[COUNT]
    if code >= most:
        return FULL
    at = keys + 3 * code
    table[at] = a
    table[at + 1] = b
    table[at + 2] = c
    table[_HEAD + i] = code
    table[COUNT] = code + 1
    return code


@jit
def recode(column, place, used):
    """Puts codes by order of first use in place of a column's own; how many `used` has of them.

    `place` has room for each code and is -1 throughout, before and after. NULL becomes -1.
    """
    n = 0
    for i in range(column.size):
        code = column[i]
        if code == NULL:
            column[i] = -1
            continue
        if place[code] < 0:
            place[code] = n
            used[n] = code
            n += 1
        column[i] = place[code]
    for i in range(n):
        place[used[i]] = -1
    return n
