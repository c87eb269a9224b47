"""All-to-all in waves, all at once and in a window: what each takes at the members' ports."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from retime.replay.moe import bvn, waves

FIRST = np.array([[0, 4, 1], [1, 0, 4], [4, 1, 0]], float)
SECOND = np.array([[0, 4, 1], [4, 0, 1], [1, 1, 0]], float)
GB = 1e9


def matched_ns(matrix):
    """All matchings one after another."""
    return sum(weight for weight, _ in bvn.decompose(matrix)) * 1e9 / GB


def barriered_ns(matrix, order, rate, **how):
    return sum(waves.wave_times_ns(matrix, order, rate, **how))


def lognormal(n, seed, sigma=1.2):
    matrix = np.exp(np.random.default_rng(seed).normal(0, sigma, (n, n)))
    np.fill_diagonal(matrix, 0)
    return matrix


@pytest.mark.parametrize(("matrix", "cyclic"), [(FIRST, 5), (SECOND, 8)])
def test_three_members_by_hand(matrix, cyclic):
    # Cyclic waves: 4 + 1 = 5 of the first, max(4, 1, 1) + max(4, 1, 1) = 8 of the second; the
    # busiest port is 5 in both, and all at once meets it, as does Birkhoff-von Neumann.
    assert waves.bound_bytes(matrix) == 5
    assert barriered_ns(matrix, waves.cyclic(3), GB) == pytest.approx(cyclic)
    assert waves.all_at_once_ns(matrix, GB) == pytest.approx(5)
    assert waves.windowed_ns(matrix, waves.cyclic(3), GB, width=2) == pytest.approx(5)
    assert matched_ns(matrix) == pytest.approx(5)


def test_the_only_decomposition_of_the_second():
    # Weights 1 (0>1>2>0), 3 (0<>1, 2 idle), 1 (0>2, 1>0, 2>1).
    found = {tuple(to): weight for weight, to in bvn.decompose(SECOND)}
    assert found == {(1, 2, 0): 1, (1, 0, 2): 3, (2, 0, 1): 1}


def test_all_waves_at_once_are_all_at_once():
    for matrix in (FIRST, SECOND, lognormal(6, 1)):
        n = len(matrix)
        together = barriered_ns(matrix, waves.cyclic(n), GB, width=n - 1)
        assert together == pytest.approx(waves.all_at_once_ns(matrix, GB))


def test_order_of_peers_is_nccls():
    # The sequence of 16 as `ncclP2pSchedule` in NCCL's src/init.cc gives it.
    sixteen = [0, 1, 3, 6, 10, 15, 5, 12, 4, 13, 7, 2, 14, 11, 9, 8]
    assert waves.quadratic(16) == sixteen
    assert waves.quadratic(1) == [0]
    for n in range(1, 40):
        assert sorted(waves.quadratic(n)) == list(range(n))


@pytest.mark.parametrize(("n", "per_host"), [(8, 8), (16, 8), (12, 4), (6, None), (5, 2)])
def test_every_order_sends_each_message_once(n, per_host):
    for order in (waves.cyclic(n), waves.native(n, per_host)):
        assert order.shape == (n - 1, n)
        for to in order:
            assert sorted(to) == list(range(n))
        for s in range(n):
            assert sorted(order[:, s]) == [d for d in range(n) if d != s]


def test_neighbours_in_the_host_come_first():
    assert waves.native(16, 8)[0].tolist() == [1, 2, 3, 4, 5, 6, 7, 0, 9, 10, 11, 12, 13, 14, 15, 8]


def test_without_incast_waves_do_not_win():
    # Skewed demand (lognormal, sigma 1.2): sharing comes within 8 % of the busiest port, barriers
    # cost half of the time again and more (ranges seen on other seeds: 1.08 to 2.94).
    for n, seeds in ((8, 40), (16, 12)):
        shared, barriers = [], []
        for seed in range(seeds):
            matrix = lognormal(n, seed)
            bound = waves.bound_bytes(matrix)
            shared.append(waves.windowed_ns(matrix, waves.cyclic(n), GB, width=n) / bound)
            barriers.append(barriered_ns(matrix, waves.cyclic(n), GB) / bound)
        assert np.median(shared) >= 1 - 1e-9
        assert np.median(shared) < 1.01
        assert max(shared) < 1.08
        assert min(barriers) > 1.08
        assert np.median(barriers) == pytest.approx({8: 1.65, 16: 2.4}[n], abs=0.15)


@pytest.mark.parametrize("n", [4, 8, 32])
def test_uniform_demand_without_incast_is_the_same_in_any_order(n):
    matrix = np.full((n, n), 3.0)
    bound = 3.0 * (n - 1)
    assert waves.all_at_once_ns(matrix, GB) == pytest.approx(bound)
    assert barriered_ns(matrix, waves.cyclic(n), GB) == pytest.approx(bound)
    filled = barriered_ns(matrix, waves.cyclic(n), GB, alpha_ns=1.0)
    assert filled == pytest.approx(bound + n - 1)


@pytest.mark.parametrize(("n", "gamma"), [(32, 0.0224), (33, 0.671 / 30)])
def test_an_incast_term_makes_order_matter(n, gamma):
    # RailWave reports +67.1 % for the same demand in another order. No inputs are published: with
    # 31 or 32 senders and two of them free, gamma = 0.0224 is of that size. The direction and what
    # it depends on are what holds; the figure is of the assumed-input kind.
    matrix = np.full((n, n), 1.0)
    incast = waves.Incast(gamma, 2)
    at_once = waves.all_at_once_ns(matrix, GB, incast)
    in_waves = barriered_ns(matrix, waves.cyclic(n), GB, incast=incast)
    assert at_once / in_waves - 1 == pytest.approx(0.671, rel=0.05)
    assert at_once / in_waves == pytest.approx(1 + gamma * (n - 1 - 2))
    assert waves.windowed_ns(matrix, waves.cyclic(n), GB, width=2, incast=incast) == pytest.approx(
        in_waves
    )


def test_incast_eases_as_senders_end():
    # Sizes 1 and 3 into one port, gamma 1, none free but one: two senders halve the port until
    # the first ends (2 units of it moved, in 4), then 2 more alone: 6.
    matrix = np.zeros((3, 3))
    matrix[0, 2], matrix[1, 2] = 1, 3
    assert waves.all_at_once_ns(matrix, GB, waves.Incast(1.0, 1)) == pytest.approx(6)
    simulated = waves.windowed_ns(matrix, waves.cyclic(3), GB, width=2, incast=waves.Incast(1.0, 1))
    assert simulated == pytest.approx(6)


def test_many_members_are_bounded_not_simulated():
    n = 80
    matrix = np.full((n, n), 1.0)
    assert waves.windowed_ns(matrix, waves.native(n), GB, width=8) == pytest.approx(n - 1)
    slowed = waves.windowed_ns(matrix, waves.native(n), GB, width=8, incast=waves.Incast(0.1, 2))
    assert slowed == pytest.approx((n - 1) * 1.6)


@settings(deadline=None, max_examples=40)
@given(st.integers(2, 9), st.integers(0, 2**31), st.integers(1, 4))
def test_no_schedule_beats_the_busiest_port(n, seed, width):
    rng = np.random.default_rng(seed)
    matrix = rng.integers(0, 9, (n, n)).astype(float)
    np.fill_diagonal(matrix, 5)  # what stays at home costs nothing
    bound = waves.bound_bytes(matrix)
    order = waves.cyclic(n)
    times = [
        waves.windowed_ns(matrix, order, GB, width=width),
        barriered_ns(matrix, order, GB, width=width),
        matched_ns(matrix),
    ]
    assert min(times) >= bound - 1e-6
    assert times[2] == pytest.approx(bound)
    slower = waves.windowed_ns(matrix, order, GB, width=width, incast=waves.Incast(0.5, 1))
    assert slower >= bound - 1e-6


@settings(deadline=None, max_examples=40)
@given(st.integers(2, 9), st.integers(0, 2**31))
def test_matchings_carry_all_of_it_in_few_steps(n, seed):
    rng = np.random.default_rng(seed)
    matrix = rng.integers(0, 5, (n, n)).astype(float)
    np.fill_diagonal(matrix, 0)
    found = bvn.decompose(matrix)
    assert len(found) <= n * n - 2 * n + 2
    assert (bvn.carried(found, matrix) >= matrix - 1e-6).all()
    for weight, to in found:
        assert weight > 0
        assert sorted(to) == list(range(n))
