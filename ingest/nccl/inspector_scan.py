"""The compiled pass over Inspector's JSON lines: operations to rows, without an object each.

It takes lines as Inspector prints them: JSON without blanks, escapes or doubled members, whose
numbers are what they should be. Any other line is given back.
"""

# pyright cannot see through numba's decorators.
# pyright: reportCallIssue=false, reportGeneralTypeIssues=false

from __future__ import annotations

import numpy as np

from . import inspector_state as of
from .bytes_at import (
    FULL,
    LANES,
    any_of,
    byte,
    check_vector,
    intern,
    intern_numbers,
    jit,
    line_end,
    lowest_bit,
    recode,
    vector_scan,
    word_at,
)

__all__ = ["header_lines", "recode", "scan"]

NULL = of.NULL
_MOST_DEPTH = 30
_MOST_HEADER = 4096


def _string_stop(builder, load, splat):
    v = load(0)
    quote = builder.icmp_unsigned("==", v, splat(0x22))
    slash = builder.icmp_unsigned("==", v, splat(0x5C))
    control = builder.icmp_signed("<", v, splat(0x20))  # and all that is not ASCII
    return builder.or_(builder.or_(quote, slash), control)


_STRING = vector_scan(_string_stop)
_TELLING = vector_scan(any_of(b'"heade', b"\\", b"proxy_tr"))

_HEADER, _METADATA = word_at(b'"header":'), word_at(b'"metadata":')
_COLL_PERF, _P2P_PERF = word_at(b'"coll_perf":'), word_at(b'"p2p_perf":')
_PROXY, _STATS = word_at(b'"proxy_trace"'), word_at(b'"dump_stats"')
_PROXY_LINE = word_at(b'{"proxy_trace":')
_HEADER_LINE = word_at(b'{"header":{')
_HEADER_WORD = word_at(b'"header"')
_COLL, _P2P = word_at(b'"coll'), word_at(b'"p2p')
_NAME_OF, _SN = word_at(b'":'), word_at(b'_sn":')
_BYTES, _MICROS = word_at(b'_msg_size_bytes":'), word_at(b'_exec_time_us":')
_TIMING, _START = word_at(b'_timing_source":'), word_at(b'_start_ts":')
_ALGO, _PROTO = word_at(b'"coll_algo":'), word_at(b'"coll_proto":')
_PEER, _TRACE = word_at(b'"p2p_peer":'), word_at(b'"event_trace_ts":')
_KERNELS = word_at(b'"kernel_events":')
_K_START, _K_STOP = word_at(b'"kernel_start_ts":'), word_at(b'"kernel_stop_ts":')
_TRUE, _FALSE, _NULL = word_at(b"true"), word_at(b"false"), word_at(b"null")

# --- JSON: each gives the position behind what it reads, or -1 where it will not take it -----


@jit
def _string(buf, p):
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
        return _string(buf, p)
    if c == 0x2D or 0x30 <= c <= 0x39:
        return _number(buf, p)
    if _TRUE(buf, p) or _NULL(buf, p):
        return p + 4
    return p + 5 if _FALSE(buf, p) else -1


@jit
def _value(buf, p):
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
            p = _string(buf, p)
            if p < 0 or byte(buf, p) != 0x3A:
                return -1
            p += 1


@jit
def _integer(buf, p, state, place):
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
def _other_member(buf, p):
    """Behind a member (name and value) that nothing is read of."""
    if byte(buf, p) != 0x22:
        return -1
    p = _string(buf, p)
    if p < 0 or byte(buf, p) != 0x3A:
        return -1
    return _value(buf, p + 1)


# --- what a line says ------------------------------------------------------------------------


@jit
def _time(value):
    return value * 1000 if 0 < value <= of.MOST_MICROS else NULL


@jit
def _kernel(buf, p, state):
    """Behind one of the kernels of an operation; widens START and STOP."""
    if byte(buf, p) != 0x7B:
        return -1
    p += 1
    seen = 0
    if byte(buf, p) == 0x7D:
        return p + 1
    while True:
        if _K_START(buf, p):
            p = _integer(buf, p + 18, state, of.CODE)
            seen += 1
            at = _time(state[of.CODE])
            if p >= 0 and at != NULL and (state[of.START] == NULL or at < state[of.START]):
                state[of.START] = at
        elif _K_STOP(buf, p):
            p = _integer(buf, p + 17, state, of.CODE)
            seen += 16
            at = _time(state[of.CODE])
            if p >= 0 and at != NULL and (state[of.STOP] == NULL or at > state[of.STOP]):
                state[of.STOP] = at
        else:
            p = _other_member(buf, p)
        if p < 0 or (seen & 15) > 1 or seen > 17:
            return -1
        c = byte(buf, p)
        p += 1
        if c == 0x7D:
            return p
        if c != 0x2C:
            return -1


@jit
def _times(buf, p, state):
    """Behind an operation's times."""
    if byte(buf, p) != 0x7B:
        return -1
    p += 1
    if byte(buf, p) == 0x7D:
        return p + 1
    started = kernels = False
    prefix = 5 if state[of.COLL] else 4
    while True:
        named = _COLL(buf, p) if state[of.COLL] else _P2P(buf, p)
        if named and _START(buf, p + prefix):
            if started:
                return -1
            started = True
            p = _integer(buf, p + prefix + 11, state, of.ENQUEUED)
            if p >= 0:
                state[of.ENQUEUED] = _time(state[of.ENQUEUED])
        elif _KERNELS(buf, p):
            p += 16
            if kernels or byte(buf, p) != 0x5B:
                return -1
            kernels = True
            p += 1
            n = 0
            if byte(buf, p) == 0x5D:
                p += 1
            else:
                while True:
                    p = _kernel(buf, p, state)
                    if p < 0:
                        return -1
                    n += 1
                    c = byte(buf, p)
                    p += 1
                    if c == 0x5D:
                        break
                    if c != 0x2C:
                        return -1
                state[of.CHANNELS] = n
        else:
            p = _other_member(buf, p)
        if p < 0:
            return -1
        c = byte(buf, p)
        p += 1
        if c == 0x7D:
            return p
        if c != 0x2C:
            return -1


@jit
def _text(buf, p, state, place):
    """Behind a string, whose bounds go to that place of the state and the next."""
    if byte(buf, p) != 0x22:
        return -1
    end = _string(buf, p)
    if end < 0 or end - p > 200:
        return -1
    state[place] = p + 1
    state[place + 1] = end - 1
    return end


@jit
def _operation(buf, p, state):
    """Behind an operation's object; what it says goes to the state."""
    for place in (of.SN, of.BYTES, of.MICROS, of.PEER, of.START, of.STOP, of.ENQUEUED,
                  of.CHANNELS):  # fmt: skip
        state[place] = NULL
    for place in (of.NAME, of.TIMING, of.ALGO, of.PROTO):
        state[place] = state[place + 1] = 0
    if byte(buf, p) != 0x7B:
        return -1
    p += 1
    if byte(buf, p) == 0x7D:
        return p + 1
    prefix = 5 if state[of.COLL] else 4
    seen = 0
    while True:
        member = -1
        named = _COLL(buf, p) if state[of.COLL] else _P2P(buf, p)
        q = p + prefix
        if named and _NAME_OF(buf, q):
            member = 0
            p = _text(buf, q + 2, state, of.NAME)
        elif named and _SN(buf, q):
            member = 1
            p = _integer(buf, q + 5, state, of.SN)
        elif named and _BYTES(buf, q):
            member = 2
            p = _integer(buf, q + 17, state, of.BYTES)
        elif named and _MICROS(buf, q):
            member = 3
            p = _integer(buf, q + 15, state, of.MICROS)
        elif named and _TIMING(buf, q):
            member = 4
            p = _text(buf, q + 16, state, of.TIMING)
        elif _ALGO(buf, p):
            member = 5
            p = _text(buf, p + 12, state, of.ALGO)
        elif _PROTO(buf, p):
            member = 6
            p = _text(buf, p + 13, state, of.PROTO)
        elif _PEER(buf, p):
            member = 7
            p = _integer(buf, p + 11, state, of.PEER)
        elif _TRACE(buf, p):
            member = 8
            p = _times(buf, p + 17, state)
        else:
            p = _other_member(buf, p)
        if p < 0 or (member >= 0 and seen & (1 << member)):
            return -1
        if member >= 0:
            seen |= 1 << member
        c = byte(buf, p)
        p += 1
        if c == 0x7D:
            return p
        if c != 0x2C:
            return -1


@jit
def _line(buf, p, stop, state, bounds):
    """Reads a whole line: whether it is one operation, as printed.

    `bounds` gets where the header begins (-1: none) and ends, and whether there is metadata.
    """
    bounds[0] = -1
    bounds[2] = 0
    if byte(buf, p) != 0x7B:
        return False
    p += 1
    operations = 0
    while True:
        if _HEADER(buf, p):
            if bounds[0] >= 0 or byte(buf, p + 9) != 0x7B:
                return False
            bounds[0] = p + 9
            p = _value(buf, p + 9)
            bounds[1] = p
            if p - bounds[0] > _MOST_HEADER:
                return False
        elif _METADATA(buf, p):
            if bounds[2] or byte(buf, p + 11) != 0x7B:
                return False
            bounds[2] = 1
            p = _value(buf, p + 11)
        elif _COLL_PERF(buf, p) or _P2P_PERF(buf, p):
            state[of.COLL] = 1 if _COLL_PERF(buf, p) else 0
            operations += 1
            p = _operation(buf, p + (12 if state[of.COLL] else 11), state)
        elif _PROXY(buf, p) or _STATS(buf, p):
            return False
        else:
            p = _other_member(buf, p)
        if p < 0 or operations > 1:
            return False
        c = byte(buf, p)
        p += 1
        if c == 0x7D:
            return operations == 1 and p == stop
        if c != 0x2C:
            return False


# --- rows ------------------------------------------------------------------------------------


@jit
def _row(state, row, place, header, shape, label, rank, lasts):
    """Fills a row; False where the line has to be read by itself, and nothing was changed."""
    micros = state[of.MICROS]
    if not 0 <= micros <= of.MOST_MICROS:
        return False
    start = state[of.START]
    stop = state[of.STOP]
    if start == NULL or stop == NULL or stop < start:
        start = stop = NULL
    if start != NULL and not rank[of.R_TIMED]:
        return False
    sn = state[of.SN]
    gap = shape[of.S_GAP]
    if gap >= 0 and sn != NULL:
        last = lasts[gap, 1]
        if lasts[gap, 0] and sn > last + 1:
            if not rank[of.R_SAMPLED] or last < 0 or sn - last > of.MOST_GAP:
                return False
            rank[of.R_SAMPLED_COUNT] += sn - last - 1
        if not lasts[gap, 0] or sn > last:
            lasts[gap, 0] = 1
            lasts[gap, 1] = sn
    if start != NULL:
        rank[of.R_TIMED_COUNT] += 1
        if rank[of.R_START] == NULL or start < rank[of.R_START]:
            rank[of.R_START] = start
        if rank[of.R_END] == NULL or stop > rank[of.R_END]:
            rank[of.R_END] = stop
    n_bytes = state[of.BYTES]
    known = 0 <= n_bytes <= of.MOST_BYTES
    row[of.ROW_COMM] = place[of.P_COMM]
    row[of.ROW_SEQ] = sn if gap >= 0 else NULL
    row[of.ROW_RANK] = place[of.P_RANK]
    row[of.ROW_OP] = shape[of.S_OP]
    row[of.ROW_IN] = n_bytes * shape[of.S_IN] if known and shape[of.S_IN] >= 0 else NULL
    row[of.ROW_OUT] = n_bytes * shape[of.S_OUT] if known and shape[of.S_OUT] >= 0 else NULL
    row[of.ROW_SIZE] = place[of.P_SIZE]
    peer = state[of.PEER]
    row[of.ROW_PEER] = peer if 0 <= peer < (1 << 32) else NULL
    row[of.ROW_ALGO] = label[of.L_ALGO]
    row[of.ROW_PROTO] = label[of.L_PROTO]
    row[of.ROW_CHANNELS] = state[of.CHANNELS]
    row[of.ROW_START] = start
    row[of.ROW_END] = stop
    row[of.ROW_EXEC] = micros * 1000
    row[of.ROW_ENQUEUED] = state[of.ENQUEUED]
    # The code of `host` is 0: the caller sees to that.
    row[of.ROW_TIMING] = 0 if start != NULL else label[of.L_TIMING]
    row[of.ROW_CLOCK] = 0 if start != NULL else NULL
    number = (state[of.N_ROWS] + 1) & ((1 << of.EVENT_BITS) - 1)
    row[of.ROW_EVENT] = place[of.P_EVENT] | (state[of.TAG] << of.EVENT_BITS) | number
    row[of.ROW_MEMBER] = header
    return True


@jit
def scan(buf, state, slow, rows, notes, headers, places, shapes, labels, ranks, lasts, bounds,
         header_texts, texts, shape_codes, label_codes):  # fmt: skip
    """Reads lines from `state[POS]` on; why it stopped.

    `slow` gets (start, end) of lines to be read by themselves, which are one after another, and
    `notes` of each row whether it is a collective's, and its number. The last four are tables: of
    texts, and of shapes and labels by their numbers.
    """
    n = state[of.N]
    whole = state[of.WHOLE] != 0
    p = state[of.POS]
    while p < n:
        state[of.POS] = p
        end = line_end(buf, p, n)
        state[of.END] = end
        stop = end - 1 if whole and end > p and byte(buf, end - 1) == 0x0D else end
        if state[of.SLOW]:
            # A run of proxies' records is given back together.
            if state[of.SLOW] == slow.shape[0] or not _PROXY_LINE(buf, p):
                return of.SLOW_LINES
        elif stop == p:
            p = end + 1
            continue
        elif end - p <= state[of.MOST] and _line(buf, p, stop, state, bounds):
            left = of.LEFT_COLL if state[of.COLL] else of.LEFT_P2P
            number = np.int64(-1)
            if bounds[0] < 0:
                if state[of.CONTEXT] >= 0 and state[left] > 0:
                    number = state[of.CONTEXT]
            else:
                code = intern(buf, bounds[0], bounds[1], header_texts)
                if code == FULL:
                    return of.TABLES_FULL
                if headers[code, of.H_HOW] == of.UNKNOWN:
                    state[of.CODE] = code
                    return of.LEARN_HEADER
                if headers[code, of.H_HOW] == of.KNOWN:
                    number = headers[code, of.H_NUMBER]
            if number >= 0 and not places[number, of.P_METADATA] and (bounds[0] < 0 or bounds[2]):
                number = np.int64(-1)
            if number >= 0:
                name = intern(buf, state[of.NAME], state[of.NAME_END], texts)
                timing = intern(buf, state[of.TIMING], state[of.TIMING_END], texts)
                algo = intern(buf, state[of.ALGO], state[of.ALGO_END], texts)
                proto = intern(buf, state[of.PROTO], state[of.PROTO_END], texts)
                if min(name, timing, algo, proto) < 0:
                    return of.TABLES_FULL
                if state[of.NAME] == 0:
                    name = np.int64(-1)
                if state[of.TIMING] == 0:
                    timing = np.int64(-1)
                shape = intern_numbers(number, name, state[of.COLL], shape_codes)
                label = intern_numbers(timing, algo, proto, label_codes)
                if shape == FULL or label == FULL:
                    return of.TABLES_FULL
                if shapes[shape, of.S_HOW] == of.UNKNOWN:
                    state[of.CODE] = shape
                    return of.LEARN_SHAPE
                if labels[label, of.L_HOW] == of.UNKNOWN:
                    state[of.CODE] = label
                    return of.LEARN_LABEL
                row = state[of.ROWS]
                if row == rows.shape[0]:
                    return of.PAUSE
                slot = places[number, of.P_SLOT]
                if _row(state, rows[row], places[number], number, shapes[shape], labels[label],
                        ranks[slot], lasts):  # fmt: skip
                    if bounds[0] < 0:
                        state[left] -= 1
                    notes[row, 0] = state[of.COLL]
                    notes[row, 1] = state[of.SN]
                    state[of.ROWS] = row + 1
                    state[of.N_ROWS] += 1
                    state[of.N_RECORDS] += 1
                    p = end + 1
                    if state[of.N_ROWS] % state[of.EVERY] == 0:
                        state[of.POS] = p
                        return of.PAUSE
                    continue
        k = state[of.SLOW]
        slow[k, 0] = p
        slow[k, 1] = end
        state[of.SLOW] = k + 1
        p = end + 1
    state[of.POS] = p
    return of.SLOW_LINES if state[of.SLOW] else of.DONE


@jit
def header_lines(buf, state, known, out, texts):
    """Bounds of lines from `state[POS]` on that may name a communicator not known yet, into `out`.

    `known[code]` says of a header's text that nothing more is to be had of it; the third of `out`
    is the code or -1. Sets `state[HAS_PROXIES]` where a line may be a proxy's. Returns how many,
    FULL where the table of texts is, and sets `state[POS]`.
    """
    n = state[of.N]
    p = state[of.POS]
    found = 0
    while p < n and found < out.shape[0]:
        state[of.POS] = p
        end = line_end(buf, p, n)
        code = np.int64(-1)
        q = p
        if _HEADER_LINE(buf, p):
            at = _value(buf, p + 10)
            if 0 <= at <= p + 10 + _MOST_HEADER:
                code = intern(buf, p + 10, at, texts)
                if code == FULL:
                    return found if found else FULL
                q = at
        wanted = end - p > state[of.MOST] or (code >= 0 and not known[code])
        while q < end:
            check_vector(buf, q, 8)
            bits = _TELLING(buf, q)
            at = q
            while bits:
                at = q + lowest_bit(bits)
                if at >= end:
                    break
                bits &= bits - 1
                if byte(buf, at) == 0x70:
                    state[of.HAS_PROXIES] = 1
                elif byte(buf, at) == 0x5C:
                    state[of.HAS_PROXIES] = 1
                    wanted = wanted or code >= 0
                elif _HEADER_WORD(buf, at):
                    wanted = True
            q += LANES
        if wanted:
            out[found, 0] = p
            out[found, 1] = end
            out[found, 2] = code
            found += 1
        p = end + 1
    state[of.POS] = p
    return found
