"""Who sends how much to whom in an all-to-all: even, or drawn as a router would."""

from __future__ import annotations

import numpy as np

from .workload import AllToAll

TOKEN_BYTES = 512
"""What is not split: a small token."""


def demand_of(thing: AllToAll, n: int, seed: list[int]) -> np.ndarray:
    """int64 [n, n] bytes, the same on every rank: even, or multinomial by weights of members."""
    if not thing.skew and not thing.sources:
        return np.full((n, n), thing.size // n, np.int64)
    rng = np.random.default_rng(seed)
    weight = np.array(thing.skew or (1.0,) * n)
    source = np.array(thing.sources or (1.0,) * n)
    tokens = np.rint(thing.size / TOKEN_BYTES * source / source.mean()).astype(int)
    drawn = [rng.multinomial(t, weight / weight.sum()) for t in tokens]
    return np.array(drawn, np.int64) * TOKEN_BYTES
