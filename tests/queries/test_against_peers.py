"""Breakdown, idle time and bus bandwidth held against tools and figures of others.

HolisticTraceAnalysis (extra `peers`) is asked for its temporal breakdown and its idle time on the
real single-rank Kineto files. Where it differs, the cause is named and taken out of its input, and
what is left must agree. NCCL Inspector's figures are those that its own documentation prints.
"""

from __future__ import annotations

import gzip
import json
from collections import Counter
from collections.abc import Callable, Iterable
from decimal import Decimal
from pathlib import Path
from typing import Any

import duckdb
import pytest
from retime.ingest import run
from retime.ingest.errors import RankUnknown
from retime.ingest.nccl import inspector
from retime.ingest.sources import find_sources
from retime.ingest.warehouse import Warehouse
from retime.queries import loader

from .conftest import write

Events = list[dict[str, Any]]
HTA = "HolisticTraceAnalysis"
DEVICE = ("kernel", "gpu_memcpy", "gpu_memset", "Kernel", "Memcpy", "Memset")
LAUNCH = ("cuda_runtime", "cuda_driver", "Runtime")

ROUNDED_NS = 10
"""Theirs are sums of doubles: so far they may differ."""


def from_zero(events: Events) -> Events:
    """Times are doubles there, which keep microseconds since 1970 to 0.25 us only."""
    return events  # `changed` counts the times of every copy from its first


def no_syncs(events: Events) -> Events:
    """Rows of waiting for a stream or event have a stream, and count as work there."""
    return [e for e in events if e.get("cat") != "cuda_sync"]


def no_steps(events: Events) -> Events:
    """With two steps or more, kernels launched before the capture are dropped there."""
    return [e for e in events if not str(e.get("name")).startswith("ProfilerStep")]


def no_host_streams(events: Events) -> Events:
    """Host rows that carry a `stream` argument count as compute kernels there."""
    for e in events:
        if e.get("cat") == "cpu_op":
            e.get("args", {}).pop("stream", None)
    return events


def nccl_names(events: Events) -> Events:
    """Communication that NCCL does not do (PyTorch's multimem kernels) is compute there."""
    for e in events:
        if "multimem_all_reduce" in str(e.get("name")):
            e["name"] = "ncclDevKernel_multimem"
    return events


def only_launched(events: Events) -> Events:
    """A kernel without a launch is joined with the first row of the file there."""
    launched = {
        e["args"].get("correlation") for e in events if e.get("cat") in LAUNCH and "args" in e
    }
    return [e for e in events if e.get("cat") not in DEVICE or e["args"]["correlation"] in launched]


def one_stream(events: Events) -> Events:
    """The stream with most work: idle time is of the whole device here, of a stream there."""
    used = Counter(e["args"].get("stream") for e in events if e.get("cat") in DEVICE)
    ((busiest, _),) = used.most_common(1)
    return [
        e
        for e in events
        if e.get("cat") != "gpu_user_annotation"
        and (e.get("cat") not in DEVICE or e["args"].get("stream") == busiest)
    ]


Change = Callable[[Events], Events]
NANOGPT = "modded-nanogpt/2025-10-31_AdamSyncGradientHook/modded-nanogpt"
SYNC = f"{HTA}/critical_path/cuda_event_sync/event_sync_trace.json.gz"
NCCL = f"{HTA}/nccl_parser_config/nccl_data.json.gz"
RESOLUTION = f"{HTA}/ns_resolution_trace/rank-0.Apr_03_18_51_38.1102.pt.trace.json.gz"
B200 = "TraceLens/b200/eager_trace.json.gz"
MI300 = "TraceLens/mi300/resnet_act_checkpoint.json.gz"

BREAKDOWN: dict[str, tuple[Change, ...]] = {
    f"{HTA}/amd_trace/mi250_minitoy_train_ROCm6_2_kineto.json.gz": (),
    SYNC: (no_syncs,),
    f"{HTA}/critical_path/cuda_event_sync_multi_stream/event_sync_trace.json.gz": (no_syncs,),
    f"{HTA}/execution_trace/benchmark_simple_add_trace.json.gz": (),
    NCCL: (),
    RESOLUTION: (from_zero,),
    f"{HTA}/trace_file_list/inference_rank_1.json.gz": (),
    f"{HTA}/trace_filter/sampled_rank-0.json.gz": (),
    f"{HTA}/triton_example/triton_example.json.gz": (no_host_streams,),
    B200: (no_host_streams, nccl_names),
    MI300: (no_steps,),
    "kineto/docs/traces/after_fix_trace.json": (no_syncs,),
    "kineto/docs/traces/before_fix_trace.json": (no_syncs,),
    "kineto/tb_plugin/test/gpu_metrics_input.json": (),
    f"{NANOGPT}-hook-gpu-rank-00-chrome-trace.json.gz": (no_steps, no_host_streams),
}
"""Each file with what must be taken out of theirs before both agree."""

IDLE: dict[str, tuple[Change, ...]] = {
    f"{HTA}/amd_trace/mi250_minitoy_train_ROCm6_2_kineto.json.gz": (),
    SYNC: (no_syncs,),
    f"{HTA}/execution_trace/benchmark_simple_add_trace.json.gz": (),
    NCCL: (one_stream, no_steps),
    RESOLUTION: (),
    f"{HTA}/trace_filter/sampled_rank-0.json.gz": (one_stream, no_steps),
    MI300: (one_stream, no_steps, only_launched),
    "kineto/tb_plugin/test/gpu_metrics_input.json": (),
}
"""Files of which both tools are given the same changed copy."""


def read(path: Path) -> dict[str, Any]:
    with gzip.open(path) if path.suffix == ".gz" else path.open("rb") as f:
        return json.load(f, parse_float=Decimal)


def changed(path: Path, changes: Iterable[Change], folder: Path) -> Path:
    """A copy of a file after the changes, its times counted from the first."""
    trace = read(path)
    events: Events = trace["traceEvents"]
    for change in changes:
        events = change(events)
    first = min(Decimal(e["ts"]) for e in events if e.get("ph") == "X" and "ts" in e)
    for e in events:
        if "ts" in e:
            e["ts"] = Decimal(e["ts"]) - first
    copy = folder / "copy.json"
    copy.write_text(json.dumps(trace | {"traceEvents": events}, default=float))
    return copy


def connect(path: Path, folder: Path) -> duckdb.DuckDBPyConnection:
    warehouse = Warehouse(str(folder / "warehouse"))
    try:
        run.ingest(warehouse, [str(path)], job="j")
    except RankUnknown:
        run.ingest(warehouse, [str(path)], job="j", rank=0)
    return loader.connect({"j": warehouse.snapshot("j").files}, threads=1)


@pytest.fixture
def analysis(monkeypatch):
    """HolisticTraceAnalysis of a file, its rounding to whole microseconds off, all steps kept."""
    pytest.importorskip(
        "hta.trace_analysis", reason="HolisticTraceAnalysis is not installed (extra `peers`)"
    )
    monkeypatch.setenv("HTA_DISABLE_NS_ROUNDING", "1")
    from hta.trace_analysis import TraceAnalysis

    return lambda path: TraceAnalysis(
        trace_files={0: str(path)}, trace_dir="/", include_last_profiler_step=True
    )


def their_breakdown(analysis, path: Path) -> list[float]:
    """Idle, compute and other time, ns."""
    (row,) = analysis(path).get_temporal_breakdown(visualize=False).to_dict("records")
    return [1000 * float(row[f"{k}_time(us)"]) for k in ("idle", "compute", "non_compute")]


def agree(ours: list[int], theirs: list[float]) -> bool:
    return all(abs(a - b) <= ROUNDED_NS for a, b in zip(ours, theirs, strict=True))


@pytest.mark.parametrize("name", BREAKDOWN)
def test_the_breakdown_agrees(retime_traces, tmp_path, analysis, name):
    """Theirs lasts from the first kernel to the end of the last; ours may have steps around it."""
    path = retime_traces / "kineto" / name
    con = connect(path, tmp_path)
    (work,) = con.execute(
        "SELECT sum(ns) FILTER (class LIKE 'compute%'), sum(ns) FILTER (class LIKE 'exposed%') "
        "FROM step_breakdown"
    ).fetchall()
    ((idle,),) = con.execute(
        "SELECT sum(dur_ns) FROM idle_gaps WHERE before IS NOT NULL AND after IS NOT NULL"
    ).fetchall()
    ours = [int(ns or 0) for ns in (idle, *work)]
    causes = BREAKDOWN[name]
    assert agree(ours, their_breakdown(analysis, path)) == (not causes)
    if causes:
        assert agree(ours, their_breakdown(analysis, changed(path, causes, tmp_path)))


@pytest.mark.parametrize("name", IDLE)
def test_idle_time_agrees(retime_traces, tmp_path, analysis, name):
    """Their host wait is a launch after the gap began: here all that is not waiting for a stream.

    Of the rest theirs splits by length alone: kernel wait below 30 us, and other.
    """
    path = changed(retime_traces / "kineto" / name, IDLE[name], tmp_path)
    ((host, stream, unknown),) = (
        connect(path, tmp_path)
        .execute(
            """SELECT
            coalesce(sum(dur_ns) FILTER (class IN (
                'idle_launch_bound', 'idle_waiting_for_host', 'idle_data_loading')), 0),
            coalesce(sum(dur_ns) FILTER (class = 'idle_waiting_for_stream'), 0),
            coalesce(sum(dur_ns) FILTER (class = 'idle_unknown'), 0)
        FROM idle_gaps WHERE before IS NOT NULL AND after IS NOT NULL"""
        )
        .fetchall()
    )
    frame, _ = analysis(path).get_idle_time_breakdown(ranks=[0], visualize=False)
    theirs = {r["idle_category"]: 1000 * float(r["idle_time"]) for r in frame.to_dict("records")}
    waited = theirs.get("kernel_wait", 0) + theirs.get("other", 0)
    assert unknown == 0
    assert agree([int(host), int(stream)], [theirs.get("host_wait", 0), waited])


PUBLISHED = [
    ("AllReduce", 8, 17179869184, 61974, 277.210914, 485.119099),
    ("ReduceScatter", 8, 2147483648, 41057, 418.439467, 366.134533),
    ("ReduceScatter", 32, 65536, 110, 19.065018, 18.469236),
]
"""Operation, ranks, bytes, us, algbw and busbw (GB/s) of the records in NCCL Inspector's READMEs
(plugins/profiler/inspector and its exporter's example, of NCCL 2.28)."""


def record(op: str, n: int, size: int, micros: int, **more: Any) -> dict[str, Any]:
    return {
        "header": {"id": "0x7f8c496ae9f661", "rank": 2, "n_ranks": n, "nnodes": 1},
        "metadata": {
            "inspector_output_format_version": "v4.0", "git_rev": "",
            "rec_mechanism": "profiler_plugin", "dump_timestamp_us": 1748030377748202,
            "hostname": "example-hostname", "pid": 1639453,
        },
        "coll_perf": {
            "coll": op, "coll_sn": 1407, "coll_msg_size_bytes": size, "coll_exec_time_us": micros,
            **more,
        },
    }  # fmt: skip


def inspected(folder: Path, *records: dict[str, Any]) -> duckdb.DuckDBPyConnection:
    """A job of what the Inspector's file says, its collectives numbered."""
    path = folder / "example-hostname-pid1639453.log"
    path.write_text("".join(json.dumps(r, separators=(",", ":")) + "\n" for r in records))
    tables: dict[str, list] = {"collectives": [], "ranks": [], "comms": []}
    for table, batch in inspector.parse(
        next(iter(find_sources([str(path)], lambda *a, **k: None))), rank=None
    ):
        tables.setdefault(table, []).extend(batch.to_pylist())
    for i, row in enumerate(tables["collectives"]):
        row["collective_id"] = i
    kept = {t: tables[t] for t in ("collectives", "ranks")}
    return loader.connect({"j": write(folder / "j", kept)}, threads=1)


@pytest.mark.parametrize(("op", "n", "size", "micros", "algbw", "busbw"), PUBLISHED)
def test_bus_bandwidth_is_the_inspectors(tmp_path, op, n, size, micros, algbw, busbw):
    con = inspected(tmp_path, record(op, n, size, micros))
    ((ours, ours_bus),) = con.execute(
        """SELECT bytes / exec_ns, bytes / exec_ns * busbw_factor(op, group_size) FROM (
            SELECT *, message_bytes(op, in_bytes, out_bytes, group_size) AS bytes FROM collectives
        )"""
    ).fetchall()
    assert (round(ours, 6), round(ours_bus, 6)) == (algbw, busbw)


def test_a_verbose_record_is_measured_between_its_kernels_start_and_stop(tmp_path):
    """The Inspector divides by its own 41,057 us; between the kernel's timestamps are 40,630."""
    op, n, size, micros, algbw, busbw = PUBLISHED[1]
    times = {
        "event_trace_sn": {"coll_start_sn": 1, "coll_stop_sn": 2, "kernel_events": []},
        "event_trace_ts": {
            "coll_start_ts": 1752867229235059, "coll_stop_ts": 1752867229235064,
            "kernel_events": [
                {"channel_id": 0, "kernel_start_ts": 1752867229235181,
                 "kernel_stop_ts": 1752867229275811, "kernel_record_ts": 1752867229275811},
            ],
        },
    }  # fmt: skip
    con = inspected(tmp_path, record(op, n, size, micros, **times))
    got = con.execute("SELECT algbw_gbps, busbw_gbps, busbw_transfer_gbps, n_seen, n_ranks "
                      "FROM collective_instances").fetchall()  # fmt: skip
    ((ours, ours_bus, transfer, n_seen, n_ranks),) = got
    assert ours == pytest.approx(algbw * 41057 / 40630, rel=1e-8)
    assert ours_bus == pytest.approx(busbw * 41057 / 40630, rel=1e-8)
    # one rank of eight: nothing tells its transfer from its wait
    assert (transfer, n_seen, n_ranks) == (None, 1, 8)
