"""The task graph of a job that was traced: streams, host threads, collectives across ranks."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import NamedTuple

import numpy as np
import polars as pl

from .. import sweep
from ..codes import alike, distinct
from ..graph import NULL, TaskGraph
from ..job_clock import RankClocks
from ..policy import ReplayJob
from . import collectives as kineto_collectives
from . import device as kineto_device
from . import draft, needed
from . import host as kineto_host
from . import marks as kineto_marks
from . import tables as kineto_tables
from .events import CORE, DEVICE, KINDS, Events, Needed, Words, of_frame
from .names import OpNames
from .piece import Piece

LATE_NS = 100_000
"""Tasks forced later than measured by less than this (and 0.1 % of the trace) go unsaid."""


class Share(NamedTuple):
    """Some ranks of a job: from which to which (both in it), and how their events are read."""

    low: int
    high: int
    events: Callable[[Words, Needed], Events]


ALL = np.iinfo(np.int64)

SHARE_ROWS = 1 << 18
"""Events of a share, but where one rank has more."""


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
    tables = kineto_tables.aligned(frames)
    ops, words = OpNames(), Words()
    all_ = kineto_collectives.collectives(tables.collectives, tables.comms, ops)
    whole = _Job(tables, all_, words)
    pieces = sweep.over(whole.piece, shares, tasks=SHARE_ROWS)
    _number_shapes(pieces)
    warnings = _about_pieces(pieces, whole)
    graph, late, apart = draft.graph(pieces, all_, ops, words)
    if apart:
        warnings.append(
            f"{apart} collectives wait for each other in a circle (clocks or matching are "
            "wrong): they were not joined"
        )
    facts = {**{k: v for k, v in frames.items() if k != "events"}, "late_ns": late}
    return ReplayJob(
        graph, job, facts, _assumed(pieces), (*warnings, *_about_lateness(graph, late))
    )


class _Job:
    """What all shares of a job look at."""

    def __init__(
        self,
        tables: kineto_tables.Tables,
        all_: kineto_collectives.Collectives,
        words: Words,
    ):
        self.all = all_
        self.words = words
        self.steps = tables.steps
        self.clocks = RankClocks(tables.ranks)
        self.marked = bool(len(tables.steps.drop_nulls(["rank", "step", "start_ns", "end_ns"])))
        self.windows, self.twice = kineto_marks.windows(tables.steps)
        rows = tables.steps.select("rank", "host_start_ns").drop_nulls()
        self.host_starts = np.stack([kineto_tables.ints(rows[c]) for c in rows.columns])
        self.of_event = _events_of_collectives(tables.collectives)

    def piece(self, share: Share) -> Piece:
        """The tasks of some ranks, and the edges among them."""
        low, high = share.low, share.high
        events = share.events(self.words, partial(self._needed, low, high))
        start = self.clocks.on_job_clock(events.rank, events.start_ns)
        end = self.clocks.on_job_clock(events.rank, events.start_ns + np.maximum(events.dur_ns, 0))
        events = events._replace(start_ns=start)
        events = events._replace(step=self._in_steps(events))
        rows = np.flatnonzero((self.all.parts.rank >= low) & (self.all.parts.rank <= high))
        part = self.all.parts.take(rows)
        windows = self.windows.of(low, high)
        each = [distinct(r)[0] for r in (events.rank, part.rank, windows.rank)]
        ranks = distinct(np.concatenate(each))[0]
        piece = Piece(ranks, self.words)
        piece.rows = rows
        if not self.marked:
            windows = kineto_marks.whole_trace(piece, events, end, part)
        act = kineto_device.activities(piece, events, end)
        calls = kineto_device.calls(piece, events, end, act, self.words)
        activity = kineto_collectives.participations(piece, part, act)
        cuts = kineto_host.segments(
            piece, events, end, act, calls, part, activity, self.words, self.host_starts
        )
        kineto_host.launches(piece, calls, cuts)
        kineto_device.order_on_streams(piece, act)
        kineto_device.waits_between_streams(piece, events, act, calls)
        kineto_marks.marks(piece, windows, act, cuts)
        return piece

    def _needed(
        self, low: int, high: int, kind: np.ndarray, rank: np.ndarray, event: np.ndarray
    ) -> np.ndarray:
        """The rows that count: host events only of ranks that need them."""
        device, core = (np.array([k in of for k in KINDS]) for of in (DEVICE, CORE))
        of_rank, of_event = self.of_event
        mine = (of_rank >= low) & (of_rank <= high)
        ranks, place = distinct(rank)
        at = np.searchsorted(ranks, of_rank[mine])
        there = np.append(ranks, -1)[at] == of_rank[mine]
        asked = np.where(there, at, len(ranks)), of_event[mine]
        return needed.rows(kind, core, device, place, len(ranks), event, *asked)

    def _in_steps(self, events: Events) -> np.ndarray:
        """Device work of ranks whose sources mark no steps gets the step of the window it begins
        in."""
        step = events.step
        marked = distinct(events.rank[step != -1])[0]
        on_device = events.of(*DEVICE)
        bare = np.setdiff1d(distinct(events.rank[on_device])[0], marked)
        if not len(bare):
            return step
        step = step.copy()
        windows = self.steps.select("rank", "start_ns", "step", "end_ns").drop_nulls()
        windows = windows.filter(pl.col("rank").is_in(bare.tolist())).sort("start_ns")
        for (rank,), own in windows.group_by("rank"):
            rows = on_device[events.rank[on_device] == rank]
            begin, number, end = (
                kineto_tables.ints(own[c]) for c in ("start_ns", "step", "end_ns")
            )
            at = np.searchsorted(begin, events.start_ns[rows], "right") - 1
            inside = (at >= 0) & (events.start_ns[rows] < end[at])
            step[rows[inside]] = number[at[inside]]
        return step


def _events_of_collectives(collectives: pl.DataFrame) -> tuple[np.ndarray, np.ndarray]:
    """Ranks and events (`NULL` where there is none) of all rows, int64 each."""
    return (
        kineto_tables.ints(collectives["rank"]),
        kineto_tables.ints(collectives["event_id"], int(NULL)),
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


def _about_pieces(pieces: Sequence[Piece], whole: _Job) -> list[str]:
    """What is to be said of the tables."""
    said = []
    unmatched = sum(p.unmatched for p in pieces)
    if unmatched:
        said.append(
            f"{unmatched} communication kernels carry nothing to match them by: kept as "
            "tasks of their rank, joined with nobody"
        )
    said += whole.all.warnings
    if not whole.marked:
        said.append("the trace marks no steps: the whole of it is taken as step 0")
    if whole.twice:
        said.append(
            f"{whole.twice} windows of steps that their rank has already: the first of each is "
            "taken"
        )
    return said


def _assumed(pieces: Sequence[Piece]) -> tuple[str, ...]:
    """What had to be assumed of any of the ranks."""
    said = []
    if any(p.handed_over for p in pieces):
        said.append(
            "a host thread silent for over 100 us while another one launched was waiting for "
            "that one"
        )
    if any(p.inferred for p in pieces):
        said.append(
            "waits between streams are inferred (an event record and a wait side by side; a start "
            "that only another stream's end explains): the trace does not name them"
        )
    return tuple(said)


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
