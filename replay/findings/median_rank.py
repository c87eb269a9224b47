"""What each task would take on the median rank: the same piece of the same step elsewhere.

A computation, copy or arrival is compared with the k-th of its name in the same step on every
rank that has one: its duration becomes the median, and so does the delay before it where that is
longer (a short one stays: a long one elsewhere may be a wait that no row tells). Host segments of
traced jobs are compared by stretches, from one launch of a collective to the next on the rank:
their calls need not be the same one by one, so a thread's time in a stretch, as a whole, becomes
that of the median rank. Transfers keep their durations: what they take is not one rank's doing.
Work that no other rank has in the step stays as it is, and so does what is in no step.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from ...ingest.tasks.tables import within
from ..graph import Kind, TaskGraph
from .ideal import median_of_like

OWN = (Kind.COMPUTE, Kind.COPY, Kind.HOST, Kind.ARRIVE)
"""Kinds of tasks that are a rank's own doing."""


def at_median(graph: TaskGraph, step: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """`dur_ns` and `gap_ns` (int64 [n]) with every rank's own work as the median rank's.

    `step` int64 [n] is the step of each task (`task_steps`), negative for none.
    """
    tasks, host = own_tasks(graph, step)
    code = codes(step[tasks], graph.kind[tasks], graph.op[tasks], nth(graph, step, tasks))
    like = median_of_like(code, graph.dur_ns[tasks]), median_of_like(code, graph.gap_ns[tasks])
    found = stretches(graph, step, tasks, code, host)
    usual = median_of_like(codes(found.step, found.thread, found.until), found.total_ns)
    return changed(graph, tasks, like, host, found, usual)


def own_tasks(graph: TaskGraph, step: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Tasks that are compared one by one, and host segments, which are by stretches; int64 each."""
    own = np.isin(graph.kind, OWN) & (step >= 0) & (graph.rank >= 0)
    by_stretch = own & (graph.kind == Kind.HOST) & ("begins" in graph.extra)
    return np.flatnonzero(own & ~by_stretch), np.flatnonzero(by_stretch)


def changed(
    graph: TaskGraph,
    tasks: np.ndarray,
    like_ns: tuple[np.ndarray, np.ndarray],
    host: np.ndarray,
    found: Stretches,
    usual_ns: np.ndarray,
) -> tuple[np.ndarray, np.ndarray]:
    """`at_median` from the medians: of the durations and gaps of those that `tasks` are like, and
    of the stretches that those of `host` are like."""
    dur, gap = graph.dur_ns.copy(), graph.gap_ns.copy()
    dur[tasks] = like_ns[0]
    gap[tasks] = np.minimum(graph.gap_ns[tasks], like_ns[1])
    if len(host):
        scale = (usual_ns / np.maximum(found.total_ns, 1))[found.of]
        dur[host] = np.rint(graph.dur_ns[host] * scale)
        gap[host] = np.rint(graph.gap_ns[host] * scale)
    return dur, gap


def nth(graph: TaskGraph, step: np.ndarray, tasks: np.ndarray) -> np.ndarray:
    """int64: how many of its kind and name come before each task in its step on its rank."""
    by = (graph.rank[tasks], step[tasks], graph.kind[tasks], graph.op[tasks])
    order = np.lexsort((graph.start_ns[tasks], *by))
    k = np.empty(len(tasks), np.int64)
    k[order] = within(_run_lengths(*(c[order] for c in by)))
    return k


class Stretches(NamedTuple):
    """A thread's host time on a rank from one launch of a collective to the next; arrays [s]."""

    of: np.ndarray
    """int64: the stretch of each host segment."""
    total_ns: np.ndarray
    step: np.ndarray
    thread: np.ndarray
    until: np.ndarray
    """The code of the arrival that is launched at its end; -1: the step's end."""


def stretches(
    graph: TaskGraph, step: np.ndarray, tasks: np.ndarray, code: np.ndarray, host: np.ndarray
) -> Stretches:
    """The stretches of the host segments `host`.

    One is known by the arrival that is launched at its end (of `tasks`, with their `code`, 0 and
    more), so that ranks are compared at the same collective; the last of a step ends with the step.
    """
    if not len(host):
        return Stretches(*[np.empty(0, np.int64)] * 5)
    launched = np.full(graph.n, -1, np.int64)
    arrive = graph.kind[tasks] == Kind.ARRIVE
    # Of several arrivals that one segment launches the first counts.
    for_arrival, arrival_code = tasks[arrive][::-1], code[arrive][::-1]
    edge = np.repeat(np.arange(len(for_arrival)), np.diff(graph.pred_ptr)[for_arrival])
    first = np.repeat(graph.pred_ptr[for_arrival], np.diff(graph.pred_ptr)[for_arrival])
    launcher = graph.pred[first + within(np.diff(graph.pred_ptr)[for_arrival])]
    by_host = graph.kind[launcher] == Kind.HOST
    launched[launcher[by_host]] = arrival_code[edge[by_host]]

    order = np.lexsort((graph.end_ns[host], step[host], graph.rank[host]))
    inside = host[order]
    ends_at = np.flatnonzero(launched[inside] >= 0)
    following = np.searchsorted(ends_at, np.arange(len(inside)))
    last = np.append(ends_at, len(inside) - 1)[np.minimum(following, len(ends_at))]
    same = (step[inside[last]] == step[inside]) & (graph.rank[inside[last]] == graph.rank[inside])
    by = np.where(same, launched[inside[last]], -1)

    thread = graph.extra["thread"][inside]
    part = codes(graph.rank[inside], step[inside], thread, by)
    total = np.bincount(part, graph.dur_ns[inside] + graph.gap_ns[inside]).astype(np.int64)
    _, one = np.unique(part, return_index=True)
    of = np.empty(len(host), np.int64)
    of[order] = part
    return Stretches(of, total, step[inside][one], thread[one], by[one])


def codes(*columns: np.ndarray) -> np.ndarray:
    """Codes 0, 1, ... of rows that are equal in all columns (int64 [n])."""
    order = np.lexsort(columns)
    starts = np.zeros(len(order), np.int64)
    starts[_starts(*(c[order] for c in columns))] = 1
    out = np.empty(len(order), np.int64)
    out[order] = np.cumsum(starts) - 1
    return out


def _run_lengths(*columns: np.ndarray) -> np.ndarray:
    return np.diff(_starts(*columns), append=len(columns[0]))


def _starts(*columns: np.ndarray) -> np.ndarray:
    """Rows that differ from the one before in any column, the first one too."""
    n = len(columns[0])
    new = np.ones(n, bool)
    if n:
        new[1:] = np.any([c[1:] != c[:-1] for c in columns], axis=0)
    return np.flatnonzero(new)
