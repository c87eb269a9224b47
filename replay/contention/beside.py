"""Computation beside communication in a graph of other tasks than were recorded."""

from __future__ import annotations

import numpy as np

from .. import engine
from ..graph import TaskGraph
from ..steps import participations
from . import sm_contention
from .sm_contention import Beside

ROUNDS = 8
TOLERANCE = 1e-3
DAMPED_FROM = 2
"""As `settle` has them."""


def recorded(graph: TaskGraph, slowdown: float | None = None) -> Beside | None:
    """What communication cost computation in the unchanged replay of a recorded graph.

    `slowdown` takes the place of the fitted one.
    """
    start, end = engine.replay(graph)
    found = sm_contention.recorded(graph, start, end)
    if found is None or slowdown is None:
        return found
    return sm_contention.stated(found, graph, start, end, slowdown)


def settled(
    was: Beside,
    measured: TaskGraph,
    graph: TaskGraph,
    place: np.ndarray,
    slowdown: float | None = None,
) -> TaskGraph:
    """The graph with computations as long as what runs beside them in it makes them.

    `was` is `recorded(measured)`; `place` int64 [measured n] says where its tasks are in `graph`,
    whose durations are what policies made of the recorded ones. `slowdown` beside communication
    defaults to the recorded one. Replayed until ends no longer move (ROUNDS at most).
    """
    arrive, transfer = participations(graph)
    order = np.argsort(graph.rank[arrive], kind="stable")
    opens, closes = arrive[order], transfer[order]
    n_ranks = len(was.first) - 1
    now = was._replace(
        task=place[was.task],
        opens=opens,
        closes=closes,
        part_first=np.searchsorted(graph.rank[opens], np.arange(n_ranks + 1)),
    )
    policy_ns = graph.dur_ns[now.task].astype(np.float64)
    ratio = policy_ns / measured.dur_ns[was.task]
    start, end = engine.replay(graph)
    factor = was.factor
    for turn in range(ROUNDS):
        asked = sm_contention.factors(now, start, end, ratio, slowdown)
        factor = asked if turn < DAMPED_FROM else factor + 0.5 * (asked - factor)
        dur = graph.dur_ns.copy()
        dur[now.task] = np.rint(policy_ns * factor / was.factor).astype(np.int64)
        graph = graph.with_(dur_ns=dur)
        before = end
        start, end = engine.replay(graph)
        if np.abs(end - before).max() <= TOLERANCE * float(end.max() - start.min()):
            break
    return graph
