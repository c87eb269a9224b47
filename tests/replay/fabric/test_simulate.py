"""Flows over time: ends by hand, bounds, dependencies, incast, waves and message rates."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from retime.replay.fabric import flows as f
from retime.replay.fabric import rounds
from retime.replay.fabric.simulate import flows, simulate, with_messages

GB = 1e9


def ports(n, bandwidth=GB, *, gamma=0.0, free=2.0):
    """n senders' and n receivers' ports on a switch: links i and n + i."""
    into = np.arange(2 * n) >= n
    return f.links(np.full(2 * n, bandwidth), incast_gamma=gamma * into, incast_free=free)


def over_ports(made: rounds.Rounds, *, alpha_ns=0.0):
    """Paths and flows of rounds over `ports`."""
    moving = made.src >= 0
    ptr = np.concatenate([[0], np.cumsum(2 * moving)])
    ends = np.stack([made.src[moving], made.n + made.dst[moving]], axis=1)
    moved = flows(
        np.arange(len(made.src)),
        made.size_bytes,
        delay_ns=np.where(moving, alpha_ns, 0.0),
        pred_ptr=made.pred_ptr,
        pred=made.pred,
        sender=made.src,
    )
    return f.paths(ptr, ends.ravel()), moved


def exchange(demand, algo, *, gamma=0.0, free=2.0, alpha_ns=0.0, **options):
    """Seconds of an all-to-all of a matrix in GB over ports of 1 GB/s."""
    demand = np.asarray(demand, float) * GB
    made = rounds.decompose("all_to_all", algo, len(demand), demand, **options)
    paths, moved = over_ports(made, alpha_ns=alpha_ns)
    return simulate(ports(len(demand), gamma=gamma, free=free), paths, moved).time_ns / 1e9


def port_bound(demand):
    off = np.asarray(demand, float) * (1 - np.eye(len(demand)))
    return max(off.sum(axis=0).max(), off.sum(axis=1).max())


def test_ends_of_three_flows_over_two_links():
    # Worked by hand: sizes 16, 2, 8 over L1 = 10, L2 = 4 -> b 1.0, a 1.8, c 2.5.
    links, paths = f.links([10.0, 4.0]), f.paths([0, 1, 3, 4], [0, 0, 1, 1])
    ended = simulate(links, paths, flows([0, 1, 2], [16, 2, 8]))
    assert ended.end_ns == pytest.approx([1.8e9, 1.0e9, 2.5e9])
    assert ended.link_bytes == pytest.approx([18, 10])
    assert ended.link_busy_ns == pytest.approx([1.8e9, 2.5e9])
    assert (ended.bound_ns, ended.bound_link) == (pytest.approx(2.5e9), 1)


def test_adding_a_flow_may_speed_another_up():
    # b shares L1 with a and L2 with c: a third flow on L2 leaves more of L1 to a.
    links = f.links([10.0, 4.0])
    paths = f.paths([0, 1, 3, 4], [0, 0, 1, 1])
    two = simulate(links, paths, flows([0, 1], [16, 8]))
    three = simulate(links, paths, flows([0, 1, 2], [16, 8, 8]))
    assert three.end_ns[0] < two.end_ns[0]


def test_a_flow_starts_after_those_it_waits_for_and_its_delay():
    links, paths = f.links([1e9, 1e9]), f.paths([0, 1, 2], [0, 1])
    moved = flows([0, 1, 1], [1000, 2000, 0], delay_ns=[10, 20, 5], release_ns=[100, 0, 0],
                  pred_ptr=[0, 0, 1, 2], pred=[0, 1])  # fmt: skip
    ended = simulate(links, paths, moved)
    assert ended.start_ns == pytest.approx([110, 1130, 3135])
    assert ended.end_ns == pytest.approx([1110, 3130, 3135])
    assert ended.time_ns == pytest.approx(3135)


def test_flows_that_share_nothing_are_solved_apart():
    links = f.links(np.full(50, 1e9))
    paths = f.paths(np.arange(51), np.arange(50))
    ended = simulate(links, paths, flows(np.arange(50), np.arange(1, 51) * 1e3))
    assert ended.end_ns == pytest.approx(np.arange(1, 51) * 1e3)
    assert ended.solves == 50  # one each when they come, none when another ends


def test_no_bytes_take_no_time():
    ended = simulate(f.links([1.0]), f.paths([0, 1], [0]), flows([0, 0], [0, 0], delay_ns=7))
    assert ended.end_ns == pytest.approx([7, 7])
    assert (ended.bound_ns, ended.bound_link) == (0.0, -1)


def test_a_circle_and_a_dead_link_are_told():
    links, paths = f.links([1.0]), f.paths([0, 1], [0])
    with pytest.raises(f.BadFlows, match="waits for itself"):
        simulate(links, paths, flows([0, 0], [1, 1], pred_ptr=[0, 1, 2], pred=[1, 0]))
    dead = f.links([1.0], background_bytes_per_s=1.0)
    with pytest.raises(f.BadFlows, match="no capacity left"):
        simulate(dead, paths, flows([0], [1]))


@pytest.mark.parametrize("n", [2, 8, 16])
def test_a_uniform_exchange_at_once_ends_at_the_port_bound(n):
    # Max-min sharing has no cost of many senders: n - 1 blocks through each port.
    assert exchange(np.ones((n, n)), "direct") == pytest.approx(n - 1)


@pytest.mark.parametrize(("n", "median"), [(8, 1.6), (16, 2.3)])
def test_skewed_exchanges_at_once_meet_the_bound_and_barriers_do_not(n, median):
    # Lognormal demand, sigma 1.2: at once within 1.08 of the port bound; waves with barriers a
    # median of 1.6 (n = 8) and 2.3 (n = 16) times it.
    at_once, waves = [], []
    for seed in range(12):
        demand = np.random.default_rng(seed).lognormal(0, 1.2, (n, n))
        at_once.append(exchange(demand, "direct") / port_bound(demand))
        waves.append(exchange(demand, "waves", barrier=True) / port_bound(demand))
    assert max(at_once) <= 1.08
    assert min(at_once) >= 1 - 1e-9
    assert np.median(waves) == pytest.approx(median, rel=0.15)


def test_waves_by_hand():
    # Port bound 5 in both; cyclic waves 5 where the shifts are even, 8 where they are not.
    even, uneven = [[0, 4, 1], [1, 0, 4], [4, 1, 0]], [[0, 4, 1], [4, 0, 1], [1, 1, 0]]
    assert exchange(even, "waves", barrier=True) == pytest.approx(5)
    assert exchange(uneven, "waves", barrier=True) == pytest.approx(8)
    assert exchange(uneven, "direct") == pytest.approx(5)
    assert exchange(uneven, "waves", width=2) == pytest.approx(5)  # n - 1 wide: all at once


@settings(deadline=None, max_examples=25)
@given(st.integers(2, 9), st.integers(1, 4), st.booleans(), st.floats(0, 1e6))
def test_without_incast_waves_never_beat_all_at_once_on_uniform_demand(n, width, barrier, alpha):
    at_once = exchange(np.ones((n, n)), "direct", alpha_ns=alpha)
    waves = exchange(np.ones((n, n)), "waves", width=width, barrier=barrier, alpha_ns=alpha)
    assert waves >= at_once - alpha * 1e-9 - 1e-9


def test_incast_slows_one_port_by_two_thirds():
    # gamma 0.0224 at 32 senders, 2 of them free: 1 + 0.0224 * 30 = 1.672.
    n, demand = 33, np.zeros((33, 33))
    demand[1:, 0] = 1.0
    assert exchange(demand, "direct") == pytest.approx(32)
    assert exchange(demand, "direct", gamma=0.0224, free=2) == pytest.approx(32 * 1.672)
    # In waves one sender at a time reaches the port.
    waves = exchange(demand, "waves", gamma=0.0224, free=2)
    assert waves == pytest.approx(n - 1)


def test_incast_eases_as_senders_end():
    # Two senders of 1 and 3 GB, gamma 1, free 1: 0.5 GB/s until 1 GB of each is through (4 s),
    # then 1 GB/s for the other 2 GB.
    demand = np.zeros((3, 3))
    demand[1, 0], demand[2, 0] = 1.0, 3.0
    assert exchange(demand, "direct", gamma=1.0, free=1) == pytest.approx(4 + 2)


def test_messages_of_a_port_take_their_time():
    # 1000 messages of 100 bytes over a port of 1e9 bytes/s that starts 1e6 messages/s: 1 ms.
    links, paths = f.links([1e9, 1e9]), f.paths([0, 2], [0, 1])
    moved = flows([0], [1e5], sender=[0])
    limited = with_messages(links, paths, moved, 1000, lambda link, q: 1e6, np.array([True, False]))
    assert simulate(links, paths, moved).time_ns == pytest.approx(1e5)
    assert simulate(*limited).time_ns == pytest.approx(1e6)


def test_connections_are_pairs_of_sender_and_path():
    asked = []
    links, paths = f.links([1e9] * 3), f.paths([0, 2, 4], [0, 1, 0, 2])
    moved = flows([0, 1, 1], [1e5] * 3, sender=[0, 0, 5])
    ports_ = np.array([True, False, False])
    with_messages(links, paths, moved, 1, lambda link, q: asked.append((link, q)) or 1e6, ports_,
                  queue_pairs=4)  # fmt: skip
    assert asked == [(0, 12)]


@settings(deadline=None, max_examples=60)
@given(st.integers(2, 7), st.integers(0, 10_000), st.sampled_from([0.0, 0.1]))
def test_nothing_is_faster_than_the_busiest_link_and_order_is_irrelevant(n, seed, gamma):
    random = np.random.default_rng(seed)
    made = rounds.decompose("all_to_all", "windowed", n, random.lognormal(10, 1, (n, n)), width=2)
    paths, moved = over_ports(made, alpha_ns=random.uniform(0, 10))
    links = ports(n, gamma=gamma)._replace(capacity_bytes_per_s=random.uniform(1e8, 1e9, 2 * n))
    ended = simulate(links, paths, moved)
    assert ended.time_ns >= ended.bound_ns * (1 - 1e-9)
    assert (ended.link_busy_ns <= ended.time_ns * (1 + 1e-9)).all()
    order = random.permutation(moved.n)
    back = np.argsort(order)
    length = np.diff(moved.pred_ptr)[order]
    first = moved.pred_ptr[order]
    pred = np.concatenate([moved.pred[a : a + k] for a, k in zip(first, length, strict=True)])
    other = flows(
        moved.path[order], moved.size_bytes[order], delay_ns=moved.delay_ns[order],
        pred_ptr=np.concatenate([[0], np.cumsum(length)]), pred=back[pred.astype(int)],
        sender=moved.sender[order],
    )  # fmt: skip
    assert simulate(links, paths, other).end_ns[back] == pytest.approx(ended.end_ns, rel=1e-9)


def test_merging_events_costs_little_and_saves_solves():
    n, random = 24, np.random.default_rng(3)
    made = rounds.decompose("all_to_all", "direct", n, random.lognormal(14, 1.2, (n, n)))
    paths, moved = over_ports(made)
    exact = simulate(ports(n), paths, moved)
    coarse = simulate(ports(n), paths, moved, merge_ns=exact.time_ns * 1e-2)
    assert coarse.solves < exact.solves / 3
    assert coarse.time_ns == pytest.approx(exact.time_ns, rel=5e-2)
