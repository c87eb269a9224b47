"""Collectives on the host, and ranks without a device: who asked for what, and where events cut."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

import numpy as np
import polars as pl

from . import threads
from .events import KINDS
from .kinds import NULL
from .tables import ints

if TYPE_CHECKING:
    from .collectives import Participations
    from .events import Events
    from .host import Threads
    from .piece import Piece

CALLER_NS = 20_000_000
"""A backend's worker begins a collective this soon after the operator that asked for it."""


class Cut(NamedTuple):
    """Cuts at the beginning or the end of something, int64 [c] each."""

    thread: np.ndarray
    time: np.ndarray
    event: np.ndarray
    call: np.ndarray
    part: np.ndarray
    step: np.ndarray


class Asked:
    """The host events of some ranks with their threads, and who asked for each host collective."""

    def __init__(
        self,
        piece: Piece,
        events: Events,
        end_ns: np.ndarray,
        host: Threads,
        on_device: np.ndarray,
        part: Participations,
        on_host: np.ndarray,
        names: list[str],
    ):
        self.part = on_host
        """Participations on the host, int64 [k]."""
        rows = host.rows
        name = events.name[rows]
        self._texts = names
        self._events = pl.DataFrame(
            {
                "rank": events.rank[rows],
                "code": host.code,
                "start_ns": events.start_ns[rows],
                "end_ns": end_ns[rows],
                "event_id": events.event_id[rows],
                "name": name,
                "step": events.step[rows],
                "asks": np.array([*("c10d::" in t for t in names), False], bool)[name],
                "annotation": events.kind[rows] == KINDS.index("annotation"),
                "bare": ~on_device[host.rank[host.code]],
            }
        ).sort("code", "start_ns", "end_ns", descending=[False, False, True])
        self._starts = part.start_ns[on_host]
        self._ends = part.end_ns[on_host]
        self._own_events = part.event[on_host]
        asked = pl.DataFrame(
            {
                "rank": part.rank[on_host],
                "start_ns": self._starts,
                "end_ns": self._ends,
                "event": self._own_events,
            }
        ).with_row_index("number")
        own = self._events.filter(pl.col("event_id") != int(NULL))
        own = own.select("rank", event="event_id", own="code")
        asked = asked.join(own, on=["rank", "event"], how="left").unique("number", keep="first")
        self._workers = _workers(self._events, asked)
        others = self._events.filter(~pl.col("code").is_in(self._workers))
        self.caller = _callers(asked, others, self._workers)
        """The thread that asked for each of them, int64 [k], -1 where there is none."""

    def event_cuts(self, steps: np.ndarray) -> tuple[Cut, Cut, list[str | None]]:
        """Ends and beginnings of events on ranks without a device, and the events' names.

        The annotation of a step (`steps`: rank and begin, int64 [2, s]) has no name: it says
        nothing about what ran.
        """
        marks = pl.DataFrame({"rank": steps[0], "start_ns": steps[1]}).unique()
        rows = self._events.filter(
            pl.col("bare")
            & ~pl.col("code").is_in(self._workers)
            & ~pl.col("event_id").is_in(self._own_events.tolist())
        ).join(
            marks.with_columns(is_step=True),
            on=["rank", "start_ns"],
            how="left",
            maintain_order="left",
        )
        is_step = (rows["is_step"].fill_null(False) & rows["annotation"]).to_list()
        texts = [*self._texts, None]
        names = [
            None if mark else texts[code]
            for mark, code in zip(is_step, rows["name"].to_list(), strict=True)
        ]
        number = np.arange(len(rows))
        step = ints(rows["step"])
        code = ints(rows["code"])
        none = np.full(len(rows), -1)
        return (
            Cut(code, ints(rows["end_ns"]), number, none, none, step),
            Cut(code, ints(rows["start_ns"]), number, none, none, step),
            names,
        )

    def cuts(self, part: Participations) -> tuple[Cut, Cut]:
        """Where host collectives are asked for, and where they end while the caller is idle."""
        busy = threads.working(
            ints(self._events["code"]),
            ints(self._events["start_ns"]),
            ints(self._events["end_ns"]),
            self.caller,
            self._starts,
            self._ends,
        )
        known = self.caller >= 0
        idle = known & ~busy
        step = part.step[self.part]

        def cut(which: np.ndarray, time: np.ndarray, blocks: bool) -> Cut:
            none = np.full(int(which.sum()), -1)
            by = self.part[which] if blocks else none
            return Cut(self.caller[which], time[which], none, none, by, step[which])

        return cut(known, self._starts, False), cut(idle, self._ends, True)


def _callers(asked: pl.DataFrame, others: pl.DataFrame, workers: list[int]) -> np.ndarray:
    askers = others.filter("asks")
    busiest = (
        others.group_by("rank", "code")
        .agg(pl.len())
        .sort("len", "code", descending=[True, False])
        .unique("rank", keep="first", maintain_order=True)
        .select("rank", busiest="code")
    )
    asked = (
        asked.sort("start_ns")
        .join_asof(
            askers.select("rank", "start_ns", asker="code").sort("start_ns"),
            on="start_ns",
            by="rank",
            tolerance=CALLER_NS,
            check_sortedness=False,
        )
        .join(busiest, on="rank", how="left")
        .sort("number")
    )
    not_worker = pl.when(~pl.col("own").is_in(workers)).then("own")
    return ints(asked.select(pl.coalesce(not_worker, "asker", "busiest")).to_series(), -1)


def _workers(events: pl.DataFrame, asked: pl.DataFrame) -> list[int]:
    """Threads with host collectives whose every event lies within one of them."""
    spans = asked.select("own", since="start_ns", until="end_ns").drop_nulls().sort("since")
    inside = (
        events.join(spans.select("own").unique(), left_on="code", right_on="own", how="semi")
        .sort("start_ns")
        .join_asof(
            spans,
            left_on="start_ns",
            right_on="since",
            by_left="code",
            by_right="own",
            check_sortedness=False,
        )
    )
    # The last microsecond is the resolution of old traces.
    outside = pl.col("until").is_null() | (pl.col("end_ns") > pl.col("until") + 1_000)
    busy = inside.filter(outside)["code"].unique().to_list()
    return sorted(set(spans["own"].to_list()) - set(busy))
