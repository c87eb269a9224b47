"""The compiled pass over lines of an NCCL debug log: calls to rows, repeated lines to counts.

Lines that it does not know yet, or will not take, are given back in their order. Importing this
module costs numba; `debug_log_compiled` is what to import.
"""

# pyright cannot see through numba's decorators.
# pyright: reportCallIssue=false, reportGeneralTypeIssues=false

from __future__ import annotations

import numpy as np

from . import debug_log_state as of
from .bytes_at import (
    LANES,
    any_of,
    byte,
    check_vector,
    inlined,
    jit,
    line_end,
    line_start,
    lowest_bit,
    vector_scan,
    word_at,
)
from .debug_log_edges import (
    comm_of,
    link_rows,
    of_pointer,
    ring_rows,
    told,
    tree_rows,
)
from .debug_log_scan_inits import said_inits
from .debug_log_scan_links import said_of_links
from .debug_log_words import MARKED, header, hex_number, mark, number, word_end
from .tables_at import FULL, intern, intern_numbers, recode

NULL = of.NULL

__all__ = ["intern_all", "recode", "said_inits", "said_lines", "scan", "told"]

_SAID = vector_scan(any_of(b"Init ", b"nRanks ", b"COMPL", b"CCL v", b"nThre", b"busbw", b" Pid "))
_READ_BEFORE = vector_scan(any_of(b"COMPLETE", b"Init START", b" nRanks ", b"CCL version"))
_SPECIAL = vector_scan(any_of(b": op", b"-> A", b"COMP", b"t ST", b"nRan", b"CL v"))

# No word goes on beyond its line: none holds the end of one, and noughts follow the last.
_INFO = word_at(b"INFO ")
_CHANNEL, _RING, _TREES, _TREE, _NET = map(
    word_at, (b"Channel ", b"Ring ", b"Trees ", b"Tree ", b"NET/")
)
_VERSION, _START = word_at(b"CCL version"), word_at(b"Init START")
_USING, _MADE = word_at(b" : Using "), word_at(b" : Made virtual ")
_OP_COUNT, _BYTES_ALGO = word_at(b": opCount "), word_at(b" Bytes -> Algo ")
_SEND, _RECV, _ACC = word_at(b" sendbuff "), word_at(b" recvbuff "), word_at(b" acc ")
_OF_COUNT, _TYPE, _REDOP = word_at(b" count "), word_at(b" datatype "), word_at(b" op ")
_AT_ROOT, _OF_COMM, _NRANKS = word_at(b" root "), word_at(b" comm 0x"), word_at(b" [nranks=")


@jit
def said_lines(buf, state, every_mark, out):
    """Bounds of lines from `state[POS]` on that may name a process or a communicator, into `out`.

    With `every_mark` those with NCCL's mark too. Returns how many, and sets `state[POS]`.
    """
    found = 0
    n = state[of.N]
    p = state[of.POS]
    while p < n:
        check_vector(buf, p, 8)
        bits = _SAID(buf, p)
        if every_mark:
            bits |= MARKED(buf, p)
        if bits == 0:
            p += LANES
            continue
        at = p + lowest_bit(bits)
        if at >= n:
            break
        if found == out.shape[0]:
            state[of.POS] = line_start(buf, at)
            return found
        end = line_end(buf, at, n)
        out[found, 0] = line_start(buf, at)
        out[found, 1] = end
        found += 1
        p = end + 1
    state[of.POS] = n
    return found


@jit
def intern_all(buf, bounds, table, codes):
    """The codes of texts from start to end each, as `intern` gives them; how many before FULL."""
    for k in range(bounds.shape[0]):
        code = intern(buf, bounds[k, 0], bounds[k, 1], table)
        if code == FULL:
            return np.int64(k)
        codes[k] = code
    return np.int64(bounds.shape[0])


@jit
def _is_special(buf, p, end):
    while p < end:
        check_vector(buf, p, 8)
        bits = _SPECIAL(buf, p)
        if bits:
            return p + lowest_bit(bits) < end
        p += LANES
    return False


@jit
def _name_end(buf, t, end):
    """Where the name of 1 to 40 letters at t ends."""
    p = t
    while p < end and p - t <= 40:
        c = byte(buf, p)
        if not (0x61 <= c <= 0x7A or 0x41 <= c <= 0x5A or 0x30 <= c <= 0x39 or c == 0x5F):
            break
        p += 1
    return p if 1 <= p - t <= 40 else -1


@jit
def _call(buf, t, end, state):
    """Reads the call whose text begins at t into the state: whether it was one, in full."""
    p = _name_end(buf, t, end)
    if p < 0 or not _OP_COUNT(buf, p):
        return False
    state[of.SAID_NAME_END] = p
    start = p + 10
    _, p = hex_number(buf, start, 16)
    if p == start or not _SEND(buf, p):
        return False
    p = word_end(buf, p + 10, 20)
    if p < 0 or not _RECV(buf, p):
        return False
    p = word_end(buf, p + 10, 20)
    if p < 0:
        return False
    if _ACC(buf, p):
        p = word_end(buf, p + 5, 20)
        if p < 0:
            return False
    if not _OF_COUNT(buf, p):
        return False
    start = p + 7
    state[of.SAID_COUNT], p = number(buf, start, 18)
    if p == start or not _TYPE(buf, p):
        return False
    start = p + 10
    state[of.SAID_TYPE], p = number(buf, start, 4)
    if p == start or not _REDOP(buf, p):
        return False
    start = p + 4
    _, p = number(buf, start, 18)
    if p == start or not _AT_ROOT(buf, p):
        return False
    start = p + 6
    negative = byte(buf, start) == 0x2D
    if negative:
        start += 1
    state[of.SAID_ROOT], p = number(buf, start, 10)
    if negative:
        if state[of.SAID_ROOT] == 0:
            return False
        state[of.SAID_ROOT] = NULL
    if p == start or not _OF_COMM(buf, p):
        return False
    start = p + 8
    state[of.SAID_COMM], p = hex_number(buf, start, 16)
    # A pointer with noughts before it is another text.
    if p == start or (byte(buf, start) == 0x30) or not _NRANKS(buf, p):
        return False
    start = p + 9
    state[of.SAID_RANKS], p = number(buf, start, 10)
    return p > start and p < end and byte(buf, p) == 0x5D


@jit
def _has_call(buf, p, end):
    """Whether the word that marks a call stands from p on, before `end`."""
    while p + 10 <= end:
        if _OP_COUNT(buf, p):
            return True
        p += 1
    return False


@jit
def _has_choice(buf, p, end):
    """The same of the word that marks a choice."""
    while p + 15 <= end:
        if _BYTES_ALGO(buf, p):
            return True
        p += 1
    return False


@jit
def _is_link(buf, t):
    return _CHANNEL(buf, t) or _RING(buf, t) or _TREES(buf, t) or _TREE(buf, t)


@jit
def _kind(buf, t, end, scratch):
    """Writes what tells a message's kind into `scratch`; its length, -1 where it is not ASCII.

    The first five words of its first 80 bytes, with N for each number.
    """
    end = min(end, t + 80)
    for k in range(t, end):
        if byte(buf, k) >= 0x80:
            return -1
    n = 0
    words = 0
    inside = False
    p = t
    while p < end:
        c = byte(buf, p)
        blank = c == 0x20 or 0x09 <= c <= 0x0D or 0x1C <= c <= 0x1F
        if blank:
            inside = False
        elif not inside:
            inside = True
            words += 1
            if words > 5:
                break
        if 0x30 <= c <= 0x39:
            q = p + 1
            if c == 0x30 and q < end and byte(buf, q) == 0x78:
                q += 1
                while q < end and (
                    0x30 <= byte(buf, q) <= 0x39 or 0x61 <= (byte(buf, q) | 0x20) <= 0x66
                ):
                    q += 1
                if q == p + 2:
                    q = p + 1
            if q == p + 1:
                while q < end and 0x30 <= byte(buf, q) <= 0x39:
                    q += 1
            c = 0x4E
            p = q
        else:
            p += 1
        scratch[n] = c
        n += 1
    return n


@jit
def _was_said(buf, p, end):
    """Whether a word stands there, before `end`, of lines that the first pass has read."""
    while p < end:
        check_vector(buf, p, 16)
        bits = _READ_BEFORE(buf, p)
        if bits:
            at = p + lowest_bit(bits)
            return at + (11 if _VERSION(buf, at) else 10 if _START(buf, at) else 8) <= end
        p += LANES
    return False


@jit
def _may_name_nics(buf, t, end):
    """Whether the text at t is one of a network that may name its devices."""
    if not _NET(buf, t):
        return False
    p = t + 4
    while p < end and p - t <= 64:
        if byte(buf, p) == 0x20 and (_USING(buf, p) or _MADE(buf, p)):
            return True
        p += 1
    return False


@inlined
def _links(buf, at, start, t, stop, state, edges, moved, said, who, lists, comms, names, members,
           hosts, routes, pointers, seen, seen_slots, writers, texts, route_codes,
           pointer_codes):  # fmt: skip
    """Adds the rows of a line of links whose text is at t: DONE, or why it cannot."""
    kind = said_of_links(buf, t, stop, state, said)
    if kind == of.IS_NEITHER:
        return of.BARRIER
    writer = intern(buf, start, at, writers)
    if writer == FULL:
        return of.TABLES_FULL
    how = who[writer, of.W_HOW]
    if how == of.UNKNOWN:
        state[of.CODE] = writer
        return of.LEARN_WRITER
    if how == of.BY_HAND:
        return of.BARRIER
    mine = who[writer]
    offset = state[of.BASE] + start
    by_pointer = np.int64(-1)
    if state[of.L_POINTER]:
        code = intern_numbers(mine[of.W_OWNER], state[of.L_POINTER], 0, pointer_codes)
        if code == FULL:
            return of.TABLES_FULL
        if pointers[code, of.P_HOW] == of.UNKNOWN:
            state[of.CODE] = code
            return of.LEARN_POINTER
        first = pointers[code, of.P_START]
        if first < pointers[code, of.P_END]:
            by_pointer = of_pointer(first, pointers[code, of.P_END], offset, comms, lists)
    if kind == of.IS_TREES:
        for k in range(0, 6 * state[of.L_N], 6):
            comm = by_pointer
            if not state[of.L_POINTER]:
                highest = max(said[k + 4], max(said[k + 5], max(said[k + 1], said[k + 2])))
                highest = max(highest, said[k + 3])
                comm = comm_of(mine, offset, said[k + 4], highest, comms, lists)
            tree_rows(k, comm, said, mine, comms, names, members, hosts, seen, seen_slots, state,
                      edges)  # fmt: skip
        return of.DONE
    comm = by_pointer
    if kind == of.IS_LINK:
        via = intern(buf, state[of.L_VIA], state[of.L_VIA_END], texts)
        if via == FULL:
            return of.TABLES_FULL
        code = intern_numbers(via, mine[of.W_NAMES], 0, route_codes)
        if code == FULL:
            return of.TABLES_FULL
        if routes[code, of.R_HOW] == of.UNKNOWN:
            state[of.CODE] = code
            return of.LEARN_ROUTE
        if not state[of.L_POINTER]:
            me = state[of.L_ME]
            comm = comm_of(mine, offset, me, max(me, state[of.L_PEER]), comms, lists)
        if routes[code, of.R_HOW] == of.BY_HAND or (comm < 0 and not state[of.TOLD_UNKNOWN]):
            return of.BARRIER
        if comm < 0:
            state[of.N_UNKNOWN] += 1
        link_rows(comm, mine, routes[code, of.R_VIA], routes[code, of.R_NIC], comms, names,
                  members, hosts, seen, seen_slots, state, edges, moved)  # fmt: skip
        return of.DONE
    n = state[of.L_N]
    if not state[of.L_POINTER]:
        highest = np.int64(0)
        for k in range(n):
            highest = max(highest, said[k])
        comm = comm_of(mine, offset, said[0], highest, comms, lists)
    size = np.int64(n) if comm < 0 else comms[comm, of.C_SIZE]
    if n < size:
        if not state[of.TOLD_CUT]:
            return of.BARRIER
        state[of.N_CUT] += 1
    if n == 1 and size == 1:
        if not state[of.TOLD_ALONE]:
            return of.BARRIER
        state[of.N_ALONE] += 1
        return of.DONE
    ring_rows(comm, n, said, mine, comms, names, members, hosts, seen, seen_slots, state, edges)
    return of.DONE


@jit
def _row(calls, code, counters, state, rows, start):
    """Adds the row of the call that the state holds; whether the rows are full now."""
    row = state[of.ROWS]
    root = state[of.SAID_ROOT]
    count = state[of.SAID_COUNT]
    slot = calls[code, of.SLOT]
    rows[row, of.ROW_SEQ] = NULL
    if slot >= 0:
        rows[row, of.ROW_SEQ] = counters[slot]
        counters[slot] += 1
    side = of.IN_ROOT if root == calls[code, of.PLACE] else of.IN_OTHER
    factor = calls[code, side]
    rows[row, of.ROW_IN] = NULL if factor < 0 else factor * count
    factor = calls[code, side + 1]
    rows[row, of.ROW_OUT] = NULL if factor < 0 else factor * count
    rows[row, of.ROW_COMM] = calls[code, of.COMM]
    rows[row, of.ROW_RANK] = calls[code, of.RANK]
    rows[row, of.ROW_OP] = calls[code, of.OP]
    rows[row, of.ROW_DTYPE] = calls[code, of.DTYPE]
    rows[row, of.ROW_SIZE] = calls[code, of.SIZE]
    what = calls[code, of.ROOT_IS]
    rows[row, of.ROW_ROOT] = root if what == of.IS_ROOT else NULL
    rows[row, of.ROW_PEER] = root if what == of.IS_PEER else NULL
    rows[row, of.ROW_MEMBER] = calls[code, of.MEMBER]
    offset = (state[of.BASE] + start) & np.int64((1 << 34) - 1)
    rows[row, of.ROW_EVENT] = calls[code, of.EVENT] | offset
    state[of.ROWS] = row + 1
    return row + 1 == rows.shape[0]


@jit
def scan(buf, state, slow, rows, counters, calls, choices, kinds, scratch, edges, moved, said, who,
         lists, comms, names, members, hosts, routes, pointers, seen, seen_slots, route_codes,
         pointer_codes, writers, texts, kind_texts, call_codes, choice_codes):  # fmt: skip
    """Reads lines from `state[POS]` on that begin before `state[LIMIT]`; why it stopped.

    `calls[code]` is what is known of a kind of call; `choices` and `kinds` are (known, lines) by
    code, for lines that name NICs the turns at which they said nothing new. `slow` gets (start,
    end, code of its kind or -1) of lines to be read by themselves, which give no rows. From `edges`
    to `pointer_codes` all is as `CompiledLinks.arrays` has it. The last five are tables: of texts,
    and of calls and choices by their numbers.
    """
    n = state[of.N]
    limit = state[of.LIMIT]
    whole = state[of.WHOLE] != 0
    p = state[of.POS]
    while p < limit:
        state[of.POS] = p
        end = line_end(buf, p, n)
        state[of.END] = end
        stop = end - 1 if whole and end > p and byte(buf, end - 1) == 0x0D else end
        code = np.int64(-1)
        at = mark(buf, p, stop) if end - p <= state[of.MOST] else np.int64(-2)
        if at == -1:
            p = end + 1
            continue
        if at == -2 or mark(buf, at + 6, stop) >= 0:
            return of.BARRIER
        if _INFO(buf, at + 6):
            t = at + 11
            start = header(buf, max(p, at - 500), at)
            if _may_name_nics(buf, t, stop):
                if start < 0:
                    return of.BARRIER
                writer = intern(buf, start, at, writers)
                line = intern(buf, t, stop, texts)
                if writer == FULL or line == FULL:
                    return of.TABLES_FULL
                code = intern_numbers(writer, line, 1, choice_codes)
                if code == FULL:
                    return of.TABLES_FULL
                if (choices[code, 0] != state[of.NIC_TURN]
                        or choices[code, 1] != state[of.CLEARED]):  # fmt: skip
                    state[of.CODE] = code
                    return of.LEARN_NICS
                p = end + 1
                continue
            if _is_link(buf, t):
                if start < 0 or _TREE(buf, t):
                    return of.BARRIER
                why = _links(
                    buf, at, start, t, stop, state, edges, moved, said, who, lists, comms, names,
                    members, hosts, routes, pointers, seen, seen_slots, writers, texts,
                    route_codes, pointer_codes,
                )  # fmt: skip
                if why != of.DONE:
                    return why
                p = end + 1
                if max(state[of.EDGES], state[of.MOVED]) >= state[of.MOST_EDGES]:
                    state[of.POS] = p
                    return of.ROWS_FULL
                continue
            if start >= 0:
                if _call(buf, t, stop, state):
                    writer = intern(buf, start, at, writers)
                    name = intern(buf, t, state[of.SAID_NAME_END], texts)
                    if writer == FULL or name == FULL:
                        return of.TABLES_FULL
                    kind = (state[of.SAID_RANKS] << 16) | state[of.SAID_TYPE]
                    caller = (writer << 32) | name
                    code = intern_numbers(caller, state[of.SAID_COMM], kind, call_codes)
                    if code == FULL:
                        return of.TABLES_FULL
                    how = calls[code, of.HOW]
                    if how == of.UNKNOWN:
                        state[of.CODE] = code
                        return of.LEARN_CALL
                    if how == of.BY_HAND or state[of.SAID_COUNT] > calls[code, of.MOST_COUNT]:
                        return of.BARRIER
                    calls[code, of.LINES] += 1
                    p = end + 1
                    if how == of.ROW and _row(calls, code, counters, state, rows, start):
                        state[of.POS] = p
                        return of.ROWS_FULL
                    continue
                if _is_special(buf, t, min(stop, t + 1024)):
                    if _has_call(buf, t, min(stop, t + 64)):
                        return of.BARRIER
                    if _has_choice(buf, t, min(stop, t + 96)):
                        if stop - t > 400:
                            return of.BARRIER
                        writer = intern(buf, start, at, writers)
                        line = intern(buf, t, stop, texts)
                        if writer == FULL or line == FULL:
                            return of.TABLES_FULL
                        code = intern_numbers(writer, line, 0, choice_codes)
                        if code == FULL:
                            return of.TABLES_FULL
                        if choices[code, 0] == of.UNKNOWN:
                            state[of.CODE] = code
                            return of.LEARN_CHOICE
                        if choices[code, 0] == of.BY_HAND:
                            return of.BARRIER
                        choices[code, 1] += 1
                        p = end + 1
                        continue
                    if _was_said(buf, t, min(stop, t + 1024)):
                        p = end + 1
                        continue
                else:
                    size = _kind(buf, t, stop, scratch)
                    if size >= 0:
                        code = intern(scratch, 0, size, kind_texts)
                        if code == FULL:
                            return of.TABLES_FULL
                        if kinds[code, 0] != of.UNKNOWN:
                            kinds[code, 1] += 1
                            p = end + 1
                            continue
            elif _has_call(buf, t, min(stop, t + 64)) or _has_choice(buf, t, min(stop, t + 96)):
                return of.BARRIER
        k = state[of.SLOW]
        if k == slow.shape[0]:
            return of.SLOW_FULL
        if code >= 0:
            kinds[code, 0] = of.ROW
        slow[k, 0] = p
        slow[k, 1] = end
        slow[k, 2] = code
        state[of.SLOW] = k + 1
        p = end + 1
    state[of.POS] = p
    return of.DONE
