"""The task graph of a job that was traced: streams, host threads, collectives across ranks."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np
import polars as pl

from . import streams, threads
from .graph import NULL, GraphCycle, Kind, TaskGraph
from .graph import build as build_graph
from .models import size_bytes
from .policy import ReplayJob
from .residual import PIN_END, PIN_START, fill

DEVICE = ("kernel", "memcpy", "memset")
HOST = ("host_op", "annotation", "python", "runtime")
HOST_GAP = "host gap"
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

CALLER_NS = 20_000_000
"""A backend's worker begins a collective this soon after the operator that asked for it."""

FROM_ROOT = ("broadcast", "scatter")
TO_ROOT = ("reduce", "gather")

_BIG = np.int64(1) << 43
"""Keys `group * _BIG + time` sort by group, then time (times are taken from the first event)."""


def build(frames: Mapping[str, pl.DataFrame], job: str = "") -> ReplayJob:
    """The replay job of traced ranks from the tables `events`, `collectives`, `ranks`, `steps`.

    Tasks: device activities; host segments, each from one call (launch, synchronisation,
    collective; on a rank without a device, any event's beginning or end) to the next on its
    thread; arrive, join and transfer of each collective; a mark of no length where a step begins
    or ends on a rank. Edges: the stream's order, the launch, waits between streams (from
    `sync` rows, else inferred), host synchronisation, a thread that hands over to another, and
    the join of a collective over the ranks that were seen. What these do not explain is a gap.
    """
    return _Builder(frames, job).replay_job()


class _Builder:
    """The growing graph: blocks of tasks, edges, and what of the measurement each task keeps."""

    def __init__(self, frames: Mapping[str, pl.DataFrame], job: str):
        self.job = job
        self.frames = frames
        offsets = frames["ranks"].select("rank", offset=pl.col("clock_offset_ns").fill_null(0))
        self.events = _aligned(frames["events"], offsets, "start_ns")
        self.collectives = _aligned(frames["collectives"], offsets, "start_ns", "end_ns")
        self.steps = _aligned(frames["steps"], offsets, "start_ns", "end_ns")
        starts = [f["start_ns"].min() for f in (self.events, self.collectives, self.steps)]
        self.origin = min((int(s) for s in starts if s is not None), default=0)  # type: ignore
        self.names: dict[str, int] = {}
        self.n = 0
        self.blocks: list[dict[str, np.ndarray]] = []
        self.edges: list[tuple[np.ndarray, np.ndarray]] = []
        self.warnings: list[str] = []
        self.assumptions: list[str] = []

    # -- bookkeeping -------------------------------------------------------------------------

    def add(self, n: int, **columns) -> np.ndarray:
        """Ids of n new tasks; columns are arrays of shape [n] or one value for all."""
        self.blocks.append({k: np.broadcast_to(np.asarray(v), (n,)) for k, v in columns.items()})
        ids = np.arange(self.n, self.n + n)
        self.n += n
        return ids

    def edge(self, src: np.ndarray, dst: np.ndarray) -> None:
        """Edges src[i] -> dst[i]; pairs with an end of -1 are left out."""
        real = (src >= 0) & (dst >= 0)
        self.edges.append((src[real], dst[real]))

    def codes(self, names: pl.Series) -> np.ndarray:
        """Codes of operation names in the graph's `op_names`."""
        text = names.cast(pl.String).fill_null("?")
        kinds = text.unique(maintain_order=True).to_list()
        table = [self.names.setdefault(k, len(self.names)) for k in kinds]
        local = text.cast(pl.Enum(kinds)).to_physical().to_numpy()
        return np.asarray(table, np.int64)[local] if len(kinds) else np.empty(0, np.int64)

    def key(self, group: np.ndarray, time_ns: np.ndarray) -> np.ndarray:
        """One int64 that sorts by group, then time."""
        return group.astype(np.int64) * _BIG + np.clip(time_ns - self.origin, 0, _BIG - 1)

    # -- the parts ---------------------------------------------------------------------------

    def replay_job(self) -> ReplayJob:
        """All parts in turn."""
        self.devices()
        self.calls()
        self.participations()
        self.host_threads()
        self.launches()
        self.waits_between_streams()
        self.joins()
        self.marks()
        return self.finish()

    def devices(self) -> None:
        """Device activities in order of start; a task each, for a collective its arrival."""
        dev = self.events.filter(pl.col("kind").cast(pl.String).is_in(DEVICE))
        dev = dev.with_columns(end_ns=pl.col("start_ns") + pl.col("dur_ns").clip(0))
        self.dev = dev = dev.sort("start_ns", "end_ns", "event_id")
        self.d_rank = _ints(dev["rank"])
        self.d_start, self.d_end = _ints(dev["start_ns"]), _ints(dev["end_ns"])
        lane = pl.struct("rank", pl.col("device").fill_null(-1), pl.col("stream").fill_null(-1))
        self.d_lane = _ints(dev.select(lane.rank("dense"))["rank"]) - 1
        self.d_before, self.d_over = streams.stream_order(self.d_lane, self.d_start, self.d_end)
        self.device_ranks = np.unique(self.d_rank)

    def calls(self) -> None:
        """Runtime calls of ranks with a device: which launched what, which synchronise."""
        runtime = self.events.filter(
            (pl.col("kind").cast(pl.String) == "runtime")
            & pl.col("rank").is_in(self.device_ranks.tolist())
        ).with_columns(name=pl.col("name").cast(pl.String))
        launched = self.dev.select("rank", "correlation").drop_nulls().unique()
        runtime = runtime.with_columns(
            end_ns=pl.col("start_ns") + pl.col("dur_ns").clip(0),
            syncs=pl.col("name").str.replace(r"_v\d+$", "").is_in(SYNC_CALLS),
            records=pl.col("name").str.contains("EventRecord"),
            waits=pl.col("name").str.contains("StreamWaitEvent"),
        )
        launching = runtime.join(launched, on=["rank", "correlation"], how="semi")
        launching = launching.sort("start_ns", "event_id").unique(
            ["rank", "correlation"], keep="first", maintain_order=True
        )
        self.runtime = runtime
        self.launching = launching.with_row_index("call")
        self.syncing = runtime.filter("syncs").sort("start_ns", "event_id")
        of = self.dev.select("rank", "correlation").join(
            self.launching.select(
                "rank", "correlation", "call", call_start="start_ns", call_thread="thread"
            ),
            on=["rank", "correlation"],
            how="left",
            maintain_order="left",
        )
        self.d_call = _ints(of["call"], -1)
        self.d_launch = _ints(of["call_start"], int(NULL))

    def participations(self) -> None:
        """Participations: one an event (coalesced rows together), on the device or the host."""
        part = self.collectives.sort("start_ns", "event_id", "collective_id")
        sizes = size_bytes(
            part["op"].cast(pl.String).to_numpy(),
            _ints(part["in_bytes"], -1),
            _ints(part["out_bytes"], -1),
        )
        part = part.with_columns(
            size=pl.Series(sizes, dtype=pl.Int64),
            event=pl.col("event_id").fill_null(-pl.int_range(1, pl.len() + 1)),
        )
        part = part.group_by("rank", "event", maintain_order=True).agg(
            pl.exclude("size").first(), pl.col("size").sum(), rows=pl.len()
        )
        known = self.dev.select("rank", event="event_id").with_row_index("dev")
        part = part.join(known, on=["rank", "event"], how="left", maintain_order="left")
        # An instance that nothing was matched with is its own.
        lone = -pl.int_range(1, pl.len() + 1)
        part = part.with_columns(pl.col("collective_id").fill_null(lone))
        self.part = part
        self.p_rank = _ints(part["rank"])
        self.p_dev = _ints(part["dev"], -1)
        self.p_start, self.p_end = _ints(part["start_ns"]), _ints(part["end_ns"])
        self.p_end = np.maximum(self.p_end, self.p_start)
        self.p_instance = _ints(part["collective_id"].rank("dense")) - 1
        comms = part["comm"].cast(pl.String).fill_null("?")
        self.comm_names = comms.unique(maintain_order=True).to_list()
        columns = {
            "rank": self.p_rank,
            "step": _ints(part["step"], -1),
            "op": self.codes(part["op"]),
            "comm": _codes(comms, self.comm_names),
            "collective": self.p_instance,
            "bytes": _ints(part["size"]),
            "event_id": _ints(part["event_id"], -1),
            "group_size": _ints(part["group_size"], -1),
            "algo": self.codes(_algorithms(part, self.frames.get("comms"))),
        }
        m = len(part)
        self.arrive = self.add(
            m, kind=Kind.ARRIVE, start_ns=self.p_start, end_ns=self.p_start, **columns
        )
        self.transfer = self.add(
            m,
            kind=Kind.TRANSFER,
            start_ns=self.p_start,
            end_ns=self.p_end,
            pin=PIN_END,
            **columns,
        )
        self.d_begin = np.full(len(self.dev), -1, np.int64)
        self.d_finish = np.full(len(self.dev), -1, np.int64)
        on_device = self.p_dev >= 0
        self.d_begin[self.p_dev[on_device]] = self.arrive[on_device]
        self.d_finish[self.p_dev[on_device]] = self.transfer[on_device]
        plain = np.flatnonzero(self.d_begin < 0)
        dev = self.dev[plain]
        kinds = dev["kind"].cast(pl.String).to_numpy()
        is_comm = (dev["category"].cast(pl.String) == "comm").fill_null(False).to_numpy()
        ids = self.add(
            len(plain),
            kind=np.where(
                kinds == "kernel", np.where(is_comm, Kind.OTHER, Kind.COMPUTE), Kind.COPY
            ),
            rank=self.d_rank[plain],
            step=_ints(dev["step"], -1),
            op=self.codes(dev["name"]),
            bytes=_ints(dev["bytes"], 0),
            start_ns=self.d_start[plain],
            end_ns=self.d_end[plain],
            dur_ns=self.d_end[plain] - self.d_start[plain],
            event_id=_ints(dev["event_id"], -1),
        )
        self.d_begin[plain] = self.d_finish[plain] = ids
        unmatched = int(is_comm.sum())
        if unmatched:
            self.warnings.append(
                f"{unmatched} communication kernels carry nothing to match them by: "
                "kept as tasks of their rank, joined with nobody"
            )

    def host_threads(self) -> None:
        """Host segments: each thread's chain of cuts, and what blocks it."""
        self._threads_of_host()
        cuts = [self._call_cuts(), self._event_cuts(), self._collective_cuts()]
        cut = pl.concat([c for c in cuts if len(c)] or [cuts[0]])
        # A return comes before whatever the thread does next at the same moment.
        cut = cut.sort("thread", "time", "order", "event", "call", "part")
        cut = self._named(cut)
        self.cut = cut
        k = len(cut)
        thread, time = _ints(cut["thread"]), _ints(cut["time"])
        first = np.ones(k, bool)
        first[1:] = thread[1:] != thread[:-1]
        own = np.where(first, np.iinfo(np.int64).min, np.roll(time, 1))
        blocked = _ints(cut["order"]) == 0
        rank = _ints(cut["rank"])
        over = np.full(k, -1, np.int64)
        free = np.isin(rank, self.device_ranks)
        if free.any():
            idx = np.flatnonzero(free)
            found = threads.hand_overs(rank[idx], thread[idx], time[idx], own[idx])
            over[idx] = np.where(found >= 0, idx[found], -1)
        over[blocked] = -1
        starts = np.where(first, time, own)
        starts = np.where(over >= 0, time[over], starts)
        starts = np.where(blocked, time, starts)
        self.cut_task = self.add(
            k,
            kind=Kind.HOST,
            rank=rank,
            step=_ints(cut["step"], -1),
            op=self.codes(cut["name"]),
            start_ns=starts,
            end_ns=time,
            release_ns=time,
            pin=np.where(blocked, PIN_START, PIN_END),
            event_id=-1,
            thread=_nth_thread(rank, thread),
        )
        self.edge(np.where(first, -1, np.roll(self.cut_task, 1)), self.cut_task)
        self.edge(np.where(over >= 0, self.cut_task[over], -1), self.cut_task)
        self.cut_key = self.key(thread, time)
        self._unblocks()
        self._asks()
        if (over >= 0).any():
            self.assumptions.append(
                "a host thread silent for over 100 us while another one launched was waiting for "
                "that one"
            )

    def _threads_of_host(self) -> None:
        """Dense codes of (rank, thread), and the thread that called each host collective."""
        host = self.events.filter(pl.col("kind").cast(pl.String).is_in(HOST)).with_columns(
            end_ns=pl.col("start_ns") + pl.col("dur_ns").clip(0),
            thread=pl.col("thread").cast(pl.String).fill_null("?"),
        )
        table = host.select("rank", "thread").unique().sort("rank", "thread")
        self.thread_table = table.with_row_index("code")
        self.host = host.join(self.thread_table, on=["rank", "thread"], how="left").sort(
            "code", "start_ns", "end_ns", descending=[False, False, True]
        )
        on_host = np.flatnonzero(self.p_dev < 0)
        self.h_part = on_host
        part = self.part[on_host].select(
            "rank", "start_ns", "end_ns", "event", pl.int_range(pl.len()).alias("h")
        )
        rows = self.host.select("rank", "code", "start_ns", "end_ns", "event_id", "name")
        mine = (
            part.join(
                rows.select("rank", event="event_id", own="code"), on=["rank", "event"], how="left"
            )
            .unique("h", keep="first")
            .sort("h")
        )
        # A worker thread of the backend holds nothing but the insides of collectives.
        bounds = mine.select("own", "start_ns", "end_ns").drop_nulls().sort("start_ns")
        outer = rows.join(mine.select("own").unique(), left_on="code", right_on="own", how="semi")
        outer = outer.sort("start_ns").join_asof(
            bounds.rename({"start_ns": "c_start", "end_ns": "c_end"}),
            left_on="start_ns",
            right_on="c_start",
            by_left="code",
            by_right="own",
            check_sortedness=False,
        )
        busy = outer.filter(
            pl.col("c_end").is_null() | (pl.col("end_ns") > pl.col("c_end") + 1_000)
        )["code"].unique()
        workers = set(mine["own"].drop_nulls().to_list()) - set(busy.to_list())
        asked = (
            rows.filter(
                ~pl.col("code").is_in(list(workers))
                & pl.col("name").cast(pl.String).str.contains("c10d::")
            )
            .select("rank", "start_ns", asker="code")
            .sort("start_ns")
        )
        mine = mine.sort("start_ns").join_asof(
            asked,
            on="start_ns",
            by="rank",
            tolerance=CALLER_NS,
            check_sortedness=False,
        )
        main = (
            rows.filter(~pl.col("code").is_in(list(workers)))
            .group_by("rank", "code")
            .agg(pl.len())
            .sort("len", "code", descending=[True, False])
            .unique("rank", keep="first", maintain_order=True)
            .select("rank", main="code")
        )
        mine = mine.join(main, on="rank", how="left").sort("h")
        own = pl.when(pl.col("own").is_in(list(workers))).then(None).otherwise(pl.col("own"))
        self.h_thread = _ints(mine.select(t=pl.coalesce(own, "asker", "main"))["t"], -1)
        self.workers = workers

    def _call_cuts(self) -> pl.DataFrame:
        """Launches and synchronisations of ranks with a device."""
        codes = self.thread_table.with_columns(pl.col("thread").cast(pl.String))

        def coded(frame: pl.DataFrame) -> pl.DataFrame:
            frame = frame.with_columns(pl.col("thread").cast(pl.String).fill_null("?"))
            return frame.join(codes, on=["rank", "thread"], how="left", maintain_order="left")

        launching, syncing = coded(self.launching), coded(self.syncing)
        return pl.concat(
            [
                _cuts(launching, "start_ns", order=1, call=pl.col("call").cast(pl.Int64)),
                _cuts(syncing, "start_ns", order=1),
                _cuts(syncing, "end_ns", order=0),
            ]
        )

    def _event_cuts(self) -> pl.DataFrame:
        """Beginnings and ends of every host event of ranks without a device."""
        own = self.part[self.h_part]["event"].to_list()
        rows = self.host.filter(
            ~pl.col("rank").is_in(self.device_ranks.tolist())
            & ~pl.col("code").is_in(list(self.workers))
            & ~pl.col("event_id").is_in(own)
        ).with_row_index("event")
        step_starts = self.steps.select("rank", "host_start_ns").drop_nulls()
        offsets = self.frames["ranks"].select("rank", o=pl.col("clock_offset_ns").fill_null(0))
        step_starts = step_starts.join(offsets, on="rank", how="left").select(
            "rank", start_ns=pl.col("host_start_ns") + pl.col("o").fill_null(0), is_step=True
        )
        rows = rows.join(
            step_starts.unique(), on=["rank", "start_ns"], how="left", maintain_order="left"
        )
        # The annotation of a step says nothing about what ran.
        is_step = pl.col("is_step").fill_null(False) & (
            pl.col("kind").cast(pl.String) == "annotation"
        )
        rows = rows.with_columns(
            label=pl.when(is_step).then(None).otherwise(pl.col("name").cast(pl.String))
        )
        self.host_labels = rows["label"]
        event = pl.col("event").cast(pl.Int64)
        return pl.concat(
            [
                _cuts(rows, "end_ns", order=1, event=event),
                _cuts(rows, "start_ns", order=2, event=event),
            ]
        )

    def _collective_cuts(self) -> pl.DataFrame:
        """Where a host collective ends while its caller does nothing else: a return."""
        rows = self.part[self.h_part].with_columns(
            code=pl.Series(self.h_thread, dtype=pl.Int64), part=pl.Series(self.h_part)
        )
        busy = threads.working(
            _ints(self.host["code"]),
            _ints(self.host["start_ns"]),
            _ints(self.host["end_ns"]),
            self.h_thread,
            self.p_start[self.h_part],
            self.p_end[self.h_part],
        )
        known = self.h_thread >= 0
        asks = rows.filter(pl.Series(known))
        returns = rows.filter(pl.Series(known & ~busy))
        return pl.concat(
            [
                _cuts(asks, "start_ns", order=1),
                _cuts(returns, "end_ns", order=0, part=pl.col("part").cast(pl.Int64)),
            ]
        )

    def _named(self, cut: pl.DataFrame) -> pl.DataFrame:
        """Cuts with the name of the innermost event before each; equal mere moments once."""
        event = _ints(cut["event"], -1)
        inner = threads.innermost(
            _ints(cut["thread"]), _ints(cut["time"]), event, _ints(cut["order"]) == 2
        )
        labels = self.host_labels.to_list()
        kinds = [HOST_GAP, *dict.fromkeys(x for x in labels if x)]
        code_of = {k: i for i, k in enumerate(kinds)}
        label_code = np.array([code_of.get(x, 0) for x in labels] + [0], np.int64)
        names = pl.Series(np.array(kinds, object)[label_code[inner]].tolist(), dtype=pl.String)
        cut = cut.with_columns(name=names)
        mere = (pl.col("call") < 0) & (pl.col("part") < 0) & (pl.col("order") > 0)
        again = (pl.struct("thread", "time") == pl.struct("thread", "time").shift(1)).fill_null(
            False
        )
        return cut.filter(~(mere & again))

    def _unblocks(self) -> None:
        """Edges into returns: the device activity or the collective that was waited for."""
        blocked = _ints(self.cut["order"]) == 0
        part = _ints(self.cut["part"], -1)
        by_part = blocked & (part >= 0)
        self.edge(self.transfer[part[by_part]], self.cut_task[by_part])
        by_device = np.flatnonzero(blocked & (part < 0))
        if not len(by_device) or not len(self.dev):
            return
        order = np.lexsort((self.d_end, self.d_rank))
        ends = self.key(self.d_rank[order], self.d_end[order])
        rank, time = _ints(self.cut["rank"])[by_device], _ints(self.cut["time"])[by_device]
        at = np.searchsorted(ends, self.key(rank, time), "right") - 1
        found = np.where(at >= 0, order[at], -1)
        found = np.where((found >= 0) & (self.d_rank[found] == rank), found, -1)
        self.edge(np.where(found >= 0, self.d_finish[found], -1), self.cut_task[by_device])

    def _asks(self) -> None:
        """Edges from the caller's last cut to the arrival of each host collective."""
        cut = self._last_cut(self.h_thread, self.p_start[self.h_part])
        self.edge(cut, self.arrive[self.h_part])

    def _last_cut(self, thread: np.ndarray, time_ns: np.ndarray) -> np.ndarray:
        """The task of the last cut of a thread by a moment; -1 where there is none."""
        if not len(self.cut):
            return np.full(len(thread), -1, np.int64)
        at = np.searchsorted(self.cut_key, self.key(thread, time_ns), "right") - 1
        same = (at >= 0) & (_ints(self.cut["thread"])[at] == thread) & (thread >= 0)
        return np.where(same, self.cut_task[at], -1)

    def launches(self) -> None:
        """Edges from a launch to what it launched, and the order on each stream."""
        call = _ints(self.cut["call"], -1)
        task_of_call = np.full(len(self.launching) + 1, -1, np.int64)
        task_of_call[call[call >= 0]] = self.cut_task[call >= 0]
        # A clock that puts a kernel before its launch says nothing about the launch.
        sane = (self.d_call >= 0) & (self.d_launch <= self.d_start)
        self.d_launch = np.where(sane, self.d_launch, int(NULL))
        self.edge(np.where(sane, task_of_call[self.d_call], -1), self.d_begin)
        before = self.d_before
        self.edge(np.where(before >= 0, self.d_finish[before], -1), self.d_begin)

    def waits_between_streams(self) -> None:
        """Edges between activities of different streams."""
        n = len(self.dev)
        if not n:
            return
        src, dst = self._recorded_waits()
        told = np.unique(self.d_rank[dst]) if len(dst) else np.empty(0, np.int64)
        src_b, dst_b = self._adjacent_waits()
        keep = ~np.isin(self.d_rank[dst_b], told)
        seen = streams.inferred_waits(
            self.d_rank, self.d_lane, self.d_start, self.d_end, self.d_launch, self.d_before
        )
        dst_c = np.flatnonzero((seen >= 0) & ~np.isin(self.d_rank, told))
        src = np.concatenate([src, src_b[keep], seen[dst_c]])
        dst = np.concatenate([dst, dst_b[keep], dst_c])
        sane = (self.d_end[src] <= self.d_start[dst]) & (src < dst)
        src, dst = src[sane], dst[sane]
        self.edge(self.d_finish[src], self.d_begin[dst])
        # What overlaps its predecessor started once that one could: it waits for the same.
        over = np.flatnonzero(self.d_over >= 0)
        under = self.d_over[over]
        joins = self.d_begin[under] != self.d_finish[under]
        self.edge(np.where(joins, self.d_begin[under], -1), self.d_begin[over])
        order = np.argsort(dst, kind="stable")
        low = np.searchsorted(dst[order], under, "left")
        many = np.searchsorted(dst[order], under, "right") - low
        rows = np.repeat(low, many) + _within(many)
        self.edge(self.d_finish[src[order][rows]], self.d_begin[np.repeat(over, many)])
        if len(dst_b[keep]) or len(dst_c):
            self.assumptions.append(
                "waits between streams are inferred (an event record and a wait side by side; a "
                "start that only another stream's end explains): the trace does not name them"
            )

    def _recorded_waits(self) -> tuple[np.ndarray, np.ndarray]:
        """Waits that `sync` rows name: the record's call, the wait's call and both streams."""
        sync = self.events.filter(
            (pl.col("kind").cast(pl.String) == "sync")
            & pl.col("wait_correlation").is_not_null()
            & pl.col("stream").is_not_null()
            & pl.col("wait_stream").is_not_null()
        )
        none = np.empty(0, np.int64)
        if not len(sync):
            return none, none
        calls = self.runtime.select("rank", "correlation", "start_ns").unique(
            ["rank", "correlation"], keep="first"
        )
        sync = sync.join(
            calls.rename({"correlation": "wait_correlation", "start_ns": "recorded"}),
            on=["rank", "wait_correlation"],
        ).join(calls.rename({"start_ns": "waited"}), on=["rank", "correlation"], how="left")
        sync = sync.with_columns(pl.coalesce("waited", "start_ns").alias("waited"))
        lane = (
            self.dev.select("rank", "stream", "device")
            .with_columns(lane=pl.Series(self.d_lane), launch=pl.Series(self.d_launch))
            .filter(pl.col("launch") != int(NULL))
        )
        lanes = lane.group_by("rank", "stream").agg(pl.col("lane").first())
        sync = sync.join(lanes.rename({"lane": "to"}), on=["rank", "stream"], how="inner").join(
            lanes.rename({"stream": "wait_stream", "lane": "from"}),
            on=["rank", "wait_stream"],
            how="inner",
        )
        known = np.flatnonzero(self.d_launch != int(NULL))
        order = known[np.lexsort((self.d_launch[known], self.d_lane[known]))]
        keys = self.key(self.d_lane[order], self.d_launch[order])
        src = np.searchsorted(keys, self.key(_ints(sync["from"]), _ints(sync["recorded"]))) - 1
        dst = np.searchsorted(keys, self.key(_ints(sync["to"]), _ints(sync["waited"])))
        fine = (src >= 0) & (dst < len(order))
        src, dst = order[src[fine]], order[dst[fine]]
        frm, to = _ints(sync["from"])[fine], _ints(sync["to"])[fine]
        same = (self.d_lane[src] == frm) & (self.d_lane[dst] == to)
        return src[same], dst[same]

    def _adjacent_waits(self) -> tuple[np.ndarray, np.ndarray]:
        """Waits that an event record and a stream wait side by side on a host thread show."""
        first = pl.DataFrame({"call": self.d_call, "dev": np.arange(len(self.dev))}).unique(
            "call", keep="first"
        )
        calls = pl.concat(
            [
                self.launching.select(
                    "rank", "thread", "start_ns", "event_id", pl.col("call").cast(pl.Int64)
                )
                .join(first, on="call", how="left")
                .with_columns(what=0),
                *(
                    self.runtime.filter(pl.col(kind))
                    .select("rank", "thread", "start_ns", "event_id", call=pl.lit(-1, pl.Int64))
                    .with_columns(dev=pl.lit(-1, pl.Int64), what=code)
                    for kind, code in (("records", 1), ("waits", 2))
                ),
            ]
        ).sort("rank", "thread", "start_ns", "event_id")
        thread = _ints(calls.select(pl.struct("rank", "thread").rank("dense"))["rank"])
        return streams.recorded_then_waited(
            thread, _ints(calls["what"]), _ints(calls["dev"]), self.d_lane
        )

    def joins(self) -> None:
        """The join of every instance over the ranks seen, as its operation waits."""
        m = len(self.part)
        self.edge(self.arrive, self.transfer)
        if not m:
            return
        op = self.part["op"].cast(pl.String).to_numpy()
        rooted = self.part["root"].is_not_null().to_numpy()
        at_root = (self.part["root"] == self.part["rank"]).fill_null(False).to_numpy()
        from_root = np.isin(op, FROM_ROOT) & rooted
        to_root = np.isin(op, TO_ROOT) & rooted
        n_instances = int(self.p_instance.max()) + 1
        ready = np.full(n_instances, np.iinfo(np.int64).min)
        np.maximum.at(ready, self.p_instance, self.p_start)
        first = np.full(n_instances, m)
        np.minimum.at(first, self.p_instance, np.arange(m))
        step = _ints(self.part["step"], -1)[first]
        join = self.add(
            n_instances,
            kind=Kind.JOIN,
            rank=-1,
            step=step,
            op=self.blocks[0]["op"][first],
            comm=self.blocks[0]["comm"][first],
            collective=np.arange(n_instances),
            order_ns=ready,
        )
        mine = join[self.p_instance]
        self.edge(np.where(from_root & ~at_root, -1, self.arrive), mine)
        waits = ~(from_root & at_root) & ~(to_root & ~at_root)
        self.edge(np.where(waits, mine, -1), self.transfer)
        # Joined to nobody: the root of the instance was not seen.
        size = _ints(self.part["group_size"], -1)
        seen = np.bincount(self.p_instance, minlength=n_instances)[self.p_instance]
        partial = (size > 0) & (seen < size) & (_ints(self.part["step"], -1) >= 0)
        k = len(np.unique(self.p_instance[partial]))
        if k:
            self.warnings.append(
                f"{k} of {n_instances} collectives were not seen on all their ranks: they join "
                "the ranks seen, and what was spent waiting for the others counts as transfer"
            )

    def marks(self) -> None:
        """Marks of no length where a step begins and ends on a rank."""
        steps = self.steps.drop_nulls(["rank", "step", "start_ns", "end_ns"]).sort("rank", "step")
        if not len(steps):
            steps = self._whole_trace()
        rank, step = _ints(steps["rank"]), _ints(steps["step"])
        begin, end = _ints(steps["start_ns"]), _ints(steps["end_ns"])
        keep = end > begin
        rank, step, begin, end = rank[keep], step[keep], begin[keep], end[keep]
        ids = self.add(
            len(rank),
            kind=Kind.OTHER,
            rank=rank,
            step=step,
            op=self.codes(pl.Series(["step begins"] * len(rank), dtype=pl.String)),
            start_ns=begin,
            end_ns=begin,
            release_ns=begin,
            begins=step,
        )
        self._anchor(ids, rank, begin)
        # A step that ends where the next one begins ends at that one's mark.
        key = self.key(rank, begin)
        order = np.argsort(key, kind="stable")
        at = np.searchsorted(key[order], self.key(rank, end))
        at = np.where(at < len(order), order[np.minimum(at, len(order) - 1)], -1)
        shared = (at >= 0) & (rank[at] == rank) & (begin[at] == end)
        ends = np.full(self.n, NULL, np.int64)
        ends[ids[at[shared]]] = step[shared]
        alone = ~shared
        more = self.add(
            int(alone.sum()),
            kind=Kind.OTHER,
            rank=rank[alone],
            step=step[alone],
            op=self.codes(pl.Series(["step ends"] * int(alone.sum()), dtype=pl.String)),
            start_ns=end[alone],
            end_ns=end[alone],
            release_ns=end[alone],
        )
        self._anchor(more, rank[alone], end[alone])
        self.mark_ends = np.concatenate([ends, step[alone]])

    def _whole_trace(self) -> pl.DataFrame:
        self.warnings.append("the trace marks no steps: the whole of it is taken as step 0")
        spans = pl.concat(
            [
                self.events.filter(pl.col("kind").cast(pl.String).is_in((*DEVICE, *HOST))).select(
                    "rank", "start_ns", end_ns=pl.col("start_ns") + pl.col("dur_ns").clip(0)
                ),
                self.collectives.select("rank", "start_ns", "end_ns"),
            ]
        )
        spans = spans.group_by("rank").agg(pl.col("start_ns").min(), pl.col("end_ns").max())
        return spans.with_columns(step=pl.lit(0, pl.Int64)).sort("rank")

    def _anchor(self, mark: np.ndarray, rank: np.ndarray, time_ns: np.ndarray) -> None:
        """Tie marks to the graph: before the activity that starts then, else after the last end."""
        if not len(mark):
            return
        pred = np.full(len(mark), -1, np.int64)
        best = np.full(len(mark), np.iinfo(np.int64).min)
        starts_here = np.zeros(len(mark), bool)
        if len(self.dev):
            by_start = np.lexsort((np.arange(len(self.dev)), self.d_start, self.d_rank))
            keys = self.key(self.d_rank[by_start], self.d_start[by_start])
            at = np.searchsorted(keys, self.key(rank, time_ns))
            dev = by_start[np.minimum(at, len(by_start) - 1)]
            starts_here = (
                (at < len(by_start)) & (self.d_rank[dev] == rank) & (self.d_start[dev] == time_ns)
            )
            self._before(mark[starts_here], self.d_begin[dev[starts_here]])
            by_end = np.lexsort((np.arange(len(self.dev)), self.d_end, self.d_rank))
            keys = self.key(self.d_rank[by_end], self.d_end[by_end])
            at = np.searchsorted(keys, self.key(rank, time_ns), "right") - 1
            dev = by_end[at]
            fine = (at >= 0) & (self.d_rank[dev] == rank)
            pred = np.where(fine, self.d_finish[dev], pred)
            best = np.where(fine, self.d_end[dev], best)
        if len(self.cut):
            # On a rank with a device the host runs ahead: it bounds a step only where no
            # activity does.
            c_rank, c_time = _ints(self.cut["rank"]), _ints(self.cut["time"])
            order = np.lexsort((np.arange(len(c_rank)), c_time, c_rank))
            keys = self.key(c_rank[order], c_time[order])
            at = np.searchsorted(keys, self.key(rank, time_ns), "right") - 1
            cut = order[at]
            fine = (at >= 0) & (c_rank[cut] == rank) & (best == np.iinfo(np.int64).min)
            pred = np.where(fine, self.cut_task[cut], pred)
        self.edge(np.where(starts_here, -1, pred), mark)

    def _before(self, mark: np.ndarray, task: np.ndarray) -> None:
        """Put each mark in front of a task: it takes over the edges into the task."""
        place = np.full(self.n, -1, np.int64)
        place[task] = mark
        self.edges = [(src, np.where(place[dst] >= 0, place[dst], dst)) for src, dst in self.edges]
        self.edge(mark, task)

    # -- the whole ---------------------------------------------------------------------------

    def finish(self) -> ReplayJob:
        """Order, gaps and facts."""
        neutral = {"event_id": -1, "group_size": -1, "algo": -1, "begins": int(NULL), "pin": 0}
        neutral["thread"] = -1
        columns = {
            name: self._column(name, neutral.get(name, default))
            for name, default in (
                ("kind", int(Kind.OTHER)), ("rank", -1), ("step", -1), ("op", -1), ("comm", -1),
                ("collective", -1), ("bytes", 0), ("start_ns", int(NULL)),
                ("end_ns", int(NULL)), ("dur_ns", 0), ("release_ns", 0),
            )
        }  # fmt: skip
        extra = {name: self._column(name, value) for name, value in neutral.items()}
        extra["ends"] = np.full(self.n, NULL, np.int64)
        extra["ends"][: len(self.mark_ends)] = self.mark_ends
        order = self._column("order_ns", int(NULL))
        order = np.where(order == NULL, columns["start_ns"], order)
        none = np.empty(0, np.int64)
        src = np.concatenate([none, *(s for s, _ in self.edges)])
        dst = np.concatenate([none, *(d for _, d in self.edges)])
        # A source that is no host cut nor mark starts when it did.
        columns["release_ns"] = np.where(
            (columns["release_ns"] == 0) & (columns["start_ns"] != NULL),
            columns["start_ns"],
            columns["release_ns"],
        )
        graph = self._ordered(src, dst, order, columns, extra)
        pin = graph.extra.pop("pin").astype(np.int8)
        graph, late = fill(graph, pin)
        self._say_late(graph, late)
        graph.extra["like"] = _likeness(graph)
        return ReplayJob(
            graph=graph,
            job=self.job,
            facts={
                **{k: v for k, v in self.frames.items() if k != "events"},
                "source": "kineto",
                "late_ns": late,
            },
            assumptions=tuple(self.assumptions),
            warnings=tuple(self.warnings),
        )

    def _column(self, name: str, default: int) -> np.ndarray:
        return np.concatenate(
            [
                np.empty(0, np.int64),
                *(
                    b[name] if name in b else np.full(len(b["kind"]), default, np.int64)
                    for b in self.blocks
                ),
            ]
        ).astype(np.int64)

    def _ordered(self, src, dst, order, columns, extra) -> TaskGraph:
        """The graph; instances whose joins go round in a circle are taken apart, and said."""
        apart = 0
        joins = columns["kind"] == Kind.JOIN
        while True:
            try:
                graph, _ = build_graph(
                    self.n, src, dst, order_ns=order, op_names=tuple(self.names),
                    comm_names=tuple(self.comm_names), extra=extra, **columns,
                )  # fmt: skip
                break
            except GraphCycle as e:
                stuck = np.unique(columns["collective"][[t for t in e.tasks if joins[t]]])
                if not len(stuck):
                    raise
                apart += len(stuck)
                off = joins[src] & np.isin(columns["collective"][src], stuck)
                src, dst = src[~off], dst[~off]
        if apart:
            self.warnings.append(
                f"{apart} collectives wait for each other in a circle (clocks or matching are "
                "wrong): they were not joined"
            )
        return graph

    def _say_late(self, graph: TaskGraph, late: np.ndarray) -> None:
        worst = int(late.max(initial=0))
        measured = graph.start_ns != NULL
        if worst <= 0 or not measured.any():
            return
        span = int(graph.end_ns[measured].max() - graph.start_ns[measured].min())
        if worst > max(100_000, span // 1000):
            self.warnings.append(
                f"{int((late > 0).sum())} tasks end later than measured, by up to "
                f"{worst / 1e6:.3f} ms: a rank seems to leave a collective before the last one "
                "came; check clocks and matching"
            )


def _nth_thread(rank: np.ndarray, thread: np.ndarray) -> np.ndarray:
    """0 for cuts of a rank's first thread, 1 for its second, ... (threads numbered by rank)."""
    first = np.full(int(rank.max(initial=0)) + 1, np.iinfo(np.int64).max)
    np.minimum.at(first, rank, thread)
    return thread - first[rank]


def _likeness(graph: TaskGraph) -> np.ndarray:
    """Codes of tasks that should take the same: the k-th of an operation in a step, by rank.

    Host segments are counted by thread (the first, second, ... that a rank's calls came from).
    """
    by = (graph.rank, graph.step, graph.kind, graph.op, graph.extra["thread"])
    order = np.lexsort((graph.start_ns, *by))
    changes = np.zeros(graph.n, bool)
    for column in by:
        changes[1:] |= column[order][1:] != column[order][:-1]
    changes[:1] = True
    first = np.flatnonzero(changes)
    place = np.empty(graph.n, np.int64)
    place[order] = _within(np.diff(first, append=graph.n))
    frame = pl.DataFrame({"s": graph.step, "k": graph.kind, "o": graph.op, "t": by[-1], "p": place})
    return _ints(frame.select(pl.struct(pl.all()).rank("dense")).to_series())


def _aligned(frame: pl.DataFrame, offsets: pl.DataFrame, *columns: str) -> pl.DataFrame:
    frame = frame.join(offsets, on="rank", how="left", maintain_order="left")
    shift = pl.col("offset").fill_null(0)
    return frame.with_columns([pl.col(c) + shift for c in columns]).drop("offset")


def _ints(series: pl.Series, null: int = 0) -> np.ndarray:
    return series.cast(pl.Int64).fill_null(null).to_numpy()


def _codes(text: pl.Series, kinds: list[str]) -> np.ndarray:
    return text.cast(pl.Enum(kinds)).to_physical().cast(pl.Int64).to_numpy()


def _within(counts: np.ndarray) -> np.ndarray:
    """0, 1, ..., c-1 for each count c in turn."""
    ends = np.cumsum(counts)
    return np.arange(ends[-1] if len(ends) else 0) - np.repeat(ends - counts, counts)


def _cuts(
    rows: pl.DataFrame,
    time: str,
    *,
    order: int,
    call: pl.Expr | None = None,
    event: pl.Expr | None = None,
    part: pl.Expr | None = None,
) -> pl.DataFrame:
    """Cuts at the times of a column: `order` 0 return, 1 moment or end, 2 beginning."""
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


def _algorithms(part: pl.DataFrame, comms: pl.DataFrame | None) -> pl.Series:
    """The algorithm of each participation: what the source says, gloo's ring, else `?`."""
    algo = part["algo"].cast(pl.String).str.to_lowercase()
    if comms is None or "backend" not in comms.columns or not len(comms):
        return algo
    gloo = comms.filter(pl.col("backend").cast(pl.String).str.contains("gloo"))["comm"]
    is_gloo = part["comm"].cast(pl.String).is_in(gloo.cast(pl.String).to_list()).fill_null(False)
    return (
        pl.DataFrame({"algo": algo, "gloo": is_gloo})
        .select(pl.when("gloo").then(pl.coalesce("algo", pl.lit("ring"))).otherwise("algo"))
        .to_series()
    )
