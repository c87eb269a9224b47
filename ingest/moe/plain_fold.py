"""Compiled sums of the plain form's rows by place and expert: one block of rows at a time.

Importing this module costs numba. The sums are those that `plain_sums` makes of the same rows; a
block with anything to be told of (an id that no expert has, a count that cannot be) is not taken.
"""

# pyright cannot see through numba's decorators.
# pyright: reportCallIssue=false, reportGeneralTypeIssues=false

from __future__ import annotations

import numpy as np

from .plain_columns import (
    DONE,
    GROW,
    INTEGERS,
    N_INTEGERS,
    NOT_PLAIN,
    NULL,
    STATE,
    SUM,
    TEXTS,
)
from .plain_tables import alike_end, group_of, integer_of, is_here, text_of, to_place
from .text_numbers import jit

MOST_TOKENS = 1 << 50
"""Of a row; as in `plain_sums`."""

_TOKEN, _COUNT, _TOKENS, _EXPERT, _PHYSICAL, _HOLDER = (
    INTEGERS.index(n)
    for n in ("token", "count", "tokens", "expert", "physical_expert", "expert_rank")
)
_CLASS, _SPACE = TEXTS.index("token_class"), TEXTS.index("id_space")
REAL, PADDING, DROPPED = 0, 1, 2
_ROWS, _ROW, _LISTS, _COUNTED = STATE.rows, STATE.row, STATE.lists, STATE.counted
_N_GROUPS, _PLACE, _NEEDED, _OWN = STATE.n_groups, STATE.place, STATE.needed, STATE.rank


@jit
def _tokens_of(row, integers, used, counted):
    """Tokens of a row, below 0 where there are none that can be."""
    if not counted:
        return 1
    tokens = integer_of(_COUNT, row, integers, used)
    if tokens == NULL:
        tokens = integer_of(_TOKENS, row, integers, used)
    if tokens == NULL and integer_of(_TOKEN, row, integers, used) != NULL:
        return 1
    return tokens if tokens <= MOST_TOKENS else -1


@jit
def _run_end(row, n, integers, texts, id_ends, listed, weighed, used, key, own):
    """One past the rows from `row` on, before `n`, that are of the place of this key, each with
    some experts and without weights."""
    end = row
    while end < n and listed[end] and not weighed[end] and id_ends[end + 1] > id_ends[end]:
        end += 1
    return alike_end(row, end, integers, texts, used, key, own)


@jit
def _count(ids, first, last, place, groups, met):
    """Adds a token for each of these ids to the group that it was last met in; stops at the first
    that was not met last in the place, and gives where, `last` for none."""
    for k in range(first, last):
        expert = ids[k]
        if expert < 0 or expert >= met.size:
            return k
        group = met[expert]
        if groups[group, 0] != place:
            return k
        groups[group, 4] += 1
    return last


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
    expert which group it was last met in, of real tokens as a rule; no id is from its size on.
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
    # Rows looked at ahead: as many as were found alike, so that places in turn cost no more.
    window = 1
    while row < n:
        if bare and place >= 0:
            # Nearly every row: what it chose, its place has had before.
            if row >= end:
                end = _run_end(row, min(n, row + window), integers, texts, id_ends, listed, weighed,
                               used, places[place], state[_OWN])  # fmt: skip
                window = 2 * window if end - row == window else 1
            new = _count(ids, id_ends[row], id_ends[end], place, groups, met)
            while row < end and id_ends[row + 1] <= new:
                row += 1
            if row < end:
                # The row with that one is counted whole below.
                for k in range(id_ends[row], new):
                    groups[met[ids[k]], 4] -= 1
            if row == n:
                break
        if listed[row] != lists:
            # Their sums stand in another order where a block has both.
            return NOT_PLAIN
        tokens = _tokens_of(row, integers, used, counted)
        if tokens < 0:
            return NOT_PLAIN
        if place < 0 or not is_here(row, integers, texts, used, places[place], state[_OWN]):
            found = to_place(row, integers, texts, used, places, place_slots, state)
            if found != DONE:
                state[_ROW] = row
                return found
            place = state[_PLACE]
            end = row
        code = text_of(_CLASS, row, texts, used)
        sort = class_of[code] if code >= 0 else -1
        code = text_of(_SPACE, row, texts, used)
        physically = code >= 0 and class_of[code] > 0
        physical = integer_of(_PHYSICAL, row, integers, used)
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
                if expert < -1 or expert >= met.size:
                    return NOT_PLAIN
                some = some or expert >= 0
            steps = count if some else 1
        else:
            if not (-1 <= physical < met.size or physical == NULL):
                return NOT_PLAIN
            if physical == -1:
                physical = NULL
            steps = 1
        # However often a row names them, each expert and none make no more than a group each.
        n_groups = state[_N_GROUPS] + min(steps, met.size + 1)
        if n_groups >= groups.shape[0] or 2 * n_groups > slots.size:
            state[_NEEDED] = n_groups
            state[_ROW] = row
            return GROW
        for k in range(steps):
            weight = np.nan
            if not lists:
                expert = integer_of(_EXPERT, row, integers, used)
                if not (-1 <= expert < met.size or expert == NULL):
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
                    alone = lists or integer_of(_HOLDER, row, integers, used) == NULL
                    if expert == NULL and physical == NULL and alone:
                        its = DROPPED if some else PADDING
                where = physical
                if physically:
                    if where == NULL:
                        where = expert
                    expert = NULL
                group = group_of(place, expert, where, its, groups, sums, slots, state)
                if usual:
                    met[expert] = group
            groups[group, 4] += tokens
            # None is no number; what else is no finite one is told of elsewhere.
            if not _weigh(group, weight, groups, sums):
                return NOT_PLAIN
        row += 1
    state[_ROW] = n
    return DONE
