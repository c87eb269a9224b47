"""Storage traffic of a recorded job: when it ran on which host, and what it cost collectives."""

from __future__ import annotations

import numpy as np
import polars as pl

from ...ingest.tasks.job_clock import on_job_clock
from .. import models
from ..calibration import calibrate
from ..calibration.hockney import coefficients, usual
from ..costs import storage
from ..fabric import storage_beside
from ..policy import ReplayJob
from . import seats
from .places import Places

LEAST_BESIDE = 0.5
"""Share of its transfer from which a collective counts as one beside storage."""


def intervals(job: ReplayJob) -> dict[int, tuple[np.ndarray, np.ndarray]]:
    """Host code (-1: unknown) -> disjoint intervals of storage traffic on the job's clock, ns."""
    rows = job.table("transfers")
    ranks = job.facts.get("ranks")
    if not len(rows) or ranks is None:
        return {}
    rows = rows.filter(
        (pl.col("traffic_class").cast(pl.String) == "storage")
        & (pl.col("end_ns") >= pl.col("start_ns"))
    )
    if not len(rows):
        return {}
    places = Places.of(job)
    code = {name: i for i, name in enumerate(places.names)}
    first = {int(h): int(np.flatnonzero(places.host_of == h)[0]) for h in set(code.values())}
    host = np.array([code.get(h, -1) for h in rows["host"].cast(pl.String)])
    rank = rows["rank"].cast(pl.Int64).fill_null(-1).to_numpy()
    host = np.where(host < 0, places.host(rank), host)
    rank = np.where(rank < 0, [first.get(int(h), 0) for h in host], rank)
    placed = on_job_clock(
        rows.select("start_ns", "end_ns").with_columns(rank=pl.Series(rank)).with_columns(
            pl.col("rank").cast(ranks.schema["rank"])
        ),
        ranks, "start_ns", "end_ns",
    )  # fmt: skip
    start, end = placed["start_ns"].to_numpy(), placed["end_ns"].to_numpy()
    return {int(h): storage.union(start[host == h], end[host == h]) for h in np.unique(host)}


def fitted(rows: pl.DataFrame, share: np.ndarray) -> np.ndarray:
    """float64 [k]: how many times longer beside storage its like take; NaN where none compare."""
    frame = rows.select("comm", "op", "bytes", "transfer_ns").with_columns(share=pl.Series(share))
    beside = pl.col("transfer_ns").filter(pl.col("share") >= LEAST_BESIDE).median()
    alone = pl.col("transfer_ns").filter(pl.col("share") == 0).median()
    by = ("comm", "op", "bytes")
    times = frame.select((beside / alone).over(by).alias("times"))["times"]
    # Not slower beside storage: it did not share a link.
    return np.maximum(times.cast(pl.Float64).fill_null(np.nan).to_numpy(), 1.0)


def by_fabric(
    job: ReplayJob, rows: pl.DataFrame, times: np.ndarray, share: np.ndarray
) -> tuple[np.ndarray, tuple[str, ...]]:
    """`times` with what the job's fabric says where none compare, and words where it says any.

    All GPUs of a communicator's hosts read at once, beside its ring; rails one after another, as
    rings between hosts lie. As they are without a fabric that has storage.
    """
    fabric = job.facts.get("fabric")
    missing = ~np.isfinite(times) & (share > 0)
    if fabric is None or fabric.storage is None or not missing.any():
        return times, ()
    gpu, why = seats.gpus(job, fabric)
    if why:
        return times, ()
    wires, each = seats.wires(fabric), fabric.gpus_per_host
    out = times.copy()
    names = rows["comm"].to_numpy()
    for comm in np.unique(names[missing]):
        at = gpu[calibrate.ranks_of(job, str(comm))]
        at = at[np.lexsort((at, at % each))]
        out[missing & (names == comm)] = storage_beside.times_as_long(wires, at)
    return out, (f"{int(missing.sum())} of them by the links of fabric {fabric.name}",)


def queued_ns(job: ReplayJob, rows: pl.DataFrame, buffer: int) -> np.ndarray:
    """float64 [k]: messages of each collective times buffer / B of its link."""
    out = np.zeros(len(rows))
    for (comm, op, algo, n), group in rows.with_row_index("at").group_by("comm", "op", "algo", "n"):
        ran = usual(str(op)) if algo == "?" else models.recorded(str(algo))
        try:
            messages, _ = coefficients(str(op), ran, int(n))  # type: ignore[arg-type]
        except models.NoModel:
            messages = 1.0
        rate = calibrate.link(job, str(comm), str(op)).bandwidth_bytes_per_s
        out[group["at"].to_numpy()] = messages * storage.queue_ns(buffer, rate)
    return out
