"""Patterns round a loaded link: a ring of four by hand, and never worse than as it was."""

from __future__ import annotations

import itertools
from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from retime.replay.costs.rerouting import best_ring, ring_edges, slowest
from retime.replay.fabric import load as load_fabric
from retime.replay.fabric.description import Background
from retime.replay.policy import BadParam

SIZE = 400_000_000


def test_a_ring_of_four():
    free = np.full((4, 4), 50e9)
    volume = 2 * 3 / 4 * SIZE
    assert volume * 1e3 / slowest(free, ring_edges(np.arange(4))) == pytest.approx(12)
    free[1, 2] = free[2, 1] = 25e9
    assert volume * 1e3 / slowest(free, ring_edges(np.arange(4))) == pytest.approx(24)
    order = best_ring(free)
    assert sorted(order.tolist()) == [0, 1, 2, 3]
    assert volume * 1e3 / slowest(free, ring_edges(order)) == pytest.approx(12)


def test_two_paths(rings):
    # Every ring of 4 has a loaded edge when only 2-3 is free: 25 GB/s, 24 ms. With 12.5 GB/s on a
    # second path a third of the bytes goes there: 600 MB at 37.5 GB/s, 16 ms (by hand).
    job = rings.job(n=4, hosts=4, alpha_ns=0.0, bandwidth=25e9, sizes=(SIZE,))
    spec = "congestion-aware:between=0-1+0-2+0-3+1-2+1-3,load=0.5"
    assert rings.took_us(rings.under(job, spec), SIZE) == pytest.approx(24e3, rel=1e-3)
    after = rings.under(job, f"{spec},spare=12.5GB/s")
    assert rings.took_us(after, SIZE) == pytest.approx(16e3, rel=1e-3)
    assert any("split with 33.3 % over a second path" in a for a in after.assumptions)


@settings(max_examples=80)
@given(st.integers(3, 6), st.randoms(use_true_random=False))
def test_another_order_is_never_slower_nor_faster_than_the_best(n, random):
    free = np.array([[random.choice([1.0, 0.5, 0.25]) for _ in range(n)] for _ in range(n)])
    order = best_ring(free)
    assert sorted(order.tolist()) == list(range(n))
    found = slowest(free, ring_edges(order))
    assert found >= slowest(free, ring_edges(np.arange(n)))
    best = max(
        slowest(free, ring_edges(np.array((0, *rest))))
        for rest in itertools.permutations(range(1, n))
    )
    assert found <= best


@given(st.integers(4, 40), st.data())
def test_one_loaded_link_is_always_avoided(n, data):
    free = np.full((n, n), 1.0)
    a = data.draw(st.integers(0, n - 1))
    b = data.draw(st.integers(0, n - 1).filter(lambda x: x != a))
    free[a, b] = free[b, a] = 0.5
    assert slowest(free, ring_edges(best_ring(free))) == 1.0


def test_a_job_with_a_loaded_link(rings):
    job = rings.job(n=4, hosts=4, alpha_ns=0.0, bandwidth=25e9, sizes=(SIZE,))
    assert rings.took_us(job, SIZE) == pytest.approx(24e3, rel=1e-3)
    after = rings.under(job, "congestion-aware:between=1-2,load=0.5")
    assert rings.took_us(after, SIZE) == pytest.approx(12e3, rel=1e-3)
    assert any("ring in another order" in a for a in after.assumptions)


def test_what_was_measured_had_the_load_in_it(rings):
    # 25 GB/s is what is left of 50 under the load: away from it bytes take half, messages the same.
    size = 4_000_000
    job = rings.job(n=4, hosts=4, alpha_ns=40e3, bandwidth=25e9, sizes=(size // 100, size))
    assert rings.took_us(job, size) == pytest.approx(6 * 40 + 6e6 / 25e3, rel=1e-3)
    after = rings.under(job, "congestion-aware:between=1-2,load=0.5")
    assert rings.took_us(after, size) == pytest.approx(6 * 40 + 6e6 / 50e3, rel=1e-2)


def test_without_load_nothing_changes(rings):
    job = rings.job(n=4, hosts=4)
    # 0-2 is no edge of the ring.
    for spec in ("between=0-1,load=0", "between=90-91", "between=0-2,load=0.9"):
        after = rings.under(job, f"congestion-aware:{spec}")
        assert np.array_equal(after.graph.dur_ns, job.graph.dur_ns)


def test_nobody_says_which_link(rings):
    job = rings.job()
    after = rings.under(job, "congestion-aware")
    assert np.array_equal(after.graph.dur_ns, job.graph.dur_ns)
    assert "give between" in after.warnings[-1]


@pytest.mark.parametrize(
    "spec", ["load=1", "load=-0.1", "between=0", "between=a-b", "between=0-1-2"]
)
def test_out_of_range(rings, spec):
    with pytest.raises(BadParam):
        rings.under(rings.job(), f"congestion-aware:{spec}")


def test_a_fabric_that_says_its_background(rings):
    fabric = load_fabric("h100", gpus=16)
    small = 10 << 10
    job = rings.job(n=16, hosts=2, alpha_ns=5e3, bandwidth=48e9, sizes=(small, SIZE))
    calm = replace(job, facts={**job.facts, "fabric": fabric})
    assert "give between" in rings.under(calm, "congestion-aware").warnings[-1]
    loaded = replace(fabric, background=(Background("nic", 0.5),))
    after = rings.under(
        replace(job, facts={**job.facts, "fabric": loaded}), "congestion-aware:op=all_reduce"
    )
    # Every NIC is loaded alike, and two edges of a ring of two hosts must cross: large ones stay. A
    # tree's edges cross too, at what was left of the NICs: 2 x 4 levels of 5 us and 10 KiB at
    # 48 GB/s are 41.7 us, where the ring's 30 messages took 150 (by hand).
    assert rings.took_us(after, SIZE) == rings.took_us(job, SIZE)
    assert rings.took_us(job, small) == pytest.approx(150.4, abs=0.1)
    assert rings.took_us(after, small, job) == pytest.approx(41.7, rel=1e-2)
    assert any("3 as it was" in a and "3 tree" in a for a in after.assumptions)
