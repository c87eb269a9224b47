"""Rows of two sources of a rank that name the same operation: by number, or by record function."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from ..matching import sequences
from ..matching.participations import NUMBERED_BY, code, runs
from .rows import Groups, View, by_function, compatible

FEW_WRONG = 0.1
"""Ids of one run contradict each other less often than this; two runs' nearly always."""


class Odd(NamedTuple):
    """Rows of a pair of kinds on a rank whose keys agree though they cannot be one operation."""

    rank: int
    first: str
    second: str
    rows: int


def by_number(view: View, groups: Groups, first: int, second: int) -> list[Odd]:
    """Joins rows with the same communicator and number; gives what contradicts itself.

    Numbers of a communicator that contradict each other anywhere on a rank join nothing there:
    they count something else, or from another start.
    """
    kinds = (view.kinds[first], view.kinds[second])
    counters = [NUMBERED_BY.get(kind, 0) for kind in kinds]
    if counters[0] != counters[1]:
        return []
    each = by_function(view)
    use = (view.comm >= 0) & (view.seq >= 0) & ~view.many
    use &= ~each | (view.mask != sequences.ANY_OP)
    op = np.where(each, view.op, -1)
    a, b = _unique_pairs(view, use, first, second, (view.comm, op, view.seq, view.p2p))
    good = compatible(view, a, b)
    lane = code(view.rank[a], view.comm[a]) if len(a) else a
    wrong = np.zeros(int(lane.max(initial=-1)) + 1, dtype=bool)
    wrong[lane[~good]] = True
    groups.link(a[~wrong[lane]], b[~wrong[lane]])
    return _told(view, a[wrong[lane] & ~good], kinds)


def by_function_id(view: View, groups: Groups, first: int, second: int) -> list[Odd]:
    """Joins rows with the same record function; gives what contradicts itself.

    Ids of another run of the same program agree with these now and then: a rank on which many
    contradict each other joins nothing by them.
    """
    a, b = _unique_pairs(view, (view.function >= 0) & ~view.many, first, second, (view.function,))
    good = compatible(view, a, b)
    keep = good.copy()
    for rank in np.unique(view.rank[a]).tolist():
        mine = view.rank[a] == rank
        if (mine & ~good).sum() > FEW_WRONG * mine.sum():
            keep &= ~mine
    groups.link(a[keep], b[keep])
    return _told(view, a[~good], (view.kinds[first], view.kinds[second]))


def _unique_pairs(
    view: View, use: np.ndarray, first: int, second: int, keys: tuple[np.ndarray, ...]
) -> tuple[np.ndarray, np.ndarray]:
    """Rows of the two kinds that alone have their key, and those that alone also have its sizes."""
    index = np.flatnonzero(use & ((view.kind == first) | (view.kind == second)))
    told = (view.mask, view.size, view.in_bytes, view.out_bytes, view.peer)
    found = [(np.empty(0, np.int64), np.empty(0, np.int64))]
    for more in ((), told):
        if not len(index):
            break
        key = code(view.rank[index], *(k[index] for k in (*keys, *more)))
        sides = [
            np.bincount(key[view.kind[index] == k], minlength=int(key.max()) + 1)
            for k in (first, second)
        ]
        single = (sides[0] == 1) & (sides[1] == 1)
        at = index[single[key]]
        order, _ = runs(key[single[key]], view.kind[at])
        found.append((at[order][0::2], at[order][1::2]))
        index = index[((sides[0] > 1) | (sides[1] > 1))[key]]
    a, b = (np.concatenate(side) for side in zip(*found, strict=True))
    return a, b


def _told(view: View, rows: np.ndarray, kinds: tuple[str, str]) -> list[Odd]:
    ranks, count = np.unique(view.rank[rows], return_counts=True)
    return [Odd(r, *kinds, n) for r, n in zip(ranks.tolist(), count.tolist(), strict=True)]
