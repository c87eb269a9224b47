"""Collectives that are under way at once and share links: how much longer that makes each.

A collective is one flow over all links that it crosses, which would use of each the share that it
uses when alone, at no more than its own pace. Shares are max-min fair (`fabric.simulate`): the pace
of those that meet at a full link falls until they fit. A port that suffers from incast carries less
the more GPUs push into it.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from ..fabric import flows, simulate
from ..graph import Kind, TaskGraph
from .link_demand import LEAST, Demand

UNIT_BYTES_PER_S = 1e9
"""One byte a nanosecond: the pace of a collective that nobody slows, and the whole of a link."""

DIGITS = 3
"""Significant digits of a share of a link: collectives of one kind and size are one path."""

MATCHED = 1e-4
"""Works are fitted until the simulated times are the measured ones within this."""


class Recorded(NamedTuple):
    """The collectives of the unchanged replay that may contend; arrays [c] of those."""

    demand: Demand
    code: np.ndarray
    """int64: their code in `TaskGraph.collective`."""
    task: np.ndarray
    """int64 [t]: their transfers, and `of` [t], the place of each one's collective."""
    of: np.ndarray
    took_ns: np.ndarray
    """Their longest transfers' measured times."""
    size_bytes: np.ndarray
    work_ns: np.ndarray
    """What each would take alone, so that together they take what they did."""
    factor: np.ndarray
    """How much longer than alone they took."""


def recorded(
    graph: TaskGraph, demand: Demand, start: np.ndarray, end: np.ndarray
) -> Recorded | None:
    """What contention there was in the unchanged replay; None where nothing could contend."""
    task = np.flatnonzero((graph.kind == Kind.TRANSFER) & (graph.collective >= 0))
    code = graph.collective[task]
    task = task[(demand.kind[code] >= 0) & (graph.bytes[task] > 0) & (end[task] > start[task])]
    if not len(task):
        return None
    codes, of = np.unique(graph.collective[task], return_inverse=True)
    took = _longest(of, graph.dur_ns[task], len(codes))
    size = np.zeros(len(codes))
    np.maximum.at(size, of, graph.bytes[task].astype(np.float64))
    first, last = _bounds(task, of, len(codes), start, end)
    lasts = (last - first).astype(np.float64)
    made = Recorded(demand, codes, task, of, took, size, lasts, np.ones(len(codes)))
    share = _share(made, np.ones(len(codes)), np.ones(len(codes)))
    work = lasts.copy()
    ended = _times(made, share, first, work)
    for _ in range(8):
        off = lasts / ended
        if np.abs(off - 1).max() < MATCHED:
            break
        work = work * off
        ended = _times(made, share, first, work)
    return made._replace(work_ns=work, factor=ended / work)


def carried(was: Recorded, base: TaskGraph, graph: TaskGraph, origin: np.ndarray) -> Recorded:
    """What was recorded (of `base`), for the collectives of a graph of other tasks.

    `origin` int64 [n] is the recorded task that each is, or was made like (`edges.origin`): a
    collective that a policy added asks of links, by its own bytes and time, what the one that it
    was made like did.
    """
    contends = np.zeros(base.n, bool)
    contends[was.task] = True
    task = np.flatnonzero((graph.kind == Kind.TRANSFER) & contends[origin])
    codes, first, of = np.unique(graph.collective[task], return_index=True, return_inverse=True)
    row = np.searchsorted(was.code, base.collective[origin[task[first]]])
    kind = np.full(int(graph.collective.max(initial=-1)) + 1, -1, np.int64)
    kind[codes] = was.demand.kind[was.code[row]]
    return Recorded(
        was.demand._replace(kind=kind), codes, task, of,
        _longest(of, base.dur_ns[origin[task]], len(codes)),
        was.size_bytes[row], was.work_ns[row], was.factor[row],
    )  # fmt: skip


def factors(
    was: Recorded, graph: TaskGraph, policy_dur_ns: np.ndarray, start: np.ndarray
) -> np.ndarray:
    """How much longer than alone each takes when they start so, float64 [c].

    `graph` has what a policy made of the bytes and, in `extra`, of their links' bandwidth;
    `policy_dur_ns` the times that it gave the transfers.
    """
    n = len(was.code)
    ratio = _longest(was.of, policy_dur_ns[was.task], n) / was.took_ns
    size = np.zeros(n)
    np.maximum.at(size, was.of, graph.bytes[was.task].astype(np.float64))
    less = size / was.size_bytes
    faster = graph.extra.get("bandwidth_ratio")
    if faster is not None:
        less = less / (np.bincount(was.of, faster[was.task]) / np.bincount(was.of))
    first = np.full(n, np.iinfo(np.int64).max)
    np.minimum.at(first, was.of, start[was.task])
    work = was.work_ns * ratio
    took = _times(was, _share(was, less, ratio), first, work)
    return np.divide(took, work, out=np.ones(n), where=work > 0)


def _longest(of: np.ndarray, dur_ns: np.ndarray, n: int) -> np.ndarray:
    """float64 [n]: a policy may let ranks that were done early be done with the last."""
    out = np.zeros(n)
    np.maximum.at(out, of, dur_ns.astype(np.float64))
    return out


def _bounds(task, of, n, start, end) -> tuple[np.ndarray, np.ndarray]:
    first = np.full(n, np.iinfo(np.int64).max)
    last = np.full(n, np.iinfo(np.int64).min)
    np.minimum.at(first, of, start[task])
    np.maximum.at(last, of, end[task])
    return first, last


def _share(was: Recorded, less: np.ndarray, ratio: np.ndarray) -> np.ndarray:
    """float64 [c]: what multiplies a kind's ns a byte to give the share of each link it uses.

    Alone a collective uses its slowest link for all but its messages; with `less` bytes in `ratio`
    of the time it uses less / ratio of that.
    """
    kind = was.demand.kind[was.code]
    alone = was.size_bytes / was.demand.alone_ns(kind, was.size_bytes)
    scaled = alone * np.divide(less, ratio, out=np.zeros_like(less), where=ratio > 0)
    with np.errstate(divide="ignore"):
        step = 10.0 ** (np.floor(np.log10(np.maximum(scaled, 1e-300))) - DIGITS + 1)
    return np.rint(scaled / step) * step


def _times(was: Recorded, share, first, work) -> np.ndarray:
    """float64 [c]: how long collectives take that start at `first` with `work` to do."""
    demand = was.demand
    kind = demand.kind[was.code]
    alike, path = np.unique(np.stack([kind, share]), axis=1, return_inverse=True)
    kinds, scale = alike[0].astype(np.int64), alike[1]
    count = demand.ptr[kinds + 1] - demand.ptr[kinds]
    entry = np.repeat(demand.ptr[kinds] - np.concatenate([[0], np.cumsum(count)[:-1]]), count)
    entry += np.arange(count.sum())
    coef = np.minimum(1.0, demand.ns_per_byte[entry] * np.repeat(scale, count))
    keep = coef >= LEAST
    ptr = np.concatenate([[0], np.cumsum(np.bincount(np.repeat(np.arange(len(kinds)), count)[keep],
                                                     minlength=len(kinds)))])  # fmt: skip
    many = demand.sender_ptr[kind + 1] - demand.sender_ptr[kind]
    place = np.repeat(demand.sender_ptr[kind] - (np.cumsum(many) - many), many)
    place = demand.sender[place + np.arange(many.sum())]
    done = simulate.simulate(
        flows.links(
            np.full(demand.n_links, UNIT_BYTES_PER_S),
            incast_gamma=demand.incast_gamma, incast_free=demand.incast_free,
        ),
        flows.paths(ptr, demand.link[entry[keep]], coef[keep]),
        simulate.flows(
            path.reshape(-1),
            work,
            release_ns=(first - first.min()).astype(np.float64),
            rate_cap=UNIT_BYTES_PER_S,
        ),
        slots=(np.concatenate([[0], np.cumsum(many)]), place, demand.sender_link),
    )  # fmt: skip
    return done.end_ns - done.start_ns
