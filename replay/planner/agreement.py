"""How well estimated step times agree with measured ones, and what choosing by them gives."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np
import polars as pl

from .fit import Case


class Score(NamedTuple):
    """How well estimates agree with measurements."""

    rows: int
    median_error: float
    """|estimated / measured - 1|."""
    p90_error: float
    mean_error: float
    kendall: float
    spearman: float


def score(estimated: np.ndarray, measured: np.ndarray) -> Score:
    """Errors and rank correlations of k estimates."""
    off = np.abs(estimated / measured - 1)
    return Score(
        len(off), float(np.median(off)), float(np.quantile(off, 0.9)), float(off.mean()),
        kendall(estimated, measured), spearman(estimated, measured),
    )  # fmt: skip


def kendall(a: np.ndarray, b: np.ndarray) -> float:
    """Kendall's tau-b: of pairs, those ordered alike less those ordered otherwise (ties left out
    on either side). NaN where one side is all ties."""
    first, second = np.triu_indices(len(a), 1)
    x, y = np.sign(a[first] - a[second]), np.sign(b[first] - b[second])
    norm = np.sqrt(float((x != 0).sum()) * float((y != 0).sum()))
    return float((x * y).sum() / norm) if norm else float("nan")


def spearman(a: np.ndarray, b: np.ndarray) -> float:
    """Spearman's rho: the correlation of ranks, ties at their mean rank."""
    if len(a) < 2:
        return float("nan")
    x, y = (pl.Series(v).rank("average").to_numpy() for v in (a, b))
    return float(np.corrcoef(x, y)[0, 1])


class Picks(NamedTuple):
    """Over groups of configurations of the same model, batch and GPUs: which was taken for best."""

    groups: int
    """With at least two configurations."""
    best: int
    """In which the fastest one was picked."""
    within: int
    """In which the pick is within 5 % of the fastest."""
    mean_loss: float
    """How much slower the pick is than the fastest, mean over groups."""
    mean_kendall: float
    """Rank correlation inside a group, mean over groups."""


def picks(given: Sequence[Case], estimated: np.ndarray) -> Picks:
    """What choosing the configuration with the least estimate gives, group by group."""
    groups: dict[Any, list[int]] = {}
    for i, c in enumerate(given):
        groups.setdefault((c.model, c.split.world, c.split.batch), []).append(i)
    many = [np.array(g) for g in groups.values() if len(g) > 1]
    measured = np.array([c.step_ns for c in given])
    loss = np.array([measured[g][estimated[g].argmin()] / measured[g].min() - 1 for g in many])
    taus = [kendall(estimated[g], measured[g]) for g in many]
    return Picks(
        len(many), int((loss == 0).sum()), int((loss <= 0.05).sum()), float(loss.mean()),
        float(np.nanmean(taus)),
    )  # fmt: skip
