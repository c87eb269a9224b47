"""The compiled scan of Chrome-trace events: bytes to columns, with no object per event.

Importing this module costs numba (about a second) and calling it compiles where `machine_code` has
nothing kept; `scanner` is what to import. Every load goes through the functions at the top, which
check their bounds when NUMBA_BOUNDSCHECK=1.
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

from .blocks import END, FULL, MALFORMED, MAX_EVENT_BYTES, MORE
from .rawbatch import ARG, EVENT, NULL
from .scan_tables import (
    ARGS,
    CHAR,
    CLEARED,
    DUPLICATE_AT,
    DUPLICATES,
    ID,
    KEY_BYTES,
    N_COUNTERS,
    N_SLOTS,
    N_SYMBOLS,
    ODD,
    ODD_AT,
    POS,
    PRODUCT,
    ROWS,
    SEED,
    SYM,
    SYMBOLS_FULL,
    US,
)

CHECKED = os.environ.get("NUMBA_BOUNDSCHECK") == "1"

_jit = njit(nogil=True, cache=True, error_model="numpy")

# --- loads ---------------------------------------------------------------------------------


def _pointer(context, builder, array_type, array, index):
    data = make_array(array_type)(context, builder, array).data
    return builder.gep(data, [index])


@intrinsic
def _load8(typingctx, buf, p):
    def codegen(context, builder, signature, args):
        byte = builder.load(_pointer(context, builder, signature.args[0], *args))
        return builder.zext(byte, ir.IntType(64))

    return types.int64(buf, types.int64), codegen


@intrinsic
def _load64(typingctx, buf, p):
    def codegen(context, builder, signature, args):
        at = _pointer(context, builder, signature.args[0], *args)
        at = builder.bitcast(at, ir.IntType(64).as_pointer())
        word = builder.load(at)
        word.align = 1
        return word

    return types.uint64(buf, types.int64), codegen


def _vector_scan(matches):
    """An intrinsic (buf, p) -> bit i set where byte p + i of 32 is one that `matches` marks."""

    @intrinsic
    def scan(typingctx, buf, p):
        def codegen(context, builder, signature, args):
            lanes = ir.VectorType(ir.IntType(8), 32)
            at = _pointer(context, builder, signature.args[0], *args)
            at = builder.bitcast(at, lanes.as_pointer())
            vector = builder.load(at)
            vector.align = 1

            def splat(byte):
                return ir.Constant(lanes, [byte] * 32)

            hits = matches(builder, vector, splat)
            bits = builder.bitcast(hits, ir.IntType(32))
            return builder.zext(bits, ir.IntType(64))

        return types.int64(buf, types.int64), codegen

    return scan


def _string_stop(builder, v, splat):
    # Quote, backslash, control character (which is also the padding).
    quote = builder.icmp_unsigned("==", v, splat(0x22))
    slash = builder.icmp_unsigned("==", v, splat(0x5C))
    control = builder.icmp_unsigned("<", v, splat(0x20))
    return builder.or_(builder.or_(quote, slash), control)


def _nested_stop(builder, v, splat):
    # 0x20 folds the square brackets onto the braces.
    folded = builder.or_(v, splat(0x20))
    opening = builder.icmp_unsigned("==", folded, splat(0x7B))
    closing = builder.icmp_unsigned("==", folded, splat(0x7D))
    quote = builder.icmp_unsigned("==", v, splat(0x22))
    padding = builder.icmp_unsigned("==", v, splat(0))
    return builder.or_(builder.or_(opening, closing), builder.or_(quote, padding))


def _space_stop(builder, v, splat):
    out = builder.icmp_unsigned("!=", v, splat(0x20))
    for byte in (0x0A, 0x0D, 0x09):
        out = builder.and_(out, builder.icmp_unsigned("!=", v, splat(byte)))
    return out


_string_bits = _vector_scan(_string_stop)
_nested_bits = _vector_scan(_nested_stop)
_space_bits = _vector_scan(_space_stop)


@intrinsic
def _lowest_bit(typingctx, bits):
    def codegen(context, builder, signature, args):
        return builder.cttz(args[0], ir.Constant(ir.IntType(1), 0))

    return types.int64(types.int64), codegen


@_jit
def _byte(buf, p):
    if CHECKED and not 0 <= p < buf.size:
        raise IndexError("byte")
    return _load8(buf, p)


@_jit
def _word(buf, p):
    if CHECKED and not 0 <= p <= buf.size - 8:
        raise IndexError("word")
    return _load64(buf, p)


@_jit
def _check_vector(buf, p):
    if CHECKED and not 0 <= p <= buf.size - 32:
        raise IndexError("vector")


# --- tokens --------------------------------------------------------------------------------
# Each gives the position where it stopped; the zero padding stops all of them at the window's end.


@_jit
def _space(buf, p):
    """The first byte from p on that is not white space."""
    if _byte(buf, p) > 0x20:
        return p
    if _byte(buf, p) == 0x20 and _byte(buf, p + 1) > 0x20:
        return p + 1
    while True:
        _check_vector(buf, p)
        bits = _space_bits(buf, p)
        if bits:
            return p + _lowest_bit(bits)
        p += 32


@_jit
def _string(buf, p):
    """(position of the quote that ends the string whose text begins at p, any escapes).

    The position of another byte where a control character or the window's end comes first.
    """
    escaped = False
    while True:
        _check_vector(buf, p)
        bits = _string_bits(buf, p)
        if bits == 0:
            p += 32
            continue
        p += _lowest_bit(bits)
        if _byte(buf, p) != 0x5C:
            return p, escaped
        escaped = True
        # The escaped byte is stepped over unless it is a control character or padding.
        p += 1
        if _byte(buf, p) >= 0x20:
            p += 1


@_jit
def _nested(buf, p):
    """(one past the bracket that closes the one at p, True), or (where it stopped, False)."""
    depth = 0
    while True:
        _check_vector(buf, p)
        bits = _nested_bits(buf, p)
        if bits == 0:
            p += 32
            continue
        at = p
        while bits:
            at = p + _lowest_bit(bits)
            bits &= bits - 1
            c = _byte(buf, at)
            if c == 0x22:
                at, _ = _string(buf, at + 1)
                if _byte(buf, at) != 0x22:
                    return at, False
                at += 1
                c = _byte(buf, at)
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
                at = p + 32
        p = at


@_jit
def _digits(buf, p):
    """(value of up to 20 digits, their number, where they end); beyond 64 bits the number is 99."""
    value = np.uint64(0)
    start = p
    while True:
        d = _byte(buf, p) - 0x30
        if d < 0 or d > 9:
            return value, p - start, p
        count = p - start
        if count >= 19 and (
            count > 19
            or value > np.uint64(1844674407370955161)
            or (value == np.uint64(1844674407370955161) and d > 5)
        ):
            return value, 99, p
        value = value * np.uint64(10) + np.uint64(d)
        p += 1


@_jit
def _integer(buf, p):
    """(int64, one past it, True) of the integer at p, or (_, where it stopped, False)."""
    negative = _byte(buf, p) == 0x2D
    value, count, end = _digits(buf, p + 1 if negative else p)
    if count == 0 or count > 20 or value == np.uint64(1 << 63):
        return 0, end, False
    c = _byte(buf, end)
    if c == 0x2E or c == 0x65 or c == 0x45:
        return 0, end, False
    if negative:
        if count > 18:
            return 0, end, False
        return -np.int64(value), end, True
    return np.int64(value), end, True


@_jit
def _hex(buf, p):
    """The same of hex digits, as in "0x1f"."""
    value = 0
    start = p
    while True:
        c = _byte(buf, p)
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


@_jit
def _nanoseconds(buf, p):
    """(integer ns of the microseconds at p rounded half to even, one past, True) or as above."""
    negative = _byte(buf, p) == 0x2D
    if negative:
        p += 1
    value, count, p = _digits(buf, p)
    if count == 0 or count > 18 or value >= np.uint64(9_223_372_036_854_774):
        return 0, p, False
    ns = np.int64(value) * 1000
    if _byte(buf, p) == 0x2E:
        p += 1
        first = p
        scale = 100
        half = 0
        rest = False
        while True:
            d = _byte(buf, p) - 0x30
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
    c = _byte(buf, p)
    if c == 0x65 or c == 0x45:
        return 0, p, False
    return -ns if negative else ns, p, True


@_jit
def _literal(buf, p):
    """(1 true, 2 false, 3 null, 0 other; one past it)."""
    # The window's padding is long enough for the loads, and matches no letter.
    word = _word(buf, p) & np.uint64(0xFFFFFFFF)
    if word == np.uint64(0x65757274):
        return 1, p + 4
    if word == np.uint64(0x736C6166) and _byte(buf, p + 4) == 0x65:
        return 2, p + 5
    if word == np.uint64(0x6C6C756E):
        return 3, p + 4
    return 0, p


@_jit
def _is_letter(c):
    return 0x61 <= (c | 0x20) <= 0x7A


@_jit
def _scalar(buf, p):
    """(one past the number or word at p, whether it is a word that JSON does not know)."""
    kind, end = _literal(buf, p)
    if kind:
        return end, False
    odd = False
    while True:
        c = _byte(buf, p)
        if 0x30 <= c <= 0x39 or c == 0x2B or c == 0x2D or c == 0x2E:
            p += 1
        elif _is_letter(c):
            # An exponent's letter is the only one that a number has.
            if (c | 0x20) != 0x65 or odd:
                odd = True
            p += 1
        else:
            return p, odd


# --- symbols -------------------------------------------------------------------------------


@_jit
def _hash(buf, start, end, seed):
    h = np.uint64(seed) ^ (np.uint64(end - start) * np.uint64(0x9E3779B97F4A7C15))
    p = start
    while p + 8 <= end:
        h = (h ^ _word(buf, p)) * np.uint64(0xFF51AFD7ED558CCD)
        h ^= h >> np.uint64(32)
        p += 8
    if p < end:
        last = _word(buf, p) & ((np.uint64(1) << np.uint64(8 * (end - p))) - np.uint64(1))
        h = (h ^ last) * np.uint64(0xFF51AFD7ED558CCD)
        h ^= h >> np.uint64(32)
    h *= np.uint64(0xC4CEB9FE1A85EC53)
    return h ^ (h >> np.uint64(29))


@_jit
def _same(buf, start, end, arena, at):
    p = start
    while p + 8 <= end:
        if _word(buf, p) != _word(arena, at):
            return False
        p += 8
        at += 8
    if p < end:
        mask = (np.uint64(1) << np.uint64(8 * (end - p))) - np.uint64(1)
        return (_word(buf, p) & mask) == (_word(arena, at) & mask)
    return True


@_jit
def _intern(buf, start, end, state, slots, offsets, hashes, arena):
    """The code of the bytes from start to end, a new one if need be; -2 where there is no room."""
    h = _hash(buf, start, end, state[SEED])
    mask = slots.size - 1
    i = np.int64(h & np.uint64(mask))
    while True:
        code = np.int64(slots[i])
        if code < 0:
            break
        if hashes[code] == h:
            at = offsets[code]
            if offsets[code + 1] - at == end - start and _same(buf, start, end, arena, at):
                return code
        i = (i + 1) & mask
    code = state[N_SYMBOLS]
    at = offsets[code]
    if code + 2 > offsets.size - 1 or 2 * (code + 1) > slots.size:
        return -2
    if at + (end - start) + 16 > arena.size:
        return -2
    for k in range(end - start):
        arena[at + k] = buf[start + k]
    offsets[code + 1] = at + (end - start)
    hashes[code] = h
    slots[i] = code
    state[N_SYMBOLS] = code + 1
    return code


# --- declared keys -------------------------------------------------------------------------


@_jit
def _field(buf, start, end, where, key_field, key_text, key_length, key_first, key_last):
    """The number of the declared key from start to end, -1 for other keys."""
    length = end - start
    if length <= 0 or length >= KEY_BYTES:
        return -1
    lo = _word(buf, start)
    if length < 8:
        lo &= (np.uint64(1) << np.uint64(8 * length)) - np.uint64(1)
        hi = lo
    else:
        hi = _word(buf, end - 8)
    h = lo ^ (hi * np.uint64(0x9E3779B97F4A7C15)) ^ np.uint64(length * 31 + where * 7)
    h *= np.uint64(0xFF51AFD7ED558CCD)
    slot = np.int64(h >> np.uint64(56))
    tagged = length + KEY_BYTES * where
    while True:
        number = key_field[slot]
        if number < 0:
            return -1
        if key_length[slot] == tagged and key_first[slot] == lo and key_last[slot] == hi:
            same = True
            # The 16 bytes above say all of a key that is no longer than that.
            for k in range(8, length - 8):
                if np.int64(key_text[slot, k]) != _byte(buf, start + k):
                    same = False
            if same:
                return number
        slot = (slot + 1) & (N_SLOTS - 1)


# --- events --------------------------------------------------------------------------------

_CLEAR_ROWS = 512


@_jit
def scan_events(
    buf, n, state, ph, ints, syms, capacity, slots, offsets, hashes, arena, counters,
    key_field, key_text, key_length, key_first, key_last, kind_of, row_of, sym_row_of,
):  # fmt: skip
    """Reads events from `state[POS]` on into rows from `state[ROWS]` on; why it stopped.

    `buf` holds `n` bytes and at least 64 zeros after them. Row `ints[-1]` gets the event's position
    in `buf`. `counters` gets (row, first byte, one past the last) of events with ph "C".
    """
    p = state[POS]
    row = state[ROWS]
    n_ints = ints.shape[0]
    while True:
        p = _space(buf, p)
        while _byte(buf, p) == 0x2C:
            p = _space(buf, p + 1)
        state[POS] = p
        state[ROWS] = row
        if p >= n:
            return MORE
        c = _byte(buf, p)
        if c == 0x5D:
            return END
        if c != 0x7B:
            return MALFORMED
        if row >= capacity:
            return FULL
        if row >= state[CLEARED]:
            # Nulls in runs of rows: one column after the other would miss the cache each time.
            to = min(row + _CLEAR_ROWS, capacity)
            ph[row:to] = 0
            ints[:, row:to] = NULL
            syms[:, row:to] = -1
            state[CLEARED] = to
        start = p
        ints[n_ints - 1, row] = start
        where = EVENT
        seen = np.int64(0)
        duplicates = 0
        odd = False
        why = MALFORMED
        p = _space(buf, p + 1)
        good = True
        if _byte(buf, p) == 0x7D:
            p += 1
        else:
            good = False
            while True:
                if _byte(buf, p) != 0x22:
                    break
                key = p + 1
                p, escaped = _string(buf, key)
                if _byte(buf, p) != 0x22 or escaped:
                    break
                f = _field(buf, key, p, where, key_field, key_text, key_length, key_first, key_last)
                p = _space(buf, p + 1)
                if _byte(buf, p) != 0x3A:
                    break
                p = _space(buf, p + 1)
                c = _byte(buf, p)
                if f < 0:
                    if c == 0x22:
                        p, escaped = _string(buf, p + 1)
                        if _byte(buf, p) != 0x22:
                            break
                        p += 1
                    elif c == 0x7B or c == 0x5B:
                        p, ok = _nested(buf, p)
                        if not ok:
                            break
                    else:
                        first = p
                        p, strange = _scalar(buf, p)
                        if p == first:
                            break
                        odd = odd or strange
                else:
                    bit = np.int64(1) << f
                    if seen & bit:
                        if f == ARGS:
                            # The first args' values would have to go; rare enough to leave.
                            break
                        duplicates += 1
                    seen |= bit
                    if f == ARGS:
                        if c != 0x7B:
                            kind, p = _literal(buf, p)
                            if kind != 3:
                                break
                        else:
                            p = _space(buf, p + 1)
                            if _byte(buf, p) != 0x7D:
                                where = ARG
                                continue
                            p += 1
                    else:
                        kind = kind_of[f]
                        at = row_of[f]
                        if kind == SYM or (kind == ID and c == 0x22):
                            if c == 0x22:
                                first = p + 1
                                p, escaped = _string(buf, first)
                                if _byte(buf, p) != 0x22:
                                    break
                                code = _intern(buf, first, p, state, slots, offsets, hashes, arena)
                                p += 1
                            else:
                                first = p
                                literal, p = _literal(buf, p)
                                code = -1
                                if literal != 3:
                                    p, strange = _scalar(buf, first)
                                    if p == first or strange or p >= n:
                                        break
                                    code = _intern(
                                        buf, first, p, state, slots, offsets, hashes, arena
                                    )
                            if code == -2:
                                why = SYMBOLS_FULL
                                break
                            if kind == ID:
                                syms[sym_row_of[f], row] = code
                                ints[at, row] = NULL
                            else:
                                syms[at, row] = code
                        elif kind == CHAR:
                            if c != 0x22:
                                break
                            value = _byte(buf, p + 1)
                            if (
                                _byte(buf, p + 2) == 0x22
                                and 0x20 <= value < 0x80
                                and value != 0x22
                                and value != 0x5C
                            ):
                                ph[row] = value
                                p += 3
                            else:
                                first = p + 1
                                p, escaped = _string(buf, first)
                                if _byte(buf, p) != 0x22 or escaped or p - first == 2:
                                    break
                                ph[row] = 0
                                p += 1
                        elif kind == PRODUCT:
                            value = 1
                            if c == 0x5B:
                                p += 1
                                ok = False
                                while True:
                                    p = _space(buf, p)
                                    item, count, p = _digits(buf, p)
                                    if count == 0 or count > 9 or value >= 1 << 31:
                                        break
                                    value *= np.int64(item)
                                    p = _space(buf, p)
                                    c = _byte(buf, p)
                                    if c == 0x2C:
                                        p += 1
                                        continue
                                    ok = c == 0x5D
                                    break
                                if not ok:
                                    break
                                p += 1
                            else:
                                literal, p = _literal(buf, p)
                                if literal != 3:
                                    break
                                value = NULL
                            ints[at, row] = value
                        else:
                            quoted = c == 0x22
                            if quoted:
                                p += 1
                                c = _byte(buf, p)
                            if c == 0x2D or 0x30 <= c <= 0x39:
                                if kind == US:
                                    value, p, ok = _nanoseconds(buf, p)
                                elif quoted and c == 0x30 and (_byte(buf, p + 1) | 0x20) == 0x78:
                                    value, p, ok = _hex(buf, p + 2)
                                else:
                                    value, p, ok = _integer(buf, p)
                                if not ok:
                                    break
                                if quoted:
                                    if _byte(buf, p) != 0x22:
                                        break
                                    p += 1
                            else:
                                if quoted:
                                    break
                                literal, p = _literal(buf, p)
                                if literal == 3:
                                    value = NULL
                                elif literal != 0 and kind != US:
                                    value = np.int64(2 - literal)
                                else:
                                    break
                            ints[at, row] = value
                            if kind == ID:
                                syms[sym_row_of[f], row] = -1
                p = _space(buf, p)
                c = _byte(buf, p)
                if c == 0x7D and where == ARG:
                    where = EVENT
                    p = _space(buf, p + 1)
                    c = _byte(buf, p)
                if c == 0x2C:
                    p = _space(buf, p + 1)
                    continue
                if c == 0x7D and where == EVENT:
                    p += 1
                    good = True
                break
        if not good or p - start > MAX_EVENT_BYTES:
            # The row is null again, whoever fills it.
            ph[row] = 0
            ints[:, row] = NULL
            syms[:, row] = -1
            state[POS] = start
            if why == MALFORMED and p >= n:
                return MORE
            return why
        if ph[row] == 0x43:
            counters[state[N_COUNTERS], 0] = row
            counters[state[N_COUNTERS], 1] = start
            counters[state[N_COUNTERS], 2] = p
            state[N_COUNTERS] += 1
        if duplicates:
            if state[DUPLICATES] == 0:
                state[DUPLICATE_AT] = start
            state[DUPLICATES] += duplicates
        if odd:
            if state[ODD] == 0:
                state[ODD_AT] = start
            state[ODD] += 1
        row += 1


@_jit
def rebuild_slots(slots, hashes, count):
    """Enters the first `count` hashes into empty `slots` (a power of two of them)."""
    mask = slots.size - 1
    for code in range(count):
        i = np.int64(hashes[code] & np.uint64(mask))
        while slots[i] >= 0:
            i = (i + 1) & mask
        slots[i] = code
