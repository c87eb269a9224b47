"""Charts of the report: each function takes a frame and returns a Vega-Lite specification."""

from __future__ import annotations

from typing import Any

import altair as alt
import polars as pl

from . import units
from .frames import CLASSES, words_of
from .terminal import clean

COLOURS: dict[str, str] = {
    "compute": "#0072B2",
    "compute_with_comm": "#56B4E9",
    "exposed_wait": "#D55E00",
    "exposed_transfer": "#E69F00",
    "exposed_comm_unsplit": "#B8860B",
    "exposed_memcpy": "#CC79A7",
    "idle_data_loading": "#F0E442",
    "idle_launch_bound": "#7f7f7f",
    "idle_waiting_for_host": "#a6a6a6",
    "idle_waiting_for_stream": "#5e5e5e",
    "idle_unknown": "#c9c9c9",
}
"""Okabe and Ito's palette, which colour-blind readers can tell apart; idle is grey."""

WAIT, TRANSFER, UNSPLIT, HIDDEN, EXPOSED = "#D55E00", "#E69F00", "#B8860B", "#009E73", "#882255"

FONT = 'system-ui, "Segoe UI", Roboto, "Helvetica Neue", "DejaVu Sans", sans-serif'
"""The page's own: text is measured with it, so that legends keep their room."""

MOST_BARS = 96
"""Bars of one chart; where there are more, the longest stay and the page says so."""


def _bars(
    rows: list[dict[str, Any]],
    *,
    order: list[str],
    parts: dict[str, str],
    axis: str,
    title: str,
) -> dict[str, Any]:
    """Stacked horizontal bars: rows of `bar`, `part`, `ns`, `text` and `share`.

    `order` is that of the bars, `parts` maps each part to its colour, in stacking order; `title`
    has `{unit}` where the unit of time goes, chosen by the longest bar.
    """
    thickness = max(5, min(24, 900 // max(1, len(order))))
    position = {p: i for i, p in enumerate(parts)}
    longest: dict[str, float] = {}
    for r in rows:
        longest[r["bar"]] = longest.get(r["bar"], 0.0) + r["ns"]
    size, unit = units.unit_of(max(longest.values(), default=0.0))
    data = [{**r, "value": r["ns"] / size, "place": position[r["part"]]} for r in rows]
    for r in data:
        del r["ns"]
    chart = (
        alt.Chart(alt.Data(values=data))
        .mark_bar()
        .encode(
            y=alt.Y(
                "bar:N",
                sort=order,
                title="rank" if axis == "rank" else None,
                axis=alt.Axis(labelLimit=220, labelOverlap=True, ticks=False, domain=False),
            ),
            x=alt.X(
                "value:Q",
                stack="zero",
                title=title.format(unit=unit),
                axis=alt.Axis(tickCount=6),
            ),
            color=alt.Color(
                "part:N",
                scale=alt.Scale(domain=list(parts), range=list(parts.values())),
                legend=alt.Legend(
                    title=None, orient="top", columns=4, labelLimit=240, symbolType="square"
                ),
            ),
            order=alt.Order("place:Q"),
            tooltip=[
                alt.Tooltip("bar:N", title=axis),
                alt.Tooltip("part:N", title="part"),
                alt.Tooltip("text:N", title="time"),
                alt.Tooltip("share:N", title="share"),
            ],
        )
        .properties(width="container", height=alt.Step(thickness))
        .configure(background="transparent", padding=2, font=FONT)
        .configure_view(stroke=None)
        .configure_axis(labelFontSize=12, titleFontSize=12, titleFontWeight="normal")
        .configure_legend(labelFontSize=12)
    )
    return chart.to_dict()


def _row(bar: str, part: str, ns: float, total_ns: float) -> dict[str, Any]:
    return {
        "bar": bar,
        "part": part,
        "ns": ns,
        "text": units.time(ns),
        "share": units.percent(ns / total_ns if total_ns else None),
    }


def rank_label(rank: int) -> str:
    """A rank on an axis."""
    return str(rank)


def breakdown(by_rank: pl.DataFrame, scope: str = "step") -> dict[str, Any]:
    """`frames.split(con, "rank")` as one stacked bar a rank; `scope` is "step" or "trace"."""
    present = set(by_rank.filter(pl.col("mean_ns") > 0)["class"])
    known = [c for c in CLASSES if c in present] + sorted(present - set(CLASSES))
    parts = {clean(words_of(c)): COLOURS.get(c, "#999999") for c in known}
    totals = dict(by_rank.group_by("rank").agg(pl.col("mean_ns").sum()).iter_rows())
    rows = [
        _row(rank_label(r["rank"]), clean(words_of(r["class"])), r["mean_ns"], totals[r["rank"]])
        for r in by_rank.iter_rows(named=True)
        if r["class"] in present
    ]
    order = [rank_label(r) for r in sorted(totals)]
    return _bars(rows, order=order, parts=parts, axis="rank", title=f"{{unit}} of a {scope}")


def _parts(
    frame: pl.DataFrame, label: str, parts: list[tuple[str, str, str]], axis: str, title: str
) -> dict[str, Any]:
    """Bars of several columns; each part is (column, words, colour), and shown where it is."""
    shown = parts[:2] + [p for p in parts[2:] if frame[p[0]].sum()]
    rows = []
    for r in frame.iter_rows(named=True):
        total = sum(r[column] or 0 for column, _, _ in shown)
        rows += [
            _row(clean(str(r[label])), words, r[column] or 0, total) for column, words, _ in shown
        ]
    order = [clean(str(v)) for v in frame[label]]
    colours = {words: colour for _, words, colour in shown}
    return _bars(rows, order=order, parts=colours, axis=axis, title=title)


IN_COLLECTIVES = [
    ("wait_ns", "wait", WAIT),
    ("transfer_ns", "transfer", TRANSFER),
    ("unsplit_ns", "wait not known", UNSPLIT),
]


def waits_by_rank(frame: pl.DataFrame) -> dict[str, Any]:
    """`frames.waits_by(con, "rank")`: wait and transfer, one bar a rank."""
    return _parts(
        frame,
        "rank",
        IN_COLLECTIVES,
        "rank",
        "{unit} in collectives, whole trace",
    )


def waits_by_dim(frame: pl.DataFrame) -> dict[str, Any]:
    """`frames.waits_by_dim_and_op(con)`: wait and transfer, one bar a dimension and operation."""
    named = frame.with_columns(
        pl.format(
            "{} {}", pl.col("dim").fill_null("unknown"), pl.col("op").fill_null("unknown")
        ).alias("label")
    )
    return _parts(
        named,
        "label",
        IN_COLLECTIVES,
        "dimension and operation",
        "{unit} in collectives, all ranks, whole trace",
    )


def overlap(frame: pl.DataFrame) -> dict[str, Any]:
    """`frames.overlap_by_rank(con)`: communication under compute and exposed, one bar a rank."""
    return _parts(
        frame,
        "rank",
        [("overlap_ns", "under compute", HIDDEN), ("exposed_ns", "exposed", EXPOSED)],
        "rank",
        "{unit} with communication running, whole trace",
    )
