"""The panel of experts: tokens by layer and expert, how uneven, and whether rails follow."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import polars as pl

from ..query import frame
from ..screen import clean
from .matrix import packed
from .parts import Bars, Panel, absent, chart, items, note, section, table

if TYPE_CHECKING:
    from duckdb import DuckDBPyConnection

TITLE = "Experts"

MOST_LAYERS = 128
"""Layers with a row."""

MOST_EXPERTS = 384
"""Experts with a column."""


def gather(con: DuckDBPyConnection) -> dict[str, pl.DataFrame]:
    """`load` (layer and expert), `by_rank`, `imbalance` (a layer), `regression` (a layer).

    Where several sources tell the routing, each keeps its rows.
    """
    return {
        "load": frame(
            con.sql("""
            SELECT source, id_space, block, layer, expert, sum(tokens)::BIGINT AS tokens
            FROM expert_load GROUP BY ALL ORDER BY source, id_space, block, layer, expert
            """)
        ),
        "by_rank": frame(
            con.sql("""
            SELECT source, id_space, expert_rank AS rank, any_value(placement) AS placement,
                sum(tokens)::BIGINT AS tokens
            FROM expert_load WHERE expert_rank IS NOT NULL GROUP BY source, id_space, expert_rank
            ORDER BY source, id_space, rank
            """)
        ),
        "imbalance": frame(
            con.sql("""
            SELECT source, id_space, block, layer, count(*) AS windows,
                sum(tokens)::BIGINT AS tokens,
                any_value(n_experts) AS n_experts,
                median(max_over_mean_by_expert) AS by_expert,
                max(max_over_mean_by_expert) AS by_expert_worst,
                median(max_over_mean_by_rank) AS by_rank,
                max(max_over_mean_by_rank) AS by_rank_worst,
                mode(busiest_expert) AS busiest_expert
            FROM expert_imbalance GROUP BY source, id_space, block, layer
            ORDER BY source, id_space, block, layer
            """)
        ),
        "regression": frame(
            con.sql("""
            SELECT source, block, layer, regressor, r2, slope, slope_error, n, rail_source
            FROM expert_rail_regression ORDER BY source, block, layer, regressor
            """)
        ),
    }


def render(found: dict[str, pl.DataFrame]) -> Panel:
    """The panel from what `gather` found, of the source that tells of most tokens."""
    load = found["load"]
    if load.is_empty() or not load["tokens"].sum():
        why = (
            "No source tells how tokens were routed to experts. Routing is read from expert "
            "counters and dumps of MoE frameworks (Megatron, vLLM, SGLang, DeepEP, EPLB and "
            "plain tables: docs/routing.md)."
        )
        return absent("experts", TITLE, why)
    of = ["source", "id_space"]
    kinds = load.group_by(of).agg(pl.col("tokens").sum())
    kinds = kinds.sort("tokens", *of, descending=[True, False, False])
    chosen = {k: kinds[k][0] for k in of}
    mine = {
        name: rows.filter(
            *(pl.col(k).eq_missing(pl.lit(v)) for k, v in chosen.items() if k in rows.columns)
        )
        for name, rows in found.items()
    }
    load = mine["load"]
    layers = load.select("block", "layer").unique(maintain_order=True).head(MOST_LAYERS)
    layers = layers.with_row_index("row")
    experts = sorted(set(load["expert"].drop_nulls().to_list()))[:MOST_EXPERTS]
    at = pl.DataFrame(
        {"expert": experts, "at": range(len(experts))},
        schema_overrides={"expert": load.schema["expert"]},
    )
    cells = load.join(layers, on=["block", "layer"], nulls_equal=True).join(at, on="expert")
    drawn = packed(
        cells.group_by("row", "at").agg(pl.col("tokens").sum().alias("value")),
        [
            {
                "label": "?" if r["layer"] is None else str(r["layer"]),
                "group": None,
                "rank": None,
                "words": clean(f"{r['block'] or ''} layer {r['layer']}".strip()),
            }
            for r in layers.iter_rows(named=True)
        ],
        [str(e) for e in experts],
        "tokens",
    )
    said = [f"Told by {clean(str(chosen['source']))}; experts are {chosen['id_space']}."]
    if kinds.height > 1:
        said.append(f"{kinds.height - 1} more: retime sql 'FROM expert_load'.")
    return Panel(
        section(
            "experts",
            TITLE,
            note(
                "Tokens that chose each expert, all steps together: a row a layer, a column an "
                "expert. Even rows are one colour."
            ),
            items(said, "said"),
            chart("experts", "tokens by layer and expert"),
            _by_rank(mine["by_rank"]),
            "<h3>How uneven, by layer</h3>",
            _by_layer(mine["imbalance"], mine["regression"]),
        ),
        drawn,
    )


def _by_rank(rows: pl.DataFrame) -> str:
    if rows.is_empty():
        return note("Which rank holds which expert is not known, so ranks cannot be compared.")
    bars = Bars(
        "tokens to its experts",
        {"tokens": "compute"},
        float(rows["tokens"].max() or 0),  # pyright: ignore[reportArgumentType]
    )
    columns = {"rank": "rank", "tokens": "tokens", "placement": "how its experts are known"}
    return "<h3>By the rank that holds them</h3>" + table(rows.to_dicts(), columns, bars=bars)


def _by_layer(imbalance: pl.DataFrame, regression: pl.DataFrame) -> str:
    best = regression.filter(pl.col("r2").is_not_null()).sort(
        "r2", "regressor", descending=[True, False]
    )
    fits = {(r["block"], r["layer"]): r for r in reversed(best.to_dicts())}
    rows = []
    for r in imbalance.iter_rows(named=True):
        fit: dict[str, Any] = fits.get((r["block"], r["layer"]), {})
        r2, slope = fit.get("r2"), fit.get("slope")
        rows.append(
            {
                **{k: _rounded(v) for k, v in r.items()},
                "r2": None if r2 is None else f"{r2:.3f}",
                "slope": None if slope is None else f"{slope:.3f}",
                "steps": fit.get("n"),
            }
        )
    columns = {
        "layer": "layer",
        "n_experts": "experts",
        "tokens": "tokens",
        "by_expert": "max / mean by expert, median step",
        "by_expert_worst": "worst step",
        "by_rank": "max / mean by rank, median step",
        "by_rank_worst": "worst step",
        "busiest_expert": "busiest expert",
    }
    if any(r["r2"] is not None for r in rows):
        columns |= {"r2": "R² with rails", "slope": "slope", "steps": "steps"}
    if imbalance["block"].n_unique() > 1:
        columns = {"block": "block", **columns}
    return table(rows, columns, right=("r2", "slope"))


def _rounded(value: Any) -> Any:
    return round(value, 2) if isinstance(value, float) else value
