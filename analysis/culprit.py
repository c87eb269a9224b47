"""The rank that holds a job up, by root cause, and why it is late."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

import polars as pl

from ..ingest.errors import RetimeError
from . import frames
from .query import frame
from .terminal import mostly_paired

if TYPE_CHECKING:
    from duckdb import DuckDBPyConnection

    from ..replay.run import Baseline
    from .doors import Job

LEAST_SHARE = 0.1
"""A rank that explains less than this of the excess over the ideal is not named for it."""

TRIED = 3
"""Ranks that the others wait for most, of which a replay picks one."""


def find(
    job: Job,
    facts: Mapping[str, Any],
    base: Baseline | None = None,
    tried: dict[str, dict[str, Any]] | None = None,
) -> dict[str, Any] | None:
    """The rank that a headline names, from `frames.headline`; None where nobody can tell.

    `by` says how it was found. "stragglers": recorded operations, and jobs that mostly wait at
    sends and receives, where the last to start is most often a victim of the schedule; then
    `share` is M_W of `replay.stragglers` and `ranks` the ranks that it is of. "arrivals": the
    rank that the others wait for at the greatest cost. "replay", with the unchanged replay as
    `base`: of the three that cost most the one whose arrival in time gains most, `gain_pct` of a
    step. `why` is `reason` of it. Estimates that were made go into `tried`, by policy.
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
        gains = (
            {}
            if base is None
            else _gains(base, frames.waited_for(job.con), {} if tried is None else tried)
        )
        if gains and max(gains.values()) > 0:
            best = max(gains, key=gains.__getitem__)
            found = {"rank": best, "by": "replay", "gain_pct": gains[best]}
    return {**found, "why": reason(job.con, found["rank"])}


def _gains(
    base: Baseline, last: pl.DataFrame, tried: dict[str, dict[str, Any]]
) -> dict[int, float]:
    """Percent of a step that each rank's arrival in time gains, the costliest rank first."""
    from ..replay import run

    gains = {}
    for rank in last["rank"].head(TRIED).to_list():
        spec = f"align-arrivals:ranks={rank}"
        try:
            tried[spec] = run.estimate(base, run.plan([spec])[0])
        except RetimeError:
            continue
        gains[rank] = tried[spec]["gain_pct"]
    return gains


def reason(con: DuckDBPyConnection, rank: int) -> dict[str, Any] | None:
    """Why a rank is late, from the view `stragglers`; None where it holds nobody up.

    `cause`, `words` that follow "rank 3", times a step `ns`, `median_ns`, `cause_ns`, and what it
    names: `kernel`, `host_op`, `comm`, `peer` (each may be None).
    """
    found = frame(
        # The view without the scores: those would cost a replay.
        con.sql(f"""
        SELECT cause, detail AS words, round(own_ns)::BIGINT AS ns,
            round(median_ns)::BIGINT AS median_ns, round(excess_ns)::BIGINT AS cause_ns,
            kernel, host_op, comm, peer
        FROM _explained WHERE rank = {int(rank)}
        """)
    ).to_dicts()
    return found[0] if found else None
