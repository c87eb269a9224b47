"""The panel of rails: what each carried in each window, and how evenly they shared it."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import polars as pl

from .. import units
from ..query import frame
from ..screen import clean
from .matrix import packed
from .parts import Panel, absent, chart, items, note, section, table

if TYPE_CHECKING:
    from duckdb import DuckDBPyConnection

TITLE = "Rails"

MOST_RAILS = 160
"""Rails with a row; those that carried most stay."""

MOST_WINDOWS = 96
"""Windows with a column; the first stay."""

WORST = 8
"""Windows of the table: the least even."""


def gather(con: DuckDBPyConnection) -> dict[str, pl.DataFrame]:
    """`load` (a rail in a window, by the best source), `imbalance` (a window), `left_out`."""
    return {
        "load": frame(
            con.sql("""
            SELECT step, window_by, window_start_ns, host, rank, rail, nic, source, unit,
                coalesce(bytes, tokens) AS amount, busy_ns
            FROM rail_load WHERE is_best
            ORDER BY window_start_ns NULLS FIRST, step NULLS FIRST, host, rail, nic
            """)
        ),
        "imbalance": frame(
            con.sql("""
            SELECT step, window_by, window_start_ns, source, unit, n_rails, idle_rails, bytes,
                max_over_mean, cv, jain, busy_max_over_mean, busiest_host, busiest_rail
            FROM rail_imbalance WHERE is_best AND max_over_mean IS NOT NULL
            ORDER BY max_over_mean DESC, window_start_ns NULLS FIRST, step
            """)
        ),
        "left_out": frame(con.sql("FROM rail_left_out ORDER BY operations DESC, op, reason")),
    }


def window_words(row: dict[str, Any], number: int) -> str:
    """A window in words: its step, or its number among those of its kind."""
    if row["step"] is not None:
        return f"step {row['step']}"
    if row["window_by"] == "job":
        return "the job"
    if row["window_by"] == "outside steps":
        return "outside steps"
    return f"part {number + 1}"


def render(found: dict[str, pl.DataFrame]) -> Panel:
    """The panel from what `gather` found."""
    load, imbalance = found["load"], found["imbalance"]
    if load.is_empty() or not load["amount"].sum():
        why = (
            "Nothing crossed hosts that a rail could carry, or no source says what did. Bytes are "
            "measured by NCCL's profiler plugin (NCCL_PROFILER_PLUGIN, proxy steps) and by Nsight "
            "Systems with --nic-metrics=true; on several hosts they are derived where sizes and "
            "members of collectives are known."
        )
        return absent("rails", TITLE, why)
    outside = load.filter(pl.col("window_by").is_in(["outside steps", "job"]))
    if outside.height < load.height:
        load = load.join(outside, on=load.columns, how="anti", nulls_equal=True)
    else:
        outside = outside.head(0)
    keys = ["window_by", "step", "window_start_ns"]
    windows = load.select(keys).unique(maintain_order=True).head(MOST_WINDOWS).with_row_index("at")
    rails = (
        load.group_by("host", "rail", "nic", maintain_order=True)
        .agg(
            pl.col("amount").sum(),
            pl.col("rank").first(),
            pl.col("rank").n_unique().alias("ranks"),
        )
        .sort("amount", descending=True, maintain_order=True)
        .head(MOST_RAILS)
        .sort("host", "rail", "nic", nulls_last=True)
        .with_row_index("row")
    )
    cells = load.join(windows, on=keys, nulls_equal=True).join(
        rails.select("host", "rail", "nic", "row"), on=["host", "rail", "nic"], nulls_equal=True
    )
    unit = load["unit"].to_list()[0]
    drawn = packed(
        cells.group_by("row", "at").agg(pl.col("amount").sum().alias("value")),
        [
            {
                "label": str(r["rail"]) if r["rail"] is not None else "?",
                "group": None if r["host"] is None else clean(r["host"]),
                "rank": r["rank"] if r["ranks"] == 1 else None,
                "words": _rail_words(r),
            }
            for r in rails.iter_rows(named=True)
        ],
        [window_words(w, int(w["at"])) for w in windows.iter_rows(named=True)],
        "bytes" if unit == "bytes" else "tokens",
    )
    sources = sorted(set(load["source"].to_list()))
    said = [_SOURCES[s] for s in sources]
    if outside["amount"].sum():
        left = int(outside["amount"].sum())
        words = units.size(left) if unit == "bytes" else f"{units.count(left)} tokens"
        said.append(f"Not drawn: {words} outside steps.")
    total = load.select("host", "rail", "nic").unique().height
    if total > rails.height:
        said.append(f"{rails.height} of {total:,} rails are drawn: those that carried most.")
    said += [
        f"{units.counted(r['operations'], 'operation')} ({r['op']}) not in it: {r['reason']}."
        for r in found["left_out"].head(4).iter_rows(named=True)
    ]
    rows = [
        {**r, "window": window_words(r, 0), "busiest": _busiest(r)}
        for r in imbalance.head(WORST).iter_rows(named=True)
    ]
    columns = {
        "window": "window",
        "n_rails": "rails",
        "idle_rails": "idle",
        "bytes": "carried",
        "max_over_mean": "max / mean",
        "cv": "variation",
        "jain": "Jain",
        "busy_max_over_mean": "max / mean of busy time",
        "busiest": "busiest",
        "source": "how known",
    }
    return Panel(
        section(
            "rails",
            TITLE,
            note(
                "What each rail carried in each window, both directions together. 1 is even for "
                "max / mean and for Jain's index; 0 for the coefficient of variation."
            ),
            items(said, "said"),
            chart("rails", "what each rail carried in each window"),
            "<h3>The least even windows</h3>" if rows else "",
            table(rows, columns) if rows else "",
        ),
        drawn,
    )


_SOURCES = {
    "measured": "Measured: counters of NICs, or the steps of NCCL's own proxy.",
    "derived": (
        "Derived: worked out from sizes, members and placement of collectives; no NIC was read."
    ),
}


def _rail_words(r: dict[str, Any]) -> str:
    parts = [f"rail {r['rail']}" if r["rail"] is not None else "rail not known"]
    parts += [str(r[k]) for k in ("nic", "host") if r[k] is not None]
    return clean(" · ".join(parts))


def _busiest(r: dict[str, Any]) -> str:
    host = f" of {r['busiest_host']}" if r["busiest_host"] is not None else ""
    return units.NOTHING if r["busiest_rail"] is None else f"rail {r['busiest_rail']}{host}"
