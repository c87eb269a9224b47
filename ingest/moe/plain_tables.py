"""Compiled tables of places and of groups: which number a key has, and room for those to come.

Importing this module costs numba.
"""

# pyright cannot see through numba's decorators.
# pyright: reportCallIssue=false, reportGeneralTypeIssues=false

from __future__ import annotations

import numpy as np

from ..values import MAX_RANK
from .plain_columns import (
    DONE,
    GROW,
    INTEGERS,
    N_INTEGERS,
    NOT_PLAIN,
    NULL,
    PLACE_KEYS,
    STATE,
    TEXTS,
)
from .text_numbers import jit

_STEP, _MICROBATCH, _LAYER, _RANK, _HOLDER = (
    INTEGERS.index(n) for n in ("step", "microbatch", "layer", "rank", "expert_rank")
)
_BLOCK, _SOURCE = TEXTS.index("block"), TEXTS.index("source")
_I32_MAX = (1 << 31) - 1
_N_PLACE = len(PLACE_KEYS)
_N_PLACES, _N_GROUPS, _PLACE = STATE.n_places, STATE.n_groups, STATE.place
_OWN, _SEED = STATE.rank, STATE.seed


@jit
def _mixed(h, value):
    h = (h ^ np.uint64(value)) * np.uint64(0xFF51AFD7ED558CCD)
    return h ^ (h >> np.uint64(32))


@jit
def _within(value, most):
    return value == NULL or 0 <= value <= most


@jit
def integer_of(column, row, integers, used):
    return integers[column, row] if used[column] else NULL


@jit
def text_of(column, row, texts, used):
    return np.int64(texts[column, row]) if used[N_INTEGERS + column] else -1


@jit
def _slot(rows, i, width, slots, seed):
    """The slot of the first `width` of row i, or the empty one that it would have."""
    h = seed
    for k in range(width):
        h = _mixed(h, rows[i, k])
    at = np.int64(h & np.uint64(slots.size - 1))
    while slots[at] >= 0:
        other = slots[at]
        same = True
        for k in range(width):
            same = same and rows[other, k] == rows[i, k]
        if same:
            break
        at = (at + 1) & (slots.size - 1)
    return at


@jit
def rehash(rows, first, n, width, slots, state):
    """Gives the rows from `first` to `n`, all of them distinct in their first `width`, their places
    in empty `slots`."""
    for i in range(first, n):
        slots[_slot(rows, i, width, slots, np.uint64(state[_SEED]))] = i


@jit
def group_of(place, expert, physical, sort, groups, sums, slots, state):
    """The number of the group; room for one more is there."""
    n = state[_N_GROUPS]
    groups[n, 0] = place
    groups[n, 1] = expert
    groups[n, 2] = physical
    groups[n, 3] = sort
    at = _slot(groups, n, 4, slots, np.uint64(state[_SEED]))
    if slots[at] < 0:
        groups[n, 4] = 0
        groups[n, 5] = 0
        sums[n] = 0.0
        slots[at] = n
        state[_N_GROUPS] = n + 1
    return slots[at]


@jit
def to_place(row, integers, texts, used, places, place_slots, state):
    """Makes the place of a row the state's: GROW or NOT_PLAIN where that cannot be."""
    own = integer_of(_RANK, row, integers, used)
    if own == NULL:
        own = state[_OWN]
    microbatch = integer_of(_MICROBATCH, row, integers, used)
    layer = integer_of(_LAYER, row, integers, used)
    holder = integer_of(_HOLDER, row, integers, used)
    if not (_within(microbatch, _I32_MAX) and _within(layer, _I32_MAX)
            and _within(own, MAX_RANK) and _within(holder, MAX_RANK)):  # fmt: skip
        return NOT_PLAIN
    n = state[_N_PLACES]
    if n == places.shape[0] or 2 * n >= place_slots.size:
        return GROW
    places[n, 0] = integer_of(_STEP, row, integers, used)
    places[n, 1] = microbatch
    places[n, 2] = layer
    places[n, 3] = own
    places[n, 4] = holder
    places[n, 5] = text_of(_BLOCK, row, texts, used)
    places[n, 6] = text_of(_SOURCE, row, texts, used)
    at = _slot(places, n, _N_PLACE, place_slots, np.uint64(state[_SEED]))
    if place_slots[at] < 0:
        place_slots[at] = n
        state[_N_PLACES] = n + 1
    state[_PLACE] = place_slots[at]
    return DONE


@jit
def is_here(row, integers, texts, used, key, own):
    """Whether a row is of the place of this key."""
    if used[_STEP] and integers[_STEP, row] != key[0]:
        return False
    if used[_LAYER] and integers[_LAYER, row] != key[2]:
        return False
    if used[_MICROBATCH] and integers[_MICROBATCH, row] != key[1]:
        return False
    if used[_RANK]:
        its = integers[_RANK, row]
        if (own if its == NULL else its) != key[3]:
            return False
    if used[_HOLDER] and integers[_HOLDER, row] != key[4]:
        return False
    if used[N_INTEGERS + _BLOCK] and texts[_BLOCK, row] != key[5]:
        return False
    return not (used[N_INTEGERS + _SOURCE] and texts[_SOURCE, row] != key[6])


@jit
def _same_end(column, row, end, values, wanted):
    """One past the rows from `row` on, before `end`, whose value is the wanted one."""
    while row < end and values[column, row] == wanted:
        row += 1
    return row


@jit
def alike_end(row, end, integers, texts, used, key, own):
    """One past the rows from `row` on, before `end`, that are of the place of this key: `is_here`
    of each of them, a column at a time."""
    if used[_STEP]:
        end = _same_end(_STEP, row, end, integers, key[0])
    if used[_LAYER]:
        end = _same_end(_LAYER, row, end, integers, key[2])
    if used[_MICROBATCH]:
        end = _same_end(_MICROBATCH, row, end, integers, key[1])
    if used[_RANK]:
        at = row
        while at < end and (
            key[3] == (own if integers[_RANK, at] == NULL else integers[_RANK, at])
        ):
            at += 1
        end = at
    if used[_HOLDER]:
        end = _same_end(_HOLDER, row, end, integers, key[4])
    if used[N_INTEGERS + _BLOCK]:
        end = _same_end(_BLOCK, row, end, texts, key[5])
    if used[N_INTEGERS + _SOURCE]:
        end = _same_end(_SOURCE, row, end, texts, key[6])
    return end
