"""What a hang looks like from its Flight Recorder dumps: who is missing where, and whom to ask."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from .query import frame, tuples

if TYPE_CHECKING:
    from duckdb import DuckDBPyConnection

_UNDER_WAY = """
    SELECT EXISTS (FROM _dumped WHERE state IN ('scheduled', 'started'))
"""

_COLLECTIVES = """
    SELECT * EXCLUDE (job), count(*) OVER (PARTITION BY comm, kind) AS n
    FROM (
        SELECT *, CASE WHEN len(missing) > 0 THEN 'missing' WHEN len(completed) > 0 THEN 'stuck'
                       ELSE 'silent' END AS kind
        FROM hangs
        WHERE len(missing) + len(silent) > 0 OR (len(completed) > 0 AND len(entered) > 0)
    )
    QUALIFY row_number() OVER (PARTITION BY comm, kind ORDER BY seq) = 1
    ORDER BY kind, enqueued_ns, comm
"""

_PAIRS = """
    SELECT op, rank, peer, sum(n)::BIGINT AS n, min(enqueued_ns) AS enqueued_ns
    FROM hanging_pairs WHERE NOT peer_entered
    GROUP BY op, rank, peer ORDER BY op, rank, peer
"""

_FIRST = """
    SELECT
        f.rank, f.op, f.seq, f.peer, h.comm, h.group_name, h.dim, h.n_ranks, h.completed,
        h.missing, h.silent, p.peer_entered
    FROM (
        SELECT rank, unnest(arg_min(
            {'op': op, 'comm': comm, 'seq': seq, 'peer': peer}, (enqueued_ns, event_id)))
        FROM _dumped WHERE state IN ('scheduled', 'started') GROUP BY rank
    ) f
    LEFT JOIN hangs h USING (comm, seq)
    LEFT JOIN hanging_pairs p ON p.rank = f.rank AND p.op = f.op AND p.peer = f.peer
        AND p.comm IS NOT DISTINCT FROM f.comm
"""


def find(con: DuckDBPyConnection) -> dict[str, Any] | None:
    """Who is missing from which collective of one job; None where no dump tells of a hang.

    `ranks` counts those that left a dump. `collectives` has for each communicator the first
    collective of each `kind`: missing (members in `missing` never entered it), stuck (members in
    `entered` have not completed what those in `completed` have), silent (members left no dump);
    `n` counts those of its kind there. `pairs` are sends and receives whose other end shows
    nothing under way. `roots` are ranks that others wait for and that wait for nobody
    themselves: `why` is idle (nothing under way), stuck (its first operation under way is one
    that others have completed) or behind (nobody is missing from it). Where the dumps were
    written at different moments of a job that ran, ranks only seem to be missing.
    """
    if not tuples(con, _UNDER_WAY)[0][0]:
        return None
    collectives = frame(con.sql(_COLLECTIVES)).to_dicts()
    pairs = frame(con.sql(_PAIRS)).to_dicts()
    if not collectives and not pairs:
        return None
    first = {r["rank"]: r for r in frame(con.sql(_FIRST)).to_dicts()}
    named = {rank for c in collectives for rank in c["missing"]}
    named |= {rank for c in collectives if c["completed"] for rank in c["entered"]}
    named |= {p["peer"] for p in pairs}
    told = frame(con.sql("SELECT count(DISTINCT rank) AS n FROM _reporting")).to_dicts()[0]
    roots = [{"rank": rank, **why} for rank in sorted(named) if (why := _root(first.get(rank)))]
    if any(r["why"] != "behind" for r in roots):
        roots = [r for r in roots if r["why"] != "behind"]
    return {"ranks": told["n"], "roots": roots, "collectives": collectives, "pairs": pairs}


def _root(first: dict[str, Any] | None) -> dict[str, Any] | None:
    """Why a rank that others wait for is a cause, from its first operation under way; None where
    it waits for somebody itself."""
    if first is None:
        return {"why": "idle"}
    if first["comm"] is None:
        return None if first["peer_entered"] is False else {"why": "behind", **_which(first)}
    if first["missing"] or first["silent"]:
        return None
    return {"why": "stuck" if first["completed"] else "behind", **_which(first)}


def _which(first: dict[str, Any]) -> dict[str, Any]:
    keys = ("op", "seq", "peer", "group_name", "dim", "n_ranks", "completed")
    return {k: first[k] for k in keys}
