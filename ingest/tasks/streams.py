"""Order on and between device streams: which activity a kernel had to wait for."""

from __future__ import annotations

import numpy as np

from ..compiled import compiled

NONE = -1

LAUNCH_NS = 20_000
"""A kernel that started this long after its launch call was waiting for something else."""
BACK_TO_BACK_NS = 5_000
"""A kernel that started this soon after the one before it on the stream waited for that one."""
HAND_OVER_NS = 10_000
"""An event recorded on another stream lets a waiting kernel start within this time."""


def stream_order(
    lane: np.ndarray, start_ns: np.ndarray, end_ns: np.ndarray
) -> tuple[np.ndarray, np.ndarray]:
    """For each activity its predecessor on the stream, and the one it overlaps.

    All int64 [n], sorted by start; `lane` is a dense code of the stream. `before[i]` is the
    activity of the lane that ended last of those that ended by the start of i. `over[i]` is the
    one started last of those still running then (programmatic dependent launch starts a kernel
    before its predecessor ends): i could start once that one had, not once it ends. -1: none.
    """
    before = np.full(len(lane), NONE, np.int64)
    over = np.full(len(lane), NONE, np.int64)
    if len(lane):
        _stream_order(lane, start_ns, end_ns, int(lane.max()) + 1, before, over)
    return before, over


@compiled
def _stream_order(lane, start, end, lanes, before, over):  # pragma: no cover - compiled
    room = 64
    running = np.full((lanes, room), -1, np.int64)
    count = np.zeros(lanes, np.int64)
    last = np.full(lanes, -1, np.int64)
    for i in range(len(lane)):
        k = lane[i]
        kept = 0
        for j in range(count[k]):
            u = running[k, j]
            if end[u] <= start[i]:
                if last[k] < 0 or end[u] >= end[last[k]]:
                    last[k] = u
            else:
                running[k, kept] = u
                kept += 1
        before[i] = last[k]
        if kept > 0:
            over[i] = running[k, kept - 1]
        if kept == room:  # more than 64 at once on one stream: forget the oldest
            for j in range(1, room):
                running[k, j - 1] = running[k, j]
            kept -= 1
        running[k, kept] = i
        count[k] = kept + 1


def inferred_waits(
    rank: np.ndarray,
    lane: np.ndarray,
    start_ns: np.ndarray,
    end_ns: np.ndarray,
    launch_ns: np.ndarray,
    before: np.ndarray,
    by_end: np.ndarray,
) -> np.ndarray:
    """For each activity the one on another stream that its start shows it waited for, or -1.

    Inferred where neither the launch nor the stream explains the start: launched more than
    LAUNCH_NS and preceded on its stream by more than BACK_TO_BACK_NS, while on another stream of
    the rank something ended within HAND_OVER_NS before. `launch_ns` is the call's start (the
    smallest int64 where it is not known). Rows sorted by rank, then start; `by_end` (int64 [n]) by
    rank, then end.
    """
    out = np.full(len(rank), NONE, np.int64)
    _inferred_waits(
        rank,
        lane,
        start_ns,
        end_ns,
        launch_ns,
        before,
        by_end,
        LAUNCH_NS,
        BACK_TO_BACK_NS,
        HAND_OVER_NS,
        out,
    )
    return out


@compiled
def _inferred_waits(
    rank, lane, start, end, launch, before, by_end, far, near, window, out
):  # pragma: no cover - compiled
    p = 0  # first of by_end that ends after the start looked at
    for i in range(len(rank)):
        while p < len(by_end) and (
            rank[by_end[p]] < rank[i] or (rank[by_end[p]] == rank[i] and end[by_end[p]] <= start[i])
        ):
            p += 1
        if launch[i] > start[i] - far:
            continue
        if before[i] >= 0 and end[before[i]] > start[i] - near:
            continue
        q = p - 1
        while q >= 0:
            u = by_end[q]
            if rank[u] != rank[i] or end[u] < start[i] - window:
                break
            if lane[u] != lane[i] and u < i:
                out[i] = u
                break
            q -= 1


def recorded_then_waited(
    thread: np.ndarray, what: np.ndarray, activity: np.ndarray, lane: np.ndarray
) -> tuple[np.ndarray, np.ndarray]:
    """Waits between streams by the host's order of calls: (src, dst) activities.

    Calls sorted by thread, then time; `what` is 0 launch, 1 event record, 2 stream wait;
    `activity` is what a launch launched, `lane` [activities] its stream. A record and a wait with
    no launch between them tie the launch before the record to the launch after the wait (this is
    how a communication stream is made to wait for the compute stream).
    """
    src = np.empty(len(thread), np.int64)
    dst = np.empty(len(thread), np.int64)
    k = _recorded_then_waited(thread, what, activity, lane, src, dst)
    return src[:k], dst[:k]


@compiled
def _recorded_then_waited(thread, what, activity, lane, src, dst):  # pragma: no cover - compiled
    k = 0
    last = recorded = pending = -1
    for i in range(len(thread)):
        if i == 0 or thread[i] != thread[i - 1]:
            last = recorded = pending = -1
        if what[i] == 1:
            recorded = last
        elif what[i] == 2:
            if recorded >= 0:
                pending = recorded
        else:
            v = activity[i]
            if pending >= 0 and lane[pending] != lane[v]:
                src[k] = pending
                dst[k] = v
                k += 1
            pending = recorded = -1
            last = v
    return k
