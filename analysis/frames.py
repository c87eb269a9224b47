"""What reports are made of: each function reads the views of one job and returns a frame."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import polars as pl

from ..ingest import one_job
from .query import frame

if TYPE_CHECKING:
    from duckdb import DuckDBPyConnection

CLASSES: dict[str, tuple[str, str]] = {
    "compute": ("compute", "compute alone"),
    "compute_with_comm": ("compute", "compute with communication"),
    "exposed_wait": ("wait", "exposed wait"),
    "exposed_transfer": ("transfer", "exposed transfer"),
    "exposed_comm_unsplit": ("unsplit", "exposed communication (wait not known)"),
    "exposed_memcpy": ("memcpy", "exposed memcpy"),
    "idle_launch_bound": ("idle", "idle: launch-bound"),
    "idle_waiting_for_host": ("idle", "idle: waiting for the host"),
    "idle_waiting_for_stream": ("idle", "idle: waiting for a stream"),
    "idle_data_loading": ("idle", "idle: data loading"),
    "idle_unknown": ("idle", "idle: cause unknown"),
}
"""Class of `step_breakdown` -> the group it is summed in, and its words on a page."""

GROUPS = ("compute", "wait", "transfer", "unsplit", "memcpy", "idle")
"""Groups of classes in the order they are shown."""


def group_of(name: str) -> str:
    """The group of a class; idle classes and the rest by how their names begin."""
    if name in CLASSES:
        return CLASSES[name][0]
    return next((g for g in GROUPS if g in name), "idle")


def words_of(name: str) -> str:
    """A class in words."""
    return CLASSES[name][1] if name in CLASSES else name.replace("_", " ")


def jobs(con: DuckDBPyConnection) -> pl.DataFrame:
    """One row a job of the connection: ranks, steps, participations, clocks, problems."""
    return frame(
        con.sql("""
        WITH s AS (SELECT job, count(DISTINCT step) AS steps FROM steps GROUP BY job),
        c AS (SELECT job, count(*) AS participations FROM collectives GROUP BY job),
        p AS (
            SELECT job, count(*) AS problems,
                count(*) FILTER (WHERE severity = 'lost') AS lost
            FROM problems GROUP BY job
        )
        SELECT j.job, j.ranks_seen, j.world_size, j.framework, j.sources,
            coalesce(s.steps, 0) AS steps,
            coalesce(c.participations, 0) AS participations, j.clocks,
            coalesce(p.problems, 0) AS problems, coalesce(p.lost, 0) AS lost,
            strftime(make_timestamp(j.created_at_ns // 1000), '%Y-%m-%d %H:%M:%S') AS created_utc
        FROM jobs AS j LEFT JOIN s USING (job) LEFT JOIN c USING (job) LEFT JOIN p USING (job)
        ORDER BY j.created_at_ns, j.job
        """)
    )


def problems(con: DuckDBPyConnection) -> pl.DataFrame:
    """Problems of the connection's jobs, input that was lost first."""
    return frame(
        con.sql("""
        SELECT job, severity, code, rank, source, "offset", count, message FROM problems
        ORDER BY CASE severity WHEN 'lost' THEN 0 WHEN 'warning' THEN 1 ELSE 2 END,
            code, rank NULLS FIRST, source, "offset"
        """)
    )


def problem_kinds(con: DuckDBPyConnection) -> pl.DataFrame:
    """Problems by kind: severity, code, sources, times, and the first message, lost input first."""
    return frame(
        con.sql("""
        SELECT severity, code, count(DISTINCT source) AS sources,
            sum(coalesce(count, 1))::BIGINT AS times, min(message) AS message
        FROM problems GROUP BY severity, code
        ORDER BY CASE severity WHEN 'lost' THEN 0 WHEN 'warning' THEN 1 ELSE 2 END, code
        """)
    )


def facts(con: DuckDBPyConnection) -> dict[str, Any]:
    """What one job is: ranks, hosts, clocks, steps, comms, matches, counts of problems.

    `contradictions` are the sentences of the problems that put in doubt whether it is one job.
    """
    job = frame(con.sql("SELECT * FROM jobs")).to_dicts()
    out: dict[str, Any] = job[0] if job else {}
    out |= _one(
        con,
        """
        SELECT count(*) AS ranks_seen, count(DISTINCT host) AS hosts,
            max(clock_error_ns) AS clock_error_ns,
            count(*) FILTER (WHERE clock_error_ns IS NULL) AS ranks_unaligned,
            mode(device_name) AS device_name
        FROM ranks
        """,
    )
    out |= _one(
        con,
        """
        SELECT count(DISTINCT step) AS steps, min(step) AS first_step, max(step) AS last_step,
            mode(found_by) AS steps_found_by
        FROM steps
        """,
    )
    out["comms"] = _one(con, "SELECT count(*) AS n FROM comms")["n"]
    out |= _one(con, "SELECT count(*) FILTER (WHERE NOT wait_known) AS wait_unknown FROM waits")
    out |= _one(
        con,
        """
        SELECT count(*) AS participations,
            count(DISTINCT comm) AS comms_used,
            count(DISTINCT collective_id) AS collectives,
            count(DISTINCT collective_id) FILTER (WHERE match = 'exact') AS exact,
            count(DISTINCT collective_id) FILTER (WHERE match = 'order') AS "order",
            count(DISTINCT collective_id) FILTER (WHERE match = 'partial') AS partial,
            count(*) FILTER (WHERE collective_id IS NULL) AS unmatched
        FROM collectives
        """,
    )
    out |= _one(
        con,
        """
        SELECT count(*) FILTER (WHERE severity = 'lost') AS problems_lost,
            count(*) FILTER (WHERE severity = 'warning') AS problems_warning,
            count(*) FILTER (WHERE severity = 'info') AS problems_info
        FROM problems
        """,
    )
    doubts = "SELECT DISTINCT message FROM problems WHERE list_contains($1, code) ORDER BY ALL"
    found = frame(con.sql(doubts, params=[list(one_job.CODES)]))
    out["contradictions"] = found["message"].drop_nulls().to_list()
    return out


def holdings(con: DuckDBPyConnection) -> dict[str, int]:
    """Rows of each table that the figures above say nothing about, those without rows left out."""
    tables = ("topology", "cost_curves", "routing", "tuning", "transfers", "counters",
              "graph_nodes", "configurations")  # fmt: skip
    counts = ", ".join(f"(SELECT count(*) FROM {t}) AS {t}" for t in tables)
    return {t: n for t, n in _one(con, f"SELECT {counts}").items() if n}


def _one(con: DuckDBPyConnection, query: str) -> dict[str, Any]:
    return frame(con.sql(query)).to_dicts()[0]


def split(con: DuckDBPyConnection, by: str | None = None) -> pl.DataFrame:
    """Where a rank's step goes: `class`, `group`, `mean_ns`, `share`, over all ranks or by one.

    The mean is over (rank, step) windows, so the classes add up to the mean step. Without steps
    the windows are whole ranks. `by` is None or "rank".
    """
    keys = ["class"] if by is None else [by, "class"]
    rows = frame(
        con.sql("""
        SELECT rank, step, class, sum(ns)::BIGINT AS ns FROM step_breakdown
        WHERE step IS NOT NULL OR NOT EXISTS (FROM step_breakdown WHERE step IS NOT NULL)
        GROUP BY ALL
        """)
    ).with_columns(pl.col("class").cast(pl.String))
    over = [] if by is None else [by]
    windows = rows.select("rank", "step").unique()
    n = windows.group_by(over).len("n") if over else windows.select(pl.len().alias("n"))
    sums = rows.group_by(keys).agg(pl.col("ns").sum())
    out = sums.join(n, on=over) if over else sums.join(n, how="cross")
    out = out.with_columns((pl.col("ns") / pl.col("n")).alias("mean_ns"))
    total = pl.col("mean_ns").sum().over(over) if over else pl.col("mean_ns").sum()
    order = {name: i for i, name in enumerate(CLASSES)}
    rank = pl.col("class").replace_strict(order, default=len(order), return_dtype=pl.Int32)
    return (
        out.with_columns(
            pl.when(total > 0).then(pl.col("mean_ns") / total).otherwise(0.0).alias("share"),
            pl.col("class").map_elements(group_of, return_dtype=pl.String).alias("group"),
        )
        .sort(*over, rank, "class")
        .select(*over, "class", "group", "mean_ns", "share")
    )


def groups(by_class: pl.DataFrame) -> pl.DataFrame:
    """`split` summed into GROUPS, in that order, all present."""
    found = by_class.group_by("group").agg(pl.col("mean_ns").sum(), pl.col("share").sum())
    return (
        pl.DataFrame({"group": list(GROUPS)})
        .join(found, on="group", how="left", maintain_order="left")
        .with_columns(pl.col("mean_ns").fill_null(0.0), pl.col("share").fill_null(0.0))
    )


def waited_for(con: DuckDBPyConnection) -> pl.DataFrame:
    """`late_ranks`, the costliest first: ranks that were last at least once.

    `wait_caused_ns` is the others' wait that would have gone had the rank started together with
    the last but one; `wait_share` is that over all the wait of the job's ranks, whoever caused it.
    """
    return frame(
        con.sql("""
        SELECT rank, host, collectives, times_last, last_share, wait_caused_ns,
            wait_caused_ns / nullif((SELECT sum(wait_ns) FROM waits), 0) AS wait_share,
            median_lateness_ns, times_within_error
        FROM late_ranks WHERE times_last > 0
        ORDER BY wait_caused_ns DESC, times_last DESC, rank
        """)
    )


def waits_by_dim_and_op(con: DuckDBPyConnection) -> pl.DataFrame:
    """Wait and transfer of all participations by dimension and operation, the longest first."""
    return frame(
        con.sql("""
        SELECT dim, op, count(*) AS participations,
            coalesce(sum(wait_ns) FILTER (wait_known), 0)::BIGINT AS wait_ns,
            coalesce(sum(transfer_ns) FILTER (wait_known), 0)::BIGINT AS transfer_ns,
            coalesce(sum(transfer_ns) FILTER (NOT wait_known), 0)::BIGINT AS unsplit_ns,
            sum(wait_ns) FILTER (wait_known)
                / nullif(sum(wait_ns + transfer_ns) FILTER (wait_known), 0) AS wait_share
        FROM waits WHERE wait_ns IS NOT NULL GROUP BY dim, op
        ORDER BY sum(wait_ns + transfer_ns) DESC, dim, op
        """)
    )


def paired_wait_share(by_dim_and_op: pl.DataFrame) -> float:
    """The share of all wait that is at sends and receives, 0 where nobody waits."""
    paired = by_dim_and_op.filter(pl.col("op").cast(pl.String).is_in(["send", "recv", "send_recv"]))
    total = int(by_dim_and_op["wait_ns"].sum())
    return int(paired["wait_ns"].sum()) / total if total else 0.0


def overlap_by_rank(con: DuckDBPyConnection) -> pl.DataFrame:
    """Ranks with communication, in and out of steps: under compute, exposed, and the ratio."""
    return frame(
        con.sql("""
        SELECT rank, comm_ns, overlap_ns, exposed_ns, overlap_ratio AS overlap_share
        FROM overlap_by_rank WHERE comm_ns > 0 ORDER BY rank
        """)
    )


def headline(con: DuckDBPyConnection) -> dict[str, Any]:
    """The numbers that matter first: mean step, its groups, and the rank others wait for.

    `all_wait_ns` is the wait of all ranks' participations, added up.
    `scope` is "step", or "trace" where the job has no steps, or "nothing" where it has no events.
    `paired_wait_share` is the share of all wait that is at sends and receives, where a pipeline's
    schedule makes ranks wait that nobody holds up. `start_spread_ns` is how far apart the ranks
    began (`start_spread_ns`).
    """
    by_class = split(con)
    found = groups(by_class)
    last = waited_for(con)
    waits = waits_by_dim_and_op(con)
    has_steps = bool(_one(con, "SELECT count(*) AS n FROM steps")["n"])
    total = float(found["mean_ns"].sum())
    return {
        "scope": ("step" if has_steps else "trace") if total else "nothing",
        "step_ns": round(total),
        **{f"{g}_ns": round(ns) for g, ns in found.select("group", "mean_ns").iter_rows()},
        "classes": by_class.to_dicts(),
        "waited_for": last.head(1).to_dicts()[0] if last.height else None,
        "all_wait_ns": waits["wait_ns"].sum(),
        "paired_wait_share": paired_wait_share(waits),
        "start_spread_ns": start_spread_ns(con),
    }


def start_spread_ns(con: DuckDBPyConnection) -> int | None:
    """How far apart ranks of one clock began their only step (a trace without steps: their trace).

    None where a rank has several steps, where there is one rank, and where no clocks compare. A
    rank begins when its host does.
    """
    return _one(
        con,
        """
        WITH steps_of AS (
            SELECT job, rank, count(*) AS n,
                min(coalesce(least(host_start_ns, start_ns), start_ns)) AS start_ns
            FROM steps GROUP BY job, rank
        ), started AS (
            SELECT k.job, k.rank, k.clock, coalesce(s.n, 0) AS n,
                _aligned_ns(coalesce(s.start_ns, r.start_ns),
                            k.offset_ns, k.drift_ppm, k.anchor_ns) AS start_ns
            FROM _rank_clocks k JOIN ranks r USING (job, rank)
            LEFT JOIN steps_of s USING (job, rank)
        ), spread AS (
            SELECT job, clock, max(start_ns) - min(start_ns) AS ns
            FROM started
            -- A rank without steps beside ranks that have some began whenever.
            WHERE (n > 0) = (SELECT max(n) > 0 FROM started)
            GROUP BY job, clock HAVING count(start_ns) > 1
        )
        SELECT CASE WHEN (SELECT max(n) FROM started) <= 1 THEN max(ns) END::BIGINT AS ns
        FROM spread
        """,
    )["ns"]
