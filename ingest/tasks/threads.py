"""Host threads as chains: a thread's time is cut where something begins or ends."""

from __future__ import annotations

import numpy as np

from ..compiled import compiled
from .sorting import first_above

NONE = -1

HAND_OVER_NS = 100_000
"""A thread silent for longer than this, while another one worked, was waiting for that one."""
BLOCKED_NS = 1_000_000
"""An event that ends this soon after a collective it was inside of was waiting for it."""


def innermost(thread: np.ndarray, event: np.ndarray, begins: np.ndarray) -> np.ndarray:
    """The innermost event that is open before each boundary, int64 [k]; -1 where none is.

    Boundaries sorted by thread, then time, ends before begins: `event` begins or ends there.
    Events need not nest: the one begun last is the innermost. An `event` of -1 is a mere cut.
    """
    out = np.full(len(thread), NONE, np.int64)
    n_events = int(event.max(initial=-1)) + 1
    _innermost(thread, event, begins, np.zeros(n_events, np.bool_), out)
    return out


@compiled
def _innermost(thread, event, begins, is_open, out):  # pragma: no cover - compiled
    stack = np.empty(len(thread) + 1, np.int64)
    depth = 0
    for i in range(len(thread)):
        if i == 0 or thread[i] != thread[i - 1]:
            depth = 0
        while depth > 0 and not is_open[stack[depth - 1]]:
            depth -= 1
        if depth > 0:
            out[i] = stack[depth - 1]
        if event[i] < 0:
            continue
        if begins[i]:
            is_open[event[i]] = True
            stack[depth] = event[i]
            depth += 1
        else:
            is_open[event[i]] = False


def hand_overs(
    rank: np.ndarray,
    thread: np.ndarray,
    time_ns: np.ndarray,
    first_ns: np.ndarray,
    order: np.ndarray,
) -> np.ndarray:
    """For each cut the last cut of another thread of its rank since `first_ns`, or -1.

    Cuts sorted by thread, then time; `first_ns` is the thread's own cut before (the smallest
    int64 for the first of a thread); `order` (int64 [n]) has them by rank, then time. Only silences
    longer than HAND_OVER_NS count.
    """
    out = np.full(len(rank), NONE, np.int64)
    _hand_overs(rank, thread, time_ns, first_ns, order, HAND_OVER_NS, out)
    return out


@compiled
def _hand_overs(rank, thread, time, first, order, silence, out):  # pragma: no cover - compiled
    newest = other = -1  # last cut of all, and last cut of a thread other than that one's
    for i in order:
        if newest >= 0 and rank[newest] != rank[i]:
            newest = other = -1
        u = newest
        if u >= 0 and thread[u] == thread[i]:
            u = other
        if u >= 0 and time[u] > first[i] and time[i] > time[u] and first[i] < time[i] - silence:
            out[i] = u
        if newest >= 0 and thread[newest] != thread[i]:
            other = newest
        newest = i


def working(
    thread: np.ndarray,
    start_ns: np.ndarray,
    end_ns: np.ndarray,
    c_thread: np.ndarray,
    c_start_ns: np.ndarray,
    c_end_ns: np.ndarray,
) -> np.ndarray:
    """bool [c]: was the thread at work on something else when collective c ended?

    It was if an event that began inside the collective went on past its end by more than
    BLOCKED_NS. Events sorted by thread, then start.
    """
    out = np.zeros(len(c_thread), np.bool_)
    low = np.searchsorted(thread, c_thread, "left")
    high = np.searchsorted(thread, c_thread, "right")
    _working(start_ns, end_ns, low, high, c_start_ns, c_end_ns, BLOCKED_NS, out)
    return out


@compiled
def _working(start, end, low, high, c_start, c_end, tolerance, out):  # pragma: no cover
    for c in range(len(low)):
        a, b = low[c], high[c]
        i = first_above(start, a, b, c_start[c])
        while i < b and start[i] < c_end[c]:
            if end[i] > c_end[c] + tolerance:
                out[c] = True
                break
            i += 1
