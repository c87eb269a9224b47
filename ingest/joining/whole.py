"""A profile and an execution trace of one window: all operations of a rank, one for one."""

from __future__ import annotations

import numpy as np

from .rows import TIMELINES, Groups, View, compatible

FEW = 6
"""Operations that a window has at least."""
KNOWN = 0.8
"""Share of operations whose size both sources must know."""


def by_window(view: View, groups: Groups, first: int, second: int) -> int:
    """Joins a rank's rows of a timeline and of an execution trace where these are one for one.

    The profiler starts and stops both together. Old PyTorch writes no id that joins them; so the
    two must have the same operations, all of them, in one order that fits at no other place, and
    at least three that differ. Returns the rows joined; nothing is where anything is joined yet,
    for then the sources have names for what they share.
    """
    if view.kinds[first] not in TIMELINES or view.kinds[second] != "execution-trace":
        return 0
    joined = 0
    for rank in np.unique(view.rank).tolist():
        mine = view.rank == rank
        a = np.flatnonzero(mine & (view.kind == first))
        b = np.flatnonzero(mine & (view.kind == second))
        if len(a) != len(b) or len(a) < FEW or view.many[a].any():
            continue
        if (groups.partner(second)[a] >= 0).any() or (view.function[a] >= 0).any():
            continue
        if _one_way(view, a, b):
            groups.link(a, b)
            joined += len(a)
    return joined


def _one_way(view: View, a: np.ndarray, b: np.ndarray) -> bool:
    known = [(view.in_bytes[x] >= 0) | (view.out_bytes[x] >= 0) for x in (a, b)]
    if (known[0] & known[1]).mean() < KNOWN or not compatible(view, a, b).all():
        return False
    told = np.stack([view.mask[b], view.dtype[b], view.in_bytes[b], view.out_bytes[b]], axis=1)
    if len(np.unique(told, axis=0)) < 3:
        return False
    return not any(
        compatible(view, a[k:], b[:-k]).all() or compatible(view, a[:-k], b[k:]).all()
        for k in range(1, len(a) - 1)
    )
