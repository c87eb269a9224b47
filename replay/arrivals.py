"""What each arrival at a collective waited for on its own rank: the chain that made it late.

Back from an arrival to the task of its rank that ended last, past other collectives (from a
transfer to the rank's own arrival), until the rank's arrival before it among those asked for. Work
beside that chain (a host that runs ahead of its device, another stream) delayed nobody. Where steps
do not depend on each other, each is looked at by itself. No task is in the chains of two arrivals:
a chain ends where the one before it began.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from ..ingest.compiled import compiled
from ..ingest.tasks.sorting import grown
from . import close, engine, sweep
from .graph import TaskGraph
from .steps import participations

AT_ONCE = 5_000
"""Arrivals whose chains a core walks before it takes more: fewer are not worth another thread."""


class Work(NamedTuple):
    """What counts on a chain, all [n] in the order of `Chains`; what is shed, is shed in place."""

    is_work: np.ndarray
    """bool: tasks whose duration counts."""
    is_delay: np.ndarray
    """bool: tasks whose launch delay counts."""
    dur_ns: np.ndarray
    gap_ns: np.ndarray


class Chains:
    """A graph without its times, rank by rank (`close`): replayed and walked many times over.

    `order` (int64 [n]) are the graph's tasks in the order of the arrays here, `place` where each
    of them is.
    """

    def __init__(self, graph: TaskGraph):
        self.order = close.order(graph)
        self.pred_ptr, self.pred, self.place = close.edges(graph, self.order)
        self.rank = graph.rank[self.order]
        self._release = graph.release_ns[self.order]
        owner = np.repeat(np.arange(graph.n), np.diff(graph.pred_ptr))
        self.chained = bool((graph.step[graph.pred] != graph.step[owner]).any())
        arrivals, transfers = participations(graph)
        self.own = np.full(graph.n, -1, np.int64)
        self.own[self.place[transfers]] = self.place[arrivals]

    def ends(self, dur: np.ndarray, gap: np.ndarray, out: np.ndarray) -> None:
        """A replay under these times: ends into `out`; all int64 [n], in this order."""
        engine.ends(gap, dur, self.pred_ptr, self.pred, self._release, out)


class Waits:
    """The chains of some arrivals (tasks of the graph, int64 [a]), under one replay after another.

    `at` says under which; ends are int64 [n] in the order of `Chains`.
    """

    def __init__(self, graph: TaskGraph, arrive: np.ndarray):
        self._chains = chains = graph.chains
        self._arrive = chains.place[arrive]
        step = graph.step[arrive]
        group = graph.rank[arrive], np.zeros_like(step) if chains.chained else step
        self._order = np.lexsort(group[::-1])
        change = np.zeros(len(arrive), bool)
        change[:1] = True
        for column in group:
            change[1:] |= column[self._order[1:]] != column[self._order[:-1]]
        self._first = np.append(np.flatnonzero(change), len(arrive))
        self._group = np.empty(len(arrive), np.int64)
        self._group[self._order] = np.cumsum(change)
        self._sorted = False
        self._since = np.empty(len(arrive), np.int64)

    def at(self, end: np.ndarray) -> np.ndarray:
        """When each arrives, int64 [a]: what `spent` and `shed` then go by."""
        self._end, at = end, end[self._arrive]
        if not self._sorted:
            self._order, self._sorted = np.lexsort((at, self._group)), True
        # Arrivals of a rank seldom change places between replays: sorted already, or nearly so.
        _since(self._order, self._first, at, self._since)
        return at

    def spent(self, work: Work) -> np.ndarray:
        """What the work on each arrival's chain takes, int64 [a], ns."""
        total, none = np.zeros(len(self._arrive), np.int64), np.empty(0, np.int64)
        self._over(np.arange(len(total)), work, none, none, total)
        return total

    def shed(self, work: Work, which: np.ndarray, usual_ns: np.ndarray, most_ns: np.ndarray) -> int:
        """Takes from the chains of `which` arrivals what they spend above `usual_ns`, in place.

        From each task alike, and no more than `most_ns` from a chain (int64 [a] both); how many
        ns in all.
        """
        return self._over(which, work, usual_ns, most_ns, np.empty(len(self._arrive), np.int64))

    def _over(self, which: np.ndarray, work: Work, *given: np.ndarray) -> int:
        """`_shed` of some arrivals, on all cores: no task is on the chains of two."""
        chains = self._chains
        edges = chains.pred_ptr, chains.pred, chains.rank, chains.own
        where = *edges, self._end, self._arrive, self._since
        parts = max(1, min(sweep.cores(), len(which) // AT_ONCE))
        some = np.array_split(which, parts)
        shed = sweep.over(lambda part: int(_shed(*where, part, *work, *given)), some, tasks=0)
        return sum(shed)


@compiled
def _since(order, first, at, since):  # pragma: no cover - compiled
    """Writes when each arrival's forerunner in its group arrived; sorts `order` by time, in place.

    A group's rows are `order[first[g]:first[g + 1]]`; of equal times the lower index comes first.
    """
    for g in range(len(first) - 1):
        a, b = first[g], first[g + 1]
        for i in range(a + 1, b):
            k, j = order[i], i
            while j > a and (
                at[order[j - 1]] > at[k] or (at[order[j - 1]] == at[k] and order[j - 1] > k)
            ):
                order[j] = order[j - 1]
                j -= 1
            order[j] = k
        for i in range(a, b):
            since[order[i]] = at[order[i - 1]] if i > a else np.iinfo(np.int64).min


@compiled
def _shed(
    pred_ptr, pred, rank, own, end, arrive, since, which, is_work, is_delay, dur, gap, usual, most,
    total,
):  # fmt: skip  # pragma: no cover - compiled
    """Writes what each chain spends to `total`; sheds what is above `usual`, where that is given.

    All in one: a call a task would cost more than the walk.
    """
    shed, chain = 0, np.empty(1024, np.int64)
    for k in which:
        n, i, spent = 0, arrive[k], 0
        while i >= 0:
            if n == len(chain):
                chain = grown(chain, 2 * n)
            chain[n] = i
            n += 1
            if is_work[i]:
                spent += dur[i]
            if is_delay[i]:
                spent += gap[i]
            last = own[i]
            if last < 0:
                for e in range(pred_ptr[i], pred_ptr[i + 1]):
                    j = pred[e]
                    if rank[j] == rank[i] and (last < 0 or end[j] > end[last]):
                        last = j
            i = last if last >= 0 and end[last] > since[k] else -1
        total[k] = spent
        if len(usual) == 0:
            continue
        excess = min(spent - usual[k], most[k])
        if excess <= 0:
            continue
        share = excess / max(spent, 1)
        for i in chain[:n]:
            if is_work[i]:
                less = np.int64(np.rint(dur[i] * share))
                dur[i] -= less
                shed += less
            if is_delay[i]:
                less = np.int64(np.rint(gap[i] * share))
                gap[i] -= less
                shed += less
    return shed
