"""Overlap held against HolisticTraceAnalysis on every single-rank Kineto file of the real traces.

Theirs is asked for with its rounding to whole microseconds switched off (HTA_DISABLE_NS_ROUNDING:
it moves starts up and ends down, and makes short kernels end before they start) and with the last
step kept (it is dropped otherwise). Where the two still differ, the cause is named below and
taken out of the input for theirs, which then agrees.
"""

from __future__ import annotations

import gzip
import json
import math
from pathlib import Path
from typing import Any

import pytest
from retime.ingest import run
from retime.ingest.errors import RankUnknown
from retime.ingest.warehouse import Warehouse
from retime.queries import loader

HTA = "HolisticTraceAnalysis"
NANOGPT = "modded-nanogpt/2025-10-31_AdamSyncGradientHook/modded-nanogpt"
EIGHT_RANKS = "modded-nanogpt/2025-12-11_NorMuonOptimsAndFixes"
RESOLUTION = f"{HTA}/ns_resolution_trace/rank-0.Apr_03_18_51_38.1102.pt.trace.json.gz"
CPU_ONLY = f"{HTA}/cpu_only/rank-34.Jul_15_10_52_41.1074.pt.trace.json.gz"

UNLAUNCHED = "kernels launched before the capture are dropped where there are two steps or more"
HOST_ROWS = "host rows that carry a `stream` argument count as compute kernels"

CAUSES: dict[str, tuple[str, ...]] = {
    f"{HTA}/amd_trace/mi250_minitoy_train_ROCm6_2_kineto.json.gz": (),
    f"{HTA}/critical_path/cuda_event_sync/event_sync_trace.json.gz": (),
    f"{HTA}/critical_path/cuda_event_sync_multi_stream/event_sync_trace.json.gz": (),
    f"{HTA}/distributed_info_unavailable/distributed_info_not_found.json.gz": (),
    f"{HTA}/execution_trace/benchmark_simple_add_trace.json.gz": (),
    f"{HTA}/nccl_parser_config/nccl_data.json.gz": (),
    RESOLUTION: (),
    f"{HTA}/rank_unavailable/rank_not_found.json.gz": (),
    f"{HTA}/trace_file_list/inference_rank_1.json.gz": (),
    f"{HTA}/trace_filter/sampled_rank-0.json.gz": (),
    f"{HTA}/trace_filter/sampled_rank-1.json.gz": (),
    f"{HTA}/triton_example/triton_example.json.gz": (),
    "TraceLens/b200/eager_trace.json.gz": (),
    "TraceLens/mi300/resnet_act_checkpoint.json.gz": (UNLAUNCHED,),
    "kineto/docs/traces/after_fix_trace.json": (),
    "kineto/docs/traces/before_fix_trace.json": (),
    "kineto/tb_plugin/test/gpu_metrics_input.json": (),
    f"{NANOGPT}-current-gpu-rank-00-chrome-trace.json.gz": (UNLAUNCHED, HOST_ROWS),
    f"{NANOGPT}-hook-gpu-rank-00-chrome-trace.json.gz": (UNLAUNCHED, HOST_ROWS),
}


@pytest.fixture
def theirs(monkeypatch):
    """What HolisticTraceAnalysis prints for a file, in percent; NaN where it has no answer."""
    pytest.importorskip(
        "hta.trace_analysis", reason="HolisticTraceAnalysis is not installed (extra `peers`)"
    )
    monkeypatch.setenv("HTA_DISABLE_NS_ROUNDING", "1")
    from hta.trace_analysis import TraceAnalysis

    def overlap(path: Path) -> float:
        analysis = TraceAnalysis(
            trace_files={0: str(path)}, trace_dir="/", include_last_profiler_step=True
        )
        frame = analysis.get_comm_comp_overlap(visualize=False)
        return float(frame["comp_comm_overlap_pctg"].iloc[0])

    return overlap


def ours(path: Path, folder: Path) -> float | None:
    """`overlap_by_rank` of a file in percent; null where there is no communication."""
    warehouse = Warehouse(str(folder))
    try:
        run.ingest(warehouse, [str(path)], job="j")
    except RankUnknown:
        run.ingest(warehouse, [str(path)], job="j", rank=0)
    con = loader.connect({"j": warehouse.snapshot("j").files})
    ((ratio,),) = con.execute("SELECT overlap_ratio FROM overlap_by_rank").fetchall() or [(None,)]
    return None if ratio is None else 100 * ratio


def without(path: Path, causes: tuple[str, ...], folder: Path) -> Path:
    """A copy of a file in which the named causes cannot arise."""
    with gzip.open(path) if path.suffix == ".gz" else path.open("rb") as f:
        trace = json.load(f)
    events: list[dict[str, Any]] = trace["traceEvents"]
    if UNLAUNCHED in causes:  # theirs drops nothing where there are no steps
        events = [e for e in events if not str(e.get("name")).startswith("ProfilerStep")]
    if HOST_ROWS in causes:
        for event in events:
            if event.get("cat") == "cpu_op":
                event.get("args", {}).pop("stream", None)
    copy = folder / "copy.json"
    copy.write_text(json.dumps(trace | {"traceEvents": events}))
    return copy


def agree(a: float | None, b: float) -> bool:
    if a is None or math.isnan(b):
        return a is None and math.isnan(b)
    return abs(a - b) <= 0.01


@pytest.mark.parametrize("name", CAUSES)
def test_overlap_agrees(retime_traces, tmp_path, theirs, name):
    path = retime_traces / "kineto" / name
    mine = ours(path, tmp_path / "warehouse")
    try:
        assert agree(mine, theirs(path)) == (not CAUSES[name])
    except TypeError as e:  # pandas 3 refuses an assignment that theirs makes
        pytest.skip(f"theirs does not read this file here: {e}")
    if CAUSES[name]:
        assert agree(mine, theirs(without(path, CAUSES[name], tmp_path)))


def test_communication_on_the_host_alone_has_an_overlap_here_and_none_there(
    retime_traces, tmp_path, theirs
):
    path = retime_traces / "kineto" / CPU_ONLY
    assert ours(path, tmp_path / "warehouse") == 0.0
    assert math.isnan(theirs(path))


def test_no_single_rank_file_is_left_out(retime_traces):
    kineto = retime_traces / "kineto"
    found = {
        str(p.relative_to(kineto))
        for p in kineto.rglob("*.json*")
        if not p.name.endswith("_et.json.gz") and EIGHT_RANKS not in str(p)
    }
    assert found == {*CAUSES, CPU_ONLY}
