"""Bytes of tokens, and how many groups a token's experts lie in."""

from __future__ import annotations

import itertools

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from retime.replay.moe import groups, placing, tokens


def test_bytes_of_a_token():
    # 7168 FP8 values, 56 scales of 4 bytes, header 16: the 7408 B that fit DeepEP's low-latency
    # table (128 tokens x 8 experts in 77 us read as 98 GB/s there; deduced).
    assert tokens.token_bytes(header_bytes=16) == (7408, 14336)
    listed = 128 * 8 * 7408 / 77e-6 / 1e9
    assert listed == pytest.approx(98, rel=0.01)
    assert tokens.token_bytes(4096, dispatch_element=2, scale_every=0).dispatch == 8192


def test_bytes_of_an_expert():
    # 3 x 7168 x 2048 in BF16 is 88.1 MB: 1.76 ms at 50 GB/s, 0.55 ms at 160 (arithmetic).
    size = tokens.expert_bytes()
    assert size == 88_080_384
    assert size / 50e9 * 1e3 == pytest.approx(1.76, abs=0.005)
    assert size / 160e9 * 1e3 == pytest.approx(0.55, abs=0.005)


@pytest.mark.parametrize(("g", "mean"), [(2, 1.993), (4, 3.614), (8, 5.295), (64, 7.676)])
def test_distinct_groups_of_256_experts_top_8(g, mean):
    # The form is DeepEP's (`elastic.py`); the figures are its arithmetic.
    assert groups.distinct_groups(g, 256, 8) == pytest.approx(mean, abs=5e-4)


def test_copies_that_cross_hosts_are_all_but_a_gth():
    # Of the distinct groups one in G is the token's own: E (1 - 1/G) copies cross, counted on
    # random tokens. E_8 of 256 experts and 8 choices is 5.2947.
    assert groups.distinct_groups(8, 256, 8) == pytest.approx(5.2947, abs=5e-5)
    rng = np.random.default_rng(0)
    choices = rng.random((20_000, 256)).argpartition(8, axis=1)[:, :8]
    host_of, source = np.arange(256) // 64, rng.integers(0, 4, len(choices))
    crossed = placing.copies(choices, host_of, source).mean()
    assert crossed == pytest.approx(groups.distinct_groups(4, 256, 8) * 3 / 4, rel=5e-3)


@pytest.mark.parametrize("g", [2, 4, 8])
def test_equal_shares_are_the_hypergeometric(g):
    group = np.arange(64) // (64 // g)
    hit = groups.hit_probability(np.full(64, 6 / 64), 6, group, g)
    assert hit == pytest.approx(np.full(g, groups.distinct_groups(g, 64, 6) / g))


def test_all_draws_counted_one_by_one():
    # Weights 1, 2, 3, 4 and k = 2: P(pair) is the product of its weights over the sum of all.
    weight = np.array([1.0, 2.0, 3.0, 4.0])
    pairs = {p: weight[list(p)].prod() for p in itertools.combinations(range(4), 2)}
    total = sum(pairs.values())
    share = np.array([sum(w for p, w in pairs.items() if e in p) for e in range(4)]) / total
    group = np.array([0, 1, 0, 1])
    both = [sum(w for p, w in pairs.items() if any(group[e] == g for e in p)) for g in (0, 1)]
    assert groups.hit_probability(share, 2, group, 2) == pytest.approx(np.array(both) / total)


def test_an_expert_that_all_tokens_choose_is_surely_hit():
    hit = groups.hit_probability(np.array([1.0, 0.5, 0.5, 0.0]), 2, np.array([0, 0, 1, 2]), 3)
    assert hit == pytest.approx([1.0, 0.5, 0.0])


def test_exact_groups_of_tokens():
    choices = np.array([[0, 1, 2], [3, 3, -1], [-1, -1, -1]])
    assert placing.copies(choices, np.array([0, 0, 1, 1])).tolist() == [2, 1, 0]


@given(st.integers(1, 5), st.integers(0, 2**31))
def test_hits_lie_between_their_bounds(k, seed):
    rng = np.random.default_rng(seed)
    draws = np.array([rng.permutation(10)[:k] for _ in range(40)])
    share = np.bincount(draws.ravel(), minlength=10) / len(draws)
    group = np.arange(10) % 3
    hit = groups.hit_probability(share, k, group, 3)
    inside = np.array([share[group == g].sum() for g in range(3)])
    most = np.array([share[group == g].max() for g in range(3)])
    assert (hit <= np.minimum(1, inside) + 1e-6).all()
    assert (hit >= most - 1e-6).all()


@pytest.mark.parametrize(("e", "g", "k"), [(10, 3, 2), (8, 2, 9)])
def test_what_cannot_be_is_told(e, g, k):
    with pytest.raises(ValueError, match="cannot"):
        groups.distinct_groups(g, e, k)


def test_estimate_from_real_counts_against_real_tokens(retime_traces):
    """DeepSeek-V2-Lite's own choices (ESFT): counts by expert alone tell the copies to a few %."""
    k, experts = 6, 64
    off = {}
    for layer in (1, 13, 26):
        path = retime_traces / "moe" / "ESFT" / "translation" / f"expert_weights_{layer}.txt"
        ids = [line.split("\t\t")[0].split("\t") for line in path.read_text().splitlines()]
        choices = np.array([e for line in ids for e in line], int).reshape(-1, k)
        share = np.bincount(choices.ravel(), minlength=experts) / len(choices)
        for g in (2, 4, 8):
            group = np.arange(experts) // (experts // g)
            exact = placing.copies(choices, group).mean()
            counted = groups.hit_probability(share, k, group, g).sum()
            uniform = groups.distinct_groups(g, experts, k)
            off[layer, g] = (counted / exact - 1, uniform / exact - 1)
    errors = np.array(list(off.values()))
    assert np.abs(errors[:, 0]).max() < 0.05, off
    assert np.abs(errors[:, 0]).mean() < np.abs(errors[:, 1]).mean()
