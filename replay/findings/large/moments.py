"""The moments of all shares of a job as one graph, and what-ifs of it: see `contract`."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np

from ....ingest.compiled import compiled
from ... import sweep
from ...lanes import LANES
from ...traced import order as ordering
from .contract import Contracted


class Moments(NamedTuple):
    """k moments in topological order, of which the first is the beginning of time."""

    ptr: np.ndarray
    """int64 [k + 1]: where the terms of each begin."""
    source: np.ndarray
    """int32 [t]: an earlier moment."""
    more_ns: np.ndarray
    """int64 [t]: by how much that is earlier at least."""
    other_ns: np.ndarray
    """int64 [t]: what that becomes where the rank is as the median one, less `more_ns`."""
    rank: np.ndarray
    """int32 [t]: whose time it is."""
    join: np.ndarray
    """int64 [joins]: the moment of each join."""
    asked: np.ndarray
    """int64: the moments of tasks that were asked for, share by share in the order of tasks."""


class Said(NamedTuple):
    """What is known of a share's moments."""

    contracted: Contracted
    joins: np.ndarray
    """int64: the job's numbers of the share's joins."""
    rank: np.ndarray
    """int64 [terms]"""
    measured_ns: np.ndarray
    """int64 [moments]: about when each is."""
    asked: np.ndarray
    """int64: which of these moments are asked for."""


def together(shares: Sequence[Said], ready_ns: np.ndarray) -> Moments | None:
    """The moments of all shares; None where they wait for each other in a circle.

    `ready_ns` int64 [joins] is about when each join is free to go.
    """
    n_joins = len(ready_ns)
    sizes = [len(s.contracted.task) for s in shares]
    base = 1 + n_joins + np.concatenate([[0], np.cumsum(sizes)]).astype(np.int64)
    n = int(base[-1])
    goals, sources, more, ranks = [], [], [], []
    for s, since in zip(shares, base[:-1].tolist(), strict=True):
        c = s.contracted
        # Sources of a share as numbers of all: the beginning, joins, its own.
        table = np.concatenate([1 + s.joins, np.arange(since, since + len(c.task)), [0]])
        sources.append(table[c.source].astype(np.int32))
        own = np.repeat(np.arange(since, since + len(c.task)), np.diff(c.ptr))
        goals.append(np.concatenate([1 + s.joins[c.join], own]).astype(np.int32))
        more.append(c.more_ns)
        ranks.append(s.rank.astype(np.int32))
    goal, source = (np.concatenate([np.empty(0, np.int32), *x]) for x in (goals, sources))
    del goals, sources
    by_goal = np.argsort(goal, kind="stable")
    ptr = np.zeros(n + 1, np.int64)
    np.cumsum(np.bincount(goal, minlength=n), out=ptr[1:])
    source = source[by_goal]
    time = np.concatenate([[np.iinfo(np.int64).min], ready_ns, *(s.measured_ns for s in shares)])
    order = ordering.topological(np.argsort(time, kind="stable").astype(np.int32), ptr, source)
    if len(order) < n:
        return None
    place = ordering.inverse(order)
    many = np.diff(ptr)[order]
    new_ptr = np.zeros(n + 1, np.int64)
    np.cumsum(many, out=new_ptr[1:])
    term = np.repeat(ptr[order] - new_ptr[:-1], many) + np.arange(len(source))
    by_goal = by_goal[term]
    times = np.concatenate([np.empty((0, more[0].shape[1]), np.int64), *more])
    own, other = times[by_goal, 0], times[by_goal, -1]
    return Moments(
        new_ptr, place[source[term]], own, other - own,
        np.concatenate([np.empty(0, np.int32), *ranks])[by_goal],
        place[1 : 1 + n_joins].astype(np.int64),
        np.concatenate([place[a + s.asked] for a, s in zip(base.tolist(), shares, strict=False)]),
    )  # fmt: skip


def ends(moments: Moments) -> np.ndarray:
    """int64 [k]: when each moment is. A join that nobody arrives at is at 0, as the beginning."""
    out = np.zeros(len(moments.ptr) - 1, np.int64)
    _ends(moments.ptr, moments.source, moments.more_ns, out)
    return out


def latest(moments: Moments, bound_ns: np.ndarray, unbounded: int) -> np.ndarray:
    """int64 [k]: how late each could be for no bound (int64 [k], `unbounded`: none) to be passed.

    `bound_ns` is overwritten.
    """
    _latest(moments.ptr, moments.source, moments.more_ns, unbounded, bound_ns)
    return bound_ns


def one_rank_other(moments: Moments, asked: np.ndarray, ranks: np.ndarray) -> np.ndarray:
    """int64 [ranks, asked]: when moments are with one of some ranks as the median one is.

    As `lanes.one_rank_other`: eight at once, on all cores.
    """
    reach = _reach(moments.ptr, moments.source)
    kept = 1 << int(reach).bit_length()
    mark = np.full(len(moments.ptr) - 1, -1, np.int32)
    mark[asked] = np.arange(len(asked))
    n_ranks = int(max(moments.rank.max(initial=-1), ranks.max(initial=-1))) + 1
    walks = range(0, len(ranks), LANES)
    workers = min(sweep.cores(), len(walks))

    def walked(worker: int) -> list[np.ndarray]:
        end = np.empty((kept, LANES), np.int64)
        found = []
        for first in walks[worker::workers]:
            some = ranks[first : first + LANES]
            lane = np.full(n_ranks + 1, -1, np.int64)
            lane[some] = np.arange(len(some))
            out = np.empty((len(asked), LANES), np.int64)
            _walk(*moments[:5], lane, mark, end, out)
            found.append(out[:, : len(some)].T.copy())
        return found

    by_worker = sweep.over(walked, range(workers), tasks=len(mark))
    return np.concatenate([by_worker[w % workers][w // workers] for w in range(len(walks))])


@compiled
def _ends(ptr, source, more, end):  # pragma: no cover - compiled
    for i in range(len(end)):
        a, b = ptr[i], ptr[i + 1]
        if a == b:
            continue
        end[i] = end[source[a]] + more[a]
        for e in range(a + 1, b):
            end[i] = max(end[i], end[source[e]] + more[e])


@compiled
def _latest(ptr, source, more, unbounded, latest):  # pragma: no cover - compiled
    for i in range(len(latest) - 1, -1, -1):
        if latest[i] == unbounded:
            continue
        for e in range(ptr[i], ptr[i + 1]):
            latest[source[e]] = min(latest[source[e]], latest[i] - more[e])


@compiled
def _reach(ptr, source):  # pragma: no cover - compiled
    most = 0
    for i in range(len(ptr) - 1):
        for e in range(ptr[i], ptr[i + 1]):
            if source[e]:
                most = max(most, i - source[e])
    return most


@compiled
def _walk(ptr, source, more, other, rank, lane, mark, end, out):  # pragma: no cover - compiled
    """Ends of the moments with a `mark`, [marks, LANES]: lane k has the other times of its rank.

    `end` ([w, LANES], w a power of 2 above the reach) is a ring; the first moment is always 0.
    """
    ring = len(end) - 1
    best = np.empty(LANES, np.int64)
    for i in range(len(ptr) - 1):
        a, b = ptr[i], ptr[i + 1]
        for k in range(LANES):
            best[k] = 0 if a == b else np.iinfo(np.int64).min
        for e in range(a, b):
            s, later, own = source[e] & ring, more[e], lane[rank[e]]
            changed = np.int64(0)
            if source[e] == 0:
                if own >= 0:
                    changed = best[own]
                for k in range(LANES):
                    best[k] = max(best[k], later)
                if own >= 0:
                    best[own] = max(changed, later + other[e])
                continue
            if own >= 0:
                changed = max(best[own], end[s, own] + later + other[e])
            for k in range(LANES):
                best[k] = max(best[k], end[s, k] + later)
            if own >= 0:
                best[own] = changed
        at = i & ring
        for k in range(LANES):
            end[at, k] = best[k]
        if mark[i] >= 0:
            for k in range(LANES):
                out[mark[i], k] = best[k]
    return out
