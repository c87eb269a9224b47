"""Real traces with their step marks taken out: what is found then, held against the marks."""

from __future__ import annotations

import gzip
import json

import polars as pl
import pytest
import retime
import retime.ingest.errors
from retime.ingest.run import ingest
from retime.ingest.warehouse import Warehouse

TOLERANCE_NS = 1000
"""Bounds of inferred steps on the device, against those of marked ones (they are the same kernels;
a trace written anew rounds its times)."""
HTA = "kineto/HolisticTraceAnalysis"


def without(path, to, names=("ProfilerStep",), categories=()):
    """Writes a trace without the events of names that begin so, and of some categories."""
    trace = json.loads(gzip.decompress(path.read_bytes()))
    trace["traceEvents"] = [
        e
        for e in trace["traceEvents"]
        if not str(e.get("name", "")).startswith(tuple(names)) and e.get("cat") not in categories
    ]
    to.parent.mkdir(exist_ok=True)
    to.write_text(json.dumps(trace))
    return to


def steps_of(warehouse, job):
    files = Warehouse(warehouse).snapshot(job).files["steps"]
    if not files:
        return []
    frame = pl.read_parquet(files, hive_partitioning=False).sort("rank", "step")
    return frame.select("rank", "step", "start_ns", "end_ns", "found_by").rows()


def problems_of(warehouse, job):
    return retime.open(warehouse).job(job).problems()


def agree(found, marked):
    """The same steps, numbered from 0, at the same times."""
    first = marked[0][1]
    assert [r[4] for r in found] == ["inferred"] * len(marked)
    assert [(r, s) for r, s, *_ in found] == [(r, s - first) for r, s, *_ in marked]
    for f, m in zip(found, marked, strict=True):
        assert abs(f[2] - m[2]) <= TOLERANCE_NS
        assert abs(f[3] - m[3]) <= TOLERANCE_NS


@pytest.fixture(scope="module")
def two_ranks(demo_job, tmp_path_factory):
    """Ranks 0 and 5 of the bundled job: as they are, and without their marks."""
    folder = tmp_path_factory.mktemp("steps")
    warehouse = folder / "w"
    for r in (0, 5):
        without(demo_job / f"rank{r}.json.gz", folder / "in" / f"rank{r}.json")
    ingest(warehouse, [str(demo_job / f"rank{r}.json.gz") for r in (0, 5)], job="marked")
    ingest(warehouse, str(folder / "in"), job="bare")
    return warehouse


def test_the_bundled_job_without_marks_has_the_same_steps(two_ranks):
    """Its steps take turns: Adam runs in every second one. Its ranks began at different moments."""
    marked = steps_of(two_ranks, "marked")
    assert [r[:2] for r in marked] == [(r, s) for r in (0, 5) for s in (10, 11, 12, 13)]
    agree(steps_of(two_ranks, "bare"), marked)
    assert "steps_unclear" not in problems_of(two_ranks, "bare")["code"].to_list()


def test_collectives_and_views_have_the_inferred_steps(two_ranks):
    con = retime.open(two_ranks).connect()
    by_step = """
        SELECT coalesce(step - CASE WHEN job = 'marked' THEN 10 ELSE 0 END, -1), {what}
        FROM {view} WHERE job = '{job}' GROUP BY ALL ORDER BY ALL
    """
    for view, what in (
        ("collectives", "rank, count(*), sum(start_ns)"),
        ("step_breakdown", "rank, class, sum(ns)"),
        ("waits", "rank, sum(wait_ns), sum(transfer_ns)"),
        ("overlap", "rank, sum(comm_ns), sum(exposed_ns)"),
    ):
        bare, marked = (
            con.execute(by_step.format(what=what, view=view, job=j)).fetchall()
            for j in ("bare", "marked")
        )
        assert bare == marked
        assert len({r[0] for r in bare} - {-1}) == 4


def test_the_replay_takes_inferred_steps_as_it_takes_marked_ones(two_ranks):
    wh = retime.open(two_ranks)
    bare, marked = (retime.replay(wh.job(j)) for j in ("bare", "marked"))
    assert bare["steps"] == [0, 1, 2, 3]
    assert bare["measured_ns"] == marked["measured_ns"]
    assert bare["replayed_ns"] == marked["replayed_ns"]
    assert bare["fidelity_pct"] < 0.1


RUNTIME = ("cuda_runtime", "cuda_driver")


@pytest.mark.parametrize(
    ("file", "n", "names", "categories"),
    [
        # by the optimizer's kernels alone, and without launches
        (f"{HTA}/nccl_parser_config/nccl_data.json.gz", 3, ("Optimizer.",), ()),
        (f"{HTA}/nccl_parser_config/nccl_data.json.gz", 3, ("Optimizer.",), RUNTIME),
        # no collectives: one GPU
        (f"{HTA}/ns_resolution_trace/rank-0.Apr_03_18_51_38.1102.pt.trace.json.gz", 5, (), ()),
    ],
)
def test_other_traces_without_marks_have_the_same_steps(
    retime_traces, tmp_path, file, n, names, categories
):
    source = retime_traces / file
    bare = without(source, tmp_path / "in" / "bare.json", ("ProfilerStep", *names), categories)
    ingest(tmp_path / "w", str(source), job="marked")
    ingest(tmp_path / "w", str(bare), job="bare")
    marked = steps_of(tmp_path / "w", "marked")
    assert len(marked) == n
    agree(steps_of(tmp_path / "w", "bare"), marked)


@pytest.mark.parametrize(
    ("file", "why"),
    [
        # one step only
        (f"{HTA}/amd_trace/mi250_minitoy_train_ROCm6_2_kineto.json.gz", "only once"),
        # inference
        (f"{HTA}/trace_file_list/inference_rank_1.json.gz", "no optimizer"),
        ("kineto/TraceLens/b200/eager_trace.json.gz", "no optimizer"),
        # events left out at random
        (f"{HTA}/trace_filter/sampled_rank-0.json.gz", "does not repeat"),
    ],
)
def test_where_the_anchors_do_not_agree_no_steps_are_inferred(retime_traces, tmp_path, file, why):
    bare = without(retime_traces / file, tmp_path / "in" / "bare.json")
    try:
        ingest(tmp_path / "w", str(bare), job="j")
    except retime.ingest.errors.RankUnknown:
        ingest(tmp_path / "w", str(bare), job="j", rank=0)
    assert steps_of(tmp_path / "w", "j") == []
    said = problems_of(tmp_path / "w", "j").filter(code="steps_unclear")
    assert said["severity"].to_list() == ["info"]
    assert why in said["message"][0]
