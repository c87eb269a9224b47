"""Who sends how much to whom in an all-to-all: even, or drawn as a router would."""

from __future__ import annotations

import csv
import functools
from pathlib import Path

import numpy as np

from .workload import AllToAll

TOKEN_BYTES = 512
"""What is not split: a small token."""


ROUTING = Path(__file__).parent / "data" / "routing.csv"
"""Tokens by expert in nine batches of DeepSeek-V2-Lite's first layer (top 6 of 64), of ESFT's
published routing (MIT, Copyright (c) 2023 DeepSeek); in retime's plain form."""


def demand_of(thing: AllToAll, n: int, seed: list[int], step: int = 0) -> np.ndarray:
    """int64 [n, n] bytes, the same on every rank: even, or multinomial by weights of members."""
    if not thing.skew and not thing.sources and not thing.logged:
        return np.full((n, n), thing.size // n, np.int64)
    rng = np.random.default_rng(seed)
    weight = np.array(thing.skew or (1.0,) * n)
    if thing.logged:
        weight = logged(step, n)
    source = np.array(thing.sources or (1.0,) * n)
    tokens = np.rint(thing.size / TOKEN_BYTES * source / source.mean()).astype(int)
    drawn = [rng.multinomial(t, weight / weight.sum()) for t in tokens]
    return np.array(drawn, np.int64) * TOKEN_BYTES


def logged(step: int, n: int) -> np.ndarray:
    """float64 [n]: tokens for the experts of each of n ranks, which hold as many one after another,
    in the batch of a step (batches come again after the last)."""
    batches = _batches()
    return batches[step % len(batches)].reshape(n, -1).sum(axis=1)


@functools.cache
def _batches() -> np.ndarray:
    """float64 [batch, expert]: tokens of the log."""
    with ROUTING.open(newline="") as f:
        rows = [(int(r["step"]), int(r["expert"]), int(r["count"])) for r in csv.DictReader(f)]
    steps = sorted({step for step, _, _ in rows})
    out = np.zeros((len(steps), 64))
    for step, expert, count in rows:
        out[steps.index(step), expert] += count
    return out
