"""Closed forms against figures worked out by hand (n = 8, alpha 0.822 us, 450 GB/s)."""

from __future__ import annotations

import pytest
from retime.replay import models

H100 = {"n": 8, "alpha_ns": 822.0, "bandwidth_bytes_per_s": 450e9}
KIB, MIB = 1 << 10, 1 << 20


@pytest.mark.parametrize(
    ("algo", "size_bytes", "us"),
    [
        ("ring", 10 * KIB, 11.548),
        ("tree", 10 * KIB, 5.069),
        ("ring", 80 * MIB, 337.7),
        ("tree", 80 * MIB, 1123.4),
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
    for algo in models.ALGOS:
        assert models.time_ns("all_reduce", algo, 1, MIB, 822, 450e9) == 0


def test_no_model_says_what_there_is():
    with pytest.raises(models.NoModel, match="all_gather works with ring"):
        models.form("all_gather", "tree")
    with pytest.raises(models.NoModel, match="models of all_reduce, all_gather, reduce_scatter"):
        models.form("broadcast", "ring")


def test_size_is_the_whole_buffer():
    ops = ["all_reduce", "all_gather", "reduce_scatter", "all_gather", "all_reduce"]
    sizes = models.size_bytes(ops, [8, 1, 8, 3, -1], [8, 8, 1, -1, -1])
    assert sizes.tolist() == [8, 8, 8, 3, 0]
