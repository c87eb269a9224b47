"""Reductions of gradients in buckets, each on its way as soon as its gradients are there.

A bucket's gradients are taken to become ready evenly over the computation since the bucket before
it; those of a step's first over the part of the step's computation that is backward. A bucket is a
collective of its own, behind the bucket before it on the same stream.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import NamedTuple

import numpy as np

from .. import edges
from ..graph import NULL, Kind, TaskGraph
from ..steps import participations

BACKWARD = 2 / 3
"""Of a step's computation: a backward pass takes twice what the forward pass does (textbook)."""

MOST = 64
"""Buckets of one collective: more cost more to replay than they tell."""


class Split(NamedTuple):
    """The graph with collectives in buckets."""

    graph: TaskGraph
    place: np.ndarray
    """int64 [old n]: where each task went."""
    split: int
    """Collectives that were taken apart, into so many `buckets`."""
    buckets: int
    whole: int
    """Left whole: nothing was computed on any rank since what they would begin behind."""
    transfer: np.ndarray
    """Tasks of all buckets and of what was left whole."""


def split(
    graph: TaskGraph,
    chunks: Mapping[int, int],
    ratio: Mapping[int, float],
    backward: float = BACKWARD,
) -> Split:
    """The graph with collectives (by code) in `chunks` buckets, each `ratio` of its transfer long.

    `backward` is the part of a step's computation, up to its last reduction, in which gradients
    become ready.
    """
    arrive, transfer = participations(graph)
    wanted = np.isin(graph.collective[transfer], np.fromiter(chunks, np.int64, len(chunks)))
    arrive, transfer = arrive[wanted], transfer[wanted]
    parts: dict[int, list[tuple[int, int, np.ndarray]]] = {}
    for a, t, ready in _ready(graph, arrive, transfer, chunks, backward):
        parts.setdefault(int(graph.collective[t]), []).append((a, t, ready))
    src, dst = edges.of(graph)
    cut = np.zeros(len(src), bool)
    added = edges.Added(graph)
    dur = graph.dur_ns.copy()
    size = graph.bytes.copy()
    fresh = int(graph.collective.max(initial=-1)) + 1
    done = buckets = whole = 0
    many = dict(zip(*np.unique(graph.collective[transfer], return_counts=True), strict=True))
    joins = {int(graph.collective[j]): j for j in np.flatnonzero(graph.kind == Kind.JOIN)}
    for code, members in parts.items():
        k = chunks[code]
        apart = any(len(set(ready.tolist())) > 1 for _, _, ready in members)
        if k < 2 or not apart or len(members) < many[code]:
            whole += 1
            continue
        join = int(joins[code])
        codes = range(fresh, fresh + k - 1)
        fresh += k - 1
        middle = [added.task(join, collective=c, bytes=int(graph.bytes[join] // k)) for c in codes]
        for a, t, ready in members:
            _take_apart(graph, added, cut, dur, size, (a, t), ready, codes, middle, ratio[code])
        size[join] -= (k - 1) * (size[join] // k)
        done += 1
        buckets += k
    if not done:
        return Split(graph, np.arange(graph.n), 0, 0, whole, transfer)
    made, place = edges.extended(graph.with_(dur_ns=dur, bytes=size), added, src[~cut], dst[~cut])
    new = graph.n + np.flatnonzero(made.kind[place[graph.n :]] == Kind.TRANSFER)
    return Split(
        made, place[: graph.n], done, buckets, whole, place[np.concatenate([transfer, new])]
    )


def _take_apart(graph, added, cut, dur, size, task, ready, codes, middle, ratio) -> None:
    """The buckets of one participation: all but the last are new, the last is what was there."""
    arrive, transfer = task
    k = len(ready)
    each, some = int(graph.bytes[transfer] // k), round(int(graph.dur_ns[transfer]) * ratio)
    low, high = graph.pred_ptr[arrive], graph.pred_ptr[arrive + 1]
    before = [e for e in range(low, high) if graph.kind[graph.pred[e]] == Kind.TRANSFER]
    last = -1
    for i, code in enumerate(codes):
        a = added.task(arrive, collective=code, bytes=each, dur_ns=0)
        t = added.task(transfer, collective=code, bytes=each, dur_ns=some)
        added.edge(int(ready[i]), a)
        if last >= 0:
            added.edge(last, a)
        for e in before if last < 0 else ():
            added.edge(int(graph.pred[e]), a)
            cut[e] = True
        added.edge(a, middle[i])
        added.edge(a, t)
        added.edge(middle[i], t)
        last = t
    added.edge(last, arrive)
    dur[transfer] = some
    size[[arrive, transfer]] -= (k - 1) * each


def _ready(graph, arrive, transfer, chunks, backward):
    """(arrive, transfer, tasks after which each bucket is ready) of participations.

    Left out are those before which nothing was computed.
    """
    work = np.flatnonzero(_work(graph) & (graph.start_ns != NULL))
    work = work[np.lexsort((graph.start_ns[work], graph.step[work], graph.rank[work]))]
    spent = np.cumsum(graph.dur_ns[work]).astype(float)
    at = np.full(graph.n, -1)
    at[work] = np.arange(len(work))
    behind = np.array([_behind(graph, a, at) for a in arrive], np.int64)
    keys = graph.rank[arrive], graph.step[arrive]
    order = np.lexsort((graph.start_ns[arrive], behind, keys[1], keys[0]))
    first, last = {}, {}
    for i in order.tolist():
        one = (int(keys[0][i]), int(keys[1][i]))
        last[one] = behind[i]
    for one in last:
        first[one] = _first(graph, work, *one)
    begin: dict[tuple[int, int], float] = {}
    for i in order.tolist():
        one, until = (int(keys[0][i]), int(keys[1][i])), behind[i]
        low = first[one]
        if until < low or low < 0:
            continue
        base = spent[low] - graph.dur_ns[work[low]]
        whole = float(base + (1 - backward) * (spent[last[one]] - base))
        since = begin.get(one, whole)
        begin[one] = max(since, float(spent[until]))
        k = chunks[int(graph.collective[transfer[i]])]
        if spent[until] <= since:
            yield int(arrive[i]), int(transfer[i]), np.full(k, work[until])
            continue
        marks = since + (spent[until] - since) * np.arange(1, k + 1) / k
        # Rounding must not put the last one behind a task that comes later.
        place = np.minimum(np.searchsorted(spent, marks - 0.5), until)
        yield int(arrive[i]), int(transfer[i]), work[place]


def _first(graph: TaskGraph, work: np.ndarray, rank: int, step: int) -> int:
    """Where a rank's work in a step begins in `work` (by rank, step, start); -1: it has none."""
    low, high = np.searchsorted(graph.rank[work], [rank, rank + 1])
    here = low + np.searchsorted(graph.step[work[low:high]], step)
    return int(here) if here < high and graph.step[work[here]] == step else -1


def _behind(graph: TaskGraph, arrive: int, at: np.ndarray) -> int:
    """The place among its rank's work of the last that an arrival waits for; -1: none."""
    before = graph.pred[graph.pred_ptr[arrive] : graph.pred_ptr[arrive + 1]]
    return int(at[before].max(initial=-1))


def _work(graph: TaskGraph) -> np.ndarray:
    on_device = np.isin(graph.kind, (Kind.COMPUTE, Kind.COPY))
    bare = ~np.isin(graph.rank, np.unique(graph.rank[on_device]))
    return on_device | ((graph.kind == Kind.HOST) & bare)
