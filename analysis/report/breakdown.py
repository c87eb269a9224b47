"""The panel of where a step went on each rank: a bar and a row of times a rank."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import polars as pl

from .. import frames
from ..screen import clean
from .parts import Bars, Panel, absent, legend, note, section, table


def matrix(by_rank: pl.DataFrame) -> pl.DataFrame:
    """`frames.split(con, "rank")` as a row a rank: `rank`, `step_ns`, and `CLASS_ns` of each class.

    Columns are in the order of `frames.CLASSES`; a class that takes no time anywhere has none.
    """
    present = set(by_rank.filter(pl.col("mean_ns") > 0)["class"])
    known = [c for c in frames.CLASSES if c in present] + sorted(present - set(frames.CLASSES))
    return (
        by_rank.group_by("rank")
        .agg(
            pl.col("mean_ns").sum().alias("step_ns"),
            *(pl.col("mean_ns").filter(pl.col("class") == c).sum().alias(f"{c}_ns") for c in known),
        )
        .sort("rank")
    )


def render(by_rank: pl.DataFrame, facts: Mapping[str, Any]) -> Panel:
    """The panel from `frames.split(con, "rank")`; its data are the groups of each rank, in ns."""
    what = "step" if facts["scope"] != "trace" else "trace"
    title = f"Where the {what} went, by rank"
    if by_rank.is_empty():
        why = (
            "No GPU work and no steps were found: nothing to show. A torch.profiler (Kineto), "
            "rocprof or Nsight Systems trace of each rank has them."
        )
        return absent("breakdown", title, why)
    rows = matrix(by_rank)
    classes = [c.removesuffix("_ns") for c in rows.columns if c not in ("rank", "step_ns")]
    everyone = {"rank": None, **{c: rows[c].mean() for c in rows.columns if c != "rank"}}
    words = {clean(short(c)): c for c in classes}
    columns = {
        "rank": "rank",
        "step_ns": what,
        **{f"{c}_ns": short(c) for c in classes},
    }
    bars = Bars(
        f"mean {what}",
        {f"{c}_ns": kind(c) for c in classes},
        float(rows["step_ns"].max() or 0),  # pyright: ignore[reportArgumentType]
    )
    made = table([everyone, *rows.to_dicts()], columns, bars=bars)
    return Panel(
        section(
            "breakdown",
            title,
            note(
                "Every nanosecond is in one class: compute comes before communication, that before "
                "copies, and what is left is idle. The first row is the mean over ranks."
            ),
            legend({w: kind(c) for w, c in words.items()}),
            made,
        ),
        {"by_rank": _groups(by_rank)},
    )


def _groups(by_rank: pl.DataFrame) -> dict[int, dict[str, int]]:
    out: dict[int, dict[str, int]] = {}
    rows = by_rank.group_by("rank", "group", maintain_order=True).agg(pl.col("mean_ns").sum())
    for rank, group, ns in rows.iter_rows():
        out.setdefault(rank, {})[group] = round(ns)
    return out


def kind(name: str) -> str:
    """The class of a colour for a class of time; strangers are plain idle."""
    return name if name in frames.CLASSES else "idle_unknown"


def short(name: str) -> str:
    """A class in a few words, for the head of a column."""
    return SHORT.get(name, frames.words_of(name))


SHORT = {
    "compute": "compute alone",
    "compute_with_comm": "compute with comm",
    "exposed_wait": "exposed wait",
    "exposed_transfer": "exposed transfer",
    "exposed_comm_unsplit": "exposed comm, not split",
    "exposed_memcpy": "copies alone",
    "idle_launch_bound": "idle: launches",
    "idle_waiting_for_host": "idle: host",
    "idle_waiting_for_stream": "idle: stream",
    "idle_data_loading": "idle: data",
    "idle_unknown": "idle: unknown",
}
"""Classes of `step_breakdown` in the head of a column."""
