"""The tables of a traced job in one clock, and the small conversions that reading them takes."""

from __future__ import annotations

from collections.abc import Mapping
from typing import NamedTuple

import numpy as np
import polars as pl

from ..compiled import compiled
from .job_clock import on_job_clock
from .keys import Timeline, paired
from .rows import grouped
from .sorting import sort_rows

DEVICE = ("kernel", "memcpy", "memset")
"""Kinds of events that run on a device."""

HOST = ("host_op", "annotation", "python", "runtime")
"""Kinds of events that show what a host thread is doing."""


class Tables(NamedTuple):
    """Frames with times on the job's clock (`job_clock`)."""

    collectives: pl.DataFrame
    steps: pl.DataFrame
    ranks: pl.DataFrame
    comms: pl.DataFrame | None


def aligned(frames: Mapping[str, pl.DataFrame]) -> Tables:
    """The tables of `frames` in one clock; participations without times are left out."""
    ranks = frames["ranks"]
    return Tables(
        on_job_clock(frames["collectives"].filter(timed()), ranks, "start_ns", "end_ns"),
        on_job_clock(frames["steps"], ranks, "start_ns", "end_ns", "host_start_ns"),
        ranks,
        frames.get("comms"),
    )


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


def nth(group: np.ndarray, time_ns: np.ndarray) -> np.ndarray:
    """int64: 0 for the first row of each group by time, 1 for the next, and so on.

    Of one time they are as they come. Groups are dense codes. Linear where the rows of each are
    nearly in order.
    """
    order, first = grouped(group, int(group.max(initial=-1)) + 1)
    out = np.empty(len(group), np.int64)
    _nth(order, first, time_ns, out)
    return out


@compiled
def _nth(order, first, time, out):  # pragma: no cover - compiled
    for g in range(len(first) - 1):
        a, b = first[g], first[g + 1]
        moves = 0
        for k in range(a + 1, b):
            i = order[k]
            j = k
            while j > a and time[order[j - 1]] > time[i]:
                order[j] = order[j - 1]
                j -= 1
            order[j] = i
            moves += k - j
            if moves > 64 * (b - a):
                sort_rows(order, time, a, b)
                break
        for k in range(a, b):
            out[order[k]] = k - a


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
