"""Durations that depend on what runs beside: replayed again until they no longer change.

Two models, each relative to what the recorded step had of it, so that what a policy does not touch
keeps its time to the nanosecond: collectives that share links of the fabric (`link_contention`,
where a fabric is known), and computation beside communication (`sm_contention`, of traced jobs).
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from .. import edges, engine
from ..graph import TaskGraph
from ..policy import ReplayJob
from . import beside as sm_beside
from . import link_contention, sm_contention

ROUNDS = 8
"""Replays at most."""

TOLERANCE = 1e-3
"""Settled where no end of a step's task moves by more than this share of the whole replay."""

DAMPED_FROM = 2
"""From this round on durations go half the way to what the last replay asks of them."""


class Recorded(NamedTuple):
    """What the unchanged replay had of both; None for one that does not apply."""

    links: link_contention.Recorded | None
    beside: sm_contention.Beside | None
    warnings: tuple[str, ...] = ()


def recorded(job: ReplayJob, start: np.ndarray, end: np.ndarray) -> Recorded:
    """Contention in the unchanged replay of a job, by its fabric (`facts["fabric"]`) if any."""
    beside = sm_contention.recorded(job.graph, start, end)
    fabric = job.facts.get("fabric")
    if fabric is None:
        return Recorded(None, beside)
    from . import link_demand

    demand, said = link_demand.of(job, fabric)
    if demand is None:
        return Recorded(None, beside, said)
    return Recorded(link_contention.recorded(job.graph, demand, start, end), beside, said)


def settled(
    was: Recorded, base: TaskGraph, job: ReplayJob
) -> tuple[ReplayJob, np.ndarray, np.ndarray]:
    """The job with durations that fit what runs beside what, and its replay: starts and ends.

    `facts["compute_slowdown"]`, where a policy put it there, is how much slower computation runs
    beside communication under it; `facts["stated_slowdown"]` takes the place of the fitted one for
    what comes to run beside it. In a graph of other tasks what was recorded goes with each task's
    origin (`edges.origin`). Where ROUNDS do not suffice a warning says by how much ends still
    moved.
    """
    graph = job.graph
    start, end = engine.replay(graph)
    if was.links is None and was.beside is None:
        return job, start, end
    given = job.facts.get("stated_slowdown")
    if given is not None and was.beside is not None:
        unchanged = engine.replay(base)
        was = was._replace(beside=sm_contention.stated(was.beside, base, *unchanged, given))
    was, recorded_ns = _carried(was, base, graph)
    beside, links = was.beside, was.links
    slowdown = job.facts.get("compute_slowdown")
    policy_ns = graph.dur_ns
    now = [None if model is None else model.factor for model in (links, beside)]
    moved = span = 0.0
    for turn in range(ROUNDS):
        asked = _asked(was, recorded_ns, graph, policy_ns, slowdown, start, end)
        by = 1.0 if turn < DAMPED_FROM else 0.5
        for i, new in enumerate(asked):
            old = now[i]
            if new is not None and old is not None:
                now[i] = new if by == 1.0 else old + by * (new - old)
        dur = _durations(was, policy_ns, now)
        if turn == 0 and np.array_equal(dur, policy_ns):
            return job, start, end
        graph = graph.with_(dur_ns=dur)
        before = end
        start, end = engine.replay(graph)
        span = float(end.max() - start.min())
        moved = float(np.abs(end - before).max())
        if moved <= TOLERANCE * span:
            break
    else:
        job = job.note(
            warnings=(
                f"contention did not settle in {ROUNDS} replays: ends still moved by "
                f"{100 * moved / span:.2g} % of the whole",
            )
        )
    job = job.with_graph(dur_ns=graph.dur_ns)
    words = beside.words if beside else ""
    if slowdown is not None:
        words = f"computation beside communication runs {slowdown:.3g} times as long"
    said = (
        (links, now[0], "collectives that are under way at once share links max-min fairly"),
        (beside, now[1], words),
    )
    for model, factor, words in said:
        if model is not None and factor is not None and (factor != model.factor).any():
            job = job.note(assumptions=(words,))
    return job, start, end


def _carried(was: Recorded, base: TaskGraph, graph: TaskGraph) -> tuple[Recorded, np.ndarray]:
    """What was recorded, for this graph's tasks; and the recorded time of each one's origin."""
    if "origin" not in graph.extra:
        return was, base.dur_ns
    origin = edges.origin(graph)
    links, beside = was.links, was.beside
    if links is not None:
        links = link_contention.carried(links, base, graph, origin)
    if beside is not None:
        beside = sm_beside.carried(beside, graph, edges.place(graph))
    return was._replace(links=links, beside=beside), base.dur_ns[origin]


def _asked(was, recorded_ns, graph, policy_ns, slowdown, start, end) -> list[np.ndarray | None]:
    out: list[np.ndarray | None] = [None, None]
    if was.links is not None:
        out[0] = link_contention.factors(was.links, graph, policy_ns, start)
    if was.beside is not None:
        task = was.beside.task
        ratio = policy_ns[task] / recorded_ns[task]
        out[1] = sm_contention.factors(was.beside, start, end, ratio, slowdown)
    return out


def _durations(was: Recorded, policy_ns: np.ndarray, now: list[np.ndarray | None]) -> np.ndarray:
    """A policy's durations times how much more contention there is than there was."""
    dur = policy_ns.astype(np.float64)
    if was.links is not None and now[0] is not None:
        more = now[0] / was.links.factor
        dur[was.links.task] *= more[was.links.of]
    if was.beside is not None and now[1] is not None:
        dur[was.beside.task] *= now[1] / was.beside.factor
    return np.rint(dur).astype(np.int64)
