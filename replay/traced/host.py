"""What the host threads of a traced job did: segments between calls, and what blocked them.

A thread's time is cut where it launches, synchronises or asks for a collective (on a rank without
a device: where any event begins or ends). The task of a cut is the segment up to it, a host gap or
the innermost event; a cut where the thread had been blocked (a return) waits for what blocked it.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import polars as pl

from ..graph import Kind
from . import threads
from .collectives import Participations
from .device import Activities, Calls
from .draft import Draft
from .residual import PIN_END, PIN_START
from .tables import HOST, Tables, ints, kind_is, last_by

GAP = "host gap"

CALLER_NS = 20_000_000
"""A backend's worker begins a collective this soon after the operator that asked for it."""

RETURN, MOMENT, BEGINNING = 0, 1, 2
"""Kinds of cuts, in the order they come at one time."""


@dataclass(frozen=True)
class Cuts:
    """Cuts by thread, then time; arrays [c]."""

    rank: np.ndarray
    thread: np.ndarray
    """Dense code of (rank, thread)."""
    time_ns: np.ndarray
    is_return: np.ndarray
    call: np.ndarray
    """The launching call, or -1."""
    part: np.ndarray
    """Of a return: the participation that blocked, -1 for the device."""
    task: np.ndarray


@dataclass(frozen=True)
class _Threads:
    """Host events with their thread's `code`, and who asked for each host collective."""

    table: pl.DataFrame
    events: pl.DataFrame
    workers: list[int]
    """Threads of a backend: they hold nothing but the insides of collectives."""
    part: np.ndarray
    """Participations on the host."""
    caller: np.ndarray
    """The thread that asked for each of them, -1 where there is none."""


def segments(
    draft: Draft, tables: Tables, act: Activities, calls: Calls, part: Participations
) -> Cuts:
    """Adds the host segments of all threads, and the edges between and into them."""
    host = _threads(tables, part)
    event_cuts, labels = _event_cuts(tables, act, host, part)
    found = pl.concat([*_call_cuts(host, calls), *event_cuts, *_collective_cuts(host, part)])
    frame = _named(found.sort("thread", "time", "order", "event", "call", "part"), labels)
    n = len(frame)
    rank, thread, time = (ints(frame[c]) for c in ("rank", "thread", "time"))
    is_return = ints(frame["order"]) == RETURN
    first = np.ones(n, bool)
    first[1:] = thread[1:] != thread[:-1]
    own = np.where(first, np.iinfo(np.int64).min, np.roll(time, 1))
    over = _hand_overs(act, rank, thread, time, own)
    over[is_return] = -1
    since = np.where(over >= 0, time[over], np.where(first | is_return, time, own))
    cuts = Cuts(
        rank=rank,
        thread=thread,
        time_ns=time,
        is_return=is_return,
        call=ints(frame["call"]),
        part=ints(frame["part"]),
        task=draft.add(
            n,
            kind=Kind.HOST,
            rank=rank,
            step=ints(frame["step"], -1),
            op=draft.codes(frame["name"]),
            start_ns=since,
            end_ns=time,
            release_ns=time,
            pin=np.where(is_return, PIN_START, PIN_END),
            thread=_nth(rank, thread),
        ),
    )
    draft.edge(np.where(first, -1, np.roll(cuts.task, 1)), cuts.task)
    draft.edge(np.where(over >= 0, cuts.task[over], -1), cuts.task)
    if (over >= 0).any():
        draft.assumptions.append(
            "a host thread silent for over 100 us while another one launched was waiting for "
            "that one"
        )
    _blocked(draft, act, part, cuts)
    _asked(draft, host, part, cuts)
    return cuts


def launches(draft: Draft, act: Activities, calls: Calls, cuts: Cuts) -> None:
    """Edges from the cut of each launching call to what it launched."""
    task = np.full(len(calls.launching) + 1, -1, np.int64)
    is_launch = cuts.call >= 0
    task[cuts.call[is_launch]] = cuts.task[is_launch]
    draft.edge(np.where(calls.of >= 0, task[calls.of], -1), act.begin)


def _threads(tables: Tables, part: Participations) -> _Threads:
    """Who is who among the host threads."""
    events = tables.events.filter(kind_is(*HOST)).with_columns(_thread())
    table = events.select("rank", "thread").unique().sort("rank", "thread").with_row_index("code")
    events = events.join(table, on=["rank", "thread"], how="left").sort(
        "code", "start_ns", "end_ns", descending=[False, False, True]
    )
    of_host = np.flatnonzero(part.activity < 0)
    asked = part.frame[of_host].select("rank", "start_ns", "end_ns", "event")
    asked = asked.with_row_index("number")
    own = events.select("rank", event="event_id", own="code")
    asked = asked.join(own, on=["rank", "event"], how="left").unique("number", keep="first")
    workers = _workers(events, asked)
    others = events.filter(~pl.col("code").is_in(workers))
    askers = others.filter(pl.col("name").cast(pl.String).str.contains("c10d::"))
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
    caller = asked.select(pl.coalesce(not_worker, "asker", "busiest")).to_series()
    return _Threads(table, events, workers, of_host, ints(caller, -1))


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


def _call_cuts(host: _Threads, calls: Calls) -> list[pl.DataFrame]:
    """Launches, and synchronisations with their returns."""

    def coded(frame: pl.DataFrame) -> pl.DataFrame:
        return frame.with_columns(_thread()).join(host.table, on=["rank", "thread"], how="left")

    launching, syncing = coded(calls.launching), coded(calls.syncing)
    return [
        _cuts(launching, "start_ns", MOMENT, call=pl.col("call").cast(pl.Int64)),
        _cuts(syncing, "start_ns", MOMENT),
        _cuts(syncing, "end_ns", RETURN),
    ]


def _event_cuts(
    tables: Tables, act: Activities, host: _Threads, part: Participations
) -> tuple[list[pl.DataFrame], list[str | None]]:
    """Beginnings and ends of events on ranks without a device, and the events' names.

    The annotation of a step has no name: it says nothing about what ran.
    """
    steps = tables.steps.select("rank", start_ns="host_start_ns", is_step=True).drop_nulls()
    rows = (
        host.events.filter(
            ~pl.col("rank").is_in(act.ranks.tolist())
            & ~pl.col("code").is_in(host.workers)
            & ~pl.col("event_id").is_in(part.frame["event"][host.part].to_list())
        )
        .join(steps.unique(), on=["rank", "start_ns"], how="left", maintain_order="left")
        .with_row_index("event")
    )
    is_step = pl.col("is_step").fill_null(False) & kind_is("annotation")
    labels = rows.select(pl.when(~is_step).then(pl.col("name").cast(pl.String))).to_series()
    event = pl.col("event").cast(pl.Int64)
    return [
        _cuts(rows, "end_ns", MOMENT, event=event),
        _cuts(rows, "start_ns", BEGINNING, event=event),
    ], labels.to_list()


def _collective_cuts(host: _Threads, part: Participations) -> list[pl.DataFrame]:
    """Where host collectives are asked for, and where they end while the caller is idle."""
    rows = part.frame[host.part].with_columns(
        code=pl.Series(host.caller), part=pl.Series(host.part)
    )
    busy = threads.working(
        ints(host.events["code"]),
        ints(host.events["start_ns"]),
        ints(host.events["end_ns"]),
        host.caller,
        part.start_ns[host.part],
        part.end_ns[host.part],
    )
    known = host.caller >= 0
    return [
        _cuts(rows.filter(pl.Series(known)), "start_ns", MOMENT),
        _cuts(
            rows.filter(pl.Series(known & ~busy)),
            "end_ns",
            RETURN,
            part=pl.col("part").cast(pl.Int64),
        ),
    ]


def _cuts(
    rows: pl.DataFrame,
    time: str,
    order: int,
    *,
    call: pl.Expr | None = None,
    event: pl.Expr | None = None,
    part: pl.Expr | None = None,
) -> pl.DataFrame:
    """Cuts at the times of a column."""
    none = pl.lit(-1, pl.Int64)
    return rows.select(
        rank=pl.col("rank").cast(pl.Int64),
        thread=pl.col("code").cast(pl.Int64),
        time=pl.col(time),
        order=pl.lit(order, pl.Int64),
        step=pl.col("step").cast(pl.Int64),
        call=none if call is None else call,
        event=none if event is None else event,
        part=none if part is None else part,
    )


def _named(cut: pl.DataFrame, labels: list[str | None]) -> pl.DataFrame:
    """Cuts with the name of the innermost event before each; equal mere moments once."""
    event = ints(cut["event"], -1)
    inner = threads.innermost(ints(cut["thread"]), event, ints(cut["order"]) == BEGINNING)
    names = (
        pl.Series([*labels, None], dtype=pl.String)
        .fill_null(GAP)
        .gather(np.where(inner < 0, len(labels), inner))
    )
    mere = (pl.col("call") < 0) & (pl.col("order") != RETURN)
    at = pl.struct("thread", "time")
    again = (at == at.shift(1)).fill_null(False)
    return cut.with_columns(names.alias("name")).filter(~(mere & again))


def _hand_overs(
    act: Activities, rank: np.ndarray, thread: np.ndarray, time: np.ndarray, own: np.ndarray
) -> np.ndarray:
    """`threads.hand_overs` among cuts of ranks with a device (rows; -1: none)."""
    over = np.full(len(rank), -1, np.int64)
    at = np.flatnonzero(np.isin(rank, act.ranks))
    if len(at):
        found = threads.hand_overs(rank[at], thread[at], time[at], own[at])
        over[at] = np.where(found >= 0, at[found], -1)
    return over


def _blocked(draft: Draft, act: Activities, part: Participations, cuts: Cuts) -> None:
    """Edges into returns, from the collective or the device activity that was waited for."""
    by_part = cuts.is_return & (cuts.part >= 0)
    draft.edge(part.transfer[cuts.part[by_part]], cuts.task[by_part])
    by_device = np.flatnonzero(cuts.is_return & (cuts.part < 0))
    if not len(by_device):
        return
    order = np.lexsort((act.end_ns, act.rank))
    until = cuts.rank[by_device], cuts.time_ns[by_device]
    last = last_by((act.rank, act.end_ns), order, until)
    draft.edge(np.where(last >= 0, act.finish[last], -1), cuts.task[by_device])


def _asked(draft: Draft, host: _Threads, part: Participations, cuts: Cuts) -> None:
    """Edges from the caller's last cut to the arrival of each host collective."""
    by_thread = np.arange(len(cuts.thread))
    until = host.caller, part.start_ns[host.part]
    last = last_by((cuts.thread, cuts.time_ns), by_thread, until)
    if len(by_thread):
        draft.edge(np.where(last >= 0, cuts.task[last], -1), part.arrive[host.part])


def _thread() -> pl.Expr:
    return pl.col("thread").cast(pl.String).fill_null("?")


def _nth(rank: np.ndarray, thread: np.ndarray) -> np.ndarray:
    """0 for cuts of a rank's first thread, 1 for its second, ... (threads numbered by rank)."""
    first = np.full(int(rank.max(initial=0)) + 1, np.iinfo(np.int64).max)
    np.minimum.at(first, rank, thread)
    return thread - first[rank]
