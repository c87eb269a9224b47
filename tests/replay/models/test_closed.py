"""Closed forms against figures worked out by hand (n = 8, alpha 0.822 us, 450 GB/s).

Arithmetic on the textbook forms (Thakur, Rabenseifner, Gropp 2005), where no source is named.
"""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from retime.replay import models
from retime.replay.fabric import rounds
from retime.replay.models import closed, pipelined

H100 = {"n": 8, "alpha_ns": 822.0, "bandwidth_bytes_per_s": 450e9}
KIB, MIB = 1 << 10, 1 << 20


@pytest.mark.parametrize(
    ("algo", "size_bytes", "us"),
    [
        ("ring", 10 * KIB, 11.548),
        ("tree", 10 * KIB, 5.069),
        ("recursive-doubling", 10 * KIB, 2.534),
        ("halving-doubling", 10 * KIB, 4.972),
        ("ring", 80 * MIB, 337.7),
        ("tree", 80 * MIB, 1123.4),
        ("recursive-doubling", 80 * MIB, 561.7),
        ("halving-doubling", 80 * MIB, 331.2),
        ("double-tree", 80 * MIB, 426.5),
    ],
)
def test_all_reduce_of_eight(algo, size_bytes, us):
    took_ns = models.time_ns("all_reduce", algo, size_bytes=size_bytes, **H100)
    assert took_ns / 1e3 == pytest.approx(us, rel=2e-4)


def test_ring_and_tree_cross_near_680_kib():
    at = models.crossover_bytes("all_reduce", "ring", "tree", **H100)
    assert at == pytest.approx(696_282, abs=1)
    assert models.crossover_bytes("all_reduce", "tree", "ring", **H100) == pytest.approx(at)


def test_two_ranks_never_cross():
    # n = 2: both pay 2 messages; the ring moves M, the tree 2M.
    assert models.crossover_bytes("all_reduce", "ring", "tree", 2, 822.0, 450e9) is None


@pytest.mark.parametrize(("alpha_us", "ms"), [(0, 159.4), (20, 169.6)])
def test_large_ring_over_100_gbit(alpha_us, ms):
    took_ns = models.time_ns("all_reduce", "ring", 256, 10**9, alpha_us * 1e3, 12.5e9)
    assert took_ns / 1e6 == pytest.approx(ms, abs=0.05)


def test_all_gather_and_reduce_scatter_are_half_a_ring():
    whole = models.time_ns("all_reduce", "ring", size_bytes=MIB, **H100)
    for op in ("all_gather", "reduce_scatter"):
        assert models.time_ns(op, "ring", size_bytes=MIB, **H100) == pytest.approx(whole / 2)


def test_tree_takes_whole_levels():
    # 5 to 8 ranks need three levels: 2 * 3 * (1000 ns + 1e6 B / 1e9 B/s).
    for n in (5, 6, 7, 8):
        assert models.time_ns("all_reduce", "tree", n, 10**6, 1000, 1e9) == 6 * (1000 + 10**6)


def test_one_rank_costs_nothing():
    for op in models.OPS:
        for algo in models.algorithms(op):
            assert models.time_ns(op, algo, 1, MIB, 822, 450e9) == 0


def test_no_model_says_what_there_is():
    with pytest.raises(models.NoModel, match="all_gather works with ring"):
        models.form("all_gather", "tree")
    with pytest.raises(models.NoModel, match="there are models of all_reduce, broadcast"):
        models.form("alltoallw", "ring")
    with pytest.raises(models.NoModel, match="ranks, not for 6; bruck"):
        models.time_ns("all_gather", "halving-doubling", 6, MIB, 822, 450e9)


def test_size_is_the_whole_buffer():
    ops = ["all_reduce", "all_gather", "reduce_scatter", "all_gather", "all_reduce"]
    sizes = models.size_bytes(ops, [8, 1, 8, 3, -1], [8, 8, 1, -1, -1])
    assert sizes.tolist() == [8, 8, 8, 3, 0]


@pytest.mark.parametrize(
    ("algo", "us"), [("recursive-doubling", 3.379), ("halving-doubling", 5.012)]
)
def test_odd_numbers_of_ranks_fold_into_a_power_of_two(algo, us):
    # n = 6: four ranks by the rule, two fold in first and are sent the result last.
    took_ns = models.time_ns("all_reduce", algo, 6, 10 * KIB, 822, 450e9)
    assert took_ns / 1e3 == pytest.approx(us, rel=2e-4)


def bruck_blocks(n):
    """Blocks that rank 0 sends in each round, as the fabric simulates them."""
    made = rounds.decompose("all_to_all", "bruck", n, float(n))
    sent = made.size_bytes[(made.src == 0) & (made.dst != 0)]
    return [round(x) for x in sent]


def test_brucks_blocks():
    # Bruck et al. 1997: block j moves in the rounds of its set bits.
    assert [bruck_blocks(8), bruck_blocks(6)] == [[4, 4, 4], [3, 2, 2]]
    # A power of two moves half of M a round: 3 * (1000 + 5e5).
    assert models.time_ns("all_to_all", "bruck", 8, 10**6, 1000, 1e9) == 3 * (1000 + 500_000)
    # n = 6: 7 blocks of M/6.
    took = models.time_ns("all_to_all", "bruck", 6, 6 * 10**6, 0, 1e9)
    assert took == pytest.approx(7 * 10**6)


@pytest.mark.parametrize("n", range(1, 40))
def test_brucks_volume_is_the_sum_of_its_blocks(n):
    assert models.form("all_to_all", "bruck").volume(n) == sum(bruck_blocks(n)) / n


def test_halving_doubling_beats_the_ring_at_every_size():
    # On a flat alpha-beta model, for powers of two.
    assert models.crossover_bytes("all_reduce", "ring", "halving-doubling", **H100) is None
    sizes = np.logspace(1, 12, 50)
    ring, halving = (
        models.time_ns("all_reduce", a, size_bytes=sizes, **H100)
        for a in ("ring", "halving-doubling")
    )
    assert (halving < ring).all()


def test_double_tree_takes_thirty_pieces_and_tends_to_twice_the_vector():
    row = pipelined.pipelined("all_reduce", "double-tree")
    # K* = sqrt(4 * 186.4 us / 0.822 us) = 30.1.
    assert pipelined.best_pieces(row, 8, 80 * MIB, 822, 450e9) == 30
    huge = models.time_ns("all_reduce", "double-tree", 8, 1e15, 822, 450e9)
    assert huge == pytest.approx(2 * 1e15 / 450, rel=1e-3)


def test_a_chain_of_pieces_against_arithmetic():
    # n = 5, 4 hops; K* = sqrt(3 * 12 us / 1 us) = 6: (3 + 6) * (1 + 2) us.
    assert models.time_ns("broadcast", "ring", 5, 12_000, 1000, 1e9) == pytest.approx(27_000)


@settings(max_examples=60, deadline=None)
@given(
    n=st.integers(2, 300),
    size=st.integers(1, 1 << 34),
    alpha=st.floats(0, 1e5),
    bandwidth=st.floats(1e8, 1e12),
)
def test_no_number_of_pieces_is_better_than_the_best(n, size, alpha, bandwidth):
    for row in pipelined.PIPELINED:
        best = pipelined.best_pieces(row, n, size, alpha, bandwidth)
        took = pipelined.time_of(row, n, size, alpha, bandwidth, best)
        for k in {1, 2, 7, max(1, int(best) // 2), int(best) + 1, int(best) * 2}:
            if k <= size:
                other = pipelined.time_of(row, n, size, alpha, bandwidth, k)
                assert took <= other * (1 + 1e-12)


@settings(max_examples=40, deadline=None)
@given(n=st.integers(1, 600), alpha=st.floats(0, 1e5), size=st.integers(0, 1 << 40))
def test_times_grow_with_size_alpha_and_slower_links(n, alpha, size):
    for op in models.OPS:
        for algo in models.algorithms(op):
            if not models.fits(op, algo, n):
                continue
            took = models.time_ns(op, algo, n, size, alpha, 1e10)
            assert took >= 0
            assert models.time_ns(op, algo, n, size, alpha + 1, 1e10) >= took
            assert models.time_ns(op, algo, n, size, alpha, 2e10) <= took
            assert models.time_ns(op, algo, n, size + 4096, alpha, 1e10) >= took


def test_no_all_reduce_but_in_the_switch_moves_less_than_two_shares():
    # 2(n-1)/n is the bound of Patarasuk and Yuan (2009) for a rank's port, for full vectors.
    for n in (2, 3, 8, 100):
        for algo in ("ring", "tree", "halving-doubling", "direct", "parameter-server"):
            took = models.time_ns("all_reduce", algo, n, 10**9, 0, 1e9)
            assert took >= 2 * (n - 1) / n * 1e9 * (1 - 1e-9)


def test_names_are_written_in_several_ways():
    assert models.named("Halving_Doubling") == "halving-doubling"
    assert models.named("ps") == "parameter-server"


def test_a_crossing_with_a_segmented_algorithm_is_where_both_take_equally_long():
    at = models.crossover_bytes("all_reduce", "ring", "double-tree", **H100)
    assert at is not None
    ring, tree = (
        float(models.time_ns("all_reduce", a, size_bytes=at, **H100))
        for a in ("ring", "double-tree")
    )
    assert ring == pytest.approx(tree, rel=1e-6)


def test_bisection_says_none_where_the_sign_stays():
    assert closed.bisected(lambda size: size + 1) is None


def test_the_line_of_a_segmented_algorithm_is_its_limit():
    # Far from where pieces cost: a huge vector is 2 M/B, an empty one 2 ceil(lg n) messages.
    line = models.form("all_reduce", "double-tree")
    assert (line.messages(8), line.volume(8)) == (6, 2)
    huge, none = (
        models.time_ns("all_reduce", "double-tree", 8, size, 822, 450e9) for size in (1e15, 0)
    )
    assert huge == pytest.approx(2e15 / 450, rel=1e-3)
    assert none == pytest.approx(6 * 822)


def test_nccls_tree_is_the_double_one():
    assert models.recorded("tree") == "double-tree"
    assert models.recorded("nvls_tree") == "nvls-tree"
