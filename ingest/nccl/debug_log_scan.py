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
    word,
    word_at,
)
from .columns_at import columns, recode
from .debug_log_edges import comm_of, link_rows, of_pointer, ring_rows, told, tree_rows
from .debug_log_scan_calls import call_row, has_call, has_choice, said_call
from .debug_log_scan_inits import noted_inits, said_inits
from .debug_log_scan_kinds import is_link, is_special, kind_of, may_name_nics, was_said
from .debug_log_scan_links import said_of_links
from .debug_log_words import MARKED, header, is_host, marked_line
from .tables_at import FULL, ends_text, intern, intern_numbers

NULL = of.NULL

__all__ = ["columns", "intern_all", "noted_inits", "recode", "said_inits", "said_lines", "scan",
           "told"]  # fmt: skip

_SAID = (b"Init ", b"nRanks ", b"COMPL", b"CCL v", b"nThre", b"busbw", b" Pid ")
_MAY_SAY = vector_scan(any_of(*(word[:3] for word in _SAID)))
"""As few bytes of the words as tell nearly all lines apart: each costs a comparison everywhere."""

_INIT, _RANKS, _COMPLETE, _VERSION, _THREADS, _BANDWIDTH, _PID = map(word_at, _SAID)

# No word goes on beyond its line: none holds the end of one, and noughts follow the last.
_INFO, _TREE = word_at(b"INFO "), word_at(b"Tree ")


@inlined
def _says(buf, p):
    """Whether one of the words stands at p."""
    return (
        _INIT(buf, p) or _RANKS(buf, p) or _COMPLETE(buf, p) or _VERSION(buf, p)
        or _THREADS(buf, p) or _BANDWIDTH(buf, p) or _PID(buf, p)
    )  # fmt: skip


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
        bits = _MAY_SAY(buf, p)
        if every_mark:
            bits |= MARKED(buf, p)
        at = n
        while bits:
            q = p + lowest_bit(bits)
            if q >= n or every_mark or _says(buf, q):
                at = q
                break
            bits &= bits - 1
        if bits == 0:
            p += LANES
            continue
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


_MULTIPLIER = np.uint64(0xFF51AFD7ED558CCD)
_LEAST_HEADER = 9


@inlined
def _lately(buf, low, at, slot, lately, writers):
    """(where a header begins that ends before `at`, code of its text), by a writer seen lately.

    (-1, -1) where none is at hand. The header is the one that `header` finds: it found the same
    text before, and what stands before that is none of a host's name.
    """
    code = lately[slot]
    if code >= 0:
        start = ends_text(buf, low, at, code, writers)
        if start == low or (start > low and not is_host(byte(buf, start - 1))):
            return start, code
    return np.int64(-1), np.int64(-1)


@inlined
def _writer(buf, start, at, slot, lately, writers):
    """The code of the header from start to `at`, which is the slot's from now on; or FULL."""
    code = intern(buf, start, at, writers)
    if code >= 0:
        lately[slot] = code
    return code


@inlined
def _links(buf, writer, start, t, stop, state, edges, moved, said, who, lists, comms, names,
           members, hosts, routes, pointers, seen, seen_slots, texts, route_codes,
           pointer_codes):  # fmt: skip
    """Adds the rows of a line of links whose text is at t: DONE, or why it cannot."""
    kind = said_of_links(buf, t, stop, state, said)
    if kind == of.IS_NEITHER:
        return of.BARRIER
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
def scan(buf, state, slow, rows, counters, calls, choices, kinds, scratch, edges, moved, said, who,
         lists, comms, names, members, hosts, routes, pointers, seen, seen_slots, route_codes,
         pointer_codes, writers, texts, kind_texts, call_codes, choice_codes,
         lately):  # fmt: skip
    """Reads lines from `state[POS]` on that begin before `state[LIMIT]`; why it stopped.

    `calls[code]` is what is known of a kind of call; `choices` and `kinds` are (known, lines) by
    code, for lines that name NICs the turns at which they said nothing new. `slow` gets (start,
    end, code of its kind or -1) of lines to be read by themselves, which give no rows. From `edges`
    to `pointer_codes` all is as `CompiledLinks.arrays` has it. Then come five tables: of texts,
    and of calls and choices by their numbers. `lately` has codes of writers by what their headers
    end in, -1 for none: most lines are of one that wrote a few lines before.
    """
    n = state[of.N]
    limit = state[of.LIMIT]
    whole = state[of.WHOLE] != 0
    p = state[of.POS]
    while p < limit:
        state[of.POS] = p
        end, at, second = marked_line(buf, p, n)
        state[of.END] = end
        stop = end - 1 if whole and end > p and byte(buf, end - 1) == 0x0D else end
        code = np.int64(-1)
        too_long = end - p > state[of.MOST]
        if at < 0 and not too_long:
            p = end + 1
            continue
        if too_long or second >= 0:
            return of.BARRIER
        if _INFO(buf, at + 6):
            t = at + 11
            low = max(p, at - 500)
            start = np.int64(-1)
            writer = np.int64(-1)
            slot = np.int64(0)
            if at - low >= _LEAST_HEADER:
                slot = np.int64((word(buf, at - 8) * _MULTIPLIER) >> np.uint64(64 - of.LATELY_BITS))
                start, writer = _lately(buf, low, at, slot, lately, writers)
                if start < 0:
                    start = header(buf, low, at)
            if may_name_nics(buf, t, stop):
                if start < 0:
                    return of.BARRIER
                if writer < 0:
                    writer = _writer(buf, start, at, slot, lately, writers)
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
            if is_link(buf, t):
                if start < 0 or _TREE(buf, t):
                    return of.BARRIER
                if writer < 0:
                    writer = _writer(buf, start, at, slot, lately, writers)
                if writer == FULL:
                    return of.TABLES_FULL
                why = _links(
                    buf, writer, start, t, stop, state, edges, moved, said, who, lists, comms,
                    names, members, hosts, routes, pointers, seen, seen_slots, texts, route_codes,
                    pointer_codes,
                )  # fmt: skip
                if why != of.DONE:
                    return why
                p = end + 1
                if max(state[of.EDGES], state[of.MOVED]) >= state[of.MOST_EDGES]:
                    state[of.POS] = p
                    return of.ROWS_FULL
                continue
            if start >= 0:
                if said_call(buf, t, stop, state):
                    if writer < 0:
                        writer = _writer(buf, start, at, slot, lately, writers)
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
                    if how == of.ROW and call_row(calls, code, counters, state, rows, start):
                        state[of.POS] = p
                        return of.ROWS_FULL
                    continue
                if is_special(buf, t, min(stop, t + 1024)):
                    if has_call(buf, t, min(stop, t + 64)):
                        return of.BARRIER
                    if has_choice(buf, t, min(stop, t + 96)):
                        if stop - t > 400:
                            return of.BARRIER
                        if writer < 0:
                            writer = _writer(buf, start, at, slot, lately, writers)
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
                    if was_said(buf, t, min(stop, t + 1024)):
                        p = end + 1
                        continue
                else:
                    size = kind_of(buf, t, stop, scratch)
                    if size >= 0:
                        code = intern(scratch, 0, size, kind_texts)
                        if code == FULL:
                            return of.TABLES_FULL
                        if kinds[code, 0] != of.UNKNOWN:
                            kinds[code, 1] += 1
                            p = end + 1
                            continue
            elif has_call(buf, t, min(stop, t + 64)) or has_choice(buf, t, min(stop, t + 96)):
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
