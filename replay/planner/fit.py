"""Efficiencies fitted to measured steps."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
import polars as pl

from . import step
from .memory import CLASSIC, Widths
from .model import Model
from .platform import Platform, group
from .split import Split

HUBER = 0.05
"""Relative errors beyond this count by their size, not their square."""

PRIOR = 0.7
"""How far, in log units, an efficiency may lie from its textbook value before that counts as much
as one measured row that is off by HUBER."""


class Case(NamedTuple):
    """A measured configuration."""

    model: Model
    split: Split
    step_ns: float


def cases(
    rows: pl.DataFrame, *, vocab: int, recompute: str = "full", flash: bool = False
) -> list[Case]:
    """Rows of the table `configurations` as cases; those that lack a degree or a time are left out.

    The table does not say vocabulary, recomputation or kernel of attention: they are given.
    """
    need = ("tp", "dp", "pp", "global_batch", "micro_batch", "hidden", "heads", "layers",
            "seq_len", "step_ns")  # fmt: skip
    out = []
    for r in rows.drop_nulls(need).iter_rows(named=True):
        model = Model(
            r.get("model") or "measured", r["layers"], r["hidden"], r["heads"], 4 * r["hidden"],
            r["seq_len"], vocab,
        )  # fmt: skip
        split = Split(
            dp=r["dp"], tp=r["tp"], pp=r["pp"], micro_batch=r["micro_batch"],
            batch=r["global_batch"], recompute=recompute, sequence_parallel=False, flash=flash,
        )  # fmt: skip
        out.append(Case(model, split, float(r["step_ns"])))
    return out


def predict(
    given: Sequence[Case],
    platform: Platform,
    eff: step.Efficiencies,
    widths: Widths = CLASSIC,
) -> np.ndarray:
    """Estimated step times, float64 [k], ns."""
    return np.array(
        [step.times(c.model, c.split, platform, eff, widths=widths).step_ns for c in given]
    )


def fit(
    given: Sequence[Case],
    platform: Platform,
    *,
    start: step.Efficiencies | None = None,
    keep: Sequence[str] = (),
    widths: Widths = CLASSIC,
) -> step.Efficiencies:
    """Efficiencies that bring the cases' estimates closest to what was measured.

    Least squares of log(estimated / measured), Huber's beyond HUBER, by Levenberg-Marquardt in the
    logs of the efficiencies, each held softly (PRIOR) to `start` (textbook values) so that a few
    rows that cannot tell two of them apart leave both sensible. `keep` are not changed. Shares are
    at most 1.
    """
    start = start or step.Efficiencies()
    names = [n for n in step.Efficiencies._fields if n not in keep]
    origin = np.log([getattr(start, n) for n in names])
    shares = np.array([not n.endswith("_ns") for n in names])
    measured = np.array([c.step_ns for c in given])
    pull = HUBER / PRIOR

    def of(x: np.ndarray) -> step.Efficiencies:
        return start._replace(**dict(zip(names, np.exp(x).tolist(), strict=True)))

    def residual(x: np.ndarray) -> np.ndarray:
        off = np.log(predict(given, platform, of(x), widths) / measured)
        return np.concatenate([off, pull * (x - origin)])

    def cost(r: np.ndarray) -> float:
        a = np.abs(r)
        return float(np.where(a < HUBER, a * a / 2, HUBER * (a - HUBER / 2)).sum())

    x, damping = origin.copy(), 1e-2
    r = residual(x)
    for _ in range(40):
        nudge = 1e-4 * np.eye(len(x))
        slope = np.stack([(residual(x + d) - r) / 1e-4 for d in nudge], 1)
        weight = np.minimum(1.0, HUBER / np.maximum(np.abs(r), 1e-12))
        normal = slope.T @ (weight[:, None] * slope)
        gradient = slope.T @ (weight * r)
        for _ in range(8):
            move = -np.linalg.solve(normal + damping * np.diag(np.diag(normal)), gradient)
            new = x + np.clip(move, -0.5, 0.5)
            new = np.where(shares, np.minimum(new, 0.0), new)
            trial = residual(new)
            if cost(trial) < cost(r):
                break
            damping *= 4
        else:
            break
        gained = cost(r) - cost(trial)
        x, r, damping = new, trial, max(damping / 5, 1e-7)
        if gained < 1e-5 * cost(r):
            break
    return of(x)


def collectives(
    points: Sequence[tuple[int, float, float]], platform: Platform
) -> tuple[float, float]:
    """`collective_ns` and `link` of measured all-reduces: (ranks of one host, bytes, ns) each.

    Least squares of relative errors of collective_ns + 2 passes (`platform.pass_ns`).
    """
    ranks, size, took = (np.array(x, np.float64) for x in zip(*points, strict=True))
    over = [group(platform, int(n), 1) for n in ranks]
    latency = 2 * np.array([g.latency_ns for g in over])
    full = np.array([g.bytes_per_s for g in over])
    sent = 2 * (ranks - 1) / ranks * size / full * 1e9
    design = np.column_stack([1 / took, sent / took])
    fixed, slower = np.linalg.lstsq(design, 1 - latency / took, rcond=None)[0]
    return float(fixed), float(1 / slower)


def tenth(n: int, seed: int = 0, share: float = 0.1) -> tuple[np.ndarray, np.ndarray]:
    """A random share of n rows, and the rest: indices."""
    order = np.random.default_rng(seed).permutation(n)
    k = round(n * share)
    return np.sort(order[:k]), np.sort(order[k:])
