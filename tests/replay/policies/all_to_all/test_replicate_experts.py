"""Copies of hot experts, from a routing log."""

from __future__ import annotations

import numpy as np
import pytest
from retime.replay.graph import Kind
from retime.replay.moe import eplb
from retime.replay.policies import replicate_experts
from retime.replay.policy import BadParam

PORTS = "nvlink=100GB/s,alpha=0,hidden=1"


def routing(counts, steps, layers=(0,), **more):
    """Rows of `routing`: counts[rank][expert] in every step and layer."""
    return [
        {"step": s, "layer": layer, "rank": r, "expert": e, "tokens": int(n),
         "token_class": "real", "source": "t", **more}
        for s in steps for layer in layers
        for r, row in enumerate(counts) for e, n in enumerate(row) if n
    ]  # fmt: skip


HOT = np.tile([90, 10, 10, 10], (4, 1))
"""Four ranks, an expert each: the first takes three quarters of all choices."""


def job_of(a2a_job, counts=HOT, steps=3, took_us=1_000.0, **more):
    """One all-to-all a step whose splits are the counts (a thousand bytes each)."""
    return a2a_job([[counts * 1000.0]] * steps, took_us=took_us, hosts=1, places=len(counts),
                   **{"routing": routing(counts, range(steps)), **more})  # fmt: skip


def test_run_time_copies_bring_the_busiest_rank_down(a2a_job, under, moved_ns):
    # Into rank 0 come 3 x 90; with a copy on each other rank (four slots in all are to be had,
    # three are useful) everyone takes a quarter of expert 0 and its own: 22.5 + 10 from each
    # source, into ranks 1 to 3 3 x 32.5, out of rank 0 3 x 32.5.
    job = job_of(a2a_job)
    after = under(job, f"replicate-experts:when=runtime,budget=4,{PORTS}")
    assert moved_ns(after) == [pytest.approx(1e6 * 97.5 / 270, abs=1)] * 3
    (said,) = [a for a in after.assumptions if "busiest rank over the mean" in a]
    mean = (30 + 3 * 110) / 4
    assert f"in {270 / mean:.3f} to {97.5 / ((67.5 + 3 * 97.5) / 4):.3f}" in said


def test_expert_kernels_take_what_their_tokens_tell(a2a_job, under):
    job = job_of(a2a_job)
    after = under(job, f"replicate-experts:when=runtime,budget=4,{PORTS}")
    graph = after.graph
    task = graph.kind == Kind.COMPUTE
    took = {int(r): set(graph.dur_ns[task & (graph.rank == r)].tolist()) for r in range(4)}
    # 360 to 90 choices of rank 0, 40 to 130 of the others; 50 us before.
    assert took[0] == {12_500}
    assert took[1] == took[2] == took[3] == {162_500}
    other = under(job, f"replicate-experts:when=runtime,budget=4,{PORTS},kernels=nothing")
    assert any("no kernel is named like an expert's" in w for w in other.warnings)
    assert set(other.graph.dur_ns[task].tolist()) == {50_000}


def test_plans_at_ingest_lag_by_a_window(a2a_job, under, moved_ns):
    # Expert 0 is hot in steps 0 and 1, expert 3 in 2 and 3: a plan from the step before fits in
    # steps 1 and 3, and copies the wrong expert in step 2. Step 0 has none.
    cold = HOT[:, ::-1]
    steps = [HOT, HOT, cold, cold]
    rows = [r | {"step": s} for s, c in enumerate(steps) for r in routing(c, [0])]
    job = a2a_job([[c * 1000.0] for c in steps], took_us=1_000.0, hosts=1, places=4, routing=rows)
    took = moved_ns(under(job, f"replicate-experts:{PORTS}"))
    assert took[0] == 1_000_000
    assert took[1] < 600_000
    assert took[3] < 600_000
    assert took[2] > 900_000
    at_once = moved_ns(under(job, f"replicate-experts:when=runtime,{PORTS}"))
    assert max(at_once) < 600_000


def test_plan_of_ingest_is_eplbs(a2a_job, under, moved_ns):
    counts = np.array([[30, 5, 9, 1, 7, 20, 3, 3], [10, 2, 40, 5, 1, 6, 8, 2]])
    job = a2a_job([[counts.reshape(2, 2, 4).sum(axis=2) * 1000.0]] * 2, took_us=1_000.0, hosts=1,
                  places=2, routing=routing(counts, range(2)))  # fmt: skip
    slots = eplb.plan(counts.sum(axis=0)[None], 10, gpus=2)[0]
    matrix = counts @ eplb.spread(slots, 2, 8)
    was = counts.reshape(2, 2, 4).sum(axis=2)
    expected = max(matrix[0, 1], matrix[1, 0]) / max(was[0, 1], was[1, 0])
    took = moved_ns(under(job, f"replicate-experts:{PORTS}"))
    assert took == [1_000_000, pytest.approx(1e6 * expected, abs=1)]


def test_weights_that_are_not_hidden_are_paid(a2a_job, under, moved_ns):
    # One expert of 3 x 100 x 1000 x 2 = 600 kB at 100 GB/s: 6 us, and as much for its gradient.
    job = job_of(a2a_job)
    spec = "replicate-experts:when=runtime,budget=4,nvlink=100GB/s,alpha=0"
    size = "hidden_size=100,intermediate=1000"
    hidden = moved_ns(under(job, f"{spec},{size},hidden=1"))
    half = moved_ns(under(job, f"{spec},{size},hidden=0.5"))
    none = moved_ns(under(job, f"{spec},{size},hidden=0"))
    forward = moved_ns(under(job, f"{spec},{size},hidden=0,backward=false"))
    assert np.subtract(none, hidden).tolist() == [12_000] * 3
    assert np.subtract(half, hidden).tolist() == [6_000] * 3
    assert np.subtract(forward, hidden).tolist() == [6_000] * 3


def test_layers_are_told_by_their_place(a2a_job, under, moved_ns):
    # Two layers, hot on different ranks: dispatch, combine, dispatch, combine. Both ways gain.
    rows = routing(HOT, range(2)) + [r | {"layer": 1} for r in routing(HOT[:, ::-1], range(2))]
    out = [HOT, HOT.T, HOT[:, ::-1], HOT[:, ::-1].T]
    job = a2a_job([[m * 1000.0 for m in out]] * 2, took_us=1_000.0, hosts=1, places=4,
                  routing=rows, splits=False)  # fmt: skip
    after = under(job, f"replicate-experts:when=runtime,budget=4,{PORTS}")
    assert moved_ns(after) == [pytest.approx(1e6 * 97.5 / 270, abs=1)] * 8
    assert not any("could not be told apart" in a for a in after.assumptions)


def test_sums_over_ranks_are_parted_evenly(a2a_job, under, moved_ns):
    rows = [r | {"rank": None} for r in routing(HOT, range(2))]
    job = job_of(a2a_job, steps=2, routing=rows)
    after = under(job, f"replicate-experts:when=runtime,budget=4,{PORTS}")
    assert moved_ns(after) == [pytest.approx(1e6 * 97.5 / 270, abs=1)] * 2


def test_without_routing_it_says_what_to_record(a2a_job, under, unchanged):
    job = job_of(a2a_job, routing=[])
    after = under(job, "replicate-experts")
    assert unchanged(job, after)
    assert any("no routing log" in w and "router trace" in w for w in after.warnings)


def test_one_step_has_no_later_one(a2a_job, under, unchanged):
    job = job_of(a2a_job, steps=1)
    after = under(job, "replicate-experts")
    assert unchanged(job, after)
    assert any("no later step" in w for w in after.warnings)


def test_neutral_changes_nothing(a2a_job, under, unchanged):
    job = job_of(a2a_job)
    assert unchanged(job, under(job, ("replicate-experts", replicate_experts.NEUTRAL)))


@pytest.mark.parametrize(
    ("given", "says"),
    [
        ({"budget": 3}, "take budget=4"),
        ({"budget": 1 << 30}, "16 copies at most"),
        ({"budget": -1}, "0 copies or more"),
        ({"hidden": 1.5}, "hidden is 0 to 1"),
        ({"window": 0}, "more than 0"),
    ],
)
def test_what_is_out_of_range(a2a_job, under, given, says):
    with pytest.raises(BadParam, match=says):
        under(job_of(a2a_job), ("replicate-experts", given))


def test_moving_at_ingest_is_spread_over_the_steps_between(a2a_job, under, moved_ns):
    job = job_of(a2a_job)
    spec = "replicate-experts:nvlink=100GB/s,alpha=0,hidden_size=100,intermediate=1000"
    free = moved_ns(under(job, f"{spec},hidden=1"))
    each = moved_ns(under(job, f"{spec},hidden=0,amortise=1"))
    # In step 1 each rank takes one expert of 600 kB, twice 6 us; in step 2 it has it already.
    assert np.subtract(each, free).tolist() == [0, 12_000, 0]
    tenth = moved_ns(under(job, f"{spec},hidden=0,amortise=10"))
    assert np.subtract(tenth, free).tolist() == [0, 1_200, 0]
