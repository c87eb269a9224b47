"""Replicas of experts: the example of DeepSeek's EPLB repository, and what bounds it."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from retime.replay.moe import eplb
from retime.replay.policy import BadParam

LOADS = np.array(
    [
        [90, 132, 40, 61, 104, 165, 39, 4, 73, 56, 183, 86],
        [20, 107, 104, 64, 19, 197, 187, 157, 172, 86, 16, 27],
    ]
)
"""The example of the EPLB repository's README: 2 layers of 12 experts, 16 copies in 4 groups on 2
nodes of 4 GPUs, with the map that it prints."""

PRINTED = [
    [5, 6, 5, 7, 8, 4, 3, 4, 10, 9, 10, 2, 0, 1, 11, 1],
    [7, 10, 6, 8, 6, 11, 8, 9, 2, 4, 5, 1, 5, 0, 3, 1],
]


def gpu_loads(load, slots, gpus):
    return load @ eplb.spread(slots, gpus, len(load))


def balance(loads, plan, gpus=8):
    return [
        gpu_loads(load, slots, gpus).max() / gpu_loads(load, slots, gpus).mean()
        for load, slots in zip(loads, plan, strict=True)
    ]


def test_hierarchical_plan_is_the_one_that_is_printed():
    plan = eplb.plan(LOADS, 16, gpus=8, groups=4, nodes=2)
    assert plan.tolist() == PRINTED
    first = gpu_loads(LOADS[0], plan[0], 8)
    assert first.tolist() == [121.5, 86.5, 125, 113, 147.5, 131.5, 156, 152]
    assert balance(LOADS, plan) == pytest.approx([1.208, 1.242], abs=5e-4)


def test_global_plan_balances_better_without_keeping_groups_together():
    # Computed with the public program as well: 1.073 and 1.190.
    plan = eplb.plan(LOADS, 16, gpus=8)
    assert balance(LOADS, plan) == pytest.approx([1.073, 1.190], abs=5e-4)


def test_contiguous_experts_without_copies():
    # 12 experts, three on each of 4 GPUs: 1.278 and 1.785 (arithmetic).
    contiguous = np.tile(np.arange(12), (2, 1))
    assert balance(LOADS, contiguous, gpus=4) == pytest.approx([1.278, 1.785], abs=5e-4)


def test_groups_stay_on_their_node():
    plan = eplb.plan(LOADS, 16, gpus=8, groups=4, nodes=2)
    for slots in plan:
        on = [set(slots[:8] // 3), set(slots[8:] // 3)]
        assert not on[0] & on[1]


@given(st.integers(0, 2**31), st.integers(0, 3), st.sampled_from([(1, 1), (4, 2), (2, 2), (3, 2)]))
def test_a_plan_holds_every_expert_and_is_no_better_than_its_bound(seed, more, how):
    groups, nodes = how
    rng = np.random.default_rng(seed)
    load = rng.lognormal(0, 1.5, (1, 12)) * (rng.random((1, 12)) < 0.8)
    replicas = 12 + 4 * more
    plan = eplb.plan(load, replicas, gpus=4, groups=groups, nodes=nodes)[0]
    assert len(plan) == replicas
    assert set(plan) == set(range(12))
    loads = gpu_loads(load[0], plan, 4)
    assert loads.sum() == pytest.approx(load.sum())
    assert loads.max(initial=0) >= eplb.least_possible(load[0], eplb.spread(plan, 4, 12)) - 1e-9
    # Greedy copies make the largest load of a copy as small as any counts of copies can.
    if groups == 1 and load.sum() > 0:
        count = np.bincount(plan, minlength=12)
        level = (load[0] / count).max()
        assert np.ceil(load[0] / (level * (1 - 1e-9)) - 1e-12).clip(1).sum() >= replicas


@pytest.mark.parametrize(
    ("replicas", "gpus", "says"), [(11, 4, "at least 12"), (14, 4, "multiple of 4")]
)
def test_counts_that_do_not_divide(replicas, gpus, says):
    with pytest.raises(BadParam, match=says):
        eplb.plan(LOADS, replicas, gpus=gpus)


def test_gpus_keep_what_they_had():
    # A plan that names the same shares otherwise moves nothing; one expert more is one fetch.
    had = np.array([[1, 0], [1, 0], [0, 1], [0, 1.0]])
    swapped = had[:, ::-1].copy()
    assert eplb.settled(swapped, had, np.array([0, 0])).tolist() == had.tolist()
    # GPUs of different hosts are not alike.
    assert eplb.settled(swapped, had, np.array([0, 1])).tolist() == swapped.tolist()


@given(st.integers(0, 2**31), st.integers(1, 2))
def test_copies_at_run_time_never_load_the_busiest_more(seed, room):
    rng = np.random.default_rng(seed)
    load = rng.lognormal(0, 1.5, 12)
    held = np.repeat(np.eye(4), 3, axis=0)
    copies = eplb.added(load, held, room)
    assert (copies >= held).all()
    assert ((copies - held).sum(axis=0) <= room).all()
    loads = load @ (copies / copies.sum(axis=1, keepdims=True))
    assert loads.sum() == pytest.approx(load.sum())
    assert loads.max() <= (load @ held).max() + 1e-9
