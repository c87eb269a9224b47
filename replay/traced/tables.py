"""The tables of a traced job in one clock, and the small conversions that reading them takes."""

from __future__ import annotations

from collections.abc import Mapping
from typing import NamedTuple

import numpy as np
import polars as pl

from ..job_clock import on_job_clock
from ..keys import Timeline, paired

DEVICE = ("kernel", "memcpy", "memset")
"""Kinds of events that run on a device."""

HOST = ("host_op", "annotation", "python", "runtime")
"""Kinds of events that show what a host thread is doing."""


class Tables(NamedTuple):
    """Frames with times on the job's clock (`job_clock`)."""

    events: pl.DataFrame
    """With `end_ns`."""
    collectives: pl.DataFrame
    steps: pl.DataFrame
    ranks: pl.DataFrame
    comms: pl.DataFrame | None


def aligned(frames: Mapping[str, pl.DataFrame]) -> Tables:
    """The tables of `frames` in one clock; participations without times are left out."""
    ranks = frames["ranks"]
    events = frames["events"].with_columns(end_ns=pl.col("start_ns") + pl.col("dur_ns").clip(0))
    steps = on_job_clock(frames["steps"], ranks, "start_ns", "end_ns", "host_start_ns")
    return Tables(
        _in_steps(on_job_clock(events, ranks, "start_ns", "end_ns"), steps),
        on_job_clock(frames["collectives"].filter(timed()), ranks, "start_ns", "end_ns"),
        steps,
        ranks,
        frames.get("comms"),
    )


def _in_steps(events: pl.DataFrame, steps: pl.DataFrame) -> pl.DataFrame:
    """Device work of ranks whose sources mark no steps gets the step of the window it begins in."""
    marked = events.filter(pl.col("step").is_not_null())["rank"].unique()
    windows = steps.select("rank", "start_ns", found="step", until="end_ns").drop_nulls()
    windows = windows.filter(~pl.col("rank").is_in(marked.implode())).sort("start_ns")
    if not len(windows):
        return events
    placed = events.select("rank", "start_ns", kept="step").with_row_index("row").sort("start_ns")
    placed = placed.join_asof(windows, on="start_ns", by="rank", check_sortedness=False).sort("row")
    inside = kind_is(*DEVICE) & (pl.col("start_ns") < placed["until"])
    return events.with_columns(step=pl.coalesce("step", pl.when(inside).then(placed["found"])))


def timed() -> pl.Expr:
    """Participations whose start and end tell when they ran (a watchdog's polls do not)."""
    polled = pl.col("timing").cast(pl.String).eq_missing("watchdog")
    return pl.col("start_ns").is_not_null() & pl.col("end_ns").is_not_null() & ~polled


def kind_is(*kinds: str) -> pl.Expr:
    """Events of these kinds."""
    return pl.col("kind").cast(pl.String).is_in(kinds)


def ints(series: pl.Series, null: int = 0) -> np.ndarray:
    """A column as int64, nulls as `null`."""
    return series.cast(pl.Int64).fill_null(null).to_numpy()


def dense(frame: pl.DataFrame, *columns: str | pl.Expr) -> np.ndarray:
    """Codes 0, 1, ... of the rows' values in these columns (int64)."""
    by = pl.struct(*columns)
    return ints(frame.select(by.rank("dense")).to_series()) - 1


def within(counts: np.ndarray) -> np.ndarray:
    """0, 1, ..., c-1 for each count c in turn."""
    ends = np.cumsum(counts)
    return np.arange(ends[-1] if len(ends) else 0) - np.repeat(ends - counts, counts)


def last_by(rows: Timeline, order: np.ndarray, wanted: Timeline) -> np.ndarray:
    """The row that is the last of its group at or before each wanted time; -1 where none is.

    `rows` are groups and times, `order` sorts them by group, then time.
    """
    if not len(order):
        return np.full(len(wanted[0]), -1)
    group, time = rows
    keys, wanted_keys = paired((group[order], time[order]), wanted)
    at = np.searchsorted(keys, wanted_keys, "right") - 1
    found = order[np.maximum(at, 0)]
    return np.where((at >= 0) & (group[found] == wanted[0]), found, -1)
