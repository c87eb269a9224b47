"""One walk along a rank's time: unions of work by step, and the gaps between (view `_accounts`)."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from .aligned import Windows
from .segmented import LEAST

COMPUTE, COMM, COPY = range(3)
LAST_ID = np.int64(9223372036854775805)
"""Stands for the id of work that has none, in the order of what begins together."""

CLASSES = ("compute", "compute_with_comm", "exposed_transfer", "exposed_comm_unsplit",
           "exposed_wait", "exposed_memcpy")  # fmt: skip

UNIONS = ("compute_ns", "with_transfer_ns", "with_unsplit_ns", "with_comm_ns", "with_copy_ns")
"""Compute; it or transfers; these or unsplit communication; compute or all communication; all."""


class Activity(NamedTuple):
    """A rank's intervals of work on the job's clock (view `_activity`); arrays of one length."""

    start_ns: np.ndarray
    end_ns: np.ndarray
    kind: np.ndarray
    """COMPUTE, COMM or COPY"""
    transfer_ns: np.ndarray
    """moment from which it moves bytes, of communication"""
    unsplit: np.ndarray
    event: np.ndarray
    """`LEAST` where no event carries it"""
    name: np.ndarray
    """code, -1 null"""
    correlation: np.ndarray

    @property
    def turn(self) -> np.ndarray:
        """Order of what begins together."""
        return np.where(self.event == LEAST, LAST_ID, self.event)


class Stretches(NamedTuple):
    """A rank's time cut at its steps: before the first, in it, until the next, and so on."""

    from_ns: np.ndarray
    """`LEAST` of the first"""
    ordinal: np.ndarray
    """of the step that it is, 0 outside"""
    step: np.ndarray
    """`LEAST` outside"""

    @property
    def to_ns(self) -> np.ndarray:
        """End of each; the last has none."""
        return np.append(self.from_ns[1:], np.iinfo(np.int64).max)


class Gaps(NamedTuple):
    """Times without work, cut at steps; arrays of one length, in order of time."""

    start_ns: np.ndarray
    end_ns: np.ndarray
    free_ns: np.ndarray
    """where the whole gap began"""
    stretch: np.ndarray
    row: np.ndarray
    """activity whose start ended the whole gap, -1 none"""


class Walked(NamedTuple):
    """Time of each class by ordinal, for the ordinals in which anything is; and the gaps."""

    ordinal: np.ndarray
    ns: np.ndarray
    """int64[ordinals, CLASSES]"""
    gaps: Gaps
    covered: np.ndarray
    """int64[moments, UNIONS]: how long each ran before each of the moments asked for"""


def stretches(windows: Windows | None) -> Stretches:
    """The stretches of a rank with these steps."""
    if windows is None:
        return Stretches(np.array([LEAST]), np.zeros(1, np.int64), np.array([LEAST]))
    n = len(windows.step)
    from_ns, ordinal, step = (np.full(2 * n + 1, v) for v in (LEAST, 0, LEAST))
    from_ns[1::2], from_ns[2::2] = windows.start_ns, windows.end_ns
    ordinal[1::2], step[1::2] = np.arange(1, n + 1), windows.step
    return Stretches(from_ns, ordinal, step)


def before(values: np.ndarray) -> np.ndarray:
    """The greatest of all before each place; `LEAST` at the first."""
    out = np.full(len(values), LEAST)
    if len(values) > 1:
        np.maximum.accumulate(values[:-1], out=out[1:])
    return out


def walk(a: Activity, s: Stretches, stepped: bool, moments: np.ndarray) -> Walked:
    """Walks along the work and the boundaries of steps in the order of time."""
    n, moves = len(a.start_ns), np.flatnonzero((a.kind == COMM) & (a.transfer_ns < a.end_ns))
    edges = len(s.from_ns) if stepped else 0
    start = np.concatenate([a.start_ns, a.transfer_ns[moves], s.from_ns[:edges]])
    end = np.concatenate([a.end_ns, a.end_ns[moves], s.from_ns[:edges]])
    turn = np.concatenate([a.turn, np.full(len(moves), LAST_ID + 1), np.full(edges, LAST_ID + 2)])
    row = np.lexsort((turn, start))
    del turn
    start = start[row]
    end = end[row]
    is_work, is_edge = row < n, row >= n + len(moves)
    kind = np.full(len(row), -1, np.int8)
    kind[is_work] = a.kind[row[is_work]]
    moving = ~is_work & ~is_edge
    unsplit = np.zeros(len(row), bool)
    unsplit[is_work] = a.unsplit[row[is_work]]
    compute, comm = kind == COMPUTE, kind == COMM
    at = np.flatnonzero(is_edge)

    begun = np.searchsorted(start, moments)  # so many before each moment
    covered: list[np.ndarray] = []

    def union(of: np.ndarray) -> np.ndarray:
        """Of each stretch how long any of these runs; and of each moment, in `covered`."""
        latest = np.where(of, end, LEAST)
        until = before(latest)
        adds = np.maximum(start, until)
        np.subtract(end, adds, out=adds)
        np.maximum(adds, 0, out=adds)
        adds *= of
        so_far = np.cumsum(adds)
        covered.append(_until(moments, begun, so_far, np.maximum(until, latest, out=latest)))
        total = so_far[-1:] if len(so_far) else np.zeros(1, np.int64)
        if not len(at):
            return total
        # Nothing comes before the first boundary, at the beginning of time.
        lies_beyond = np.where(until[at] == LEAST, 0, until[at] - start[at])
        upto = so_far[at] - np.maximum(0, lies_beyond)
        return np.diff(np.append(upto, total))

    of_comm = union(comm)
    covered.clear()  # that is none of UNIONS
    of_compute = union(compute)
    with_transfer, with_unsplit = union(compute | moving), union(compute | moving | unsplit)
    with_comm, with_copy = union(compute | comm), union(is_work)
    parts = np.stack(
        [
            with_comm - of_comm, of_compute + of_comm - with_comm, with_transfer - of_compute,
            with_unsplit - with_transfer, with_comm - with_unsplit, with_copy - with_comm,
        ],
        axis=1,
    )  # fmt: skip
    seen = _seen(start, end, s)
    ordinal = np.unique(s.ordinal[seen])
    ns = np.zeros((len(ordinal), len(CLASSES)), np.int64)
    known = np.isin(s.ordinal, ordinal)
    np.add.at(ns, np.searchsorted(ordinal, s.ordinal[known]), parts[known])
    return Walked(
        ordinal, ns, _gaps(row, start, end, is_work, is_edge, n), np.stack(covered, axis=1)
    )


def _until(
    moments: np.ndarray, begun: np.ndarray, so_far: np.ndarray, latest: np.ndarray
) -> np.ndarray:
    """What has begun of a union by each moment, less what of it lies beyond."""
    at = begun - 1
    if not len(so_far):
        return np.zeros(len(moments), np.int64)
    beyond = np.where(latest[at] > moments, latest[at] - moments, 0)
    return np.where((at < 0) | (latest[at] == LEAST), 0, so_far[at] - beyond)


def _seen(start: np.ndarray, end: np.ndarray, s: Stretches) -> np.ndarray:
    """bool[stretches]: something of the rank's time lies in it."""
    there = end != LEAST
    if not there.any():
        return np.zeros(len(s.from_ns), bool)
    first, last = start[there].min(), end[there].max()
    return np.maximum(s.from_ns, first) < np.minimum(s.to_ns, last)


def _gaps(
    row: np.ndarray, start: np.ndarray, end: np.ndarray, is_work: np.ndarray, is_edge: np.ndarray,
    n: int,
) -> Gaps:  # fmt: skip
    marked = before(end)
    worked = before(np.where(is_work, end, LEAST))
    stretch = np.cumsum(is_edge) - is_edge - 1  # the one that the time before it lies in
    at = np.flatnonzero((marked != LEAST) & (start > marked))
    free = np.where(worked[at] != LEAST, worked[at], marked[at])
    ends_by = np.where(row[at] < n, row[at], -1)
    # A piece that a step cut off is ended by what ends the whole gap.
    cut, whole = np.flatnonzero(is_edge[at]), np.flatnonzero(~is_edge[at])
    if len(cut) and len(whole):
        found = np.minimum(np.searchsorted(free[whole], free[cut]), len(whole) - 1)
        same = free[whole][found] == free[cut]
        ends_by[cut] = np.where(same, ends_by[whole[found]], -1)
    elif len(cut):
        ends_by[cut] = -1
    return Gaps(marked[at], start[at], free, stretch[at], ends_by)
