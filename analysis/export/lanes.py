"""Lanes: slices that overlap on one stream or thread side by side, so that none is lost."""

from __future__ import annotations

import numpy as np

from ...ingest.compiled import compiled


def place(
    group: np.ndarray, start_ns: np.ndarray, end_ns: np.ndarray, nested: np.ndarray
) -> np.ndarray:
    """The lane of each slice within its group, int64 [n], from 0.

    The first lane on which it overlaps nothing; where `nested` (bool [n], the same for a whole
    group), one on which it lies wholly within all that is still open will do.
    """
    lane = np.zeros(len(group), np.int64)
    if len(group):
        order = np.lexsort((np.arange(len(group)), -end_ns, start_ns, group))
        _place(order, group, start_ns, end_ns, nested, lane)
    return lane


def marks(track: np.ndarray, start_ns: np.ndarray, end_ns: np.ndarray) -> np.ndarray:
    """The order in which beginnings and ends are written, int64 [2n]: i begins, ~i ends slice i.

    Track by track in time; at one moment what ends comes before what begins, and the inner before
    the outer. On each track slices must be apart or nested (`place`).
    """
    out = np.empty(2 * len(track), np.int64)
    if len(track):
        order = np.lexsort((np.arange(len(track)), -end_ns, start_ns, track))
        _marks(order, track, start_ns, end_ns, out)
    return out


def in_time(start_ns: np.ndarray, end_ns: np.ndarray, first: np.ndarray) -> np.ndarray:
    """`marks` of slices of any tracks in one order of time, int64 [2n].

    Of those that begin at one moment, those with `first` (bool [n]) lead. For slices that last,
    on tracks where none is nested.
    """
    n = len(start_ns)
    i = np.arange(n)
    time = np.concatenate([start_ns, end_ns])
    phase = np.concatenate([np.where(first, 1, 2), np.zeros(n, np.int64)])
    return np.concatenate([i, ~i])[np.lexsort((np.concatenate([i, i]), phase, time))]


@compiled
def _place(order, group, start, end, nested, lane):  # pragma: no cover - compiled
    n = len(order)
    # A lane's open slices are a chain: the last one, and of each the one that it lies within.
    last = np.full(16, -1, np.int64)
    within = np.full(n, -1, np.int64)
    lanes = 0
    for k in range(n):
        i = order[k]
        if k == 0 or group[i] != group[order[k - 1]]:
            lanes = 0
        at = -1
        for j in range(lanes):
            open_ = last[j]
            while open_ >= 0 and end[open_] <= start[i]:
                open_ = within[open_]
            last[j] = open_
            if open_ < 0 or (nested[i] and end[open_] >= end[i]):
                at = j
                break
        if at < 0:
            at = lanes
            lanes += 1
            if lanes > len(last):
                more = np.full(2 * len(last), -1, np.int64)
                more[: len(last)] = last
                last = more
            last[at] = -1
        within[i] = last[at]
        last[at] = i
        lane[i] = at


@compiled
def _marks(order, track, start, end, out):  # pragma: no cover - compiled
    stack = np.empty(len(order), np.int64)
    depth = 0
    m = 0
    for k in range(len(order)):
        i = order[k]
        other = k > 0 and track[i] != track[order[k - 1]]
        while depth > 0 and (other or end[stack[depth - 1]] <= start[i]):
            depth -= 1
            out[m] = ~stack[depth]
            m += 1
        out[m] = i
        m += 1
        stack[depth] = i
        depth += 1
    while depth > 0:
        depth -= 1
        out[m] = ~stack[depth]
        m += 1
