"""The compiled pass over Inspector's JSON lines: records to rows, without an object each.

It takes lines as Inspector prints them: JSON without blanks, escapes or doubled members, whose
numbers are what they should be. Any other line is given back.
"""

# pyright cannot see through numba's decorators.
# pyright: reportCallIssue=false, reportGeneralTypeIssues=false

from __future__ import annotations

import numpy as np

from . import inspector_state as of
from .bytes_at import (
    LANES,
    any_of,
    byte,
    check_vector,
    inlined,
    jit,
    line_end,
    lowest_bit,
    vector_scan,
    word_at,
)
from .columns_at import columns, recode
from .inspector_filled import moved_rows, row_of
from .inspector_said import dump, operation, version
from .inspector_said_proxy import proxy
from .json_bytes import other_member, value
from .tables_at import ABSENT, FULL, intern, intern_numbers, keep, kept

__all__ = ["columns", "header_lines", "keep", "kept", "recode", "scan"]

NULL = of.NULL
_MOST_HEADER = 4096

_TELLING = vector_scan(any_of(b'"heade', b"\\", b"proxy_tr"))

_HEADER, _METADATA = word_at(b'"header":'), word_at(b'"metadata":')
_COLL_PERF, _P2P_PERF = word_at(b'"coll_perf":'), word_at(b'"p2p_perf":')
_PROXY, _STATS = word_at(b'"proxy_trace":'), word_at(b'"dump_stats":')
_STATS_WORD = word_at(b'"dump_stats"')
_PROXY_WORD = word_at(b'"proxy_trace"')
_PROXY_LINE = word_at(b'{"proxy_trace":')
_HEADER_LINE = word_at(b'{"header":{')
_HEADER_WORD = word_at(b'"header"')

NOT_TAKEN, OPERATION, PROXY, DUMP = range(4)
LEARN = -3


@inlined
def _line(buf, p, stop, state, bounds, steps):
    """Reads a whole line: OPERATION, PROXY or DUMP where it is one of these, as printed.

    `bounds` gets where the header begins (-1: none) and ends, and where metadata does (0: none);
    its last place is for `_number`.
    """
    bounds[0] = -1
    bounds[2] = 0
    if byte(buf, p) != 0x7B:
        return NOT_TAKEN
    p += 1
    found = NOT_TAKEN
    records = 0
    while True:
        if _HEADER(buf, p):
            if bounds[0] >= 0 or byte(buf, p + 9) != 0x7B:
                return NOT_TAKEN
            bounds[0] = p + 9
            p = value(buf, p + 9)
            bounds[1] = p
            if p - bounds[0] > _MOST_HEADER:
                return NOT_TAKEN
        elif _METADATA(buf, p):
            if bounds[2] or byte(buf, p + 11) != 0x7B:
                return NOT_TAKEN
            bounds[2] = p + 11
            p = value(buf, p + 11)
        elif _COLL_PERF(buf, p) or _P2P_PERF(buf, p):
            state[of.COLL] = 1 if _COLL_PERF(buf, p) else 0
            records += 1
            found = OPERATION
            p = operation(buf, p + (12 if state[of.COLL] else 11), state)
        elif _PROXY(buf, p):
            records += 1
            found = PROXY
            p = proxy(buf, p + 14, state, steps)
        elif _STATS(buf, p):
            records += 1
            found = DUMP
            p = dump(buf, p + 13, state)
        elif _PROXY_WORD(buf, p) or _STATS_WORD(buf, p):
            return NOT_TAKEN
        else:
            p = other_member(buf, p)
        if p < 0 or records > 1:
            return NOT_TAKEN
        c = byte(buf, p)
        p += 1
        if c == 0x7D:
            return found if p == stop else NOT_TAKEN
        if c != 0x2C:
            return NOT_TAKEN


@inlined
def _number(buf, state, left, bounds, headers, places, header_texts):
    """The number of what a line's header says, or of the dump's it is in; -1 where its line is to
    be read by itself, LEARN for a header not known yet, FULL where the table is. The code of a
    header's text goes to `bounds`."""
    number = np.int64(-1)
    if bounds[0] < 0:
        if state[of.CONTEXT] >= 0 and state[left] > 0:
            number = state[of.CONTEXT]
    else:
        code = intern(buf, bounds[0], bounds[1], header_texts)
        if code == FULL:
            return FULL
        if headers[code, of.H_HOW] == of.UNKNOWN:
            state[of.CODE] = code
            return LEARN
        bounds[3] = code
        if headers[code, of.H_HOW] == of.KNOWN:
            number = headers[code, of.H_NUMBER]
    if number >= 0 and not places[number, of.P_METADATA] and (bounds[0] < 0 or bounds[2]):
        number = np.int64(-1)
    return number


@inlined
def _begun(buf, state, number, code, versions, texts):
    """Begins a dump whose first line the state holds, by its header's number and code: DONE;
    SLOW_LINES where the one before is not at its end."""
    if max(state[of.LEFT_COLL], max(state[of.LEFT_P2P], state[of.LEFT_PROXY])) > 0:
        return of.SLOW_LINES
    which = intern(buf, state[of.NAME], state[of.NAME_END], texts)
    if which == FULL:
        return of.TABLES_FULL
    if versions[which] == of.UNKNOWN:
        state[of.CODE] = which
        return of.LEARN_VERSION
    inside = versions[which] == of.KNOWN
    state[of.CONTEXT] = number if inside else -1
    state[of.CONTEXT_CODE] = code if inside else of.NO_CONTEXT
    state[of.LEFT_COLL] = max(state[of.D_COLL], 0) if inside else 0
    state[of.LEFT_P2P] = max(state[of.D_P2P], 0) if inside else 0
    state[of.LEFT_PROXY] = max(state[of.D_PROXY], 0) if inside else 0
    state[of.STEPS_WRITTEN] = 1 if state[of.D_STEPS] == 1 else 0
    return of.DONE


@inlined
def _named(buf, state, number, shapes, labels, texts, shape_codes, label_codes):
    """(shape, label, DONE) of the operation that the state holds, or why they are not known."""
    name = intern(buf, state[of.NAME], state[of.NAME_END], texts)
    timing = intern(buf, state[of.TIMING], state[of.TIMING_END], texts)
    algo = intern(buf, state[of.ALGO], state[of.ALGO_END], texts)
    proto = intern(buf, state[of.PROTO], state[of.PROTO_END], texts)
    if min(name, timing, algo, proto) < 0:
        return np.int64(0), np.int64(0), of.TABLES_FULL
    if state[of.NAME] == 0:
        name = np.int64(-1)
    if state[of.TIMING] == 0:
        timing = np.int64(-1)
    shape = intern_numbers(number, name, state[of.COLL], shape_codes)
    label = intern_numbers(timing, algo, proto, label_codes)
    why = of.DONE
    if shape == FULL or label == FULL:
        why = of.TABLES_FULL
    elif shapes[shape, of.S_HOW] == of.UNKNOWN:
        state[of.CODE] = shape
        why = of.LEARN_SHAPE
    elif labels[label, of.L_HOW] == of.UNKNOWN:
        state[of.CODE] = label
        why = of.LEARN_LABEL
    return shape, label, why


@inlined
def _noted(state, comm, row, tables, values):
    """Keeps an operation's row for its transfers; a number that two have is none's."""
    kind = of.OF_COLL if state[of.COLL] else of.OF_P2P
    sn = state[of.SN]
    if sn != NULL:
        known = kept(comm, kind, sn, tables, values)
        keep(comm, kind, sn, row if known == ABSENT else NULL, tables, values)


@jit
def scan(buf, state, slow, rows, moved, steps, headers, places, shapes, labels, versions, ranks,
         lasts, bounds, header_texts, texts, shape_codes, label_codes, tables, values):  # fmt: skip
    """Reads lines from `state[POS]` on; why it stopped.

    `slow` gets (start, end) of lines to be read by themselves, which are one after another. `moved`
    are the rows of transfers, `steps` room for those of one record. Behind `bounds` are tables: of
    texts, of shapes and labels by their numbers, and of what is kept (`tables_of_texts.Lately`).
    """
    n = state[of.N]
    whole = state[of.WHOLE] != 0
    p = state[of.POS]
    while p < n:
        state[of.POS] = p
        end = line_end(buf, p, n)
        state[of.END] = end
        stop = end - 1 if whole and end > p and byte(buf, end - 1) == 0x0D else end
        found = NOT_TAKEN
        if stop == p and not state[of.SLOW]:
            p = end + 1
            continue
        if end - p <= state[of.MOST] and (not state[of.SLOW] or _PROXY_LINE(buf, p)):
            found = _line(buf, p, stop, state, bounds, steps)
        if state[of.SLOW]:
            # A run of proxies' records that are not taken is given back together.
            if found or state[of.SLOW] == slow.shape[0] or not _PROXY_LINE(buf, p):
                return of.SLOW_LINES
        elif found:
            left = of.LEFT_PROXY
            if found == OPERATION:
                left = of.LEFT_COLL if state[of.COLL] else of.LEFT_P2P
            number = _number(buf, state, left, bounds, headers, places, header_texts)
            if number == FULL:
                return of.TABLES_FULL
            if number == LEARN:
                return of.LEARN_HEADER
            taken = False
            if found == DUMP:
                named = number >= 0 and bounds[0] >= 0 and bounds[2] > 0
                if named and version(buf, bounds[2], state):
                    why = _begun(buf, state, number, bounds[3], versions, texts)
                    if why == of.DONE:
                        state[of.N_RECORDS] += 1
                        p = end + 1
                        continue
                    if why != of.SLOW_LINES:
                        return why
            elif number >= 0 and found == OPERATION:
                shape, label, why = _named(
                    buf, state, number, shapes, labels, texts, shape_codes, label_codes
                )
                if why != of.DONE:
                    return why
                row = state[of.ROWS]
                if row == rows.shape[0]:
                    return of.PAUSE
                slot = places[number, of.P_SLOT]
                taken = row_of(state, rows[row], places[number], number, shapes[shape],
                               labels[label], ranks[slot], lasts)  # fmt: skip
                if taken:
                    state[of.ROWS] = row + 1
                    state[of.N_ROWS] += 1
                    if state[of.HAS_PROXIES]:
                        comm = places[number, of.P_COMM]
                        _noted(state, comm, rows[row, of.ROW_EVENT], tables, values)
            elif number >= 0:
                if state[of.MOVED] + steps.shape[0] > moved.shape[0]:
                    return of.PAUSE
                slot = places[number, of.P_SLOT]
                taken = moved_rows(
                    state, moved, steps, places[number], number, ranks[slot], tables, values
                )
            if taken:
                if bounds[0] < 0:
                    state[left] -= 1
                state[of.N_RECORDS] += 1
                p = end + 1
                every = found == OPERATION and state[of.N_ROWS] % state[of.EVERY] == 0
                if every or state[of.MOVED] >= state[of.MOST_MOVED]:
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
            at = value(buf, p + 10)
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
