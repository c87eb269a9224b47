"""Bubbles in closed form, and schedules run exactly."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from retime.replay.planner import bubble, pipeline


def test_eight_stages_of_equal_passes():
    # zero-bubble's and DualPipe's READMEs, F = D = W = 1, F&B = 3: 21, 7, 0, 6.
    known = {"gpipe": 21, "1f1b": 21, "zb-h1": 7, "zb-h2": 0, "zbv": 0, "dualpipe": 6}
    known |= {"v-half": 10.5, "v-min": 14}
    assert {s: bubble.bubble(s, 8, 1, 1, 1) for s in known} == known
    assert bubble.bubble("interleaved", 8, 1, 1, 1, chunks=3) == 7


def test_share_of_a_step():
    # (p-1)/(m+p-1): 8 stages, 32 microbatches: 17.9 %, by GPipe and 1F1B run pass by pass.
    for schedule in ("gpipe", "1f1b"):
        run = pipeline.simulate(schedule, [1.0] * 8, [2.0] * 8, 32)
        assert run.idle.max() / run.period == pytest.approx(0.179, abs=5e-4)
        alone = pipeline.simulate(schedule, [1.0], [2.0], 32)
        assert alone.idle.max() == 0


def test_dualpipe_writes_the_full_backward_pass_as_b():
    # Its README's row for ZB1P is (p-1)(F + B - 2W) with B = D + W: the same as ZB-H1's.
    f, d, w = 1.0, 1.3, 0.8
    assert 7 * (f + (d + w) - 2 * w) == pytest.approx(bubble.bubble("zb-h1", 8, f, d, w))


@pytest.mark.parametrize("schedule", pipeline.SIMULATED)
@pytest.mark.parametrize(("p", "m"), [(2, 4), (4, 8), (4, 16), (8, 16), (8, 32), (16, 48)])
def test_a_run_of_equal_stages_is_idle_for_its_bubble(schedule, p, m):
    v = 2 if schedule == "interleaved" else 1
    run = pipeline.simulate(schedule, [1 / v] * p * v, [2 / v] * p * v, m, chunks=v)
    idle = bubble.bubble(schedule, p, 1, 1, 1, chunks=v)
    assert run.idle.max() == pytest.approx(idle, abs=1e-9)
    assert run.busy == pytest.approx(np.full(p, 3.0 * m))


times = st.floats(0.1, 10)


@settings(max_examples=60, deadline=None)
@given(st.data())
def test_no_stage_can_be_quicker_than_its_work_and_the_way_to_it(data):
    # A stage works on all microbatches, after the first has come through those before it and before
    # the last has gone back through them.
    p = data.draw(st.integers(1, 6))
    m = data.draw(st.integers(p, 12))
    f = data.draw(st.lists(times, min_size=p, max_size=p))
    b = [2 * x for x in f]
    whole = [3 * x for x in f]
    least = max(m * whole[k] + sum(whole[:k]) for k in range(p))
    for schedule in ("1f1b", "gpipe", "zb-h1"):
        w = [0.0] * p if schedule == "zb-h1" else None
        run = pipeline.simulate(schedule, f, b, m, weight=w)
        assert run.makespan >= least * (1 - 1e-9)
        assert run.makespan <= m * sum(whole) * (1 + 1e-9)


@settings(max_examples=40, deadline=None)
@given(
    st.sampled_from(pipeline.SIMULATED), st.lists(times, min_size=4, max_size=4),
    st.integers(0, 3), st.floats(0.01, 5),
)  # fmt: skip
def test_a_slower_stage_or_send_never_shortens_a_step(schedule, f, stage, more):
    v = 2 if schedule == "interleaved" else 1
    f = f * v

    def makespan(f, send=0.0):
        b = [2 * x for x in f]
        return pipeline.simulate(schedule, f, b, 8, send=send, chunks=v).makespan

    base = makespan(f)
    slower = [x + more * (i == stage) for i, x in enumerate(f)]
    assert makespan(slower) >= base - 1e-9
    assert makespan(f, send=more) >= base - 1e-9
    assert base >= 8 * 3 * max(sum(f[i::4]) for i in range(4)) - 1e-9


def test_two_stages_by_hand():
    # F = 1 and 2, B = 2 and 4, 2 microbatches. Stage 1: F 1-3, B 3-7, F 7-9, B 9-13; stage 0's
    # backward passes at 7-9 and 13-15.
    run = pipeline.simulate("1f1b", [1, 2], [2, 4], 2)
    assert run.makespan == 15
    assert run.idle.tolist() == [9, 3]
    # Each send takes 1: activations at 2 and gradients at 8; the last two a unit later each.
    assert pipeline.simulate("1f1b", [1, 2], [2, 4], 2, send=1).makespan == 17


def test_no_order_of_a_v_schedule_is_known():
    with pytest.raises(ValueError, match="no order of 'zbv' is known"):
        pipeline.simulate("zbv", [1, 1], [2, 2], 4)
    with pytest.raises(ValueError, match="no schedule 'zigzag'"):
        bubble.bubble("zigzag", 4, 1, 1, 1)


@pytest.mark.parametrize("schedule", pipeline.SIMULATED)
@pytest.mark.parametrize("send", [0.0, 0.7])
def test_long_runs_are_extrapolated_from_their_beginning(schedule, send, monkeypatch):
    v = 2 if schedule == "interleaved" else 1
    rng = np.random.default_rng(0)
    unequal = rng.uniform(1, 2, 8 * v)
    forward, back = unequal.tolist(), (2 * unequal * rng.uniform(0.8, 1.2, 8 * v)).tolist()
    whole = pipeline.simulate(schedule, forward, back, 320, send=send, chunks=v)
    monkeypatch.setattr(pipeline, "MOST_OPERATIONS", 1)
    begun = pipeline.simulate(schedule, forward, back, 320, send=send, chunks=v)
    assert begun.makespan == pytest.approx(whole.makespan, rel=3e-3)
    assert begun.period == pytest.approx(whole.period, rel=3e-3)
    np.testing.assert_allclose(begun.busy, whole.busy)


def test_a_pipeline_of_a_billion_microbatches():
    # Equal stages: (m + p - 1) (F + B).
    run = pipeline.simulate("1f1b", [1.0] * 64, [2.0] * 64, 10**9)
    assert run.makespan == pytest.approx(3 * (10**9 + 63), rel=1e-12)
