"""The rank that holds a job up, by root cause, and why it is late; where none is named, why not."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from ..ingest.errors import RetimeError
from . import frames
from .query import frame
from .sentences import began_apart, mostly_paired

if TYPE_CHECKING:
    from duckdb import DuckDBPyConnection

    from .doors import Job

LEAST_SHARE = 0.1
"""A rank that explains less of the wait, or of the excess over the ideal, is not named."""


def find(job: Job, facts: Mapping[str, Any]) -> dict[str, Any] | None:
    """The rank that every door names, from `frames.headline`; None where nobody can be named.

    `by` says how it was found. "stragglers": recorded operations, and jobs that mostly wait at
    sends and receives, where the last to start is most often a victim of the schedule; then
    `share` is M_W of `replay.stragglers` and `ranks` the ranks that it is of. "arrivals": the
    first of `late_ranks`, by the wait that it caused, that holds others up by the view
    `stragglers`, caused a tenth of all wait, and did so not merely by where its recording began
    (`began_apart`); `late` is its row of `frames.waited_for`. `why` is `reason` of it.
    """
    if facts.get("framework") == "recorded" or mostly_paired(facts):
        try:
            study = job.study()
        except RetimeError:
            return None
        share, ranks = study["m_w"], study["slowest_ranks"]
        if share is None or share < LEAST_SHARE:
            return None
        found = {"rank": ranks[0], "by": "stragglers", "ranks": ranks, "share": share}
        return {**found, "why": reason(job.con, ranks[0])}
    apart = began_apart(facts)
    first = _first_caused(job.con) if apart else {}
    everything = facts.get("all_wait_ns") or 0
    for row in frames.waited_for(job.con).iter_rows(named=True):
        if (row["wait_share"] or 0.0) < LEAST_SHARE:
            break
        why = reason(job.con, row["rank"])
        later = row["wait_caused_ns"] - first.get(row["rank"], 0)
        # Either all of its lateness may come of where its recording began, or too much of it.
        began = apart and (later < LEAST_SHARE * everything or (why or {}).get("class") == "began")
        if why is not None and not began:
            return {"rank": row["rank"], "by": "arrivals", "late": row, "why": why}
    return None


def _first_caused(con: DuckDBPyConnection) -> dict[int, int]:
    """Wait (ns) that ranks caused by being last at the first collective of any of its ranks."""
    rows = con.sql("""
        WITH firsts AS (
            SELECT DISTINCT arg_min(collective_id, (start_ns, collective_id)) AS collective_id
            FROM _participations WHERE timed AND n_comparable > 1 GROUP BY job, rank
        )
        SELECT last_rank AS rank, sum(caused_ns)::BIGINT AS ns
        FROM _lateness SEMI JOIN firsts USING (collective_id)
        WHERE caused_ns > 0 GROUP BY last_rank
    """)
    return dict(frame(rows).iter_rows())


def reason(con: DuckDBPyConnection, rank: int) -> dict[str, Any] | None:
    """Why a rank is late, from the view `stragglers`; None where it holds nobody up.

    `cause`, `class` of time, `words` that follow "rank 3", times a step `ns`, `median_ns`,
    `cause_ns`, and what it names: `kernel`, `host_op`, `comm`, `peer` (each may be None).
    """
    found = frame(
        # The view without the scores: those would cost a replay.
        con.sql(f"""
        SELECT cause, class, detail AS words, round(own_ns)::BIGINT AS ns,
            round(median_ns)::BIGINT AS median_ns, round(excess_ns)::BIGINT AS cause_ns,
            kernel, host_op, comm, peer
        FROM _explained WHERE rank = {int(rank)}
        """)
    ).to_dicts()
    return found[0] if found else None
