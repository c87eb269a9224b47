"""The panel of a step over ranks: what its drawing needs and leaves out, within a budget."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import polars as pl

from .. import units
from ..query import tuples
from ..screen import clean
from . import heat, stretches
from .parts import Panel, absent, chart, items, legend, note, section

if TYPE_CHECKING:
    from duckdb import DuckDBPyConnection

LEGEND = {
    "compute": "compute",
    "compute with communication": "compute_with_comm",
    "waiting for other ranks": "exposed_wait",
    "transfer": "exposed_transfer",
    "communication, wait not known": "exposed_comm_unsplit",
    "copies": "exposed_memcpy",
    "idle": "idle",
}

MOST_LANES = 128
"""Ranks with a lane; where there are more, the ones that differ most in how they wait stay."""

MOST_STRETCHES = 30_000
"""Stretches of one step over all lanes; short ones are merged until so many are left."""

MOST_PARTS = 16_000
"""Participations of one step that can be named under the pointer: the longest."""

TITLE = "One step over all ranks"


def gather(con: DuckDBPyConnection) -> dict[str, Any]:
    """`lanes` (host and rank), `steps` (each with its drawing), `left_out` ranks; {} without work.

    A step has `step`, `words`, `mean_ns`, `tick_ns`, `ticks`, `lanes`: by rank the tick it begins
    at, its stretches as ticks * 8 + class, and its participations as four numbers each: place in
    `collectives`, begin, ticks of wait (-1 not known), ticks in all; `heat` is `heat.table`.
    """
    ranks = stretches.lanes(con)
    by_step = stretches.steps(con)
    kept, left_out = _kept(con, ranks)
    out = []
    chosen = stretches.chosen(by_step)
    rows = stretches.stretches(con, [step for step, _ in chosen])
    for step, words in chosen:
        found = _step(con, step, rows[step], kept)
        if found is None:
            continue
        mean = (
            by_step.filter(pl.col("step") == step)["mean_ns"].to_list() if step is not None else []
        )
        out.append({"step": step, "words": words, "mean_ns": mean[0] if mean else None, **found})
    if not out:
        return {}
    return {
        "lanes": [
            {"rank": r["rank"], "host": None if r["host"] is None else clean(r["host"])}
            for r in kept.iter_rows(named=True)
        ],
        "left_out": left_out,
        "clocks": kept["clock"].n_unique(),
        "steps": out,
    }


def _kept(con: DuckDBPyConnection, ranks: pl.DataFrame) -> tuple[pl.DataFrame, int]:
    """At most MOST_LANES ranks, half those that cost the others most, half spread evenly."""
    left_out = ranks.height - MOST_LANES
    if left_out <= 0:
        return ranks, 0
    cost = tuples(con, "SELECT rank FROM late_ranks ORDER BY wait_caused_ns DESC, rank")
    keep = [rank for (rank,) in cost[: MOST_LANES // 2]]
    others = [r for r in ranks["rank"].to_list() if r not in set(keep)]
    room = MOST_LANES - len(keep)
    keep += [others[i * len(others) // room] for i in range(room)]
    return ranks.filter(pl.col("rank").is_in(keep)), left_out


def _step(
    con: DuckDBPyConnection, step: int | None, rows: pl.DataFrame, ranks: pl.DataFrame
) -> dict[str, Any] | None:
    rows = rows.join(ranks.select("rank", "clock"), on="rank", maintain_order="left")
    if rows.is_empty():
        return None
    # Clocks that cannot be compared each begin at their own zero.
    zeros = rows.group_by("clock").agg(pl.col("start_ns").min().alias("zero_ns"))
    zero = ranks.select("rank", "clock").join(zeros, on="clock")
    rows = _from_zero(rows.drop("clock"), zero)
    span = int(rows["end_ns"].max() or 0)  # pyright: ignore[reportArgumentType]
    fewer, lost, width = stretches.fitted(rows, span, MOST_STRETCHES)
    parts = stretches.parts(con, step)
    of_ranks = parts.join(ranks.select("rank"), on="rank", maintain_order="left")
    shown = of_ranks.sort("dur_ns", descending=True, maintain_order=True).head(MOST_PARTS)
    return {
        "span_ns": span,
        "tick_ns": span / stretches.TICKS,
        "merged_ns": lost,
        "merged_under_ns": width,
        "drawn_ns": int((rows["end_ns"] - rows["start_ns"]).sum()),
        "unnamed": of_ranks.height - shown.height,
        **_packed(fewer, _from_zero(shown.sort("start_ns", "rank"), zero), span),
        "heat": heat.table(parts, ranks["rank"].to_list()),
    }


def _from_zero(rows: pl.DataFrame, zero: pl.DataFrame) -> pl.DataFrame:
    """Times less the zero of the rank's clock."""
    times = [c for c in ("start_ns", "end_ns") if c in rows.columns]
    return (
        rows.join(zero.select("rank", "zero_ns"), on="rank", maintain_order="left")
        .with_columns(pl.col(c) - pl.col("zero_ns") for c in times)
        .drop("zero_ns")
    )


def _packed(rows: pl.DataFrame, parts: pl.DataFrame, span_ns: int) -> dict[str, Any]:
    """Stretches and participations by rank, in whole ticks; rounding never adds up."""
    scale = stretches.TICKS / max(1, span_ns)
    cut = rows.with_columns(
        (pl.col("start_ns") * scale).round().cast(pl.Int64).alias("a"),
        (pl.col("end_ns") * scale).round().cast(pl.Int64).alias("b"),
    ).filter(pl.col("b") > pl.col("a"))
    lanes: dict[int, dict[str, Any]] = {}
    for rank, a, b, kind in cut.select("rank", "a", "b", "class").iter_rows():
        lane = lanes.setdefault(rank, {"from": a, "run": [], "parts": []})
        lane["run"].append((b - a) * 8 + kind)
    labels: dict[str, int] = {}
    collectives: dict[str, int] = {}
    of_collective: list[int] = []
    numbers = parts.select("rank", "collective", "label", "start_ns", "wait_ns", "dur_ns")
    for rank, collective, label, start, wait, dur in numbers.iter_rows():
        if rank not in lanes:
            continue
        if collective not in collectives:
            collectives[collective] = len(collectives)
            of_collective.append(labels.setdefault(clean(label), len(labels)))
        lanes[rank]["parts"] += [
            collectives[collective],
            round(start * scale),
            -1 if wait is None else round(wait * scale),
            round(dur * scale),
        ]
    return {"lanes": lanes, "labels": list(labels), "collectives": of_collective}


def render(found: dict[str, Any], facts: dict[str, Any]) -> Panel:
    """The panel from what `gather` found."""
    if not found:
        why = (
            "No source says when anything ran on a GPU, so there is no timeline. A torch.profiler "
            "(Kineto) or Nsight Systems trace of each rank has it."
        )
        return absent("timeline", TITLE, why)
    said = []
    if found["clocks"] > 1:
        said.append(
            "Clocks of this job's hosts could not be aligned: each host begins at its own zero, so "
            "do not compare moments across hosts."
        )
    if found["left_out"]:
        said.append(
            f"{len(found['lanes'])} of {len(found['lanes']) + found['left_out']:,} ranks have a "
            "lane: those that cost the others most, and others evenly spread. Tables have all."
        )
    options = "".join(
        f'<option value="{i}">{_option(s)}</option>' for i, s in enumerate(found["steps"])
    )
    select = f'<label>Step <select id="step">{options}</select></label>'
    if found["steps"][0]["step"] is None:
        select = '<label hidden>Step <select id="step"><option value="0"></option></select></label>'
    tools = (
        f'<div class="tools">{select}<button type="button" data-zoom="in">zoom in</button>'
        '<button type="button" data-zoom="out">zoom out</button>'
        '<button type="button" data-zoom="all">whole step</button></div>'
    )
    present = {v % 8 for s in found["steps"] for lane in s["lanes"].values() for v in lane["run"]}
    shown = {
        w: k for w, k in LEGEND.items() if stretches.CLASSES.index(k) in present or k == "idle"
    }
    return Panel(
        section(
            "timeline",
            TITLE if found["steps"][0]["step"] is not None else "The whole trace over all ranks",
            note(
                "Drag over a part to see it larger; point at it to see what runs. Click a rank to "
                "follow it through the page, with Shift or Ctrl for several."
            ),
            items(said, "said"),
            tools,
            legend(shown),
            chart("timeline", "timeline of a step, one lane a rank"),
            '<p class="note" id="merged" aria-live="polite"></p>',
        ),
        {k: found[k] for k in ("lanes", "steps", "clocks")},
    )


def _option(step: dict[str, Any]) -> str:
    if step["step"] is None:
        return "the whole trace"
    words = f" ({step['words']})" if step["words"] else ""
    return f"{step['step']}{words}: {units.time(step['mean_ns'])}"
