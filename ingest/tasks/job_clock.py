"""Times of ranks on the job's one clock: offset and drift of each rank's host."""

from __future__ import annotations

import numpy as np
import polars as pl

from ..compiled import compiled
from ..matching.clocks import Clocks, align, untied
from .sorting import first_not_below


def on_job_clock(frame: pl.DataFrame, ranks: pl.DataFrame, *columns: str) -> pl.DataFrame:
    """`frame` (with `rank`) with these columns, ns on the rank's own clock, on the job's.

    As `ingest/made/clocks.sql` has it: t + offset - drift (t - anchor), the anchor the middle of
    what the ranks of a host recorded. A rank that `ranks` does not have keeps its times, nulls
    stay.
    """
    clocks, known = _clocks(ranks)
    row = frame.select("rank").join(known, on="rank", how="left", maintain_order="left")["row"]
    domain = row.fill_null(len(known)).to_numpy()
    moved = []
    for name in columns:
        time = frame[name].cast(pl.Int64)
        there = align(clocks, time.fill_null(0).to_numpy(), domain)
        new = pl.Series(name, there, dtype=pl.Int64)
        moved.append(pl.select(pl.when(time.is_not_null()).then(new)).to_series().alias(name))
    return frame.with_columns(moved)


class RankClocks:
    """The clocks of a job's ranks, for times that lie in arrays."""

    def __init__(self, ranks: pl.DataFrame):
        self._clocks, known = _clocks(ranks)
        # The last clock is that of ranks that are not here.
        self._other = len(known)
        known = known.drop_nulls()
        order = np.argsort(known["rank"].to_numpy(), kind="stable")
        self._ranks = known["rank"].to_numpy()[order].astype(np.int64)
        self._rows = known["row"].to_numpy()[order].astype(np.int64)

    def on_job_clock(self, rank: np.ndarray, time_ns: np.ndarray) -> np.ndarray:
        """`time_ns` (int64 [n], each on the clock of `rank`) on the job's: as `on_job_clock`."""
        clocks, out = self._clocks, np.empty(len(rank), np.int64)
        own = self._ranks, self._rows, self._other
        _aligned(*own, clocks.anchor_ns, clocks.offset_ns, clocks.rate, rank, time_ns, out)
        return out


@compiled
def _aligned(
    ranks, rows, other, anchor, offset, rate, rank, time, out
):  # pragma: no cover - compiled
    """`align` of each rank's own clock: the sum that it makes, in one pass."""
    domain = other
    for i in range(len(rank)):
        if i == 0 or rank[i] != rank[i - 1]:
            at = first_not_below(ranks, 0, len(ranks), rank[i])
            domain = rows[at] if at < len(ranks) and ranks[at] == rank[i] else other
        late = rate[domain] * np.float64(time[i] - anchor[domain])
        out[i] = time[i] + offset[domain] + np.int64(np.rint(late))


def _clocks(ranks: pl.DataFrame) -> tuple[Clocks, pl.DataFrame]:
    """The clock of each rank, a row each and one without a correction last; `rank` and `row`."""
    ranks = ranks.unique("rank", keep="first", maintain_order=True)
    word = pl.col("clock").cast(pl.String).fill_null("host")
    own = pl.col("host").is_null() | (word == "process")
    of_host = word.is_in(["host", "recorded", "none"])
    host = (
        pl.when(own)
        .then(pl.format("rank {}", "rank"))
        .when(~of_host)
        .then(pl.format("{} of host {}", word, pl.col("host").cast(pl.String)))
        .otherwise(pl.format("host {}", pl.col("host").cast(pl.String)))
    )
    first, last = pl.col("start_ns").min().over(host), pl.col("end_ns").max().over(host)
    anchor = first + (last - first) // 2
    # A host of which nothing says when it ran has no moment for its drift to count from.
    drift = pl.when(anchor.is_not_null()).then("clock_drift_ppm").fill_null(0.0)

    def column(of: pl.Expr) -> np.ndarray:
        return np.append(ranks.select(of).to_series().to_numpy(), 0)

    offset = column(pl.col("clock_offset_ns").fill_null(0).cast(pl.Int64))
    clocks = untied(column(anchor.fill_null(0)))._replace(
        offset_ns=offset, rate=-1e-6 * column(drift)
    )
    return clocks, ranks.select("rank").with_row_index("row")
