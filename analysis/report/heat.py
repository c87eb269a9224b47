"""The waits of a step as a matrix: a row a rank, a column a collective or a kind of collective."""

from __future__ import annotations

from typing import Any

import polars as pl

from ..screen import clean
from .matrix import UNKNOWN, unit_of
from .parts import EVERYONE, Bars, Panel, absent, chart, legend, note, section
from .parts import table as table_of

TITLE = "Who waits where: ranks by collectives"

MOST_COLUMNS = 96
"""Collectives that get a column each; of more, those of one signature share a column."""


def table(parts: pl.DataFrame, ranks: list[int]) -> dict[str, Any]:
    """`columns` (words), `count` of collectives in each, `unit_ns`, and `rows` by rank.

    `parts` is `stretches.parts`. A cell is the rank's wait in units of `unit_ns`, UNKNOWN, or None.
    `grouped` says whether columns are signatures, those with the longest waits first, or
    collectives as they began.
    """
    grouped = parts["collective"].n_unique() > MOST_COLUMNS
    key = "label" if grouped else "collective"
    columns = parts.group_by(key).agg(
        pl.col("label").first().alias("words"),
        pl.col("collective").n_unique().alias("count"),
        pl.col("start_ns").min(),
        pl.col("wait_ns").sum(),
    )
    order = ["wait_ns", key] if grouped else ["start_ns", key]
    columns = columns.sort(order, descending=[grouped, False]).head(MOST_COLUMNS)
    place = {k: i for i, k in enumerate(columns[key])}
    cells = (
        parts.filter(pl.col(key).is_in(columns[key].implode()))
        .group_by("rank", key)
        .agg(pl.col("wait_ns").sum(), pl.col("wait_ns").is_null().any().alias("unknown"))
    )
    largest = int(cells["wait_ns"].max() or 0)  # pyright: ignore[reportArgumentType]
    unit = unit_of(largest)
    rows: dict[int, list[int | None]] = {r: [None] * len(place) for r in ranks}
    for rank, k, wait, unknown in cells.select("rank", key, "wait_ns", "unknown").iter_rows():
        if rank in rows:
            rows[rank][place[k]] = UNKNOWN if unknown else round(wait / unit)
    return {
        "columns": [clean(w) for w in columns["words"]],
        "count": columns["count"].to_list(),
        "unit_ns": unit,
        "rows": rows,
        "grouped": grouped,
        "left_out": int(parts[key].n_unique()) - len(place),
    }


def render(timeline: dict[str, Any], by_dim: pl.DataFrame, facts: dict[str, Any]) -> Panel:
    """The panel: the matrix of the timeline's step, and waits by dimension and operation.

    `by_dim` is `frames.waits_by_dim_and_op`.
    """
    if by_dim.is_empty():
        none = (
            "This job has no collectives, so no rank waits for another. If it should have: a trace "
            "of every rank (torch.profiler, Nsight Systems, NCCL Inspector) has them."
        )
        if facts["participations"]:
            none = (
                "No source says when this job's collectives ran: who waited is not known. A "
                "torch.profiler or Nsight Systems trace has it, and the NCCL Inspector plugin too."
            )
        return absent("waits", TITLE, none)
    alone = ""
    if facts["ranks_seen"] == 1:
        alone = note(
            "One rank was seen, so nobody's arrival can be compared: how much of its time in "
            "collectives is wait is not known.",
            "said",
        )
    drawn = any(s["heat"]["columns"] for s in timeline.get("steps", ()))
    matrix = chart("heat", "wait of each rank in each collective of the step") if drawn else ""
    return Panel(
        section(
            "waits",
            TITLE,
            note(
                "Wait is the time before the last rank had started: no bandwidth can shorten it. "
                "The rank that the others wait for has a row with little wait among rows with much."
            ),
            alone,
            matrix,
            "<h3>By dimension and operation, whole trace</h3>",
            EVERYONE,
            legend(_parts(by_dim)),
            _by_dim(by_dim),
        )
    )


def _parts(by_dim: pl.DataFrame) -> dict[str, str]:
    words = {"wait": "exposed_wait", "transfer": "exposed_transfer"}
    if by_dim["unsplit_ns"].sum():
        words["wait not known"] = "exposed_comm_unsplit"
    return words


def _by_dim(by_dim: pl.DataFrame) -> str:
    rows = by_dim.with_columns(
        pl.format(
            "{} {}", pl.col("dim").fill_null("unknown"), pl.col("op").fill_null("unknown")
        ).alias("what"),
        pl.sum_horizontal("wait_ns", "transfer_ns", "unsplit_ns").alias("all_ns"),
    )
    columns = {
        "what": "dimension and operation",
        "participations": "participations",
        "wait_ns": "wait",
        "transfer_ns": "transfer",
        "wait_share": "wait share",
    }
    if by_dim["unsplit_ns"].sum():
        columns["unsplit_ns"] = "wait not known"
    bars = Bars(
        "added up over ranks",
        {
            "wait_ns": "exposed_wait",
            "transfer_ns": "exposed_transfer",
            "unsplit_ns": "exposed_comm_unsplit",
        },
        float(rows["all_ns"].max() or 0),  # pyright: ignore[reportArgumentType]
    )
    return table_of(rows.to_dicts(), columns, bars=bars)
