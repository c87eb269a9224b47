"""Compiled sums of the plain form's rows by place and expert: one block of rows at a time.

Importing this module costs numba. The sums are those that `plain_sums` makes of the same rows; a
block with anything to be told of (an id that no expert has, a count that cannot be) is not taken.
"""

# pyright cannot see through numba's decorators.
# pyright: reportCallIssue=false, reportGeneralTypeIssues=false

from __future__ import annotations

import numpy as np

from ..values import MAX_RANK
from .plain_scan import INTEGERS, NULL, TEXTS, Columns
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
_N_PLACE = 7
PLACE_KEYS = ("step", "microbatch", "layer", "rank", "expert_rank", "block", "source")
"""What the rows of a place share, in this order."""

GROUP_KEYS = ("place", "expert", "physical_expert", "token_class", "tokens", "weights")
"""Columns of the integers of a group; `weights` counts those in its sum."""


@jit
def _mixed(h, value):
    h = (h ^ np.uint64(value)) * np.uint64(0xFF51AFD7ED558CCD)
    return h ^ (h >> np.uint64(32))


@jit
def _within(value, most):
    return value == NULL or 0 <= value <= most


@jit
def _grown(rows):
    out = np.empty((2 * rows.shape[0], rows.shape[1]), rows.dtype)
    out[: rows.shape[0]] = rows
    return out


@jit
def _place_of(key, places, n, slots, seed):
    """(number of the place, number of places): a new one where `key` is not among them."""
    h = seed
    for i in range(_N_PLACE):
        h = _mixed(h, key[i])
    at = np.int64(h & np.uint64(slots.size - 1))
    while slots[at] >= 0:
        i = slots[at]
        same = True
        for k in range(_N_PLACE):
            same = same and places[i, k] == key[k]
        if same:
            return i, n
        at = (at + 1) & (slots.size - 1)
    slots[at] = n
    places[n] = key
    return n, n + 1


@jit
def _rehashed(rows, n, width, size, seed):
    slots = np.full(size, -1, np.int64)
    for i in range(n):
        h = seed
        for k in range(width):
            h = _mixed(h, rows[i, k])
        at = np.int64(h & np.uint64(size - 1))
        while slots[at] >= 0:
            at = (at + 1) & (size - 1)
        slots[at] = i
    return slots


@jit
def _group_of(place, expert, physical, sort, groups, n, slots, seed):
    """(number of the group, number of groups); room for one more is there."""
    h = _mixed(_mixed(_mixed(_mixed(seed, place), expert), physical), sort)
    at = np.int64(h & np.uint64(slots.size - 1))
    while slots[at] >= 0:
        i = slots[at]
        if (groups[i, 1] == expert and groups[i, 0] == place and groups[i, 2] == physical
                and groups[i, 3] == sort):  # fmt: skip
            return i, n
        at = (at + 1) & (slots.size - 1)
    slots[at] = n
    groups[n, 0] = place
    groups[n, 1] = expert
    groups[n, 2] = physical
    groups[n, 3] = sort
    groups[n, 4] = 0
    groups[n, 5] = 0
    return n, n + 1


def fold(
    n: int,
    rows: Columns,
    counted: bool,
    numbered: bool,
    rank: int,
    class_of: np.ndarray,
    in_physical: np.ndarray,
    seed: np.uint64,
) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """(places [n, 7], groups [n, 6], weight sums [n]) of `n` rows in the order of the first of
    each; no place where a row is not plain.

    `counted` says whether the rows have a count column, `numbered` whether a token's; `rank` stands
    for null; `class_of` and `in_physical` are by code of a text, the last entry is that of none
    (class -1).
    """
    return _fold(n, *rows[:9], counted, numbered, rank, class_of, in_physical, seed)


@jit
def _fold(n, integers, texts, row_sums, ids, id_ends, listed, weights, weight_ends, weighed,
          counted, numbered, rank, class_of, in_physical, seed):  # fmt: skip
    none = (np.zeros((0, _N_PLACE), np.int64), np.zeros((0, 6), np.int64), np.zeros(0))
    places = np.empty((64, _N_PLACE), np.int64)
    place_slots = np.full(256, -1, np.int64)
    n_places = 0
    groups = np.empty((1024, 6), np.int64)
    slots = np.full(4096, -1, np.int64)
    sums = np.zeros((1024, 1))
    n_groups = 0
    key = np.empty(_N_PLACE, np.int64)
    place = -1
    # Group of each logical expert in the place that it was last met in: of real tokens as a rule.
    met_in = np.full(MAX_EXPERTS, -1, np.int64)
    met_as = np.empty(MAX_EXPERTS, np.int64)
    lists = n > 0 and listed[0]
    for row in range(n):
        if listed[row] != lists:
            # Their sums stand in another order where a block has both.
            return none
        tokens = np.int64(1)
        if counted:
            tokens = integers[row, _COUNT]
            if tokens == NULL:
                tokens = integers[row, _TOKENS]
            if tokens == NULL and numbered and integers[row, _TOKEN] != NULL:
                tokens = 1
            if tokens < 0 or tokens > MOST_TOKENS:
                return none
        own = integers[row, _RANK]
        holder = integers[row, _HOLDER]
        if not (_within(integers[row, _MICROBATCH], _I32_MAX)
                and _within(integers[row, _LAYER], _I32_MAX)
                and _within(own, MAX_RANK) and _within(holder, MAX_RANK)):  # fmt: skip
            return none
        if own == NULL:
            own = rank
        if (
            place < 0
            or key[0] != integers[row, _STEP]
            or key[1] != integers[row, _MICROBATCH]
            or key[2] != integers[row, _LAYER]
            or key[3] != own
            or key[4] != holder
            or key[5] != texts[row, _BLOCK]
            or key[6] != texts[row, _SOURCE]
        ):
            key[0] = integers[row, _STEP]
            key[1] = integers[row, _MICROBATCH]
            key[2] = integers[row, _LAYER]
            key[3] = own
            key[4] = holder
            key[5] = texts[row, _BLOCK]
            key[6] = texts[row, _SOURCE]
            if n_places == places.shape[0]:
                places = _grown(places)
                place_slots = _rehashed(places, n_places, _N_PLACE, 4 * places.shape[0], seed)
            place, n_places = _place_of(key, places, n_places, place_slots, seed)
        sort = class_of[texts[row, _CLASS]]
        physically = in_physical[texts[row, _SPACE]]
        physical = integers[row, _PHYSICAL]
        first = id_ends[row]
        count = id_ends[row + 1] - first
        heavier = weighed[row]
        heavy = weight_ends[row]
        some = False
        if lists:
            if heavier and weight_ends[row + 1] - heavy != count:
                return none
            met = count > 0 and sort < 0 and physical == NULL and not (physically or heavier)
            for k in range(first, first + count):
                expert = ids[k]
                if expert < -1 or expert >= MAX_EXPERTS:
                    return none
                met = met and expert >= 0 and met_in[expert] == place
                some = some or expert >= 0
            if met:
                # Nearly every row: what it chose, its place has had before.
                for k in range(first, first + count):
                    groups[met_as[ids[k]], 4] += tokens
                continue
            steps = count if some else 1
        else:
            if not (-1 <= physical < MAX_EXPERTS or physical == NULL):
                return none
            if physical == -1:
                physical = NULL
            steps = 1
        while 2 * (n_groups + steps) > slots.size:
            slots = _rehashed(groups, n_groups, 4, 4 * slots.size, seed)
        while n_groups + steps > groups.shape[0]:
            groups = _grown(groups)
            sums = _grown(sums)
        for k in range(steps):
            weight = np.nan
            if not lists:
                expert = integers[row, _EXPERT]
                if not (-1 <= expert < MAX_EXPERTS or expert == NULL):
                    return none
                weight = row_sums[row]
            else:
                expert = ids[first + k] if k < count else NULL
                if heavier and k < count:
                    weight = weights[heavy + k]
            if expert == -1:
                expert = NULL
            usual = expert >= 0 and sort < 0 and physical == NULL and not physically
            if usual and met_in[expert] == place:
                group = met_as[expert]
                groups[group, 4] += tokens
                if weight == weight:
                    if weight - weight != 0.0:
                        return none
                    groups[group, 5] += 1
                    sums[group, 0] += weight
                continue
            its = sort
            if its < 0:
                its = REAL
                if expert == NULL and physical == NULL and (lists or holder == NULL):
                    its = DROPPED if some else PADDING
            where = physical
            if physically:
                if where == NULL:
                    where = expert
                expert = NULL
            group, before = _group_of(place, expert, where, its, groups, n_groups, slots, seed)
            if before > n_groups:
                sums[group, 0] = 0.0
            n_groups = before
            if usual:
                met_in[expert] = place
                met_as[expert] = group
            groups[group, 4] += tokens
            # None is no number; what else is no finite one is told of elsewhere.
            if weight == weight:
                if weight - weight != 0.0:
                    return none
                groups[group, 5] += 1
                sums[group, 0] += weight
    return places[:n_places], groups[:n_groups], sums[:n_groups, 0].copy()
