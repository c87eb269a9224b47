"""What the compiled scan and its caller agree on: declared keys by hash, places of its state."""

from __future__ import annotations

import numpy as np

from .rawbatch import EVENT, FIELDS, INT_COLUMNS, RARE_INTS, RARE_SYMS, SYM_COLUMNS, Field

SYMBOLS_FULL = 4
"""Beside the reasons of `blocks`: the symbol table wants more room."""

_KINDS = {"char": 0, "sym": 1, "us": 2, "int": 3, "id": 4, "product": 5}
CHAR, SYM, US, INT, ID, PRODUCT = range(6)
ARGS = 62
"""The number of the key `args`, which is no field."""

N_SLOTS = 256
KEY_BYTES = 64


def _key_table():
    """(field or -1 by slot, its key's bytes, its key's length, first and last 8 bytes)."""
    entries = [(f.key.encode(), f.where, i) for i, f in enumerate(FIELDS)]
    entries.append((b"args", EVENT, ARGS))
    field = np.full(N_SLOTS, -1, np.int64)
    text = np.zeros((N_SLOTS, KEY_BYTES), np.uint8)
    length = np.zeros(N_SLOTS, np.int64)
    first = np.zeros(N_SLOTS, np.uint64)
    last = np.zeros(N_SLOTS, np.uint64)
    for key, where, number in entries:
        lo = int.from_bytes(key[:8], "little")
        hi = int.from_bytes(key[-8:], "little") if len(key) >= 8 else lo
        slot = _slot_of(len(key), lo, hi, where)
        while field[slot] >= 0:
            slot = (slot + 1) % N_SLOTS
        field[slot] = number
        text[slot, : len(key)] = np.frombuffer(key, np.uint8)
        length[slot] = len(key) + KEY_BYTES * where
        first[slot] = lo
        last[slot] = hi
    return field, text, length, first, last


def _slot_of(length: int, lo: int, hi: int, where: int) -> int:
    h = (lo ^ (hi * 0x9E3779B97F4A7C15) ^ (length * 31 + where * 7)) & (2**64 - 1)
    h = (h * 0xFF51AFD7ED558CCD) & (2**64 - 1)
    return h >> 56


KEYS = _key_table()
KIND_OF = np.array([_KINDS[f.kind] for f in FIELDS], np.int64)
RARE = 64
"""What is added to the row of a column that few events have."""


def _row_of(field: Field) -> int:
    if field.kind == "char":
        return 0
    sym = field.kind == "sym"
    rare = RARE_SYMS if sym else RARE_INTS
    if field.column in rare:
        return RARE + rare.index(field.column)
    return (SYM_COLUMNS if sym else INT_COLUMNS).index(field.column)


ROW_OF = np.array([_row_of(f) for f in FIELDS], np.int64)

FILLED_INTS = np.array(
    [i for i, c in enumerate((*INT_COLUMNS, "offset")) if c not in RARE_INTS], np.int64
)
FILLED_SYMS = np.array([i for i, c in enumerate(SYM_COLUMNS) if c not in RARE_SYMS], np.int64)
"""Rows of the matrices of those that most have: the others are left alone."""

SYM_ROW_OF = np.array(
    [SYM_COLUMNS.index(f.column + "_sym") if f.kind == "id" else 0 for f in FIELDS], np.int64
)

# Places in the state array: in and out, but for the last three, which one call sets.
POS, ROWS, N_SYMBOLS, SEED, CLEARED, N_COUNTERS = 0, 1, 2, 3, 4, 5
DUPLICATES, DUPLICATE_AT, ODD, ODD_AT = 6, 7, 8, 9
STATE_SIZE = 16
N_GAPS, GAP_BUDGET, N_RARE = 10, 11, 12

# Columns of the table of gaps (see `gaps`); row 0 is an event's opening brace.
GAP_MASK, GAP_LENGTH, GAP_FIELD, GAP_WHERE, GAP_GUESS = range(5)
GAP_FIRST, GAP_PAST = 8, 16
"""The gaps met behind a gap, 0 where there are fewer."""

NO_FIELD, EVENT_END = -1, -2
"""Of a gap: what it leads to is a key that is not declared, or nothing."""

MAX_GAPS = 256
GAP_BYTES = 64
"""Longer ones are parsed each time; no more than a wide compare sees, or `blocks.PAD`."""

GAPS_LEARNED = 2048
"""In one call: what is forgotten again and again costs no more than this."""
