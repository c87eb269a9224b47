"""Circuits: worked numbers of rotation and of ready-driven schedules."""

from __future__ import annotations

import re

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from retime.ingest.errors import UsageError
from retime.replay.costs.circuits import Rotor, least_ns, rotated_ns, scheduled_ns

EIGHT = Rotor(matchings=7, hold_ns=180e3, reconfigure_ns=20e3)
TIMES = st.floats(0, 1e6)


def test_a_rotation_of_eight_nodes():
    assert (EIGHT.slot_ns, EIGHT.cycle_ns, EIGHT.duty) == (200e3, 1.4e6, 0.9)
    assert EIGHT.mean_wait_ns == pytest.approx(531.6e3, abs=50)


def test_a_ring_step_of_10_mb():
    step = 10e6 / 50e9 * 1e9
    assert step == pytest.approx(200e3)
    assert scheduled_ns([step], 1, 20e3) == pytest.approx(220e3)
    assert scheduled_ns([step], 1, 20e3, up=True) == pytest.approx(200e3)
    turned = rotated_ns(np.array([step]), EIGHT, 0.0)
    assert turned == pytest.approx(1.42e6)
    assert turned / 220e3 == pytest.approx(6.5, abs=0.05)
    assert turned / 200e3 == pytest.approx(7.1, abs=0.05)


def test_a_mean_over_phases_is_the_mean_wait():
    tiny = rotated_ns(np.array([1.0]), EIGHT)
    assert tiny == pytest.approx(EIGHT.mean_wait_ns, rel=0.03)


def test_the_floor_of_a_demand():
    """W 600 us, three configurations of 20 us, two switches: 330 us."""
    demand = np.full((4, 4), 200e3)
    np.fill_diagonal(demand, 0)
    assert least_ns(demand, 2, 20e3) == pytest.approx(330e3)
    assert scheduled_ns([200e3] * 3, 2, 20e3) >= 330e3


@given(st.lists(TIMES, max_size=6), st.integers(1, 4), st.floats(0, 1e5))
def test_no_schedule_is_under_its_floor(weights, switches, delta):
    """A demand whose every line has these weights, one a matching."""
    n = len(weights) + 1
    demand = np.zeros((n, n))
    at = np.arange(n)
    for k, w in enumerate(weights):
        demand[at, (at + k + 1) % n] = w
    made = scheduled_ns(weights, switches, delta)
    assert made >= least_ns(demand, switches, delta) * (1 - 1e-12)


@settings(max_examples=60)
@given(st.lists(TIMES, min_size=1, max_size=7), st.floats(0, 1.4e6))
def test_rotation_gives_each_matching_its_time(need, phase):
    took = rotated_ns(np.array(need), EIGHT, phase)
    for place, left in enumerate(need):
        # What its turns in [phase, phase + took) hold, one by one.
        up = 0.0
        for cycle in range(-1, int((phase + took) / EIGHT.cycle_ns) + 2):
            begin = cycle * EIGHT.cycle_ns + place * EIGHT.slot_ns
            up += max(min(begin + EIGHT.hold_ns, phase + took) - max(begin, phase), 0.0)
        assert up >= left - 1e-3


def test_switches_that_nothing_uses_cost_nothing():
    assert scheduled_ns([100.0], 1 << 40, 20.0) == pytest.approx(20.0)


def test_too_many_matchings():
    with pytest.raises(UsageError, match="do not fit"):
        rotated_ns(np.ones(8), EIGHT)


@pytest.mark.parametrize("op", ["all_reduce", "all_to_all"])
def test_ready_driven_never_waits_longer_than_rotation(rings, op):
    algo = "ring" if op == "all_reduce" else "pairwise"
    job = rings.job(op=op, algo=algo, hosts=8, alpha_ns=5e3, bandwidth=50e9)
    for delta in ("1us", "20us", "1ms"):
        spec = f"reconfigure={delta}"
        ready = rings.under(job, f"optical:schedule=ready,{spec}").graph.dur_ns
        rotor = rings.under(job, f"optical:schedule=rotor,{spec}").graph.dur_ns
        assert (ready <= rotor).all()
        assert (ready >= job.graph.dur_ns).all()


def test_rotation_says_how_long_it_waits_and_what_buffers_hold(rings):
    # 7 matchings of 180 and 20 us: 531.6 us on average; 50 GB/s for a cycle of 1.4 ms are 70 MB.
    job = rings.job(hosts=8, alpha_ns=5e3, bandwidth=50e9)
    said = rings.under(job, "optical:schedule=rotor,reconfigure=20us,hold=180us").assumptions
    assert any("waits 531.6 us" in a and "buffers of 70 MB a cycle" in a for a in said)
    ready = rings.under(job, "optical:reconfigure=20us").assumptions
    assert not any("buffers" in a for a in ready)


def test_a_ring_pays_one_circuit(rings):
    job = rings.job(hosts=8, alpha_ns=5e3, bandwidth=50e9)
    after = rings.under(job, "optical:reconfigure=20us")
    assert rings.took_us(after, 80 << 20) - rings.took_us(job, 80 << 20) == pytest.approx(
        20, abs=0.1
    )
    same = rings.under(job, "optical:reconfigure=0us")
    assert np.array_equal(same.graph.dur_ns, job.graph.dur_ns)


@pytest.mark.parametrize("schedule", ["ready", "bvn"])
@pytest.mark.parametrize("switches", [1, 2, 3])
def test_no_schedule_is_under_the_least_that_is_said(rings, schedule, switches):
    # A ring needs one circuit of each rank: of one switch W + 20 us, or W where that is set up.
    for op, algo in (("all_reduce", "ring"), ("all_to_all", "pairwise")):
        job = rings.job(op=op, algo=algo, hosts=8, alpha_ns=0.0, bandwidth=50e9, steps=1)
        for prefetch in ("false", "true"):
            spec = f"optical:switches={switches},schedule={schedule},prefetch={prefetch}"
            (said,) = [a for a in rings.under(job, spec).assumptions if "at least" in a]
            least, made = (float(ms) for ms in re.findall(r"take ([\d.e+-]+) ms", said))
            assert 0 < least <= made * 1.001
            if op == "all_reduce" and switches == 1:
                assert least == pytest.approx(made, rel=1e-3)


def test_rotation_sets_up_no_circuit_for_a_need(rings):
    # On two hosts the one matching is up nine tenths of the time: no set-up is waited for.
    job = rings.job(n=2, hosts=2, alpha_ns=0.0, bandwidth=50e9, steps=1)
    said = rings.under(job, "optical:schedule=rotor").assumptions
    assert not any("at least" in a for a in said)


def test_the_least_that_circuits_can_take_is_said(rings):
    # 8 hosts, 16 MB a rank, 2 MB to each at 50 GB/s over two switches of half of it: 7 x 80 us of
    # circuit and 7 x 20 us of set-up a rank, over two switches 350 us; seven equal matchings on
    # two switches take 4 x 100 us, evened out (560 / 2 + 20 x 4) 360 us.
    job = rings.job(op="all_to_all", algo="pairwise", hosts=8, sizes=(1 << 10, 16_000_000),
                    alpha_ns=0.0, bandwidth=50e9, steps=1)  # fmt: skip
    after = rings.under(job, "optical:switches=2,bandwidth=50GB/s,schedule=bvn")
    (said,) = [a for a in after.assumptions if "at least" in a]
    small = 7 * 20e3 / 2 + 7 * 1024 / 8 / 50
    assert f"take {(350e3 + small) / 1e6:.4g} ms at least" in said
    assert "scheduled so they take" in said


def test_inside_a_host_there_are_no_circuits(rings):
    job = rings.job(hosts=1)
    after = rings.under(job, "optical")
    assert np.array_equal(after.graph.dur_ns, job.graph.dur_ns)
    assert any("inside a host" in w for w in after.warnings)


@pytest.mark.parametrize("spec", ["switches=-1", "reconfigure=-1us", "hold=0us", "hold=1e-20ns"])
def test_out_of_range(rings, spec):
    with pytest.raises((UsageError, ValueError)):
        rings.under(rings.job(hosts=8), f"optical:{spec}")
