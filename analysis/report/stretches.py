"""Steps over ranks as frames: merged stretches of each class, and the collectives in them."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import polars as pl

from .. import units
from ..query import frame

if TYPE_CHECKING:
    from duckdb import DuckDBPyConnection

CLASSES = (
    "idle",
    "compute",
    "compute_with_comm",
    "exposed_wait",
    "exposed_transfer",
    "exposed_comm_unsplit",
    "exposed_memcpy",
)
"""Classes by the number that stretches carry: those of `step_breakdown`, idle as one."""

MOST_STEPS = 5
"""Steps that a page carries: the median, the slowest, the fastest, the first and the last."""

TICKS = 32_768
"""Parts that a step is cut into: times on the timeline are whole numbers of them."""


def steps(con: DuckDBPyConnection) -> pl.DataFrame:
    """One row a step: `step`, `ranks`, `mean_ns` over ranks, `longest_ns` of one, `busy_ns` of all.

    `busy_ns` is the time in which compute or communication runs, added up over ranks.
    """
    return frame(
        con.sql("""
        WITH busy AS (
            SELECT step, sum(compute_ns + exposed_ns)::BIGINT AS busy_ns
            FROM overlap WHERE step IS NOT NULL GROUP BY step
        )
        SELECT w.step, count(*) AS ranks, avg(w.end_ns - w.start_ns) AS mean_ns,
            max(w.end_ns - w.start_ns) AS longest_ns, any_value(coalesce(b.busy_ns, 0)) AS busy_ns
        FROM _step_windows AS w LEFT JOIN busy AS b USING (step)
        GROUP BY w.step ORDER BY w.step
        """)
    )


def chosen(by_step: pl.DataFrame) -> list[tuple[int | None, str]]:
    """Steps to show with what each is, the one nearest the median first; (None, …) without steps.

    Only steps that the most ranks have are compared, and of those the ones in which work was seen.
    """
    if by_step.is_empty():
        return [(None, "the whole trace")]
    seen = by_step.filter(pl.col("busy_ns") > 0)
    by_step = by_step if seen.is_empty() else seen
    whole = by_step.filter(pl.col("ranks") == pl.col("ranks").max()).sort("mean_ns", "step")
    median = whole.row((whole.height - 1) // 2, named=True)["step"]
    named = [
        (median, "median"),
        (whole["step"][-1], "slowest"),
        (whole["step"][0], "fastest"),
        (whole["step"].min(), "first"),
        (whole["step"].max(), "last"),
    ]
    out: dict[int, list[str]] = {}
    for step, words in named:
        out.setdefault(step, []).append(words)
    for step in whole["step"]:
        if len(out) < MOST_STEPS:
            out.setdefault(step, [])
    return [(step, ", ".join(words)) for step, words in out.items()]


def lanes(con: DuckDBPyConnection) -> pl.DataFrame:
    """One row a rank, hosts together: `rank`, `host`, `local_rank`, `clock` it is on."""
    return frame(
        con.sql("""
        SELECT r.rank, r.host, r.local_rank, coalesce(k.clock, 'rank ' || r.rank) AS clock
        FROM ranks AS r LEFT JOIN _rank_clocks AS k USING (job, rank)
        ORDER BY min(r.rank) OVER (PARTITION BY r.host), r.host NULLS LAST, r.rank
        """)
    )


def stretches(
    con: DuckDBPyConnection, steps: Sequence[int | None]
) -> dict[int | None, pl.DataFrame]:
    """By step one row a stretch of a rank: `rank`, `start_ns`, `end_ns`, `class` (of CLASSES).

    Back to back, in order; neighbours differ in class. Step None is the time outside steps. All
    in one query: what is below it costs the same for one step as for many.
    """
    inside = [int(s) for s in steps if s is not None]
    listed = ", ".join(map(str, inside)) or "NULL"
    rows = frame(
        con.sql(f"""
        SELECT w.step, s.rank, s.start_ns, s.end_ns,
            CASE
                WHEN s.compute AND s.comm THEN 2
                WHEN s.compute THEN 1
                WHEN s.transfer THEN 4
                WHEN s.unsplit THEN 5
                WHEN s.comm THEN 3
                WHEN s.copy THEN 6
                ELSE 0
            END::TINYINT AS class
        FROM _segments AS s LEFT JOIN _step_windows AS w USING (job, rank, ordinal)
        WHERE w.step IN ({listed}) OR ({None in steps} AND s.ordinal = 0)
        ORDER BY s.rank, s.start_ns
        """)
    )
    within = {s: pl.col("step").is_null() if s is None else pl.col("step") == s for s in steps}
    return {s: merged(rows.filter(where).drop("step")) for s, where in within.items()}


def merged(rows: pl.DataFrame) -> pl.DataFrame:
    """Neighbours of the same rank and class as one; rows are in order of rank and start."""
    return (
        rows.group_by(_run("rank", "class").alias("_run"), maintain_order=True)
        .agg(
            pl.col("rank").first(),
            pl.col("start_ns").min(),
            pl.col("end_ns").max(),
            pl.col("class").first(),
        )
        .drop("_run")
    )


def _run(*columns: str) -> pl.Expr:
    """The number of the run of equal values that a row is in."""
    changes = [pl.col(c) != pl.col(c).shift(1) for c in columns]
    return pl.any_horizontal(changes).fill_null(True).cum_sum()


def coalesced(rows: pl.DataFrame, width_ns: int) -> tuple[pl.DataFrame, int]:
    """Stretches with runs of ones shorter than `width_ns` made into stretches about that long.

    Each has the class that takes most of its time (idle only if none takes as much). Returns
    them, and the ns of the rest: what is drawn as another class than it was.
    """
    if rows.is_empty():
        return rows, 0
    dur = pl.col("end_ns") - pl.col("start_ns")
    short = dur < width_ns
    cells = (
        rows.with_columns(short.alias("_short"), dur.alias("_dur"))
        .with_columns(_run("rank", "_short").alias("_run"))
        .with_columns(
            pl.when("_short")
            .then((pl.col("start_ns") - pl.col("start_ns").min().over("_run")) // width_ns)
            .otherwise(pl.int_range(pl.len()))
            .alias("_cell")
        )
        .group_by("_run", "_cell", "rank", "class")
        .agg(pl.col("_dur").sum(), pl.col("start_ns").min(), pl.col("end_ns").max())
    )
    whole = (
        cells.sort("_run", "_cell", "_dur", "class", descending=[False, False, True, True])
        .group_by("_run", "_cell", maintain_order=True)
        .agg(
            pl.col("rank").first(),
            pl.col("start_ns").min(),
            pl.col("end_ns").max(),
            pl.col("class").first(),
            (pl.col("_dur").sum() - pl.col("_dur").first()).alias("_lost"),
        )
        .sort("rank", "start_ns")
    )
    return merged(whole.select("rank", "start_ns", "end_ns", "class")), int(whole["_lost"].sum())


def fitted(rows: pl.DataFrame, span_ns: int, most: int) -> tuple[pl.DataFrame, int, int]:
    """`coalesced` at the least width that leaves at most `most`: the rows, ns lost, the width."""
    width = max(1, span_ns // TICKS)
    if rows.height <= most:
        return rows, 0, 0
    while True:
        fewer, lost = coalesced(rows, width)
        if fewer.height <= most or width >= span_ns:
            return fewer, lost, width
        width *= 2


def parts(con: DuckDBPyConnection, step: int | None) -> pl.DataFrame:
    """One row a participation of a step: `rank`, `collective`, `label`, `start_ns`, times, `comm`.

    `collective` tells collectives apart; `wait_ns` is null where nothing says what of it is wait.
    """
    within = "step IS NULL" if step is None else f"step = {int(step)}"
    found = frame(
        con.sql(f"""
        SELECT rank,
            coalesce('c' || collective_id, 'r' || rank || '-' || start_ns) AS collective,
            op, dim, bytes, comm, start_ns, end_ns - start_ns AS dur_ns,
            CASE WHEN wait_known THEN wait_ns END AS wait_ns
        FROM waits WHERE {within}
        ORDER BY start_ns, rank, collective
        """)
    )
    labels = found.select("op", "dim", "bytes").unique()
    one = labels["dim"].n_unique() == 1
    words = [signature(r, one) for r in labels.iter_rows(named=True)]
    labels = labels.with_columns(pl.Series("label", words, dtype=pl.String))
    return found.join(
        labels, on=["op", "dim", "bytes"], how="left", nulls_equal=True, maintain_order="left"
    )


def signature(row: dict[str, Any], one_dim: bool = False) -> str:
    """A collective in words: operation, dimension (where there are several), size."""
    dim = row["dim"] if row["dim"] not in (None, "unknown") and not one_dim else None
    size = None if row["bytes"] is None else units.size(row["bytes"])
    return " · ".join(str(p) for p in (row["op"], dim, size) if p)
