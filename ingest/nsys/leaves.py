"""Compiled reading of a SQLite table's leaf pages: records to columns.

Importing this module costs numba. Whatever a page or record holds that is not the ordinary stops
the reading: SQLite itself then reads the table, and says what is wrong. Each position is checked
against its page before it is read.
"""

# pyright cannot see through numba's decorators.
# pyright: reportCallIssue=false, reportGeneralTypeIssues=false

from __future__ import annotations

import numpy as np

from ..compiled import compiled

jit = compiled(error_model="numpy")

LEAF = 0x0D
SKIP, INTEGER, REAL, BYTES = range(4)
"""What becomes of a column."""

DONE, FULL, ROOM, ODD = range(4)
"""Why a reading stopped: pages read, rows full, no room for bytes, or something for SQLite."""

PAGE, CELL, ROW, ROWID = range(4)
"""Places in the state of a reading: the next page and cell, rows so far, the last row's id."""

_WHOLE_BELOW = 4e18
_LENGTH = np.array([0, 1, 2, 3, 4, 6, 8, 8, 0, 0])
"""Bytes of a value by the number of its type, below 10."""


@jit
def _varint(buf, p, end):
    """(value, one past it) of the integer of up to nine bytes at p; (_, -1) beyond `end`."""
    value = np.int64(0)
    for _ in range(8):
        if p >= end:
            return value, -1
        b = np.int64(buf[p])
        p += 1
        value = (value << 7) | (b & 0x7F)
        if b < 0x80:
            return value, p
    if p >= end:
        return value, -1
    return (value << 8) | np.int64(buf[p]), p + 1


@jit
def _signed(buf, p, n):
    """The big-endian integer of n bytes at p."""
    value = np.int64(np.int8(buf[p]))
    for i in range(1, n):
        value = (value << 8) | np.int64(buf[p + i])
    return value


@jit
def _is_sound(buf, base, page_bytes, usable):
    """Whether every record of a leaf page lies in it, which SQLite asks before it gives any."""
    end = base + usable
    n_cells = (np.int64(buf[base + 3]) << 8) | np.int64(buf[base + 4])
    first = base + 8 + 2 * n_cells
    if buf[base] != LEAF or n_cells < 1 or n_cells > (page_bytes - 8) // 6 or first > end:
        return False
    least = (usable - 12) * 32 // 255 - 23
    for cell in range(n_cells):
        at = base + 8 + 2 * cell
        p = base + ((np.int64(buf[at]) << 8) | np.int64(buf[at + 1]))
        if p < first or p > end - 4:
            return False
        size, p = _varint(buf, p, end)
        if p < 0 or size < 0 or size >= 1 << 31:
            return False
        _, p = _varint(buf, p, end)
        if p < 0:
            return False
        if size > usable - 35:
            # More than so much of a record goes to pages of its own, whose number follows.
            here = least + (size - least) % (usable - 4)
            size = 4 + (here if here <= usable - 35 else least)
        if p + size > end:
            return False
    return True


@jit
def read(buf, n_pages, page_bytes, usable, kinds, slots, state, bits, integers, nulls, reals,
         arena, ends):  # fmt: skip
    """Reads records of leaf pages into columns from row `state[ROW]` on; why it stopped.

    `buf` holds the pages, `kinds` and `slots` what becomes of each stored column, `bits` one word
    of room. Integers and reals are [columns, rows]; bytes of row i stand in `arena[column]` from
    `ends[column, i]` to `ends[column, i + 1]`.
    """
    n_columns = kinds.size
    most = integers.shape[1] if integers.shape[0] else nulls.shape[1]
    as_real = bits.view(np.float64)
    row = state[ROW]
    last = state[ROWID]
    cell = state[CELL]
    for page in range(state[PAGE], n_pages):
        base = page * page_bytes
        end = base + usable
        if cell == 0 and not _is_sound(buf, base, page_bytes, usable):
            return ODD
        n_cells = (np.int64(buf[base + 3]) << 8) | np.int64(buf[base + 4])
        while cell < n_cells:
            state[PAGE] = page
            state[CELL] = cell
            state[ROW] = row
            state[ROWID] = last
            if row == most:
                return FULL
            at = base + 8 + 2 * cell
            p = base + ((np.int64(buf[at]) << 8) | np.int64(buf[at + 1]))
            size, p = _varint(buf, p, end)
            rowid, p = _varint(buf, p, end)
            if size < 1 or size > usable - 35 or rowid <= last:
                return ODD
            stop = p + size
            header, h = _varint(buf, p, stop)
            if h < 0 or header < 1 or header > size:
                return ODD
            body = p + header
            p = body
            for column in range(n_columns):
                if h >= body:
                    return ODD
                kind = np.int64(buf[h])
                h += 1
                if kind >= 0x80:
                    kind, h = _varint(buf, h - 1, body)
                    if h < 0 or kind < 0:
                        return ODD
                if kind < 10:
                    length = _LENGTH[kind]
                elif kind < 12:
                    return ODD
                else:
                    length = (kind - 12) >> 1
                if length > stop - p:
                    return ODD
                wanted = kinds[column]
                if wanted == INTEGER:
                    slot = slots[column]
                    value = np.int64(0)
                    null = kind == 0 or kind >= 12
                    if kind == 7:
                        bits[0] = _signed(buf, p, 8)
                        real = as_real[0]
                        null = not (abs(real) < _WHOLE_BELOW and np.floor(real) == real)
                        if not null:
                            value = np.int64(real)
                    elif kind == 9:
                        value = np.int64(1)
                    elif length > 0 and not null:
                        value = _signed(buf, p, length)
                    integers[slot, row] = value
                    nulls[slot, row] = null
                elif wanted == REAL:
                    # What is no number is infinite: null, and told of, for whoever asked.
                    real = np.inf
                    if kind == 7:
                        bits[0] = _signed(buf, p, 8)
                        real = as_real[0]
                        if real != real:
                            real = np.inf
                    elif 0 < kind < 7:
                        real = np.float64(_signed(buf, p, length))
                    elif kind == 8 or kind == 9:
                        real = np.float64(kind - 8)
                    reals[slots[column], row] = real
                elif wanted == BYTES:
                    slot = slots[column]
                    n = length if kind >= 12 else 0
                    to = ends[slot, row]
                    if to + n > arena.shape[1]:
                        return ROOM
                    for i in range(n):
                        arena[slot, to + i] = buf[p + i]
                    ends[slot, row + 1] = to + n
                p += length
            if h != body or p != stop:
                return ODD
            last = rowid
            row += 1
            cell += 1
        cell = 0
    state[PAGE] = n_pages
    state[CELL] = 0
    state[ROW] = row
    state[ROWID] = last
    return DONE
