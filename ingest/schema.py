"""Every table of the warehouse, declared once: Arrow schema, DuckDB view and manual follow."""

from __future__ import annotations

import hashlib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any, NamedTuple

import pyarrow as pa

from .values import MAX_RANK

TEXT = pa.dictionary(pa.int32(), pa.string())
"""Names that repeat: stored as dictionary codes, read by DuckDB and Polars as strings."""

I64 = pa.int64()
I32 = pa.int32()
F64 = pa.float64()
BOOL = pa.bool_()

_SPACE_BIT = 1 << 39
_SPACE_SHIFT = 34
SPACES = ("nsys", "nccl-log", "inspector", "profiler", "flight-recorder", "execution-trace",
          "chakra", "param", "rocprof", "ascend", "nsys-recipe", "nsys-stats")  # fmt: skip
"""Sources that may describe a rank beside its Kineto trace: each has event ids of its own."""


def event_id(rank: int, space: str, n: int) -> int:
    """The id of the n-th row that a source of one of `SPACES` gives for a rank.

    Kineto's ids are rank << 40 | byte offset; these have bit 39 set, so the two never meet. `n`
    wraps at 2^34. Raises ValueError for an unknown space, and for a rank that is none.
    """
    if not 0 <= rank <= MAX_RANK:
        raise ValueError(f"a rank is 0 to {MAX_RANK}, not {rank}")
    place = SPACES.index(space) << _SPACE_SHIFT
    return (rank << 40) | _SPACE_BIT | place | (n & ((1 << _SPACE_SHIFT) - 1))


def _array(values: Any, kind: pa.DataType) -> pa.Array:
    """An array of the values; half characters, which strangers' texts may have, are replaced."""
    try:
        return pa.array(values, type=kind)
    except UnicodeEncodeError:
        sound = [v.encode("utf-8", "replace").decode() if isinstance(v, str) else v for v in values]
        return pa.array(sound, type=kind)


class Column(NamedTuple):
    """One column: Arrow type, unit ("" where it has none) and one sentence of meaning."""

    name: str
    type: pa.DataType
    unit: str
    meaning: str


@dataclass(frozen=True, eq=False)
class Table:
    """One table: what a row is, its columns, and the columns its files are sorted by."""

    name: str
    row: str
    columns: tuple[Column, ...]
    sort: tuple[str, ...] = ()
    derived: bool = False
    """True where the rows depend on all sources of a job and are rewritten after each ingest."""
    computed: bool = False
    """True where only a replay of the job gives the rows: no source has any (`ingest.kept`)."""
    made: bool = False
    """True where the rows are those of a view, for that view alone (`ingest.made`)."""

    @cached_property
    def schema(self) -> pa.Schema:
        """The Arrow schema of the table's files (`job` is the hive partition, not a column)."""
        return pa.schema([(c.name, c.type) for c in self.columns])

    @cached_property
    def empty(self) -> pa.Table:
        """The table without rows: made once, as each of its columns takes a while."""
        return self.schema.empty_table()

    @cached_property
    def fingerprint(self) -> str:
        """Short text that changes with the names and types of the columns."""
        said = ";".join(f"{c.name} {c.type}" for c in self.columns)
        return hashlib.sha256(said.encode()).hexdigest()[:8]

    def batch(self, data: Mapping[str, Any]) -> pa.RecordBatch:
        """A batch with this table's schema from columns by name; those not given are null.

        Raises KeyError for a column that the table does not have.
        """
        unknown = set(data) - {c.name for c in self.columns}
        if unknown:
            raise KeyError(f"table {self.name} has no column {sorted(unknown)}")
        n = max((len(v) for v in data.values()), default=0)
        arrays = []
        for c in self.columns:
            v = data.get(c.name)
            if v is None:
                v = pa.nulls(n, c.type)
            elif not isinstance(v, pa.Array):
                v = _array(v, c.type)
            elif v.type != c.type:
                v = v.cast(c.type)
            arrays.append(v)
        return pa.RecordBatch.from_arrays(arrays, schema=self.schema)


RANK = Column("rank", I32, "", "global rank")
START = Column("start_ns", I64, "ns", "start, in the clock of the rank's host")
END = Column("end_ns", I64, "ns", "end, in the clock of the rank's host")

JOBS = Table(
    "jobs",
    "a job: one training run that left traces",
    (
        Column("world_size", I32, "ranks", "ranks the job says it had; null where no source says"),
        Column("ranks_seen", I32, "ranks", "ranks that left a trace here"),
        Column("framework", TEXT, "", "what wrote the traces (kineto, recorded, ...)"),
        Column("sources", I32, "files", "source files ingested"),
        Column("created_at_ns", I64, "ns", "first ingest, Unix epoch"),
        Column("tool_version", TEXT, "", "retime version that wrote the newest part"),
        Column(
            "clocks", TEXT, "", "one-host, aligned, partly-aligned, unaligned, recorded, untimed"
        ),
    ),
    derived=True,
)

RANKS = Table(
    "ranks",
    "a rank",
    (
        RANK,
        Column("host", TEXT, "", "machine the rank ran on"),
        Column("host_source", TEXT, "", "recorded, inferred (from devices and ranks) or unknown"),
        Column("local_rank", I32, "", "GPU within the host"),
        Column("device", I32, "", "device index in the trace"),
        Column("n_devices", I32, "devices", "devices the process saw"),
        Column("device_name", TEXT, "", "model of the device"),
        Column("n_sms", I32, "SMs", "streaming multiprocessors of the device"),
        Column("rail", I32, "", "rail of the rank's NIC; null where unknown"),
        Column("stage", I32, "", "pipeline stage, where the source says"),
        Column("dp_rank", I32, "", "data-parallel rank, where the source says"),
        Column("world_size", I32, "ranks", "world size the source says"),
        Column("start_ns", I64, "ns", "first event, in the host's clock"),
        Column("end_ns", I64, "ns", "end of the last event, in the host's clock"),
        Column("clock_offset_ns", I64, "ns", "added to the host's clock to give the job's"),
        Column("clock_drift_ppm", F64, "ppm", "drift against the job's clock"),
        Column("clock_error_ns", I64, "ns", "error of the offset; null where nothing ties it"),
        Column(
            "clock",
            TEXT,
            "",
            "host (its epoch), boot (the host's, since it started), process (a zero of its own), "
            "recorded, or none (untimed)",
        ),
        Column("pid", I64, "", "process id on the host"),
        Column("source", TEXT, "", "source files, the one with the timeline first"),
    ),
    derived=True,
)

STEPS = Table(
    "steps",
    "a training iteration on a rank",
    (
        RANK,
        Column("step", I64, "", "iteration number"),
        Column(
            "start_ns",
            I64,
            "ns",
            "where the step's work began on the GPU (its first launch's kernel); "
            "the annotation's start where the rank has no GPU work",
        ),
        Column("end_ns", I64, "ns", "where the next step's work began, or this one's ended"),
        Column(
            "host_start_ns",
            I64,
            "ns",
            "start of the annotation on the host thread; for inferred steps the end of the "
            "optimizer's run before, by its launches",
        ),
        Column("host_end_ns", I64, "ns", "end of the same; null where launches are not known"),
        Column("found_by", TEXT, "", "annotation, recorded or inferred (`ingest.steps`)"),
    ),
    ("start_ns",),
    derived=True,
)

EVENTS = Table(
    "events",
    "a kernel, copy, host operation, runtime call or annotation",
    (
        RANK,
        Column("event_id", I64, "", "unique in the job: rank, then byte offset in its source"),
        Column(
            "kind",
            TEXT,
            "",
            "kernel, memcpy, memset, host_op, runtime, sync, annotation, gpu_annotation, "
            "python, instant, overhead or other",
        ),
        Column("name", TEXT, "", "name in the trace"),
        Column("stream", I64, "", "stream of the device; null off the device"),
        Column("device", I32, "", "device index; null off the device"),
        Column("thread", TEXT, "", "host thread; null on the device"),
        START,
        Column("dur_ns", I64, "ns", "duration"),
        Column("correlation", I64, "", "joins a launch and what it launched"),
        Column("external_id", I64, "", "joins an operator and its launches"),
        Column(
            "category",
            TEXT,
            "",
            "what a kernel does, by its name: gemm, conv, attention, norm, ..., comm, copy; "
            "unknown where no pattern fits (macro kernel_class has their classes)",
        ),
        Column("grid_blocks", I64, "blocks", "thread blocks of a kernel's grid"),
        Column("block_threads", I32, "threads", "threads a block"),
        Column("bytes", I64, "bytes", "bytes copied or set"),
        Column("wait_stream", I64, "", "sync rows: stream that is waited for"),
        Column(
            "wait_correlation", I64, "", "sync rows: correlation of the event record waited for"
        ),
        Column("step", I64, "", "step that launched it; null outside steps"),
    ),
    ("start_ns",),
)

COMMS = Table(
    "comms",
    "a communicator (process group)",
    (
        Column("comm", TEXT, "", "identity: name and members"),
        Column("name", TEXT, "", "name in the trace"),
        Column("description", TEXT, "", "description in the trace"),
        Column("ranks", pa.list_(I32), "", "members in order; null where not known"),
        Column("size", I32, "ranks", "number of members"),
        Column("dim", TEXT, "", "dp, tp, pp, ep, cp, fsdp, world or unknown"),
        Column(
            "dim_source",
            TEXT,
            "",
            "how dim was found: set by user, description, recorded, degrees, members, operations, "
            "size+stride or none",
        ),
        Column("dim_reason", TEXT, "", "what dim rests on; for unknown ones what they might be"),
        Column("backend", TEXT, "", "nccl, gloo, ..."),
        Column("member", I32, "", "in a source's own rows: the rank that says this; else null"),
        Column("member_place", I32, "", "in a source's own rows: that rank's place in it"),
    ),
    derived=True,
)

COLLECTIVES = Table(
    "collectives",
    "a participation: one rank's part in a collective",
    (
        Column("comm", TEXT, "", "communicator; null where nothing names it"),
        Column("seq", I64, "", "sequence number on the communicator, from the source"),
        Column("collective_id", I64, "", "the same on all ranks of one collective"),
        Column("match", TEXT, "", "exact (by sequence number), order, or partial"),
        RANK,
        Column(
            "op",
            TEXT,
            "",
            "all_reduce, all_gather, reduce_scatter, all_to_all, broadcast, reduce, gather, "
            "scatter, send, recv, send_recv, barrier or unknown",
        ),
        Column("dtype", TEXT, "", "element type"),
        Column("in_bytes", I64, "bytes", "input of this rank"),
        Column("out_bytes", I64, "bytes", "output of this rank"),
        Column("group_size", I32, "ranks", "size of the communicator"),
        Column("root", I32, "", "global rank of the root of a rooted operation"),
        Column("peer", I32, "", "global rank of the other end of a send or recv"),
        Column("in_splits", pa.list_(I64), "rows", "uneven all-to-all: rows sent to each member"),
        Column("out_splits", pa.list_(I64), "rows", "uneven all-to-all: rows got from each"),
        Column("algo", TEXT, "", "ring, tree, ... where the source says"),
        Column("proto", TEXT, "", "LL, LL128, Simple where the source says"),
        Column("channels", I32, "", "channels (blocks) where the source says"),
        START,
        END,
        Column("stream", I64, "", "stream (or null on the host)"),
        Column("step", I64, "", "step that launched it; null outside steps"),
        Column("event_id", I64, "", "row of `events` that carries it"),
        Column("coalesced", I32, "", "operations that share this kernel, if more than one"),
        Column("exec_ns", I64, "ns", "duration, from a source that gives no start"),
        Column("enqueued_ns", I64, "ns", "when the host enqueued it, in the host's clock"),
        Column("state", TEXT, "", "scheduled, started or completed, where the source says"),
        Column(
            "timing",
            TEXT,
            "",
            "what took the time: kernel, host, proxy, watchdog; null where there is none",
        ),
        Column(
            "clock",
            TEXT,
            "",
            "host, boot or process, as in `ranks`; null where untimed",
        ),
        Column("record_function", I64, "", "joins an execution trace's node and the profiler's"),
        Column(
            "source",
            TEXT,
            "",
            "kind of source (kineto, nsys, ...); joined ones as a+b, the one with the time first",
        ),
    ),
    ("start_ns",),
    derived=True,
)

PROGRESS = Table(
    "progress",
    "how far a rank had come on a communicator when it was asked, by its own counts",
    (
        RANK,
        Column("comm", TEXT, "", "communicator; null where only the group's number is known"),
        Column("group_id", I64, "", "number of the group within the rank's process"),
        Column("last_enqueued", I64, "", "sequence number that the host enqueued last"),
        Column("last_started", I64, "", "sequence number that was last seen to start"),
        Column("last_completed", I64, "", "sequence number that was last seen to complete"),
        Column("source", TEXT, "", "kind of source"),
    ),
)

TRANSFERS = Table(
    "transfers",
    "bytes on a link",
    (
        RANK,
        Column("host", TEXT, "", "machine"),
        Column("nic", TEXT, "", "network interface"),
        Column("rail", I32, "", "rail"),
        Column("plane", I32, "", "plane of the NIC"),
        Column("channel", I32, "", "channel of the collective"),
        Column("peer_rank", I32, "", "rank at the other end"),
        Column("bytes", I64, "bytes", "bytes carried"),
        START,
        END,
        Column("collective_id", I64, "", "collective it belongs to"),
        Column("event_id", I64, "", "the participation's, in the source that says this"),
        Column("direction", TEXT, "", "send or recv, seen from the rank"),
        Column("traffic_class", TEXT, "", "collective, storage or other"),
        Column("measured", BOOL, "", "true where a counter said it, false where derived"),
        Column("via", TEXT, "", "transport: NET/IB, NET/Socket, P2P/IPC, SHM, NVLS, ..."),
        Column(
            "clock",
            TEXT,
            "",
            "host, boot or process, as in `ranks`; null where untimed",
        ),
        Column("source", TEXT, "", "kind of source"),
    ),
    ("start_ns",),
    derived=True,
)

ROUTING = Table(
    "routing",
    "tokens that one rank routed to one expert",
    (
        Column("step", I64, "", "step (or forward pass); null where the source has none"),
        Column("microbatch", I32, "", "microbatch of the step, by order in the source"),
        Column("block", TEXT, "", "decoder, mtp, ... where the source says"),
        Column("layer", I32, "", "layer"),
        Column("rank", I32, "", "global rank of the tokens; null for a sum over all ranks"),
        Column("expert", I32, "", "logical expert; null where only the physical one is known"),
        Column("physical_expert", I32, "", "physical expert (a replica), where the source says"),
        Column("expert_rank", I32, "", "rank that holds the expert"),
        Column("tokens", I64, "tokens", "tokens routed"),
        Column("weight_sum", F64, "", "sum of gate weights"),
        Column("token_class", TEXT, "", "real, padding (fake tokens) or dropped"),
        Column("source", TEXT, "", "kind of source"),
    ),
    ("step", "layer"),
)

COUNTERS = Table(
    "counters",
    "a sample of a counter",
    (
        RANK,
        Column("host", TEXT, "", "machine"),
        Column("device", TEXT, "", "device"),
        Column("name", TEXT, "", "name of the counter"),
        Column("time_ns", I64, "ns", "time of the sample, in the host's clock"),
        Column("value", F64, "", "value, in the counter's own unit"),
    ),
    ("time_ns",),
)

TOPOLOGY = Table(
    "topology",
    "a link or device of a host",
    (
        Column("host", TEXT, "", "machine"),
        Column("device", TEXT, "", "device"),
        Column("kind", TEXT, "", "gpu, nic, nvlink, pci, cpu, ..."),
        Column("peer", TEXT, "", "other end of a link"),
        Column("bandwidth_bytes_per_s", I64, "bytes/s", "bandwidth, one direction"),
        Column("rail", I32, "", "rail"),
        Column("plane", I32, "", "plane"),
        Column("numa", I32, "", "NUMA node"),
        RANK,
        Column("peer_rank", I32, "", "global rank at the other end"),
        Column("comm", TEXT, "", "communicator that uses the link"),
        Column("channel", I32, "", "channel of the communicator"),
        Column("via", TEXT, "", "transport or interconnect: NET/IB, P2P/IPC, NVLink, PCIe, ..."),
        Column("count", I32, "", "links side by side (bandwidth is of all of them)"),
        Column("source", TEXT, "", "kind of source"),
    ),
)

TUNING = Table(
    "tuning",
    "an algorithm and protocol that the communication library chose for a size",
    (
        RANK,
        Column("comm", TEXT, "", "communicator, where the source says"),
        Column("op", TEXT, "", "operation, as in collectives"),
        Column("bytes", I64, "bytes", "size that the library was asked for"),
        Column("algo", TEXT, "", "ring, tree, nvls, nvls_tree, collnet_direct, ..."),
        Column("proto", TEXT, "", "LL, LL128 or Simple"),
        Column("channels", I32, "", "channels chosen"),
        Column("n_ranks", I32, "ranks", "size of the communicator"),
        Column("predicted_ns", I64, "ns", "time that the library's own model expected"),
        Column("count", I64, "", "times chosen"),
        Column("source", TEXT, "", "kind of source"),
    ),
)

COST_CURVES = Table(
    "cost_curves",
    "a measured cost of a collective at one size, from a benchmark",
    (
        Column("op", TEXT, "", "operation, as in collectives"),
        Column("bytes", I64, "bytes", "size as the benchmark counts it (the whole buffer)"),
        Column("n_ranks", I32, "ranks", "ranks that took part"),
        Column("n_hosts", I32, "hosts", "machines that took part"),
        Column("dtype", TEXT, "", "element type"),
        Column("redop", TEXT, "", "reduction"),
        Column("in_place", BOOL, "", "input and output share a buffer"),
        Column("time_ns", I64, "ns", "time of one operation"),
        Column("algbw_bytes_per_s", I64, "bytes/s", "size over time, as the benchmark printed it"),
        Column("busbw_bytes_per_s", I64, "bytes/s", "bus bandwidth, as the benchmark printed it"),
        Column("n_wrong", I64, "", "wrong elements; null where not checked"),
        Column("algo", TEXT, "", "algorithm, where the run says"),
        Column("proto", TEXT, "", "protocol, where the run says"),
        Column("channels", I32, "", "channels, where the run says"),
        Column("library", TEXT, "", "library and version, where the run says"),
        Column("device_name", TEXT, "", "model of the device, where the run says"),
        Column("tool", TEXT, "", "nccl-tests, rccl-tests, ..."),
        Column("run", TEXT, "", "run within its source: tables of one file stay apart"),
    ),
    ("op", "bytes"),
)

GRAPH_NODES = Table(
    "graph_nodes",
    "an operation of an execution graph: what depends on what, mostly without time",
    (
        RANK,
        Column("node_id", I64, "", "id in its source"),
        Column("name", TEXT, "", "name"),
        Column("kind", TEXT, "", "compute, collective, send, recv, memory, metadata or other"),
        Column("parent", I64, "", "node that called it"),
        Column("data_deps", pa.list_(I64), "", "nodes whose output it reads"),
        Column("ctrl_deps", pa.list_(I64), "", "nodes that must come before it"),
        Column("thread", TEXT, "", "host thread"),
        Column("start_ns", I64, "ns", "start, where the source has one"),
        Column("dur_ns", I64, "ns", "duration, where the source has one"),
        Column("comm", TEXT, "", "communicator"),
        Column("op", TEXT, "", "operation, as in collectives"),
        Column("bytes", I64, "bytes", "bytes communicated or moved"),
        Column("record_function", I64, "", "joins the node and the profiler's events"),
        Column("source", TEXT, "", "kind of source"),
    ),
)

CONFIGURATIONS = Table(
    "configurations",
    "a training configuration with its measured iteration time",
    (
        Column("model", TEXT, "", "model or its dimensions"),
        Column("n_gpus", I32, "GPUs", "devices"),
        Column("tp", I32, "", "tensor-parallel degree"),
        Column("dp", I32, "", "data-parallel degree"),
        Column("pp", I32, "", "pipeline degree"),
        Column("global_batch", I32, "sequences", "global batch"),
        Column("micro_batch", I32, "sequences", "micro-batch"),
        Column("hidden", I32, "", "hidden size"),
        Column("heads", I32, "", "attention heads"),
        Column("layers", I32, "", "layers"),
        Column("seq_len", I32, "tokens", "sequence length"),
        Column("step_ns", I64, "ns", "measured time of an iteration"),
        Column("source", TEXT, "", "kind of source"),
    ),
)

PROBLEMS = Table(
    "problems",
    "something odd in the input, with how often it was seen",
    (
        Column("source", TEXT, "", "source file (and member of an archive)"),
        RANK,
        Column("severity", TEXT, "", "lost (input was lost), warning (doubtful) or info"),
        Column("code", TEXT, "", "short name of the problem"),
        Column("offset", I64, "bytes", "byte in the decompressed stream, or row, of the first"),
        Column("message", pa.string(), "", "what was found, and what to do"),
        Column("count", I64, "", "times seen"),
    ),
)

_COMPUTED = (
    "; computed by a replay of the job when a query of one job first asks (seconds, for millions "
    "of events a minute or more), then kept in the job; of several jobs: what is kept; "
    "none for a job without steps, and where it cannot be replayed: see problems"
)

REPLAY_SCORES = Table(
    "replay_scores",
    "a rank: what its own slowness costs the job's step, by replay" + _COMPUTED,
    (
        RANK,
        Column(
            "score_ns",
            I64,
            "ns",
            "mean over steps of the replayed step less the step with this rank's own work (its "
            "kernels, copies and host time, and longer delays before them) as the median rank's; "
            "negative where the median rank is slower; 0 where the rank was never last; null "
            "where no collective joins it with another rank",
        ),
        Column("low_ns", I64, "ns", "score, 2.5 % of a bootstrap over steps (of two: the least)"),
        Column("high_ns", I64, "ns", "score, 97.5 % of it (of two steps: the greatest)"),
        Column("step_ns", I64, "ns", "the step of the unchanged replay, mean over steps"),
        Column(
            "how", TEXT, "", "replay, never last (not replayed), or joined with no rank (unknown)"
        ),
    ),
    computed=True,
)

CRITICAL_PATH = Table(
    "critical_path",
    "a piece of the chain of tasks, across ranks, that sets a step's time" + _COMPUTED,
    (
        Column("step", I64, "", "iteration number"),
        Column("position", I32, "", "0 for the first piece of the step; each begins where the "
               "one before ended, and they add up to the replayed step of the rank on which it "
               "ends last"),
        Column("rank", I32, "", "global rank; null for a time that is no rank's own"),
        Column("class", TEXT, "", "work (kernels, copies, named host operations), host (between "
               "calls), transfer, or unexplained (a gap behind all that the task waited for)"),
        Column("kind", TEXT, "", "compute, copy, host, arrive, join, transfer or other; of an "
               "unexplained piece that of the task behind it"),
        Column("name", TEXT, "", "kernel, operation or call; 'host gap': time between calls"),
        Column("event_id", I64, "", "row of `events`; null where the piece is no event's"),
        Column("collective_id", I64, "", "the collective, as in `collectives`"),
        Column("start_ns", I64, "ns", "start in the unchanged replay, in the job's clock"),
        Column("end_ns", I64, "ns", "end in the unchanged replay, in the job's clock"),
        Column("dur_ns", I64, "ns", "end less start"),
    ),
    ("step", "position"),
    computed=True,
)  # fmt: skip

SLACK = Table(
    "slack",
    "tasks of one name on a rank in a step: how much later they could end" + _COMPUTED,
    (
        Column("step", I64, "", "iteration number"),
        RANK,
        Column("kind", TEXT, "", "compute, copy, host, arrive (at a collective) or transfer"),
        Column("name", TEXT, "", "kernel, operation or call; 'host gap': time between calls"),
        Column("tasks", I64, "", "tasks of that name"),
        Column("dur_ns", I64, "ns", "their durations, added up"),
        Column(
            "slack_ns",
            I64,
            "ns",
            "the least of them: so much later that one could end, all else as it was, with no "
            "step of the job ending later (on the rank on which it ends last)",
        ),
        Column("median_slack_ns", I64, "ns", "the median of them"),
        Column("critical", I64, "", "those without any slack: on a critical path"),
        Column("event_id", I64, "", "row of `events` of the one with the least; null for none"),
    ),
    ("step", "rank"),
    computed=True,
)

_MADE_STEP = Column("step", I64, "", "step; null outside steps")
_MADE_CLASS = Column("class", TEXT, "", "class of time")

MADE_PARTICIPATIONS = Table(
    "_made_participations",
    "a participation with what its collective has in common, on the job's clock",
    (
        _MADE_STEP,
        Column("collective_id", I64, "", "the same on all ranks of one collective"),
        Column("comm", TEXT, "", "communicator"),
        Column("dim", TEXT, "", "parallel dimension"),
        Column("op", TEXT, "", "operation"),
        Column("bytes", I64, "bytes", "message size of the collective"),
        RANK,
        Column("host", TEXT, "", "machine"),
        Column("clock", TEXT, "", "ranks with the same one can be compared; null where untimed"),
        START,
        END,
        Column("ready_ns", I64, "ns", "moment from which it could have finished"),
        Column("root_start_ns", I64, "ns", "start of the root"),
        Column("shortest_ns", I64, "ns", "shortest duration over the ranks"),
        Column("median_start_ns", I64, "ns", "median start, where its ranks are compared"),
        Column("clock_error_ns", I64, "ns", "error of the clocks"),
        Column("last_rank", I32, "", "rank that started last"),
        Column("n_ranks", I32, "ranks", "members"),
        Column("n_seen", I32, "ranks", "members that were seen"),
        Column("n_timed", I32, "ranks", "members that were timed"),
        Column("n_comparable", I32, "ranks", "members on a comparable clock"),
        Column("match", TEXT, "", "exact, order or partial"),
        Column("event_id", I64, "", "row of events"),
        Column("timed", BOOL, "", "a source timed it"),
        Column("decides", BOOL, "", "counts for the time of its kernel"),
        Column("ready_known", BOOL, "", "all that decide ready were seen"),
        Column("wait_known", BOOL, "", "something says what part is wait"),
    ),
    derived=True,
    made=True,
)

MADE_LATENESS = Table(
    "_made_lateness",
    "a collective of which several ranks were seen on one clock",
    (
        Column("collective_id", I64, "", "the same on all ranks of one collective"),
        Column("clock", TEXT, "", "clock of the ranks"),
        Column("comm", TEXT, "", "communicator"),
        Column("paired", BOOL, "", "point-to-point"),
        Column("last_rank", I32, "", "rank that started last"),
        Column("n_comparable", I32, "ranks", "members compared"),
        Column("behind_ns", I64, "ns", "last start behind the last but one"),
        Column("behind_median_ns", I64, "ns", "last start behind the median"),
        Column("median_start_ns", I64, "ns", "median start"),
        Column("clock_error_ns", I64, "ns", "error of the clocks"),
        Column("sure", BOOL, "", "last by more than the clock error"),
        Column("caused_ns", I64, "ns", "part of the others' wait that it caused"),
    ),
    derived=True,
    made=True,
)

MADE_LATE_RANKS = Table(
    "_made_late_ranks",
    "a rank that could be compared, and how often it was the last: view `late_ranks`",
    (
        RANK,
        Column("host", TEXT, "", "machine"),
        Column("collectives", I64, "collectives", "those in which it could be compared"),
        Column("times_last", I64, "collectives", "those in which it started last"),
        Column("wait_caused_ns", I64, "ns", "wait of the others that this caused"),
        Column("wait_ns", I64, "ns", "its own waits in them"),
        Column("median_lateness_ns", I64, "ns", "its start behind the median start"),
        Column("times_within_error", I64, "collectives", "last by less than the clock error"),
    ),
    derived=True,
    made=True,
)

MADE_INSTANCES = Table(
    "_made_instances",
    "a matched collective with what its participations come to, on the job's clock",
    (
        Column("collective_id", I64, "", "the same on all ranks of one collective"),
        _MADE_STEP,
        Column("comm", TEXT, "", "communicator"),
        Column("dim", TEXT, "", "parallel dimension"),
        Column("op", TEXT, "", "operation"),
        Column("bytes", I64, "bytes", "message size"),
        Column("n_ranks", I32, "ranks", "members"),
        Column("n_seen", I32, "ranks", "members that were seen"),
        Column("match", TEXT, "", "exact, order or partial"),
        Column("first_start_ns", I64, "ns", "first start"),
        Column("ready_ns", I64, "ns", "last start, or the root's, whatever the clocks"),
        Column("end_ns", I64, "ns", "last end"),
        Column("wait_ns", I64, "ns", "waits between ranks on one clock, added up"),
        Column("n_clocks", I32, "clocks", "sets of ranks whose clocks cannot be compared"),
        Column("last_rank", I32, "", "greatest of the ranks that started last on their clocks"),
        Column("skew_ns", I64, "ns", "last start less first start, whatever the clocks"),
        Column("clock_error_ns", I64, "ns", "greatest error of the clocks"),
        Column("wait_known", BOOL, "", "something says what part is wait; null where untimed"),
    ),
    derived=True,
    made=True,
)

MADE_BREAKDOWN = Table(
    "_made_breakdown",
    "a rank, step and class of time",
    (
        RANK,
        Column("ordinal", I32, "", "of the step on the rank, from 1; 0 outside"),
        _MADE_STEP,
        _MADE_CLASS,
        Column("ns", I64, "ns", "time"),
    ),
    derived=True,
    made=True,
)

MADE_GAPS = Table(
    "_made_gaps",
    "a gap in a rank's work",
    (
        RANK,
        _MADE_STEP,
        Column("gap", I32, "", "number of the gap on the rank"),
        Column("start_ns", I64, "ns", "start on the job's clock"),
        Column("dur_ns", I64, "ns", "duration"),
        _MADE_CLASS,
        Column("before", TEXT, "", "name of the work whose end began it"),
        Column("after", TEXT, "", "name of the work whose start ended it"),
        Column("launch_ns", I64, "ns", "start of the call that launched that"),
        Column("free_ns", I64, "ns", "where the whole gap began, where that is before start_ns"),
    ),
    derived=True,
    made=True,
)

MADE_COVERED = Table(
    "_made_covered",
    "a rank and moment at which something of it begins or ends, and what ran until then",
    (
        RANK,
        Column("at_ns", I64, "ns", "moment on the job's clock"),
        Column("compute_ns", I64, "ns", "time before it with compute"),
        Column("with_transfer_ns", I64, "ns", "with compute or bytes moving"),
        Column("with_unsplit_ns", I64, "ns", "with these or unsplit communication"),
        Column("with_comm_ns", I64, "ns", "with compute or communication"),
        Column("with_copy_ns", I64, "ns", "with any work"),
    ),
    derived=True,
    made=True,
)

MADE_COMPOSITION = Table(
    "_made_composition",
    "a rank, step and class of work, and what its time went to",
    (
        RANK,
        _MADE_STEP,
        _MADE_CLASS,
        Column("what", TEXT, "", "name, or dimension, operation and size class"),
        Column("ns", I64, "ns", "time"),
        Column("pieces", I64, "pieces", "pieces of work"),
    ),
    derived=True,
    made=True,
)

MADE_KERNELS = Table(
    "_made_kernels",
    "a rank and name of a kernel, copy or set of memory",
    (
        RANK,
        Column("name", TEXT, "", "name in the trace"),
        Column("kind", TEXT, "", "kernel, memcpy or memset"),
        Column("category", TEXT, "", "events.category"),
        Column("count", I64, "events", "times it ran"),
        Column("total_ns", I64, "ns", "durations added up"),
        Column("median_ns", I64, "ns", "median duration"),
        Column("p99_ns", I64, "ns", "99th percentile"),
    ),
    derived=True,
    made=True,
)

MADE_RAIL_LOAD = Table(
    "_made_rail_load",
    "a rail in a window, as one kind of source says: the view `rail_load`",
    (
        _MADE_STEP,
        Column("window_by", TEXT, "", "step, outside steps, tenth of the job, or job"),
        Column("window_start_ns", I64, "ns", "start of the window on the job's clock"),
        Column("window_ns", I64, "ns", "length of the window"),
        Column("host", TEXT, "", "machine"),
        Column("rank", I32, "", "rank whose own rail this is"),
        Column("rail", I32, "", "rail"),
        Column("nic", TEXT, "", "network interface"),
        Column("plane", I32, "", "plane of the NIC"),
        Column("source", TEXT, "", "measured or derived"),
        Column("unit", TEXT, "", "bytes or tokens"),
        Column("bytes", I64, "bytes", "carried in both directions together"),
        Column("sent_bytes", I64, "bytes", "sent by the host"),
        Column("received_bytes", I64, "bytes", "received by the host"),
        Column("tokens", I64, "tokens", "copies of tokens in both directions"),
        Column("busy_ns", I64, "ns", "time in which something moved"),
        Column("collectives", I64, "collectives", "collectives that this is of"),
        Column("is_best", BOOL, "", "the row to use"),
        Column("how", TEXT, "", "how it was measured or derived"),
    ),
    derived=True,
    made=True,
)

MADE_RAIL_LEFT_OUT = Table(
    "_made_rail_left_out",
    "operations whose bytes no rail has: the view `rail_left_out`",
    (
        Column("op", TEXT, "", "operation"),
        Column("algorithm", TEXT, "", "algorithm"),
        Column("reason", TEXT, "", "what is not known"),
        Column("operations", I64, "operations", "how many"),
        Column("bytes", I64, "bytes", "their sizes added up"),
    ),
    derived=True,
    made=True,
)

MADE_SM_PARTS = Table(
    "_made_sm_parts",
    "a rank's communication kernels of one name, or its compute beside them: view `sm_budget`",
    (
        RANK,
        Column("beside", BOOL, "", "compute beside the communication kernel; else that itself"),
        Column("name", TEXT, "", "name of the communication kernel"),
        Column("comm", TEXT, "", "its communicator"),
        Column("blocks", I64, "blocks", "thread blocks"),
        Column("by_channels", BOOL, "", "they are the collective's channels"),
        Column("kernels", I64, "kernels", "how many"),
        Column("ns", I64, "ns", "durations added up"),
        Column("overlapped_ns", I64, "ns", "part of it with compute"),
        Column("median_ns", F64, "ns", "median duration of compute of one name and shape"),
        Column("alone_kernels", I64, "kernels", "the same without communication: how many"),
        Column("alone_median_ns", F64, "ns", "the same without communication: median duration"),
    ),
    derived=True,
    made=True,
)

MADE_MARKS = Table(
    "_made_marks",
    "an event of a host that collects garbage or loads data",
    (
        RANK,
        Column("garbage", BOOL, "", "it collects garbage"),
        Column("start_ns", I64, "ns", "start on the job's clock"),
        Column("end_ns", I64, "ns", "end on the job's clock"),
    ),
    derived=True,
    made=True,
)

MADE_COMPARED = Table(
    "_made_compared",
    "a rank, and what it did before the collectives that another is late in",
    (
        RANK,
        Column("key", I32, "", "the rank that is late; -1: all ranks, in whole steps"),
        Column("compute_ns", I64, "ns", "compute"),
        Column("transfer_ns", I64, "ns", "bytes moving without compute"),
        Column("comm_ns", I64, "ns", "communication that nothing splits, without these"),
        Column("wait_ns", I64, "ns", "waiting without these"),
        Column("memcpy_ns", I64, "ns", "copies without these"),
        Column("garbage_collection_ns", I64, "ns", "idle, the host collects garbage"),
        Column("idle_data_loading_ns", I64, "ns", "idle of this class, as those below"),
        Column("idle_launch_bound_ns", I64, "ns", ""),
        Column("idle_waiting_for_host_ns", I64, "ns", ""),
        Column("idle_waiting_for_stream_ns", I64, "ns", ""),
        Column("idle_unknown_ns", I64, "ns", ""),
        Column("before_high", I64, "2^32 ns", "when it left the collectives before, added up"),
        Column("before_low", I64, "ns", "the rest of that"),
        Column("began_high", I64, "2^32 ns", "when it began its first step, added up"),
        Column("began_low", I64, "ns", "the rest of that"),
    ),
    derived=True,
    made=True,
)

MADE_COMPARED_KERNELS = Table(
    "_made_compared_kernels",
    "a rank and a name of its kernels before the collectives that another is late in",
    (
        RANK,
        Column("key", I32, "", "as in _made_compared"),
        Column("name", TEXT, "", "name in the trace"),
        Column("ns", I64, "ns", "durations added up"),
        Column("n", I64, "kernels", "how many"),
        Column("blocks", I64, "blocks", "thread blocks added up; null unless all are known"),
    ),
    derived=True,
    made=True,
)

MADE_STRETCHES = Table(
    "_made_stretches",
    "a stretch of a rank that is late in which what it did is compared with what others did",
    (
        RANK,
        Column("key", I32, "", "the rank itself; -1: in whole steps"),
        Column("from_ns", I64, "ns", "start on the job's clock"),
        Column("until_ns", I64, "ns", "end on the job's clock"),
        Column("late_ns", I64, "ns", "how far it then came behind the median start"),
    ),
    derived=True,
    made=True,
)

MADE_LONGEST_GAPS = Table(
    "_made_longest_gaps",
    "a gap in such stretches of a rank, one of the longest of its class",
    (
        RANK,
        _MADE_CLASS,
        Column("gap_ns", I64, "ns", "start of the gap on the job's clock"),
        Column("start_ns", I64, "ns", "since when what comes next could have been launched"),
        Column("end_ns", I64, "ns", "when it was"),
    ),
    derived=True,
    made=True,
)

MADE_TASKS = Table(
    "_made_tasks",
    "a task of a rank of a job's task graph, by rank, then start",
    (
        Column("what", I32, "", "place in `tasks.stored.WHAT`"),
        RANK,
        Column("step", I64, "", "step, -1 outside steps"),
        Column("op", I32, "", "name, as `_made_task_words` has it; -1: none"),
        Column("start_ns", I64, "ns", "start on the job's clock"),
        Column("dur_ns", I64, "ns", "end less start"),
        Column("event_id", I64, "", "row of events; of host segments and marks any"),
        Column("bytes", I64, "bytes", "moved; of a mark the step that ends"),
        Column("detail", I32, "", "shape of a kernel, thread of a host segment"),
        Column("preds", I32, "edges", "rows of `_made_task_edges` that lead to it"),
    ),
    derived=True,
    made=True,
)

MADE_TASK_EDGES = Table(
    "_made_task_edges",
    "an edge between tasks of a rank, in the order of the tasks that they lead to",
    (Column("back", I32, "tasks", "from so many rows of `_made_tasks` before"),),
    derived=True,
    made=True,
)

MADE_TASK_PARTS = Table(
    "_made_task_parts",
    "a participation as the task graph has it, in the order of `_made_tasks`, then each further "
    "collective of one",
    (
        Column("row", I32, "", "its number by start in the whole job"),
        Column("op", I32, "", "operation, as `_made_task_words` has it"),
        Column("comm", I32, "", "communicator, as `_made_task_words` has it"),
        Column("collective", I32, "", "number of the collective"),
        Column("bytes", I64, "bytes", "size"),
        Column("group_size", I32, "ranks", "members; -1 unknown"),
        Column("algo", I32, "", "algorithm, as `_made_task_words` has it"),
        Column("awaited", I32, "", "1: the others wait for its arrival"),
        Column("waits", I32, "", "1: its transfer waits for the collective's join"),
    ),
    derived=True,
    made=True,
)

MADE_TASK_WORDS = Table(
    "_made_task_words",
    "a text or shape that the task graph's tables have the number of",
    (
        Column("what", TEXT, "", "name, first, op, comm, shape, warning or assumption"),
        Column("text", TEXT, "", "the text"),
        Column("blocks", I64, "blocks", "of a shape: blocks of a grid; -1 unknown"),
        Column("threads", I64, "threads", "of a shape: threads of a block; -1 unknown"),
        Column("number", I64, "", "of `first`: the name's"),
    ),
    derived=True,
    made=True,
)

TABLES: dict[str, Table] = {
    t.name: t
    for t in (
        JOBS, RANKS, STEPS, EVENTS, COMMS, COLLECTIVES, PROGRESS, TRANSFERS, ROUTING, COUNTERS,
        TOPOLOGY, TUNING, COST_CURVES, GRAPH_NODES, CONFIGURATIONS, PROBLEMS, REPLAY_SCORES,
        CRITICAL_PATH, SLACK, MADE_PARTICIPATIONS, MADE_LATENESS, MADE_LATE_RANKS, MADE_INSTANCES,
        MADE_BREAKDOWN, MADE_GAPS, MADE_COVERED, MADE_COMPOSITION, MADE_KERNELS, MADE_RAIL_LOAD,
        MADE_RAIL_LEFT_OUT, MADE_SM_PARTS, MADE_MARKS, MADE_COMPARED, MADE_COMPARED_KERNELS,
        MADE_STRETCHES, MADE_LONGEST_GAPS,
        MADE_TASKS, MADE_TASK_EDGES, MADE_TASK_PARTS, MADE_TASK_WORDS,
    )
}  # fmt: skip

PARTS = tuple(t.name for t in TABLES.values() if not t.computed and not t.made)
"""Tables that parsers may yield (for derived ones the rows are a rank's own view)."""


class Problem(NamedTuple):
    """One kind of oddity in one source; becomes a row of `problems`."""

    code: str
    message: str
    severity: str = "warning"
    count: int = 1
    offset: int | None = None
    rank: int | None = None


def problem_rows(odd: Sequence[tuple[str | None, Problem]]) -> pa.RecordBatch:
    """Rows of `problems` for (source, problem) pairs; None for what is the job's as a whole."""
    columns: dict[str, list] = {c.name: [] for c in PROBLEMS.columns}
    for source, problem in odd:
        columns["source"].append(source)
        for name, value in problem._asdict().items():
            columns[name].append(value)
    return PROBLEMS.batch(columns)
