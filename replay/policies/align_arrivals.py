"""align-arrivals: no rank late at its collectives, or every operation at its ideal.

At a collective whose participants arrive at s_r, wait_r = max s - s_r. A factor f moves each
arrival to med + f (s_r - med): f = 0 aligns, f = 1 changes nothing. What moves is the cause, not
the collective: of what a late rank's arrival waited for since its last collective of the same
communicator (`arrivals`), its own work (computations, launch delays) shrinks by at most what it
has above the median of the participants, so lateness that was caught from another rank goes only
when its own cause does. Closest-knit communicators (most collectives) come first, the job is
replayed after each, and all of it is repeated until no rank is late by work of its own: a chain
beside the first may then be what holds the rank up. The factor scales what was shed so.

Ranks that are named are aligned with the others: med is then the median of the participants that
are not named. With none named it is that of all, which says nothing where half of the ranks are
late: where two groups of ranks stand apart so, that is told.

`to=ideal` moves every selected operation to its ideal instead (`ideal`), which on the graph
without launch delays gives the straggler study's S.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from ...ingest.compiled import compiled
from ...ingest.tasks.codes import distinct
from .. import engine
from ..arrivals import Waits, Work
from ..findings import ideal
from ..graph import Kind, TaskGraph
from ..once import once
from ..policy import BadParam, Param, Policy, ReplayJob, Stage, integers, words
from ..retiming import halves, waits_say

MAX_ROUNDS = 100
MOST_FACTOR = 1000
"""Of lateness: times stay within 64 bits of ns."""

CONVERGED = 1e-3
"""Alignment ends with the round that sheds less than this share of all that was shed."""

SHED = (
    "a late rank can shed what its work since the communicator's last collective has above the "
    "median of the participants{}; transfers keep their measured time"
)
OTHERS = " that are not among the ranks given"
ALONE = (
    "align-arrivals: no collective was seen on two ranks: who is late is not known; record every "
    "rank of a communicator, on one clock"
)
IDEAL = "to=ideal: operations of one kind could all take their mean, transfers their median"


def apply(
    job: ReplayJob,
    *,
    ranks: tuple[int, ...] = (),
    factor: float = 0.0,
    cause: str = "all",
    to: str = "none",
    op: tuple[str, ...] = (),
    stage: tuple[int, ...] = (),
) -> ReplayJob:
    """The job with the lateness of the selected ranks, ops and stages scaled by `factor`.

    Raises BadParam for a factor that is negative or above MOST_FACTOR, and for ranks or stages
    that the job does not have.
    """
    if not 0 <= factor <= MOST_FACTOR:
        raise BadParam(f"policy align-arrivals: factor={factor}, expected 0 to {MOST_FACTOR}")
    graph = job.graph
    _known("ranks", ranks, graph.rank)
    _known("stage", stage, graph.extra.get("stage", np.empty(0, np.int64)))
    named = np.isin(graph.rank, ranks)
    chosen = named.copy() if ranks else np.ones(graph.n, bool)
    if stage:
        chosen &= np.isin(graph.extra.get("stage", np.full(graph.n, -1)), stage)
    of_op = graph.ops(*op) if op else np.ones(graph.n, bool)
    if not (chosen & of_op).any():
        return job.note(warnings=("align-arrivals: no task is of the ranks, ops and stages given",))
    if to == "ideal":
        graph = _to_ideal(graph, chosen & of_op, factor, cause)
    else:
        asked = tuple(sorted(set(ranks))), tuple(sorted(set(op))), tuple(sorted(set(stage))), cause
        aligned = once(graph, ("align-arrivals", *asked), lambda: _align(
            graph, chosen, ~named, of_op, cause
        ))  # fmt: skip
        graph = _scaled_to(graph, aligned, factor)
        if graph is job.graph:
            return job.note(warnings=(ALONE,))
        if not ranks and factor < 1:
            job = job.note(warnings=tuple(aligned.apart))
    shed = SHED.format(OTHERS if ranks else "")
    return job.with_graph(dur_ns=graph.dur_ns, gap_ns=graph.gap_ns).note(
        assumptions=(IDEAL if to == "ideal" else shed, *waits_say.who_is_late(job))
    )


def _known(name: str, asked: tuple[int, ...], have: np.ndarray) -> None:
    if not asked:
        return
    known = distinct(have[have >= 0])[0]
    strange = sorted(set(asked) - set(known.tolist()))
    if strange:
        has = f"{known[0]} to {known[-1]}" if len(known) else "none"
        raise BadParam(
            f"policy align-arrivals: {name}={strange[0]} is not in this job; it has {has}"
        )


def _to_ideal(graph: TaskGraph, chosen: np.ndarray, factor: float, cause: str) -> TaskGraph:
    dur, gap = graph.dur_ns, graph.gap_ns
    moved = chosen & (cause != "launch")
    if cause == "compute":
        moved &= graph.is_(*ideal.WORK)
    dur = np.where(moved, _scaled(dur, ideal.durations_ns(graph), factor), dur)
    if cause != "compute":
        gap = np.where(chosen, _scaled(gap, ideal.gaps_ns(graph), factor), gap)
    return graph.with_(dur_ns=dur, gap_ns=gap)


def _scaled(own: np.ndarray, best: np.ndarray, factor: float) -> np.ndarray:
    if factor == 0:
        return np.maximum(best, 0)
    out = np.empty(len(own), np.int64)
    _left(own, best, float(factor), out)
    return out


@compiled
def _left(own, best, factor, out):  # pragma: no cover - compiled
    for i in range(len(own)):
        out[i] = max(best[i] + np.int64(np.rint((own[i] - best[i]) * factor)), 0)


class _Early(NamedTuple):
    """Arrivals of a layer, each one's instance as a code, and how early it was by less work."""

    arrive: np.ndarray
    instance: np.ndarray
    early_ns: np.ndarray


class _Aligned(NamedTuple):
    """A job with all lateness shed: any factor begins with it. Nothing here holds the graph."""

    dur_ns: np.ndarray
    """int64 [n], as is `gap_ns`, in the order of the graph."""
    gap_ns: np.ndarray
    early: list[_Early]
    """By layer; empty where nothing was aligned."""
    apart: list[str]
    """What is to be said of ranks that stand apart in halves."""


def _align(
    graph: TaskGraph,
    chosen: np.ndarray,
    others: np.ndarray,
    of_op: np.ndarray,
    cause: str,
) -> _Aligned:
    """The durations and delays of the graph without lateness."""
    layers = [_Layer(graph, comms, chosen, others, of_op, cause) for comms in _layers(graph)]
    if not layers:
        return _Aligned(graph.dur_ns, graph.gap_ns, [], [])
    order, place = graph.chains.order, graph.chains.place
    dur, gap, end = graph.dur_ns[order], graph.gap_ns[order], np.empty(graph.n, np.int64)
    shed_ns = 0
    for _ in range(MAX_ROUNDS):
        before = shed_ns
        for layer in layers:
            shed_ns += layer.shed(dur, gap, end)
        if shed_ns - before <= shed_ns * CONVERGED:
            break
    early = [_Early(layer.arrive, layer.instance, layer.early) for layer in layers]
    apart = [said for layer in layers for said in layer.apart]
    return _Aligned(dur[place], gap[place], early, apart)


def _scaled_to(graph: TaskGraph, aligned: _Aligned, factor: float) -> TaskGraph:
    """The graph with a share of its lateness."""
    if not aligned.early:
        return graph
    graph = graph.with_(
        dur_ns=_scaled(graph.dur_ns, aligned.dur_ns, factor),
        gap_ns=_scaled(graph.gap_ns, aligned.gap_ns, factor),
    )
    return _hold_early(graph, aligned.early, factor) if factor < 1 else graph


def _arrivals(graph: TaskGraph, comms: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Tasks that arrive at collectives of these comms, and each one's instance as a code."""
    meets = [not name.endswith(("send", "recv")) for name in graph.op_names] + [True]
    asked = np.zeros(int(max(graph.comm.max(initial=-1), comms.max(initial=-1))) + 2, bool)
    asked[comms] = True
    of_comms = asked[graph.comm] & (graph.collective >= 0)
    arrive = np.flatnonzero((graph.kind == Kind.ARRIVE) & of_comms & np.array(meets)[graph.op])
    return arrive, distinct(graph.collective[arrive])[1]


def _layers(graph: TaskGraph) -> list[np.ndarray]:
    """Comms of two or more ranks, in sets of disjoint members, most collectives first."""
    arrive, _ = _arrivals(graph, distinct(graph.comm[graph.comm >= 0])[0])
    ranks, rank = distinct(graph.rank[arrive])
    pairs, place = distinct(graph.comm[arrive].astype(np.int64) * len(ranks) + rank)
    members: dict[int, set[int]] = {}
    often: dict[int, float] = {}
    for pair, n in zip(pairs.tolist(), np.bincount(place).tolist(), strict=True):
        c, r = divmod(pair, len(ranks))
        members.setdefault(c, set()).add(r)
        often[c] = often.get(c, 0) + n
    often = {c: n / len(members[c]) for c, n in often.items()}
    layers: list[tuple[list[int], set[int]]] = []
    for c in sorted(members, key=lambda c: (-often[c], c)):
        of = members[c]
        if len(of) < 2:
            continue
        free = next((layer for layer in layers if not layer[1] & of), None)
        if free is None:
            layers.append(([c], of))
        else:
            free[0].append(c)
            free[1].update(of)
    return [np.array(codes) for codes, _ in layers]


class _Layer:
    """Arrivals at comms of disjoint members, and the work that each arrival waited for."""

    def __init__(
        self,
        graph: TaskGraph,
        comms: np.ndarray,
        chosen: np.ndarray,
        others: np.ndarray,
        of_op: np.ndarray,
        cause: str,
    ):
        self.chains = chains = graph.chains
        self.graph = graph
        self.arrive, self.instance = _arrivals(graph, comms)
        self.chosen = chosen[self.arrive]
        self.others = others[self.arrive]
        self.apart: list[str] = []
        self.waits = Waits(graph, self.arrive)
        is_work = of_op & graph.is_(*ideal.WORK) & (cause != "launch")
        is_delay = of_op & (graph.rank >= 0) & (cause != "compute")
        self.counts = is_work[chains.order], is_delay[chains.order]
        # The median is that of the job as it was: with every round's own, a pair would not meet
        # in the middle but at the faster one.
        self.usual: np.ndarray | None = None
        self.early = np.zeros(len(self.arrive), np.int64)

    def shed(self, dur: np.ndarray, gap: np.ndarray, end: np.ndarray) -> int:
        """Late arrivals shed what their work has above the median, in place: how many ns.

        `dur` and `gap` (int64 [n], ns) are in the order of `Chains`; `end` is room for a replay.
        """
        self.chains.ends(dur, gap, end)
        at = self.waits.at(end)
        late = at - ideal.median_of_like(self.instance, at, self.others)
        work = Work(*self.counts, dur, gap)
        if self.usual is None:
            total = self.waits.spent(work)
            self.usual = ideal.median_of_like(self.instance, total, self.others)
            self.apart = halves.apart(self.graph, self.arrive, total)
            early = np.minimum(self.usual - total, -late)
            self.early = np.where(self.chosen, np.maximum(early, 0), 0)
        return self.waits.shed(work, np.flatnonzero(self.chosen & (late > 0)), self.usual, late)


def _hold_early(graph: TaskGraph, layers: list[_Early], factor: float) -> TaskGraph:
    """Arrivals that were early by less work move towards the median too, so their waits shrink.

    Last of all, and never beyond the last arrival of the aligned job: no collective starts later.
    """
    _, end = engine.replay(graph)
    gap = graph.gap_ns.copy()
    for layer in layers:
        at = end[layer.arrive]
        ready = np.full(layer.instance.max(initial=-1) + 1, np.iinfo(np.int64).min)
        np.maximum.at(ready, layer.instance, at)
        held = np.rint(layer.early_ns * (1 - factor)).astype(np.int64)
        gap[layer.arrive] += np.minimum(held, ready[layer.instance] - at)
    return graph.with_(gap_ns=gap)


NEUTRAL = {"factor": 1.0}

POLICY = Policy(
    name="align-arrivals",
    summary="no rank late at its collectives (or lateness scaled), or every operation ideal",
    source="Synchronization Tax; MegaScale; the straggler study (OSDI'25) for to=ideal",
    params=(
        Param(
            "ranks",
            integers,
            (),
            "",
            "ranks that are aligned with the others, as 0-3+7; none given: all with each other",
        ),
        Param("factor", float, 0.0, "", "lateness that is left: 0 aligned, 1 as measured"),
        Param(
            "cause",
            str,
            "all",
            "",
            "what may shrink: computations, launch delays or both",
            ("compute", "launch", "all"),
        ),
        Param(
            "to",
            str,
            "none",
            "",
            "ideal: to the mean (computations) or median (transfers, delays) of like operations",
            ("none", "ideal"),
        ),
        Param("op", words, (), "", "operations that may shrink, as a+b; none given: all"),
        Param("stage", integers, (), "", "pipeline stages that are aligned; none given: all"),
    ),
    assumptions=(SHED.format(""), IDEAL),
    apply=apply,
    stage=Stage.ARRIVALS,
    needs=("participations of all ranks of a collective, on one clock",),
    valid="lateness that is work of the late rank itself; waits at sends and receives are the "
    "schedule's",
    checked="ranks ready at 0, 0, 0 and 2 ms with a 0.4 ms exchange: 2.4 ms, aligned 0.4 ms; S of "
    "the straggler study's jobs (OSDI 2025) with to=ideal",
)
