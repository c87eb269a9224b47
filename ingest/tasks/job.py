"""The pieces of a traced job: the tasks of some ranks at a time, from their events."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import NamedTuple

import numpy as np
import polars as pl

from . import collectives as of_collectives
from . import device, host, marks, needed
from .codes import distinct
from .events import CORE, DEVICE, KINDS, Events, Needed, Words
from .job_clock import RankClocks
from .kinds import NULL
from .piece import Piece
from .tables import Tables, ints


class Share(NamedTuple):
    """Some ranks of a job: from which to which (both in it), and how their events are read."""

    low: int
    high: int
    events: Callable[[Words, Needed], Events]
    rows: int = 0
    """Events of all kinds, where files tell."""


ALL = np.iinfo(np.int64)

SHARE_ROWS = 1 << 18
"""Events of a share, but where one rank has more."""


class Job:
    """What all shares of a job look at."""

    def __init__(
        self,
        tables: Tables,
        all_: of_collectives.Collectives,
        words: Words,
    ):
        self.all = all_
        self.words = words
        self.steps = tables.steps
        self.clocks = RankClocks(tables.ranks)
        self.marked = bool(len(tables.steps.drop_nulls(["rank", "step", "start_ns", "end_ns"])))
        self.windows, self.twice = marks.windows(tables.steps)
        rows = tables.steps.select("rank", "host_start_ns").drop_nulls()
        self.host_starts = np.stack([ints(rows[c]) for c in rows.columns])
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
            windows = marks.whole_trace(piece, events, end, part)
        act = device.activities(piece, events, end)
        calls = device.calls(piece, events, end, act, self.words)
        activity = of_collectives.participations(piece, part, act)
        cuts = host.segments(
            piece, events, end, act, calls, part, activity, self.words, self.host_starts
        )
        host.launches(piece, calls, cuts)
        device.order_on_streams(piece, act)
        device.waits_between_streams(piece, events, act, calls)
        marks.marks(piece, windows, act, cuts)
        return piece

    def _needed(
        self, low: int, high: int, kind: np.ndarray, rank: np.ndarray, event: np.ndarray
    ) -> np.ndarray:
        """The rows that count: host events only of ranks that need them."""
        on_device, core = (np.array([k in of for k in KINDS]) for of in (DEVICE, CORE))
        of_rank, of_event = self.of_event
        mine = (of_rank >= low) & (of_rank <= high)
        ranks, place = distinct(rank)
        at = np.searchsorted(ranks, of_rank[mine])
        there = np.append(ranks, -1)[at] == of_rank[mine]
        asked = np.where(there, at, len(ranks)), of_event[mine]
        return needed.rows(kind, core, on_device, place, len(ranks), event, *asked)

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
            begin, number, end = (ints(own[c]) for c in ("start_ns", "step", "end_ns"))
            at = np.searchsorted(begin, events.start_ns[rows], "right") - 1
            inside = (at >= 0) & (events.start_ns[rows] < end[at])
            step[rows[inside]] = number[at[inside]]
        return step


def _events_of_collectives(collectives: pl.DataFrame) -> tuple[np.ndarray, np.ndarray]:
    """Ranks and events (`NULL` where there is none) of all rows, int64 each."""
    return ints(collectives["rank"]), ints(collectives["event_id"], int(NULL))
