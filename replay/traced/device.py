"""What ran on the devices of a traced job: order on streams, launches, waits between streams."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import polars as pl

from ..graph import NULL
from ..keys import paired
from . import streams
from .draft import Draft
from .tables import DEVICE, Tables, dense, ints, kind_is, within

SYNC_CALLS = (
    "cudaDeviceSynchronize",
    "cudaStreamSynchronize",
    "cudaEventSynchronize",
    "cudaMemcpy",
    "cuCtxSynchronize",
    "cuStreamSynchronize",
    "cuEventSynchronize",
    "hipDeviceSynchronize",
    "hipStreamSynchronize",
    "hipEventSynchronize",
    "hipMemcpy",
    "hipMemcpyWithStream",
)
"""Runtime calls that return only when the device has got somewhere."""


@dataclass(frozen=True)
class Activities:
    """Kernels, copies and sets in order of start; arrays of shape [a], rows of `frame`."""

    frame: pl.DataFrame
    rank: np.ndarray
    start_ns: np.ndarray
    end_ns: np.ndarray
    lane: np.ndarray
    """Dense code of (rank, device, stream)."""
    before: np.ndarray
    over: np.ndarray
    """`streams.stream_order`."""
    begin: np.ndarray
    finish: np.ndarray
    """Task that starts and task that ends an activity (a collective has two); filled in later."""

    @property
    def ranks(self) -> np.ndarray:
        """Ranks with activities."""
        return np.unique(self.rank)

    def __len__(self) -> int:
        return len(self.rank)


@dataclass(frozen=True)
class Calls:
    """Runtime calls of ranks with a device."""

    runtime: pl.DataFrame
    """All, with `syncs`, `records` and `waits` (an event record, a stream's wait)."""
    launching: pl.DataFrame
    """Those that launched an activity, `call` their number."""
    of: np.ndarray
    """int64 [a]: the call that launched each activity, -1 where none is known."""
    launch_ns: np.ndarray
    """int64 [a]: when that call began; NULL where it is not known, or after the activity began."""

    @property
    def syncing(self) -> pl.DataFrame:
        """Those that wait for the device."""
        return self.runtime.filter("syncs")


def activities(tables: Tables) -> Activities:
    """The device activities of all ranks."""
    frame = tables.events.filter(kind_is(*DEVICE)).sort("start_ns", "end_ns", "event_id")
    lane = dense(frame, "rank", pl.col("device").fill_null(-1), pl.col("stream").fill_null(-1))
    start, end = ints(frame["start_ns"]), ints(frame["end_ns"])
    before, over = streams.stream_order(lane, start, end)
    unset = [np.full(len(frame), -1, np.int64) for _ in range(2)]
    return Activities(frame, ints(frame["rank"]), start, end, lane, before, over, *unset)


def calls(tables: Tables, act: Activities) -> Calls:
    """The runtime calls, and which of them launched what (by rank and correlation)."""
    by = ["rank", "correlation"]
    runtime = tables.events.filter(kind_is("runtime") & pl.col("rank").is_in(act.ranks.tolist()))
    # Calls are many, their names few.
    plain = pl.col("name").cast(pl.String).str.replace(r"_v\d+$", "")
    names = runtime.select(pl.col("name").unique()).with_columns(
        syncs=plain.is_in(SYNC_CALLS),
        records=pl.col("name").cast(pl.String).str.contains("EventRecord"),
        waits=pl.col("name").cast(pl.String).str.contains("StreamWaitEvent"),
    )
    runtime = (
        runtime.join(names, on="name", how="left", nulls_equal=True, maintain_order="left")
        .with_columns(pl.col("name").cast(pl.String))
        .sort("start_ns", "event_id")
    )
    launched = act.frame.select(by).drop_nulls().unique()
    launching = (
        runtime.join(launched, on=by, how="semi", maintain_order="left")
        .unique(by, keep="first", maintain_order=True)
        .with_row_index("call")
    )
    of = act.frame.select(by).join(
        launching.select(*by, "call", "start_ns"), on=by, how="left", maintain_order="left"
    )
    launch_ns = ints(of["start_ns"], int(NULL))
    # A clock that puts a kernel before its launch says nothing about the launch.
    sane = launch_ns <= act.start_ns
    return Calls(
        runtime,
        launching,
        np.where(sane, ints(of["call"], -1), -1),
        np.where(sane, launch_ns, NULL),
    )


def order_on_streams(draft: Draft, act: Activities) -> None:
    """Edges from each activity's predecessor on its stream."""
    draft.edge(np.where(act.before >= 0, act.finish[act.before], -1), act.begin)


def waits_between_streams(draft: Draft, tables: Tables, act: Activities, calls: Calls) -> None:
    """Edges between activities of different streams.

    What `sync` rows name where a rank has them; else what the calls and the times show.
    """
    if not len(act):
        return
    src, dst = _recorded(tables, act, calls)
    told = np.unique(act.rank[dst])
    beside_src, beside_dst = _side_by_side(act, calls)
    guess = ~np.isin(act.rank[beside_dst], told)
    seen = streams.inferred_waits(
        act.rank, act.lane, act.start_ns, act.end_ns, calls.launch_ns, act.before
    )
    late = np.flatnonzero((seen >= 0) & ~np.isin(act.rank, told))
    src = np.concatenate([src, beside_src[guess], seen[late]])
    dst = np.concatenate([dst, beside_dst[guess], late])
    sane = (act.end_ns[src] <= act.start_ns[dst]) & (src < dst)
    src, dst = src[sane], dst[sane]
    draft.edge(act.finish[src], act.begin[dst])
    _overlapping(draft, act, src, dst)
    if guess.any() or len(late):
        draft.assumptions.append(
            "waits between streams are inferred (an event record and a wait side by side; a start "
            "that only another stream's end explains): the trace does not name them"
        )


def _overlapping(draft: Draft, act: Activities, src: np.ndarray, dst: np.ndarray) -> None:
    """What overlaps its predecessor started once that one could: it waits for the same."""
    over = np.flatnonzero(act.over >= 0)
    under = act.over[over]
    is_collective = act.begin[under] != act.finish[under]
    draft.edge(np.where(is_collective, act.begin[under], -1), act.begin[over])
    order = np.argsort(dst, kind="stable")
    low = np.searchsorted(dst[order], under, "left")
    many = np.searchsorted(dst[order], under, "right") - low
    rows = order[np.repeat(low, many) + within(many)]
    draft.edge(act.finish[src[rows]], act.begin[np.repeat(over, many)])


def _recorded(tables: Tables, act: Activities, calls: Calls) -> tuple[np.ndarray, np.ndarray]:
    """Waits that `sync` rows name: the last activity on one stream before the record's call, and
    the first on the other after the wait's."""
    sync = tables.events.filter(kind_is("sync")).drop_nulls(
        ["wait_correlation", "wait_stream", "stream"]
    )
    if not len(sync):
        return np.empty(0, np.int64), np.empty(0, np.int64)
    when = calls.runtime.select("rank", "correlation", at="start_ns").unique(
        ["rank", "correlation"], keep="first"
    )
    lanes = act.frame.select("rank", "stream", lane=pl.Series(act.lane)).unique(["rank", "stream"])
    sync = (
        sync.join(
            when.rename({"correlation": "wait_correlation", "at": "recorded"}),
            on=["rank", "wait_correlation"],
        )
        .join(when.rename({"at": "waited"}), on=["rank", "correlation"], how="left")
        .join(lanes.rename({"lane": "to"}), on=["rank", "stream"])
        .join(lanes.rename({"stream": "wait_stream", "lane": "from"}), on=["rank", "wait_stream"])
    )
    waited = ints(sync.select(pl.coalesce("waited", "start_ns")).to_series())
    source, target = ints(sync["from"]), ints(sync["to"])
    known = np.flatnonzero(calls.launch_ns != NULL)
    order = known[np.lexsort((calls.launch_ns[known], act.lane[known]))]
    launched = act.lane[order], calls.launch_ns[order]
    src = np.searchsorted(*paired(launched, (source, ints(sync["recorded"])))) - 1
    dst = np.searchsorted(*paired(launched, (target, waited)))
    there = (src >= 0) & (dst < len(order))
    src, dst = order[src[there]], order[dst[there]]
    same = (act.lane[src] == source[there]) & (act.lane[dst] == target[there])
    return src[same], dst[same]


def _side_by_side(act: Activities, calls: Calls) -> tuple[np.ndarray, np.ndarray]:
    """Waits that an event record and a stream's wait side by side on a host thread show."""
    first = pl.DataFrame({"call": calls.of, "activity": np.arange(len(act))}).unique(
        "call", keep="first"
    )
    columns = ("rank", "thread", "start_ns", "event_id")
    launches = calls.launching.select(*columns, pl.col("call").cast(pl.Int64)).join(
        first, on="call"
    )
    rows = [launches.select(*columns, "activity", what=0)]
    for kind, what in (("records", 1), ("waits", 2)):
        found = calls.runtime.filter(pl.col(kind))
        rows.append(found.select(*columns, activity=pl.lit(-1, pl.Int64), what=what))
    host = pl.concat(rows)
    # Whole numbers sort faster than names; which thread comes first does not matter.
    named = host.select("rank", "thread").unique().with_row_index("code")
    host = host.join(named, on=["rank", "thread"], how="left", nulls_equal=True)
    host = host.select("code", "start_ns", "event_id", "activity", "what").sort(
        "code", "start_ns", "event_id"
    )
    thread = ints(host["code"])
    return streams.recorded_then_waited(
        thread, ints(host["what"]), ints(host["activity"]), act.lane
    )
