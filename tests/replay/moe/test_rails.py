"""Port loads of exchanges: who sends over which NIC, and what balance leaves."""

from __future__ import annotations

import itertools

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from retime.replay.moe import rails

SPEEDS = rails.Speeds(50e9, 160e9)


def grid(hosts, places):
    return rails.layout(np.repeat(np.arange(hosts), places), np.tile(np.arange(places), hosts))


def skewed():
    """800 MB from the first GPU of a host, evenly to the four of the other."""
    matrix = np.zeros((8, 8))
    matrix[0, 4:] = 200e6
    return matrix


def test_one_loaded_rail_of_four():
    # 800 MB over one of four NICs of 50 GB/s, NVLink 160: 16 ms; balanced 4 ms and 600 MB
    # forwarded in 3.75 ms (arithmetic from rail balance's definition).
    where = grid(2, 4)
    before = rails.loads(skewed(), where)
    assert before.send.tolist() == [[800e6, 0, 0, 0], [0] * 4]
    assert rails.time_ns(before, SPEEDS) == pytest.approx(16e6)
    after = rails.balanced(skewed(), where)
    assert after.network / SPEEDS.nic_bytes_per_s == pytest.approx(4e-3)
    assert after.before_out.max() / SPEEDS.nvlink_bytes_per_s == pytest.approx(3.75e-3)
    # 7.75 ms for the sender's side alone; the receivers' forwarding comes on top of it, below.
    # The receivers' NICs are even, too; three quarters of each GPU's 200 MB come on another's.
    assert after.recv[1].tolist() == [200e6] * 4
    assert after.after_in[1].tolist() == pytest.approx([150e6] * 4)
    serial = 4e6 + 3.75e6 + 150e6 / 160e9 * 1e9
    assert rails.time_ns(after, SPEEDS) == pytest.approx(serial)
    assert rails.time_ns(after, SPEEDS, pipelined=True) == pytest.approx(4e6)
    chunk = rails.time_ns(after, SPEEDS, pipelined=True, chunk_bytes=1.6e6)
    assert chunk == pytest.approx(4e6 + 2 * 0.01e6)


def test_even_senders_do_not_make_even_receivers():
    # Two sources each send 8 to host X on rail 0 and 8 to Y on rail 1: their rails are even, X's
    # rail 0 gets 16 and its rail 1 nothing. Balanced by pair all of X's and Y's rails get 8.
    where = grid(4, 2)
    matrix = np.zeros((8, 8))
    for host in (0, 1):
        matrix[2 * host, 4] = matrix[2 * host + 1, 7] = 8
    before = rails.loads(matrix, where)
    assert before.send[:2].tolist() == [[8, 8], [8, 8]]
    assert before.recv[2:].tolist() == [[16, 0], [0, 16]]
    after = rails.balanced(matrix, where)
    assert after.recv[2:].tolist() == [[8, 8], [8, 8]]
    assert after.send[:2].tolist() == [[8, 8], [8, 8]]


def test_paths_use_the_rail_of_one_end_or_the_other():
    where = grid(2, 2)
    matrix = np.zeros((4, 4))
    matrix[0, 3] = 10  # place 0 of one host to place 1 of the other
    matrix[0, 1] = 3  # within the host
    direct, hops, pxn = (rails.loads(matrix, where, path) for path in rails.PATHS)
    assert (direct.send[0].tolist(), direct.recv[1].tolist()) == ([10, 0], [0, 10])
    assert (hops.send[0].tolist(), hops.recv[1].tolist()) == ([10, 0], [10, 0])
    assert (hops.after_out[1].tolist(), hops.after_in[1].tolist()) == ([10, 0], [0, 10])
    assert (pxn.send[0].tolist(), pxn.recv[1].tolist()) == ([0, 10], [0, 10])
    assert (pxn.before_out[0].tolist(), pxn.before_in[0].tolist()) == ([10, 0], [0, 10])
    for one in (direct, hops, pxn):
        assert (one.local_out[0].tolist(), one.local_in[0].tolist()) == ([3, 0], [0, 3])


def test_largest_first_to_the_least_loaded():
    # {7, 6, 5, 4, 3} on two: 14 and 11, where 13 would be best (Graham 1969's kind of example).
    assert sorted(rails.lpt(np.array([7.0, 6, 5, 4, 3]), 2)) == [11, 14]


@given(st.lists(st.integers(1, 30), min_size=1, max_size=7), st.integers(2, 3))
def test_largest_first_is_near_the_best(pieces, n):
    """Graham 1969: at most (4/3 - 1/(3N)) of the best of all assignments, tried one by one."""
    best = min(
        max(sum(p for p, to in zip(pieces, where, strict=True) if to == rail) for rail in range(n))
        for where in itertools.product(range(n), repeat=len(pieces))
    )
    found = rails.lpt(np.array(pieces, float), n)
    assert found.sum() == pytest.approx(sum(pieces))
    assert best <= found.max() <= (4 / 3 - 1 / (3 * n)) * best + 1e-9


@pytest.mark.parametrize(
    ("hosts", "logical", "physical"),
    [(2, 90, 45.0), (4, 61, 45.75), (4, 58, 43.5), (8, 51, 44.6)],
)
def test_bandwidths_that_deepep_lists_count_what_stays_at_home(hosts, logical, physical):
    """GB/s of its READMEs (V2 EP8x2, 8x4; V1 EP32, EP64) are logical: 1 - 1/hosts of it is sent.

    That is 0.87 to 0.92 of a NIC of 50 GB/s. V1's EP16, 43 GB/s on two hosts, does not fit: 21.5.
    """
    where = grid(hosts, 8)
    n = 8 * hosts
    even = rails.loads(np.full((n, n), 1e9 * logical / n), where)
    a_second = even.send.max() / 1e9
    assert a_second == pytest.approx(physical, abs=0.05)
    assert 0.86 < a_second / 50 < 0.92


sizes = st.lists(st.floats(0, 1e6), min_size=1, max_size=6)


@given(sizes, st.floats(1, 1e6))
def test_pieces_leave_a_bounded_rest(had, piece):
    had = np.array(had)
    n = len(had)
    now = rails.spread(had, piece, np.zeros(n))
    assert now.sum() == pytest.approx(had.sum(), abs=1e-6)
    largest = min(piece, had.max())
    assert now.max() <= had.mean() + (1 - 1 / n) * largest + 1e-6
    assert now.max() <= had.max() + 1e-6 or now.max() <= had.mean() + (1 - 1 / n) * piece + 1e-6


@given(st.integers(0, 2**31), st.integers(1, 3), st.integers(1, 4), st.sampled_from([0.0, 3.0]))
def test_bytes_are_neither_made_nor_lost(seed, hosts, places, piece):
    rng = np.random.default_rng(seed)
    n = hosts * places
    where = grid(hosts, places)
    matrix = rng.integers(0, 20, (n, n)).astype(float)
    cross = matrix * (where.host[:, None] != where.host)
    host_out = np.array([cross[where.host == h].sum() for h in range(hosts)])
    host_in = np.array([cross[:, where.host == h].sum() for h in range(hosts)])
    every = [rails.loads(matrix, where, path) for path in rails.PATHS]
    for one in (*every, rails.balanced(matrix, where, piece)):
        assert one.send.sum(axis=1) == pytest.approx(host_out)
        assert one.recv.sum(axis=1) == pytest.approx(host_in)
        assert one.before_out.sum() == pytest.approx(one.before_in.sum())
        assert one.after_out.sum() == pytest.approx(one.after_in.sum())
        assert rails.time_ns(one, SPEEDS) >= rails.least_ns(matrix, where, SPEEDS) - 1e-6
    even = rails.balanced(matrix, where)
    least = rails.least_ns(matrix, where, SPEEDS) * SPEEDS.nic_bytes_per_s / 1e9
    assert even.network == pytest.approx(least)
    assert even.network <= every[0].network + 1e-9


def test_unsplit_pieces_stay_on_their_rail():
    where = grid(2, 2)
    matrix = np.arange(16.0).reshape(4, 4)
    unsplit = rails.balanced(matrix, where, np.inf)
    for a, b in zip(unsplit, rails.loads(matrix, where, "two-hop"), strict=True):
        assert a.tolist() == b.tolist()
    assert unsplit.before_out.sum() == 0
