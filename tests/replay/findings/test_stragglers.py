"""Slowdowns by hand on two workers, and against the straggler study's published answers."""

import json

import numpy as np
import pytest
from retime.ingest import run
from retime.ingest.warehouse import Warehouse
from retime.replay.findings import ideal, stragglers
from retime.replay.graph import Kind, build

NONE = np.array([], np.int64)


def two_workers(**extra):
    """Workers that compute 10 and 20 in step 1, 12 and 18 in step 2, and never meet."""
    graph, _ = build(
        4, NONE, NONE, kind=np.full(4, Kind.COMPUTE), rank=np.array([0, 1, 0, 1]),
        step=np.array([1, 1, 2, 2]), op=np.zeros(4), op_names=("work",),
        dur_ns=np.array([10, 20, 12, 18]), gap_ns=np.array([5, 0, 0, 0]),
        start_ns=np.array([5, 0, 100, 100]), end_ns=np.array([15, 21, 112, 118]),
        release_ns=np.array([0, 0, 100, 100]),
        extra={k: np.asarray(v) for k, v in extra.items()},
    )  # fmt: skip
    return graph


def test_slowdown_by_hand():
    got = stragglers.analyse(two_workers())
    # All like operations at their mean of 15; steps of 20 and 18 without delays.
    assert (got.replayed_ns, got.ideal_ns) == (19.0, 15.0)
    assert got.slowdown == 19 / 15
    # The measured steps were 21 and 18.
    assert got.launch_slowdown == 19.5 / 19
    assert got.by_rank == [
        {"rank": 0, "stage": None, "dp_rank": None, "slowdown": 1.0, "score": 1.0},
        {"rank": 1, "stage": None, "dp_rank": None, "slowdown": 19 / 15, "score": 19 / 15},
    ]
    assert got.by_op == [{"op": "work", "slowdown": 19 / 15}]
    assert (got.by_stage, got.by_dp_rank, got.m_s) == ([], [], None)
    # The slower worker made ideal leaves steps of 15 and 15: all of the slowdown goes.
    assert got.slowest_ranks == [1]
    assert got.m_w == 1.0
    assert got.by_step[1] == {
        "step": 2, "measured_ns": 18, "replayed_ns": 18, "ideal_ns": 15, "slowdown": 18 / 15,
    }  # fmt: skip


def test_stages_and_the_score():
    got = stragglers.analyse(two_workers(stage=[0, 1, 0, 1], dp_rank=[0, 0, 0, 0]))
    assert [r["slowdown"] for r in got.by_stage] == [1.0, 19 / 15]
    assert [r["slowdown"] for r in got.by_dp_rank] == [19 / 15]
    assert [r["score"] for r in got.by_rank] == [1.0, 19 / 15]
    assert got.m_s == 1.0


def test_nothing_is_slower_than_its_like():
    graph = two_workers().with_(dur_ns=np.full(4, 7))
    got = stragglers.analyse(graph)
    assert got.slowdown == 1.0
    assert got.m_w is None


def test_a_graph_without_steps_is_refused():
    with pytest.raises(ValueError, match="no steps"):
        stragglers.analyse(two_workers().with_(step=np.full(4, -1)))


def test_the_ideal_is_the_mean_of_work_and_the_median_of_transfers():
    kinds = [Kind.COMPUTE] * 3 + [Kind.TRANSFER] * 4 + [Kind.ARRIVE]
    graph, order = build(
        8, NONE, NONE, kind=np.array(kinds), op=np.array([0, 0, 1, 2, 2, 2, 2, 2]),
        op_names=("gemm", "add", "send"), dur_ns=np.array([10, 21, 7, 1, 2, 4, 100, 0]),
        gap_ns=np.array([0, 4, 9, 0, 0, 0, 0, 3]),
    )  # fmt: skip
    assert order.tolist() == list(range(8))
    # 15.5 rounds to even; the median of 1, 2, 4, 100 is 3.
    assert ideal.durations_ns(graph).tolist() == [16, 16, 7, 3, 3, 3, 3, 0]
    assert ideal.gaps_ns(graph).tolist() == [2, 2, 9, 0, 0, 0, 0, 3]


def test_positions_in_the_step_part_like_from_unlike():
    graph = two_workers(like=[1, 1, 2, 2])
    assert ideal.durations_ns(graph).tolist() == [15, 15, 15, 15]
    graph = two_workers(like=[1, 2, 1, 2])
    # In order of their start: worker 1 is first in step 1.
    assert ideal.durations_ns(graph).tolist() == [19, 11, 11, 19]


# The study's own answers, beside the traces.


@pytest.fixture(scope="module", params=["AR", "ST"])
def real(request, retime_traces, tmp_path_factory):
    """The whole path: ingested, matched, read back from the warehouse, replayed."""
    folder = retime_traces / "straggler" / "StragglerAnalysis"

    def answers(name: str) -> dict:
        return json.loads((folder / f"{name}-{request.param}.json").read_text())

    warehouse = Warehouse(str(tmp_path_factory.mktemp("warehouse")))
    run.ingest(warehouse, [str(folder / f"trace-{request.param}.parquet")], job=request.param)
    return stragglers.of_snapshot(warehouse.snapshot(request.param)), answers


def test_slowdown_and_shares_are_the_published_ones(real):
    got, answers = real
    # 1.973 and 1.179; M_W 1.002 and 0.031; M_S -0.001 and 1.219.
    assert got.slowdown == pytest.approx(answers("result")["blocking_slowdown"], rel=1e-6)
    assert got.launch_slowdown == pytest.approx(answers("result")["launch_slowdown"], rel=1e-6)
    assert got.m_w == pytest.approx(answers("mw")["Mw"], abs=1e-6)
    assert got.m_s == pytest.approx(answers("ms")["Ms"], abs=1e-6)
    assert got.replayed_ns / 1e9 == pytest.approx(answers("mw")["tori"], rel=1e-6)
    assert got.ideal_ns / 1e9 == pytest.approx(answers("mw")["tideal"], rel=1e-6)


def test_parts_are_the_published_ones(real):
    got, answers = real
    published = answers("result")

    def both(key, rows):
        ours = {str(r[key]): r["slowdown"] for r in rows}
        theirs = published[f"blocking_decompose_by_{'optype' if key == 'op' else key}"]
        assert ours == pytest.approx(theirs, rel=1e-5)

    both("op", got.by_op)
    both("stage", got.by_stage)
    both("dp_rank", got.by_dp_rank)
    steps = {str(r["step"]): r["slowdown"] for r in got.by_step}
    assert steps == pytest.approx(published["blocking_step_slowdown"], rel=1e-5)
