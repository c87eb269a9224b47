"""The task graph of a job that was traced: streams, host threads, collectives across ranks."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np
import polars as pl

from ..graph import NULL, TaskGraph
from ..policy import ReplayJob
from . import collectives as kineto_collectives
from . import device as kineto_device
from . import host as kineto_host
from . import marks as kineto_marks
from . import tables as kineto_tables
from .draft import Draft

LATE_NS = 100_000
"""Tasks forced later than measured by less than this (and 0.1 % of the trace) go unsaid."""


def build(frames: Mapping[str, pl.DataFrame], job: str = "") -> ReplayJob:
    """The replay job of traced ranks from the tables `events`, `collectives`, `ranks`, `steps`
    and (where given) `comms`.

    Tasks: device activities; host segments, each from one call (launch, synchronisation,
    collective; on a rank without a device, any event's beginning or end) to the next on its
    thread; arrive, join and transfer of each collective; a mark of no length where a step begins
    or ends on a rank. Edges: the stream's order, the launch, waits between streams (from
    `sync` rows, else inferred), host synchronisation, a thread that hands over to another, and
    the join of a collective over the ranks that were seen. What these do not explain is a gap.

    `facts` has the frames but `events`, and `late_ns`, by how much each task's replay ends later
    than measured (0 but where clocks or matching contradict the edges). `extra` of the graph is
    described in `draft`; its `like` joins the k-th of an operation in a step over the ranks.
    """
    tables = kineto_tables.aligned(frames)
    draft = Draft()
    act = kineto_device.activities(tables)
    calls = kineto_device.calls(tables, act)
    part, act = kineto_collectives.participations(draft, tables, act)
    cuts = kineto_host.segments(draft, tables, act, calls, part)
    kineto_host.launches(draft, act, calls, cuts)
    kineto_device.order_on_streams(draft, act)
    kineto_device.waits_between_streams(draft, tables, act, calls)
    kineto_collectives.joins(draft, part)
    kineto_marks.marks(draft, tables, act, cuts)
    graph, late = draft.graph()
    graph.extra["like"] = _likeness(graph)
    facts = {**{k: v for k, v in frames.items() if k != "events"}, "late_ns": late}
    warnings = (*draft.warnings, *_about_lateness(graph, late))
    return ReplayJob(graph, job, facts, tuple(draft.assumptions), warnings)


def _likeness(graph: TaskGraph) -> np.ndarray:
    """Codes of tasks that should take the same: the k-th of an operation in a step, by rank.

    Host segments are counted by thread (the first, second, ... that a rank's calls came from).
    """
    by = (graph.rank, graph.step, graph.kind, graph.op, graph.extra["thread"])
    order = np.lexsort((graph.start_ns, *by))
    is_first = np.ones(graph.n, bool)
    is_first[1:] = np.any([c[order][1:] != c[order][:-1] for c in by], axis=0)
    place = np.empty(graph.n, np.int64)
    counts = np.diff(np.flatnonzero(is_first), append=graph.n)
    place[order] = kineto_tables.within(counts)
    columns = {str(i): c for i, c in enumerate((*by[1:], place))}
    return kineto_tables.dense(pl.DataFrame(columns), *columns)


def _about_lateness(graph: TaskGraph, late: np.ndarray) -> list[str]:
    measured = graph.start_ns != NULL
    worst = int(late.max(initial=0))
    if not worst:
        return []
    span = int(graph.end_ns[measured].max() - graph.start_ns[measured].min())
    if worst <= max(LATE_NS, span // 1000):
        return []
    return [
        f"{int((late > 0).sum())} tasks end later than measured, by up to {worst / 1e6:.3f} ms: "
        "a rank seems to leave a collective before the last one came; check clocks and matching"
    ]
