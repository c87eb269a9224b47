"""The tables of a traced job in one clock, and the small conversions that reading them takes."""

from __future__ import annotations

from collections.abc import Mapping
from typing import NamedTuple

import numpy as np
import polars as pl

DEVICE = ("kernel", "memcpy", "memset")
"""Kinds of events that run on a device."""

HOST = ("host_op", "annotation", "python", "runtime")
"""Kinds of events that show what a host thread is doing."""

_SPAN = np.int64(1) << 43
"""2.4 hours in ns: the room for times in a key."""


class Tables(NamedTuple):
    """Frames with times in the job's clock (`clock_offset_ns` of the rank added)."""

    events: pl.DataFrame
    """With `end_ns`."""
    collectives: pl.DataFrame
    steps: pl.DataFrame
    ranks: pl.DataFrame
    comms: pl.DataFrame | None
    origin_ns: int
    """The earliest time of all."""

    def key(self, group: np.ndarray, time_ns: np.ndarray) -> np.ndarray:
        """One int64 each that sorts by group (a small integer), then time."""
        return group.astype(np.int64) * _SPAN + np.clip(time_ns - self.origin_ns, 0, _SPAN - 1)


def aligned(frames: Mapping[str, pl.DataFrame]) -> Tables:
    """The tables of `frames` in one clock."""
    offsets = frames["ranks"].select("rank", offset=pl.col("clock_offset_ns").fill_null(0))

    def shifted(name: str, *columns: str) -> pl.DataFrame:
        frame = frames[name].join(offsets, on="rank", how="left", maintain_order="left")
        shift = pl.col("offset").fill_null(0)
        return frame.with_columns([pl.col(c) + shift for c in columns]).drop("offset")

    events = shifted("events", "start_ns")
    events = events.with_columns(end_ns=pl.col("start_ns") + pl.col("dur_ns").clip(0))
    collectives = shifted("collectives", "start_ns", "end_ns")
    steps = shifted("steps", "start_ns", "end_ns", "host_start_ns")
    starts = [ints(f["start_ns"]) for f in (events, collectives, steps)]
    origin = min((int(s.min()) for s in starts if len(s)), default=0)
    return Tables(events, collectives, steps, frames["ranks"], frames.get("comms"), origin)


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


def last_by(keys: np.ndarray, order: np.ndarray, wanted: np.ndarray) -> np.ndarray:
    """The row whose key is the last at or before each wanted key; -1 before the first.

    `keys` are sorted, `order` their rows.
    """
    at = np.searchsorted(keys, wanted, "right") - 1
    return np.where(at >= 0, order[np.maximum(at, 0)], -1) if len(order) else at
