"""Compiled sums of the plain form's rows by place and expert: one block of rows at a time.

Importing this module costs numba. The sums are those that `plain_sums` makes of the same rows; a
block with anything to be told of (an id that no expert has, a count that cannot be) is not taken.
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
    SUM,
    TEXTS,
)
from .tally import MAX_EXPERTS
from .text_numbers import jit

MOST_TOKENS = 1 << 50
"""Of a row; as in `plain_sums`."""

_STEP, _MICROBATCH, _LAYER, _RANK, _TOKEN, _COUNT, _TOKENS, _EXPERT, _PHYSICAL, _HOLDER = range(
    len(INTEGERS)
)
_BLOCK, _CLASS, _SPACE, _SOURCE = range(len(TEXTS))
_I32_MAX = (1 << 31) - 1
REAL, PADDING, DROPPED = 0, 1, 2
_N_PLACE = len(PLACE_KEYS)
_ROWS, _ROW, _LISTS, _COUNTED = STATE.rows, STATE.row, STATE.lists, STATE.counted
_N_PLACES, _N_GROUPS, _PLACE, _NEEDED = STATE.n_places, STATE.n_groups, STATE.place, STATE.needed
_OWN, _SEED = STATE.rank, STATE.seed


@jit
def _mixed(h, value):
    h = (h ^ np.uint64(value)) * np.uint64(0xFF51AFD7ED558CCD)
    return h ^ (h >> np.uint64(32))


@jit
def _within(value, most):
    return value == NULL or 0 <= value <= most


@jit
def _integer(column, row, integers, used):
    return integers[column, row] if used[column] else NULL


@jit
def _text(column, row, texts, used):
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
def _group_of(place, expert, physical, sort, groups, sums, slots, state):
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
def _tokens_of(row, integers, used, counted):
    """Tokens of a row, below 0 where there are none that can be."""
    if not counted:
        return 1
    tokens = _integer(_COUNT, row, integers, used)
    if tokens == NULL:
        tokens = _integer(_TOKENS, row, integers, used)
    if tokens == NULL and _integer(_TOKEN, row, integers, used) != NULL:
        return 1
    return tokens if tokens <= MOST_TOKENS else -1


@jit
def _to_place(row, integers, texts, used, places, place_slots, state):
    """Makes the place of a row the state's: GROW or NOT_PLAIN where that cannot be."""
    own = _integer(_RANK, row, integers, used)
    if own == NULL:
        own = state[_OWN]
    microbatch = _integer(_MICROBATCH, row, integers, used)
    layer = _integer(_LAYER, row, integers, used)
    holder = _integer(_HOLDER, row, integers, used)
    if not (_within(microbatch, _I32_MAX) and _within(layer, _I32_MAX)
            and _within(own, MAX_RANK) and _within(holder, MAX_RANK)):  # fmt: skip
        return NOT_PLAIN
    n = state[_N_PLACES]
    if n == places.shape[0] or 2 * n >= place_slots.size:
        return GROW
    places[n, 0] = _integer(_STEP, row, integers, used)
    places[n, 1] = microbatch
    places[n, 2] = layer
    places[n, 3] = own
    places[n, 4] = holder
    places[n, 5] = _text(_BLOCK, row, texts, used)
    places[n, 6] = _text(_SOURCE, row, texts, used)
    at = _slot(places, n, _N_PLACE, place_slots, np.uint64(state[_SEED]))
    if place_slots[at] < 0:
        place_slots[at] = n
        state[_N_PLACES] = n + 1
    state[_PLACE] = place_slots[at]
    return DONE


@jit
def _is_here(row, integers, texts, used, key, own):
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
def _run_end(row, n, integers, texts, id_ends, listed, weighed, used, key, own):
    """One past the rows from `row` on that are of the place of this key, each with some experts and
    without weights."""
    while (
        row < n
        and listed[row]
        and not weighed[row]
        and id_ends[row + 1] > id_ends[row]
        and _is_here(row, integers, texts, used, key, own)
    ):
        row += 1
    return row


@jit
def _first_new(ids, first, last, place, groups, met):
    """The first of these ids that was not met last in the place, `last` for none."""
    for k in range(first, last):
        expert = ids[k]
        if expert < 0 or expert >= MAX_EXPERTS or groups[met[expert], 0] != place:
            return k
    return last


@jit
def _count(ids, first, last, groups, met):
    """Adds a token for each of these ids to the group that it was last met in."""
    for k in range(first, last):
        groups[met[ids[k]], 4] += 1


@jit
def _weigh(group, weight, groups, sums):
    """Adds a weight, which may be none (no number); False for one that is not finite."""
    if weight == weight:
        if weight - weight != 0.0:
            return False
        groups[group, 5] += 1
        sums[group] += weight
    return True


@jit
def fold(integers, texts, row_sums, ids, id_ends, listed, weights, weight_ends, weighed, used,
         class_of, state, places, place_slots, groups, slots, sums, met):  # fmt: skip
    """Adds the rows that the state names to the places and groups of a block, in the order of the
    first of each: DONE, GROW where there is no room (at the state's row), or NOT_PLAIN.

    `places` [n, PLACE_KEYS] and `groups` [n, GROUP_KEYS], the first of which is none, have `slots`
    each, whose number is a power of two; `sums` are the groups' weights. `met` says by logical
    expert which group it was last met in, of real tokens as a rule.
    """
    counted = used[_COUNT] or used[_TOKENS]
    if state[_COUNTED] >= 0 and counted != state[_COUNTED]:
        return NOT_PLAIN
    n = state[_ROWS]
    if n > 0:
        state[_COUNTED] = counted
        if state[_LISTS] < 0:
            state[_LISTS] = listed[0]
    lists = state[_LISTS]
    place = state[_PLACE]
    # Whether a row is no more than a token with its experts.
    bare = lists and not (counted or used[N_INTEGERS + _CLASS] or used[N_INTEGERS + _SPACE]
                          or used[_PHYSICAL])  # fmt: skip
    row = state[_ROW]
    end = row
    while row < n:
        if bare and place >= 0:
            # Nearly every row: what it chose, its place has had before.
            if row >= end:
                end = _run_end(row, n, integers, texts, id_ends, listed, weighed, used,
                               places[place], state[_OWN])  # fmt: skip
            first = id_ends[row]
            new = _first_new(ids, first, id_ends[end], place, groups, met)
            while row < end and id_ends[row + 1] <= new:
                row += 1
            _count(ids, first, id_ends[row], groups, met)
            if row == n:
                break
        if listed[row] != lists:
            # Their sums stand in another order where a block has both.
            return NOT_PLAIN
        tokens = _tokens_of(row, integers, used, counted)
        if tokens < 0:
            return NOT_PLAIN
        if place < 0 or not _is_here(row, integers, texts, used, places[place], state[_OWN]):
            found = _to_place(row, integers, texts, used, places, place_slots, state)
            if found != DONE:
                state[_ROW] = row
                return found
            place = state[_PLACE]
            end = row
        code = _text(_CLASS, row, texts, used)
        sort = class_of[code] if code >= 0 else -1
        code = _text(_SPACE, row, texts, used)
        physically = code >= 0 and class_of[code] > 0
        physical = _integer(_PHYSICAL, row, integers, used)
        first = id_ends[row]
        count = id_ends[row + 1] - first
        heavier = weighed[row] != 0
        heavy = weight_ends[row]
        some = False
        if lists:
            if heavier and weight_ends[row + 1] - heavy != count:
                return NOT_PLAIN
            for k in range(first, first + count):
                expert = ids[k]
                if expert < -1 or expert >= MAX_EXPERTS:
                    return NOT_PLAIN
                some = some or expert >= 0
            steps = count if some else 1
        else:
            if not (-1 <= physical < MAX_EXPERTS or physical == NULL):
                return NOT_PLAIN
            if physical == -1:
                physical = NULL
            steps = 1
        n_groups = state[_N_GROUPS] + steps
        if n_groups >= groups.shape[0] or 2 * n_groups > slots.size:
            state[_NEEDED] = n_groups
            state[_ROW] = row
            return GROW
        for k in range(steps):
            weight = np.nan
            if not lists:
                expert = _integer(_EXPERT, row, integers, used)
                if not (-1 <= expert < MAX_EXPERTS or expert == NULL):
                    return NOT_PLAIN
                if used[SUM]:
                    weight = row_sums[row]
            else:
                expert = ids[first + k] if k < count else NULL
                if heavier and k < count:
                    weight = weights[heavy + k]
            if expert == -1:
                expert = NULL
            usual = expert >= 0 and sort < 0 and physical == NULL and not physically
            group = np.int64(met[expert]) if usual else 0
            if not usual or groups[group, 0] != place:
                its = sort
                if its < 0:
                    its = REAL
                    alone = lists or _integer(_HOLDER, row, integers, used) == NULL
                    if expert == NULL and physical == NULL and alone:
                        its = DROPPED if some else PADDING
                where = physical
                if physically:
                    if where == NULL:
                        where = expert
                    expert = NULL
                group = _group_of(place, expert, where, its, groups, sums, slots, state)
                if usual:
                    met[expert] = group
            groups[group, 4] += tokens
            # None is no number; what else is no finite one is told of elsewhere.
            if not _weigh(group, weight, groups, sums):
                return NOT_PLAIN
        row += 1
    state[_ROW] = n
    return DONE
