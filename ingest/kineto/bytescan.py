"""The compiled scan of Chrome-trace events: bytes to columns, with no object per event.

Importing this module costs numba (about a second) and calling it compiles where `machine_code` has
nothing kept; `scanner` is what to import.
"""

# pyright cannot see through numba's decorators.
# pyright: reportCallIssue=false, reportGeneralTypeIssues=false

from __future__ import annotations

import numpy as np

from .blocks import END, FULL, MALFORMED, MAX_EVENT_BYTES, MORE
from .declared import field_of
from .gaps import known_gap, learned_gap
from .interning import NO_ROOM, intern, rebuild_slots
from .rawbatch import ARG, EVENT, NULL
from .scan_tables import (
    ARGS,
    CHAR,
    CLEARED,
    DUPLICATE_AT,
    DUPLICATES,
    EVENT_END,
    GAP_BUDGET,
    GAP_FIELD,
    GAP_GUESS,
    GAP_LENGTH,
    GAP_WHERE,
    GAPS_LEARNED,
    ID,
    N_COUNTERS,
    N_RARE,
    NO_FIELD,
    ODD,
    ODD_AT,
    POS,
    PRODUCT,
    RARE,
    ROWS,
    SYM,
    SYMBOLS_FULL,
    US,
)
from .tokens import (
    digits,
    hexadecimal,
    integer,
    literal,
    nanoseconds,
    nested,
    scalar,
    space,
    string,
)
from .vectors import CHECKED, byte, called, jit, rarely

__all__ = ["CHECKED", "rebuild_slots", "scan_events"]

_CLEAR_ROWS = 512


@rarely
def _gap(buf, p, where, fresh, key_field, key_text, key_length, key_first, key_last):
    """(field, where its value stands, the value's first byte, True) of the gap at p.

    The field is EVENT_END, and the position one past the brace, where the event ends there. Else
    (_, _, where it stopped, False). `fresh` where p is just behind an opening brace.
    """
    p = space(buf, p)
    c = byte(buf, p)
    if fresh and c == 0x7D:
        p += 1
        if where == EVENT:
            return EVENT_END, where, p, True
        where = EVENT
        fresh = False
        p = space(buf, p)
        c = byte(buf, p)
    if not fresh:
        if c == 0x7D and where == ARG:
            where = EVENT
            p = space(buf, p + 1)
            c = byte(buf, p)
        if c == 0x7D and where == EVENT:
            return EVENT_END, where, p + 1, True
        if c != 0x2C:
            return NO_FIELD, where, p, False
        p = space(buf, p + 1)
    if byte(buf, p) != 0x22:
        return NO_FIELD, where, p, False
    key = p + 1
    p, escaped = string(buf, key)
    if byte(buf, p) != 0x22 or escaped:
        return NO_FIELD, where, p, False
    field = field_of(buf, key, p, where, key_field, key_text, key_length, key_first, key_last)
    p = space(buf, p + 1)
    if byte(buf, p) != 0x3A:
        return NO_FIELD, where, p, False
    return field, where, space(buf, p + 1), True


@jit
def _skipped(buf, p, c):
    """(one past the value at p whose first byte is c, whether it is an odd word, True) or the like.

    (where it stopped, _, False) where it is no value.
    """
    if c == 0x22:
        p, _ = string(buf, p + 1)
        if byte(buf, p) != 0x22:
            return p, False, False
        return p + 1, False, True
    if c == 0x7B or c == 0x5B:
        p, ok = nested(buf, p)
        return p, False, ok
    first = p
    p, odd = scalar(buf, p)
    return p, odd, p > first


@jit
def _product(buf, p):
    """(product of the array of integers at p, or NULL for null; one past it; True) or as above."""
    if byte(buf, p) != 0x5B:
        kind, p = literal(buf, p)
        return NULL, p, kind == 3
    value = 1
    p += 1
    while True:
        p = space(buf, p)
        item, count, p = digits(buf, p)
        if count == 0 or count > 9 or value >= 1 << 31:
            return 0, p, False
        value *= np.int64(item)
        p = space(buf, p)
        c = byte(buf, p)
        p += 1
        if c == 0x5D:
            return value, p, True
        if c != 0x2C:
            return 0, p - 1, False


@jit
def _number(buf, p, c, kind):
    """(value of a number, word or quoted number at p, one past it, True) or as above."""
    quoted = c == 0x22
    if quoted:
        p += 1
        c = byte(buf, p)
    if c == 0x2D or 0x30 <= c <= 0x39:
        if kind == US:
            value, p, ok = nanoseconds(buf, p)
        elif quoted and c == 0x30 and (byte(buf, p + 1) | 0x20) == 0x78:
            value, p, ok = hexadecimal(buf, p + 2)
        else:
            value, p, ok = integer(buf, p)
        if quoted and ok:
            ok = byte(buf, p) == 0x22
            if ok:
                p += 1
        return value, p, ok
    if quoted:
        return 0, p, False
    word, p = literal(buf, p)
    if word == 3:
        return NULL, p, True
    return 2 - word, p, word != 0 and kind != US


@called
def scan_events(
    buf, n, state, ph, ints, syms, rare_at, rare_ints, rare_syms, capacity, slots, offsets, hashes,
    arena, counters, gaps, gap_texts, key_field, key_text, key_length, key_first, key_last, kind_of,
    row_of, sym_row_of, filled_ints, filled_syms,
):  # fmt: skip
    """Reads events from `state[POS]` on into rows from `state[ROWS]` on; why it stopped.

    `buf` holds `n` bytes and at least 64 zeros after them. Row `ints[-1]` gets the event's position
    in `buf`. `counters` gets (row, first byte, one past the last) of events with ph "C".
    `rare_*` are those of `RareRows`, from `state[N_RARE]` on.
    """
    p = state[POS]
    row = state[ROWS]
    state[GAP_BUDGET] = GAPS_LEARNED
    n_ints = ints.shape[0]
    while True:
        p = space(buf, p)
        while byte(buf, p) == 0x2C:
            p = space(buf, p + 1)
        state[POS] = p
        state[ROWS] = row
        if p >= n:
            return MORE
        c = byte(buf, p)
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
            rare_at[row:to] = -1
            for i in filled_ints:
                ints[i, row:to] = NULL
            for i in filled_syms:
                syms[i, row:to] = -1
            state[CLEARED] = to
        start = p
        ints[n_ints - 1, row] = start
        where = EVENT
        fresh = True
        seen = np.int64(0)
        duplicates = 0
        odd = False
        why = MALFORMED
        good = False
        before = 0
        place = np.int64(0)
        p += 1
        while True:
            gap = 0
            if before >= 0:
                gap = known_gap(buf, p, before, gaps, gap_texts)
            if gap:
                f = gaps[gap, GAP_FIELD]
                where = gaps[gap, GAP_WHERE]
                p = space(buf, p + gaps[gap, GAP_LENGTH]) if f != EVENT_END else (
                    p + gaps[gap, GAP_LENGTH]
                )  # fmt: skip
            else:
                first = p
                f, where, p, ok = _gap(
                    buf, p, where, fresh, key_field, key_text, key_length, key_first, key_last
                )
                if not ok:
                    break
                gap = learned_gap(buf, first, p, before, f, where, state, gaps, gap_texts)
            if f == EVENT_END:
                good = True
                break
            before = gap if gap else -1
            fresh = False
            c = byte(buf, p)
            if f == NO_FIELD:
                p, strange, ok = _skipped(buf, p, c)
                if not ok:
                    break
                odd = odd or strange
                continue
            bit = np.int64(1) << f
            if seen & bit:
                if f == ARGS:
                    # The first args' values would have to go; rare enough to leave.
                    break
                duplicates += 1
            seen |= bit
            if f == ARGS:
                if c == 0x7B:
                    where = ARG
                    fresh = True
                    p += 1
                    continue
                kind, p = literal(buf, p)
                if kind != 3:
                    break
                # What follows is not what follows an opening brace.
                before = -1
                continue
            kind = kind_of[f]
            at = row_of[f]
            rare = at >= RARE
            if rare:
                at -= RARE
                place = np.int64(rare_at[row])
                if place < 0:
                    place = state[N_RARE]
                    state[N_RARE] += 1
                    rare_at[row] = place
                    rare_ints[place, :] = NULL
                    rare_syms[place, :] = -1
            if kind == SYM or (kind == ID and c == 0x22):
                guess = gaps[gap, GAP_GUESS] if gap else -1
                if c == 0x22:
                    first = p + 1
                    p, escaped = string(buf, first)
                    if byte(buf, p) != 0x22:
                        break
                    code = intern(buf, first, p, guess, state, slots, offsets, hashes, arena)
                    p += 1
                else:
                    first = p
                    word, p = literal(buf, p)
                    code = -1
                    if word != 3:
                        p, strange = scalar(buf, first)
                        if p == first or strange or p >= n:
                            break
                        code = intern(buf, first, p, guess, state, slots, offsets, hashes, arena)
                if code == NO_ROOM:
                    why = SYMBOLS_FULL
                    break
                if gap:
                    gaps[gap, GAP_GUESS] = code
                if kind == ID:
                    syms[sym_row_of[f], row] = code
                    ints[at, row] = NULL
                elif rare:
                    rare_syms[place, at] = code
                else:
                    syms[at, row] = code
            elif kind == CHAR:
                if c != 0x22:
                    break
                value = byte(buf, p + 1)
                if (
                    byte(buf, p + 2) == 0x22
                    and 0x20 <= value < 0x80
                    and value != 0x22
                    and value != 0x5C
                ):
                    ph[row] = value
                    p += 3
                else:
                    first = p + 1
                    p, escaped = string(buf, first)
                    if byte(buf, p) != 0x22 or escaped or p - first == 2:
                        break
                    ph[row] = 0
                    p += 1
            else:
                if kind == PRODUCT:
                    value, p, ok = _product(buf, p)
                else:
                    value, p, ok = _number(buf, p, c, kind)
                if not ok:
                    break
                if rare:
                    rare_ints[place, at] = value
                else:
                    ints[at, row] = value
                if kind == ID:
                    syms[sym_row_of[f], row] = -1
        if not good or p - start > MAX_EVENT_BYTES:
            # The row is null again, whoever fills it.
            ph[row] = 0
            for i in filled_ints:
                ints[i, row] = NULL
            for i in filled_syms:
                syms[i, row] = -1
            if rare_at[row] >= 0:
                rare_at[row] = -1
                state[N_RARE] -= 1
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
