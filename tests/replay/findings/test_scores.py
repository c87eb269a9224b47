"""What a rank's own slowness costs, on jobs whose answer is plain, and on a study's slowed job."""

from __future__ import annotations

import json
from types import SimpleNamespace

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from retime.ingest import run
from retime.ingest.warehouse import Warehouse
from retime.replay import engine
from retime.replay.findings import computed, scores, stragglers
from retime.replay.findings.median_rank import at_median
from retime.replay.findings.task_steps import task_steps
from retime.replay.graph import Kind, build
from retime.replay.traced import build as kineto


def table(job, step=None):
    """Rows (rank, score_ns, low_ns, high_ns, step_ns, how) of a job."""
    start, end = engine.replay(job.graph)
    found = scores.scores(job.graph, start, end, task_steps(job) if step is None else step)
    rows = scores.rows(found).to_pylist()
    return [tuple(row.values()) for row in rows]


def one_kernel_each(tables, *work_us, steps=1):
    """Ranks that work so long, then reduce for 100 us; each step begins as the last one ends."""
    for step in range(steps):
        begin, end = 1000 * step, 1000 * step + max(work_us) + 100
        for rank, us in enumerate(work_us):
            tables.kernel(rank, "f", begin, begin + us, step=step)
            tables.part(
                rank, "all_reduce", begin + us, end, instance=step, stream=7, step=step,
                group_size=len(work_us),
            )  # fmt: skip
            tables.step(rank, step, begin, end)
    return kineto.build(tables.frames(), "job")


def test_a_slow_kernel_costs_what_it_has_above_the_median_rank(tables):
    # 100, 150 and 300 us of work: with rank 2 at 150 the step is 250 us and not 400.
    assert table(one_kernel_each(tables, 100, 150, 300)) == [
        (0, 0, 0, 0, 400_000, "never last"),
        (1, 0, 0, 0, 400_000, "never last"),
        (2, 150_000, 150_000, 150_000, 400_000, "replay"),
    ]


def test_of_two_slow_ranks_neither_alone_holds_the_job_up(tables):
    rows = table(one_kernel_each(tables, 100, 100, 100, 300, 300))
    assert [row[1] for row in rows] == [0, 0, 0, 0, 0]
    assert [row[-1] for row in rows] == ["never last"] * 3 + ["replay"] * 2


def test_of_two_ranks_the_median_is_between_them(tables):
    assert [row[1] for row in table(one_kernel_each(tables, 100, 300))] == [0, 100_000]


def test_a_rank_that_is_joined_with_no_other_has_no_score(tables):
    tables.kernel(0, "f", 0, 100, step=0)
    tables.step(0, 0, 0, 100)
    job = kineto.build(tables.frames(), "job")
    assert table(job) == [(0, None, None, None, 100_000, "joined with no rank")]


def test_the_interval_is_over_steps(tables):
    # The same in each of four steps: nothing to be unsure of.
    rows = table(one_kernel_each(tables, 100, 150, 300, steps=4))
    assert rows[2][1:4] == (150_000, 150_000, 150_000)
    assert scores.interval(np.array([1.0, 5.0])) == (1, 5)
    low, high = scores.interval(np.array([0.0, 0.0, 0.0, 8.0]))
    assert low == 0
    assert 2 < high <= 8


def test_a_faster_rank_would_be_slower_at_the_median(tables):
    # Rank 2 is the last though its kernel is the shortest: it began 200 us later.
    for rank, (begin, us) in enumerate([(0, 100), (0, 100), (200, 50)]):
        tables.kernel(rank, "f", begin, begin + us, step=0)
        tables.part(rank, "all_reduce", begin + us, 400, instance=0, stream=7, step=0, group_size=3)
        tables.step(rank, 0, begin, 400)
    rows = table(kineto.build(tables.frames(), "job"))
    assert rows[2][1] == -50_000
    assert rows[2][-1] == "replay"


def test_a_delay_goes_to_the_median_where_it_is_longer(tables):
    # Behind 10 us of work pauses of 0, 50 and 200 us, then 100 us of work: rank 2 would arrive
    # with rank 1, at 160 us and not at 310. Rank 0, at the median, would pause; it is not last.
    for rank, pause in enumerate((0, 50, 200)):
        tables.kernel(rank, "w", 0, 10, step=0)
        tables.kernel(rank, "f", 10 + pause, 110 + pause, step=0)
        tables.part(
            rank, "all_reduce", 110 + pause, 410, instance=0, stream=7, step=0, group_size=3
        )
        tables.step(rank, 0, 0, 410)
    job = kineto.build(tables.frames(), "job")
    assert [row[1] for row in table(job)] == [0, 0, 150_000]
    _, gap = at_median(job.graph, job.graph.step)
    f = job.graph.ops("f")
    assert sorted(gap[f].tolist()) == [0, 50_000, 50_000]


def test_a_kernel_that_no_other_rank_has_stays(tables):
    for rank in range(3):
        if rank == 2:
            tables.kernel(rank, "only here", 0, 200, step=0)
        begin = 200 * (rank == 2)
        tables.kernel(rank, "f", begin, begin + 100, step=0)
        tables.part(
            rank, "all_reduce", begin + 100, 400, instance=0, stream=7, step=0, group_size=3
        )
        tables.step(rank, 0, 0, 400)
    assert table(kineto.build(tables.frames(), "job"))[2][1] == 0


def launched_late(tables, late_us, calls=0):
    """Three ranks launch a kernel, then their all-reduce; the host of rank 2 takes longer.

    `calls` launches of other copies lie in between on rank 2: its host has other segments.
    """
    for rank in range(3):
        until = 20 + late_us * (rank == 2)
        tables.call(rank, "cudaLaunchKernel", 8, 10, correlation=1, step=0)
        tables.kernel(rank, "f", 10, 15, step=0, correlation=1)
        for k in range(calls * (rank == 2)):
            at = 20 + 10 * k
            tables.call(rank, "cudaMemcpyAsync", at, at + 1, correlation=10 + k, step=0)
            tables.kernel(rank, "copy", at + 1, at + 2, kind="memcpy", step=0, correlation=10 + k)
        tables.call(rank, "cudaLaunchKernel", until - 2, until, correlation=2, step=0)
        tables.part(
            rank, "all_reduce", until, 120 + late_us, instance=0, step=0, correlation=2,
            group_size=3,
        )  # fmt: skip
        tables.step(rank, 0, 10, 120 + late_us)
    return kineto.build(tables.frames(), "job")


@pytest.mark.parametrize("calls", [0, 3, 9])
def test_a_slow_host_costs_what_its_stretch_has_above_the_median_rank(tables, calls):
    # From the first launch to that of the all-reduce 10 us, on rank 2 210 us: 200 us would go,
    # whatever calls it makes on the way.
    rows = table(launched_late(tables, 200, calls))
    assert rows[2][1] == pytest.approx(200_000, abs=20)  # each segment is rounded to a ns
    assert [row[1] for row in rows[:2]] == [0, 0]


def test_each_stretch_of_the_host_is_compared_with_the_same_of_other_ranks(tables):
    # Host time from the first launch to that of the first all-reduce 11, 11, 111 us and from there
    # to the second 10, 210, 10: the median is 11 and 10. With rank 1 there the second one waits
    # for rank 2, which launches it at 130 us, and not for rank 1 at 230.
    for rank, launches in enumerate([(20, 30), (20, 230), (120, 130)]):
        tables.call(rank, "cudaLaunchKernel", 8, 10, correlation=1, step=0)
        tables.kernel(rank, "f", 10, 15, step=0, correlation=1)
        for k, at in enumerate(launches):
            tables.call(rank, "cudaLaunchKernel", at - 1, at, correlation=2 + k, step=0)
            begin, end = (at, 125) if k == 0 else (max(at, 125), 260)
            tables.part(
                rank, "all_reduce", begin, end, instance=k, step=0, correlation=2 + k, group_size=3
            )
        tables.step(rank, 0, 10, 260)
    job = kineto.build(tables.frames(), "job")
    rows = table(job)
    assert [row[-1] for row in rows] == ["never last", "replay", "replay"]
    assert [row[1] for row in rows] == [0, 100_000, 0]
    dur, _ = at_median(job.graph, task_steps(job))
    host = np.flatnonzero((job.graph.kind == Kind.HOST) & (job.graph.dur_ns > 0))
    assert sorted(dur[host].tolist()) == [10_000] * 3 + [11_000] * 3


def test_the_host_of_other_steps_is_left_alone(tables):
    job = launched_late(tables, 200)
    outside = np.where(job.graph.kind == Kind.HOST, -1, job.graph.step)
    assert [row[1] for row in table(job, outside)] == [0, 0, 0]


def test_host_segments_are_of_the_step_they_end_in(tables):
    for step in (0, 1):
        tables.call(0, "cudaLaunchKernel", 100 * step + 50, 100 * step + 52, correlation=step)
        tables.kernel(0, "f", 100 * step + 60, 100 * step + 90, correlation=step, step=step)
        tables.step(0, step, 100 * step + 60, 100 * step + 160)
        tables.rows["steps"][-1] |= {
            "host_start_ns": (100 * step + 10) * 1000, "host_end_ns": (100 * step + 90) * 1000
        }  # fmt: skip
    tables.call(0, "cudaLaunchKernel", 300, 301, correlation=9)
    tables.kernel(0, "g", 301, 302, correlation=9)
    job = kineto.build(tables.frames(), "job")
    host = job.graph.kind == Kind.HOST
    ends, steps = job.graph.end_ns[host].tolist(), task_steps(job)[host].tolist()
    by_end = dict(zip(ends, steps, strict=True))
    assert by_end == {50_000: 0, 150_000: 1, 300_000: -1}


@given(st.lists(st.integers(0, 1000), min_size=2, max_size=7), st.integers(0, 500))
def test_one_meeting_is_the_closed_form(work, transfer):
    # The last rank at the median: the step is then set by it, or by the next to last.
    n = len(work)
    kinds = np.repeat([Kind.COMPUTE, Kind.ARRIVE, Kind.JOIN, Kind.TRANSFER], [n, n, 1, n])
    each = np.arange(n)
    src = np.concatenate([each, n + each, np.full(n, 2 * n)])
    dst = np.concatenate([n + each, np.full(n, 2 * n), 2 * n + 1 + each])
    graph, _ = build(
        len(kinds), src, dst, kind=kinds, rank=np.concatenate([each, each, [-1], each]),
        step=np.zeros(len(kinds)), collective=np.where(kinds == Kind.COMPUTE, -1, 0),
        dur_ns=np.concatenate([work, np.zeros(n + 1, int), np.full(n, transfer)]),
        start_ns=np.zeros(len(kinds)), order_ns=np.arange(len(kinds)),
        op_names=("f", "all_reduce"), op=np.where(kinds == Kind.COMPUTE, 0, 1),
    )  # fmt: skip
    rows = table(SimpleNamespace(graph=graph, facts={}))
    ordered = sorted(work)
    median = (ordered[(n - 1) // 2] + ordered[n // 2]) // 2
    for rank, score, _, _, step_ns, how in rows:
        others = max(w for r, w in enumerate(work) if r != rank)
        assert step_ns == max(work) + transfer
        assert score == (max(work) - max(others, median) if work[rank] == max(work) else 0)
        assert how == ("replay" if work[rank] == max(work) else "never last")


# A study's job with one worker slowed on purpose.


@pytest.fixture(scope="module", params=["AR", "ST"])
def study(request, retime_traces, tmp_path_factory):
    folder = retime_traces / "straggler" / "StragglerAnalysis"
    warehouse = Warehouse(str(tmp_path_factory.mktemp("warehouse")))
    run.ingest(warehouse, [str(folder / f"trace-{request.param}.parquet")], job=request.param)
    snapshot = warehouse.snapshot(request.param)
    found = computed.tables(snapshot)["replay_scores"].to_pylist()
    published = {
        what: json.loads((folder / f"{what}-{request.param}.json").read_text())
        for what in ("mw", "ms", "result")
    }
    return request.param, found, stragglers.of_snapshot(snapshot), published


def test_the_slowed_worker_has_the_greatest_score(study):
    job, found, ideal, published = study
    best = max(found, key=lambda row: row["score_ns"])
    over_ns = ideal.replayed_ns - ideal.ideal_ns
    if job == "AR":
        # M_W: what its slowest worker explains of the excess over the ideal is all of it.
        assert [best["rank"]] == ideal.slowest_ranks
        assert best["score_ns"] / over_ns == pytest.approx(published["mw"]["Mw"], abs=0.06)
        assert sum(row["score_ns"] for row in found) == pytest.approx(best["score_ns"], rel=0.01)
    else:
        # A long last stage (M_S 1.2, M_W 0.03): no one worker explains it.
        assert published["mw"]["Mw"] < 0.1
        assert best["score_ns"] < 0.5 * over_ns


def test_each_worker_has_a_score_within_its_interval(study):
    job, found, _, _ = study
    assert len(found) == {"AR": 16, "ST": 8}[job]
    assert all(row["low_ns"] <= row["score_ns"] <= row["high_ns"] for row in found)


def test_nothing_changes_where_all_ranks_are_alike(tables):
    graph = one_kernel_each(tables, 100, 100, 100).graph
    dur, gap = at_median(graph, graph.step)
    assert (dur == graph.dur_ns).all()
    assert (gap == graph.gap_ns).all()
