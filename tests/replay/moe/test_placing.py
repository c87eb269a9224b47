"""Hosts of experts: copies of tokens, and placements that save them."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from retime.replay.moe import placing
from retime.replay.policy import BadParam

CHOICES = np.array([[0, 2]] * 3 + [[1, 3]] * 3 + [[0, 1]])
"""Four experts, two hosts: {0, 2} and {1, 3} are chosen together three times, {0, 1} once."""


def test_experts_chosen_together_come_together():
    # Hosts touched: 13 with {0, 1 | 2, 3}, 8 with {0, 2 | 1, 3}.
    now = np.array([0, 0, 1, 1])
    assert placing.copies(CHOICES, now).sum() == 13
    found = placing.from_tokens(CHOICES, now, 2)
    assert placing.copies(CHOICES, found).sum() == 8
    assert found[0] == found[2] != found[1] == found[3]


def test_the_tokens_own_host_costs_no_copy():
    host_of = np.array([0, 0, 1, 1])
    source = np.array([0, 0, 0, 1, 1, 1, 0])
    assert placing.copies(CHOICES, host_of, source).tolist() == [1, 1, 1, 1, 1, 1, 0]
    assert placing.copies(np.array([[-1, -1], [3, 2]]), host_of, np.array([0, 0])).tolist() == [
        0,
        1,
    ]


def test_pairs_are_counted_once_a_token():
    both = placing.together(CHOICES, 4)
    assert both[0, 2] == both[2, 0] == 3
    assert both[0, 1] == 1
    assert both.diagonal().sum() == 0


@given(st.integers(0, 2**31), st.integers(2, 4), st.integers(1, 4), st.booleans())
def test_copies_never_grow_and_hosts_stay_as_full(seed, hosts, each, sourced):
    rng = np.random.default_rng(seed)
    experts = hosts * each
    k = min(3, experts)
    choices = np.array([rng.permutation(experts)[:k] for _ in range(30)])
    source = rng.integers(0, hosts, 30) if sourced else None
    now = rng.permutation(np.repeat(np.arange(hosts), each))
    found = placing.from_tokens(choices, now, hosts, source)
    assert np.bincount(found, minlength=hosts).tolist() == [each] * hosts
    assert (
        placing.copies(choices, found, source).sum() <= placing.copies(choices, now, source).sum()
    )


@given(st.integers(0, 2**31), st.integers(2, 4))
def test_wants_alone_are_met_as_well_as_any_swap_could(seed, hosts):
    rng = np.random.default_rng(seed)
    experts = 2 * hosts
    home = rng.integers(0, 20, (experts, hosts)).astype(float)
    now = np.repeat(np.arange(hosts), 2)
    index = np.arange(experts)
    found = placing.place(now, hosts, np.zeros((experts, experts)), home)
    best = max(found, key=lambda to: home[index, to].sum())
    assert home[index, best].sum() >= home[index, now].sum()
    for a in range(experts):
        for b in range(a):
            other = best.copy()
            other[a], other[b] = best[b], best[a]
            assert home[index, other].sum() <= home[index, best].sum()


def test_a_choice_of_no_expert_is_told():
    with pytest.raises(BadParam, match="expert 4, there are 4"):
        placing.from_tokens(np.array([[0, 4]]), np.array([0, 0, 1, 1]), 2)


@pytest.mark.parametrize("layer", [1, 13, 26])
def test_real_tokens_touch_fewer_hosts_in_passes_held_out(retime_traces, layer):
    """DeepSeek-V2-Lite's choices (ESFT, translation): placed by half of the passes."""
    path = retime_traces / "moe" / "ESFT" / "translation" / f"expert_weights_{layer}.txt"
    lines = [line.split("\t\t")[0].split("\t") for line in path.read_text().splitlines()]
    half = len(lines) // 2
    seen, other = (
        np.array([e for line in part for e in line], int).reshape(-1, 6)
        for part in (lines[:half], lines[half:])
    )
    for hosts in (2, 4, 8):
        now = np.arange(64) // (64 // hosts)
        found = placing.from_tokens(seen, now, hosts)
        before, after = (placing.copies(other, to).mean() for to in (now, found))
        # 24 to 48 % fewer hosts a token, on passes that no placement has seen.
        assert after < 0.8 * before
