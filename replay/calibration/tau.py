"""Tau: how long early ranks wait for late ones, and how late each rank comes; with errors."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import polars as pl

from ..graph import TaskGraph
from ..steps import participations


def arrivals(graph: TaskGraph) -> pl.DataFrame:
    """A row a participation: `collective`, `rank`, `wait_ns` and `late_ns`, as measured.

    `wait_ns` is from a rank's arrival to the last one's (its own end at most), `late_ns` from the
    collective's first arrival to its own.
    """
    arrive, transfer = participations(graph)
    part = pl.DataFrame(
        {
            "collective": graph.collective[arrive],
            "rank": graph.rank[arrive],
            "start": graph.start_ns[arrive],
            "end": graph.end_ns[transfer],
        }
    )
    first, last = (getattr(pl.col("start"), f)().over("collective") for f in ("min", "max"))
    wait = (pl.min_horizontal(last, "end") - pl.col("start")).clip(0)
    return part.select(
        "collective", "rank", wait_ns=wait, late_ns=pl.col("start") - first
    )  # fmt: skip


def waits(graph: TaskGraph) -> pl.DataFrame:
    """A row a collective: `wait_ns` of its median rank, `early_ns` of its first to arrive."""
    return (
        arrivals(graph)
        .group_by("collective")
        .agg(pl.col("wait_ns").median(), early_ns=pl.col("wait_ns").max())
        .sort("collective")
    )


def of(rows: pl.DataFrame) -> dict[str, float | None]:
    """What `waits` of some collectives amount to, ns.

    `tau_ns`: the median collective's wait of its median rank; `tau_error_ns`: its standard error;
    `tau_spread_ns`: between its quartiles; `tau_p90_ns`: what nine in ten stay under;
    `early_ns`, `early_p90_ns`: the same of the rank that waits longest.
    """
    wait, early = (rows[c].drop_nulls().to_numpy() for c in ("wait_ns", "early_ns"))
    low, middle, high = _quantiles(wait, (0.25, 0.5, 0.75))
    spread = None if low is None or high is None else high - low
    return {
        "tau_ns": middle,
        "tau_error_ns": median_error(wait),
        "tau_spread_ns": spread,
        "tau_p90_ns": _quantiles(wait, (0.9,))[0],
        "early_ns": _quantiles(early, (0.5,))[0],
        "early_p90_ns": _quantiles(early, (0.9,))[0],
    }


def median_error(values: np.ndarray) -> float | None:
    """Standard error of a median, of whatever distribution; None of fewer than 6 values.

    From order statistics (David and Nagaraja, Order Statistics, 7.1): the values at ranks n/2 -+
    0.98 sqrt(n) hold the median with 95 %; a normal's interval is as wide as 3.92 standard errors.
    """
    n = len(values)
    if n < 6:
        return None
    half = 0.98 * np.sqrt(n)
    at = np.array([np.floor(n / 2 - half), np.ceil(n / 2 + half)]).clip(0, n - 1)
    low, high = np.partition(values, at.astype(int))[at.astype(int)]
    return float(high - low) / 3.92


def lateness(
    graph: TaskGraph, instances: pl.DataFrame, ranks: pl.DataFrame | None
) -> list[dict[str, Any]]:
    """A row a communicator and rank, latest first in each: how late it comes to `instances`.

    `late_ns` (median, after the first), `late_error_ns`, `late_p90_ns`, `last_pct` (of the
    collectives it was the last to arrive at), `last_error_pct` (binomial), `collectives`, and
    `clock_error_ns` of the job's `ranks` (None where nothing ties its clock to the others').
    """
    known = instances.select("collective", "comm")
    part = arrivals(graph).join(known, on="collective", how="inner")
    if not len(part):
        return []
    clocks: dict[int, int | None] = {}
    if ranks is not None and "clock_error_ns" in ranks.columns:
        clocks = dict(ranks.select("rank", "clock_error_ns").iter_rows())
    latest = pl.col("late_ns") == pl.col("late_ns").max().over("collective")
    # Shared among those that came last together; where all came at once nobody was last.
    share = pl.when(latest & (pl.col("late_ns") > 0)).then(1.0).otherwise(0.0)
    part = part.with_columns(last=share).with_columns(
        last=pl.col("last") / pl.col("last").sum().over("collective").clip(1.0)
    )
    out = []
    for (comm, rank), rows in part.group_by("comm", "rank", maintain_order=False):
        late = rows["late_ns"].to_numpy()
        n, last = len(rows), float(rows["last"].mean())  # type: ignore[arg-type]
        middle, most = _quantiles(late, (0.5, 0.9))
        out.append(
            {
                "comm": comm,
                "rank": int(rank),  # type: ignore[arg-type]
                "late_ns": middle,
                "late_error_ns": median_error(late),
                "late_p90_ns": most,
                "last_pct": 100 * last,
                "last_error_pct": 100 * float(np.sqrt(last * (1 - last) / n)),
                "collectives": n,
                "clock_error_ns": clocks.get(int(rank)),  # type: ignore[arg-type]
            }
        )
    return sorted(out, key=lambda r: (r["comm"], -r["late_ns"], r["rank"]))


def _quantiles(values: np.ndarray, at: Sequence[float]) -> list[float | None]:
    if not len(values):
        return [None] * len(at)
    return [float(v) for v in np.quantile(values, at)]
