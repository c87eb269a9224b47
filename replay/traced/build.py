"""The task graph of a job that was traced: streams, host threads, collectives across ranks."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import partial

import numpy as np
import polars as pl

from ...ingest.tasks import said
from ...ingest.tasks.codes import alike
from ...ingest.tasks.collectives import collectives
from ...ingest.tasks.events import Words, of_frame
from ...ingest.tasks.job import ALL, SHARE_ROWS, Job, Share
from ...ingest.tasks.names import OpNames
from ...ingest.tasks.piece import Piece
from ...ingest.tasks.tables import aligned
from .. import sweep
from ..graph import NULL, TaskGraph
from ..policy import ReplayJob
from . import draft

LATE_NS = 100_000
"""Tasks forced later than measured by less than this (and 0.1 % of the trace) go unsaid."""


def build(frames: Mapping[str, pl.DataFrame], job: str = "") -> ReplayJob:
    """The replay job of traced ranks from the tables `events`, `collectives`, `ranks`, `steps`
    and (where given) `comms`: `of_shares` of all ranks at once."""
    events = partial(of_frame, frames["events"])
    small = {name: frame for name, frame in frames.items() if name != "events"}
    return of_shares(small, [Share(ALL.min, ALL.max, events)], job)


def of_shares(
    frames: Mapping[str, pl.DataFrame], shares: Sequence[Share], job: str = ""
) -> ReplayJob:
    """The replay job of traced ranks from its tables but `events`, which are read share by share.

    Tasks: device activities; host segments, each from one call (launch, synchronisation,
    collective; on a rank without a device, any event's beginning or end) to the next on its
    thread; arrive, join and transfer of each collective; a mark of no length where a step begins
    or ends on a rank. Edges: the stream's order, the launch, waits between streams (from
    `sync` rows, else inferred), host synchronisation, a thread that hands over to another, and
    the join of a collective over the ranks that were seen. What these do not explain is a gap.

    `shares` are in the order of ranks. All events of a rank are in one; host events count only on
    ranks without device activities, or with collectives on the host. On all cores.

    `facts` has the frames but `events`, and `late_ns`, by how much each task's replay ends later
    than measured (0 but where clocks or matching contradict the edges). `extra` of the graph is
    described in `piece`; its `like` joins the k-th of an operation in a step over the ranks.
    """
    tables = aligned(frames)
    ops, words = OpNames(), Words()
    all_ = collectives(tables.collectives, tables.comms, ops)
    whole = Job(tables, all_, words)
    pieces = sweep.over(whole.piece, shares, tasks=SHARE_ROWS)
    _number_shapes(pieces)
    warnings = said.of_job(whole, sum(p.unmatched for p in pieces))
    graph, late, apart = draft.graph(pieces, all_, ops, words)
    if apart:
        warnings.append(
            f"{apart} collectives wait for each other in a circle (clocks or matching are "
            "wrong): they were not joined"
        )
    facts = {**{k: v for k, v in frames.items() if k != "events"}, "late_ns": late}
    return ReplayJob(
        graph,
        job,
        facts,
        said.assumptions(any(p.handed_over for p in pieces), any(p.inferred for p in pieces)),
        (*warnings, *about_lateness(graph, late)),
    )


def _number_shapes(pieces: Sequence[Piece]) -> None:
    """The codes of grids and blocks of all pieces together: by their sizes."""
    all_ = np.concatenate([np.empty((2, 0), np.int64), *(p.shapes for p in pieces)], axis=1)
    _, code = alike(*all_)
    since = 0
    for piece in pieces:
        n = piece.shapes.shape[1]
        piece.shape_codes = code[since : since + n]
        since += n


def about_lateness(graph: TaskGraph, late: np.ndarray) -> list[str]:
    """What is to be said of tasks that end later than measured (`late`, int64 [n], ns)."""
    worst = int(late.max(initial=0))
    if worst <= LATE_NS:
        return []
    # The end of what was never measured is the least there is.
    measured = graph.start_ns != NULL
    first = int(graph.start_ns.min(where=measured, initial=np.iinfo(np.int64).max))
    if worst <= (int(graph.end_ns.max()) - first) // 1000:
        return []
    return [
        f"{int((late > 0).sum())} tasks end later than measured, by up to {worst / 1e6:.3f} ms: "
        "a rank seems to leave a collective before the last one came; check clocks and matching"
    ]
