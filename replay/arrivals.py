"""What each arrival at a collective waited for on its own rank: the chain that made it late."""

from __future__ import annotations

import threading
from typing import NamedTuple

import numba
import numpy as np

from . import close, engine
from .graph import TaskGraph
from .steps import participations


def waited_for(graph: TaskGraph, end: np.ndarray, arrive: np.ndarray) -> np.ndarray:
    """For each task the arrival (position in `arrive`) that waited for it, -1 for none; int64 [n].

    Back from each arrival to the task of its rank that ended last, past other collectives (from a
    transfer to the rank's own arrival), until the rank's arrival before it. Work beside that chain
    (a host that runs ahead of its device, another stream) delayed nobody. `end` is that of a
    replay, int64 [n] in ns. Where steps do not depend on each other, each is looked at by itself.
    """
    chains = graph.chains
    out = np.full(graph.n, -1, np.int64)
    found = chains.waited_for(end[chains.order], arrive)
    out[chains.order[found.task]] = found.arrival
    return out


class Waits(NamedTuple):
    """Tasks that arrivals waited for, int64 [w] each; a task of several counts for the last."""

    task: np.ndarray
    """In the order of `Chains`."""
    arrival: np.ndarray
    """Position in the arrivals that were asked for."""


class Chains:
    """A graph without its times, rank by rank (`close`): replayed and walked many times over.

    `order` (int64 [n]) are the graph's tasks in the order of the arrays here, `place` where each
    of them is.
    """

    def __init__(self, graph: TaskGraph):
        self.order = close.order(graph)
        self.pred_ptr, self.pred, self.place = close.edges(graph, self.order)
        self.rank = graph.rank[self.order]
        self._of_arrival = graph.rank, graph.step
        self._release = graph.release_ns[self.order]
        owner = np.repeat(np.arange(graph.n), np.diff(graph.pred_ptr))
        self._chained = bool((graph.step[graph.pred] != graph.step[owner]).any())
        arrivals, transfers = participations(graph)
        self._own = np.full(graph.n, -1, np.int64)
        self._own[self.place[transfers]] = self.place[arrivals]
        # One a thread, as estimates run side by side: -1 between calls, what a walk has met is
        # cleaned again.
        self._scratch = threading.local()

    def ends(self, dur: np.ndarray, gap: np.ndarray, out: np.ndarray) -> None:
        """A replay under these times: ends into `out`; all int64 [n], in this order."""
        engine.ends(gap, dur, self.pred_ptr, self.pred, self._release, out)

    def waited_for(
        self, end: np.ndarray, arrive: np.ndarray, walked: np.ndarray | None = None
    ) -> Waits:
        """The tasks that arrivals (of the graph) waited for, with these ends (in this order).

        `walked` (bool, one an arrival) leaves out the chains of the others.
        """
        rank, step = (column[arrive] for column in self._of_arrival)
        if self._chained:
            step = np.zeros(len(arrive), np.int64)
        arrive = self.place[arrive]
        order = np.lexsort((end[arrive], step, rank))
        same = rank[order[1:]] == rank[order[:-1]]
        same &= step[order[1:]] == step[order[:-1]]
        since = np.full(len(arrive), np.iinfo(np.int64).min)
        since[order[1:][same]] = end[arrive[order[:-1][same]]]
        which = np.arange(len(arrive)) if walked is None else np.flatnonzero(walked)
        edges = self.pred_ptr, self.pred, self.rank, self._own
        window, met = self._window_and_met()
        n = _walk(*edges, end, arrive, since, which, window, met)
        task = met[:n].copy()
        arrival = window[task]
        window[task] = -1
        return Waits(task, arrival)

    def _window_and_met(self) -> tuple[np.ndarray, np.ndarray]:
        if not hasattr(self._scratch, "window"):
            n = len(self.order)
            self._scratch.window = np.full(n, -1, np.int64)
            self._scratch.met = np.empty(n, np.int64)
        return self._scratch.window, self._scratch.met


@numba.njit(cache=True, nogil=True)
def _walk(pred_ptr, pred, rank, own, end, arrive, since, which, window, met):  # pragma: no cover
    """Writes the arrival of each task that is met to `window`, and the tasks to `met`: how many."""
    n = 0
    for k in which:
        i = arrive[k]
        while i >= 0:
            if window[i] < 0:
                met[n] = i
                n += 1
            window[i] = k
            last = own[i]
            if last < 0:
                for e in range(pred_ptr[i], pred_ptr[i + 1]):
                    j = pred[e]
                    if rank[j] == rank[i] and (last < 0 or end[j] > end[last]):
                        last = j
            i = last if last >= 0 and end[last] > since[k] else -1
    return n
