"""The rank that holds a job up, by root cause, and what that rank does that the others do not."""

from __future__ import annotations

from collections.abc import Mapping
from statistics import median_low
from typing import TYPE_CHECKING, Any

import polars as pl

from ..ingest.errors import RetimeError
from . import frames
from .terminal import mostly_paired

if TYPE_CHECKING:
    from duckdb import DuckDBPyConnection

    from ..replay.run import Baseline
    from .doors import Job

LEAST_SHARE = 0.1
"""A rank that explains less than this of the excess over the ideal is not named for it."""

LEAST_EXCESS = 0.01
"""Share of the step by which a rank must exceed the median rank for a cause to be given."""

TRIED = 3
"""Ranks that the others wait for most, of which a replay picks one."""

OWN_CAUSES = ("compute", "exposed_memcpy", "exposed_transfer")
"""Classes beside the idle ones in which a rank can be slow by itself; waits are others' doing."""


def find(job: Job, facts: Mapping[str, Any], base: Baseline | None = None) -> dict[str, Any] | None:
    """The rank that a headline names, from `frames.headline`; None where nobody can tell.

    `by` says how it was found. "stragglers": recorded operations, and jobs that mostly wait at
    sends and receives, where the last to start is most often a victim of the schedule; then
    `share` is M_W of `replay.stragglers` and `ranks` the ranks that it is of. "arrivals": the
    rank that the others wait for at the greatest cost. "replay", with the unchanged replay as
    `base`: of the three that cost most the one whose arrival in time gains most, `gain_pct` of a
    step. `why` is `reason` of it.
    """
    last = facts.get("waited_for")
    if facts.get("framework") == "recorded" or mostly_paired(facts):
        try:
            study = job.stragglers()
        except RetimeError:
            return None
        share, ranks = study["m_w"], study["slowest_ranks"]
        if share is None or share < LEAST_SHARE:
            return None
        found = {"rank": ranks[0], "by": "stragglers", "ranks": ranks, "share": share}
    elif last is None:
        return None
    else:
        found = {"rank": last["rank"], "by": "arrivals"}
        gains = {} if base is None else _gains(base, frames.waited_for(job.con))
        if gains and max(gains.values()) > 0:
            best = max(gains, key=gains.__getitem__)
            found = {"rank": best, "by": "replay", "gain_pct": gains[best]}
    return {**found, "why": reason(job.con, found["rank"])}


def _gains(base: Baseline, last: pl.DataFrame) -> dict[int, float]:
    """Percent of a step that each rank's arrival in time gains, the costliest rank first."""
    from ..replay import run

    gains = {}
    for rank in last["rank"].head(TRIED).to_list():
        try:
            tried = run.estimate(base, run.plan([f"align-arrivals:ranks={rank}"])[0])
        except RetimeError:
            continue
        gains[rank] = tried["gain_pct"]
    return gains


def reason(con: DuckDBPyConnection, rank: int) -> dict[str, Any] | None:
    """What a rank spends more on than the median rank: `class`, `ns`, `median_ns` a step.

    The class of `step_breakdown` (compute with and without communication taken together) by which
    it exceeds the median most; None where that is under a hundredth of the step.
    """
    rows = frames.split(con, "rank").with_columns(
        pl.col("class").replace({"compute_with_comm": "compute"})
    )
    ranks = rows["rank"].unique().to_list()
    spent: dict[str, dict[int, float]] = {}
    for of_rank, name, ns in rows.select("rank", "class", "mean_ns").iter_rows():
        if name in OWN_CAUSES or frames.group_of(name) == "idle":
            by_rank = spent.setdefault(name, dict.fromkeys(ranks, 0.0))
            by_rank[of_rank] += ns
    found = [(of[rank], median_low(of.values()), name) for name, of in spent.items() if rank in of]
    if not found:
        return None
    ns, median_ns, name = max(found, key=lambda f: f[0] - f[1])
    step_ns = float(rows.filter(pl.col("rank") == rank)["mean_ns"].sum())
    if ns - median_ns < LEAST_EXCESS * step_ns:
        return None
    return {"class": name, "ns": round(ns), "median_ns": round(median_ns)}
