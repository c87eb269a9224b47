"""Distinct groups (hosts, ranks) that a token's experts lie in: a copy is sent once for each."""

from __future__ import annotations

from math import comb

import numpy as np

ROUNDS = 50
"""Steps in which the weights behind observed shares are found; each at least halves the error."""


def distinct_groups(groups: int, experts: int, k: int) -> float:
    """Mean number of distinct groups that k of `experts` lie in, all choices equally likely.

    G (1 - C(E - E/G, k) / C(E, k)), groups of equal size: one group is missed by all k draws
    without replacement (hypergeometric; the form that DeepEP's `elastic.py` uses). ValueError
    where the groups do not divide the experts, or k is more than there are.
    """
    if groups < 1 or experts % groups:
        raise ValueError(f"{experts} experts cannot be parted into {groups} equal groups")
    if not 0 <= k <= experts:
        raise ValueError(f"a token cannot choose {k} of {experts} experts")
    return groups * (1 - comb(experts - experts // groups, k) / comb(experts, k))


def hit_probability(share: np.ndarray, k: int, group: np.ndarray, groups: int) -> np.ndarray:
    """Chance that a token has a choice in each group, float64 [g], from counts by expert alone.

    `share` float64 [e] is the part of the tokens that chose each expert (they add up to k). Of all
    ways to draw k distinct experts with these shares, the one of largest entropy (conditional
    Poisson sampling; Chen, Dempster and Liu 1994) is taken: with equal shares it is the
    hypergeometric of `distinct_groups`, and what tokens prefer together is not in it.
    ValueError where the shares do not add up to k, or one is above 1.
    """
    share = np.asarray(share, np.float64)
    if abs(share.sum() - k) > 1e-6 * max(k, 1) or (share > 1 + 1e-9).any() or (share < 0).any():
        raise ValueError(f"shares of tokens are 0 to 1 each and add up to {k}")
    group = np.asarray(group)
    hit = np.zeros(groups)
    sure = share >= 1 - 1e-9
    hit[group[sure]] = 1.0
    open_ = (share > 0) & ~sure
    left = k - int(sure.sum())
    if left <= 0 or not open_.any():
        return hit
    odds = _weights(share[open_], left)
    of = group[open_]
    whole = _symmetric(odds, left)[left]
    for g in range(groups):
        if hit[g] < 1:
            hit[g] = 1 - _symmetric(odds[of != g], left)[left] / whole
    return hit


def _weights(share: np.ndarray, k: int) -> np.ndarray:
    """Weights whose draws of k have these inclusion probabilities, float64 [e]."""
    if len(share) <= k:
        return np.ones(len(share))
    weight = share / (1 - share)
    for _ in range(ROUNDS):
        weight = weight / weight.mean()
        now = _inclusion(weight, k)
        if np.abs(now - share).max() < 1e-9:
            break
        weight = weight * share / now
    return weight


def _inclusion(weight: np.ndarray, k: int) -> np.ndarray:
    """Chance of each to be among k drawn, w_i e_{k-1}(without i) / e_k: by prefixes, suffixes."""
    n = len(weight)
    before, after = np.zeros((n + 1, k + 1)), np.zeros((n + 1, k + 1))
    before[0, 0] = after[n, 0] = 1.0
    for i in range(n):
        before[i + 1] = before[i]
        before[i + 1, 1:] += weight[i] * before[i, :-1]
    for i in range(n - 1, -1, -1):
        after[i] = after[i + 1]
        after[i, 1:] += weight[i] * after[i + 1, :-1]
    without = (before[:-1, :k] * after[1:, k - 1 :: -1][:, :k]).sum(axis=1)
    return weight * without / before[n, k]


def _symmetric(weight: np.ndarray, k: int) -> np.ndarray:
    """Elementary symmetric polynomials e_0 to e_k of the weights."""
    out = np.zeros(k + 1)
    out[0] = 1.0
    for w in weight:
        out[1:] += w * out[:-1]
    return out
