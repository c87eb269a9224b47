"""The step that each task of a job is for: that of its launch; of host segments, by their end."""

from __future__ import annotations

import numpy as np
import polars as pl

from ...ingest.tasks.job_clock import on_job_clock
from ...ingest.tasks.tables import ints, last_by
from ..graph import Kind
from ..policy import ReplayJob


def task_steps(job: ReplayJob) -> np.ndarray:
    """int64 [n]: `graph.step`, and for host segments of traced jobs the step that they end in.

    What lies between two steps' windows on the host counts for the one before; -1 outside all.
    Where a step's window on the host is not known that on the device stands for it.
    """
    graph = job.graph
    step = graph.step.astype(np.int64)
    frame = job.frame("steps") if "begins" in graph.extra else None
    if frame is None:
        return step
    windows = on_job_clock(
        frame, job.facts["ranks"], "start_ns", "end_ns", "host_start_ns", "host_end_ns"
    )
    windows = windows.with_columns(
        first=pl.coalesce("host_start_ns", "start_ns"), last=pl.coalesce("host_end_ns", "end_ns")
    ).drop_nulls(["rank", "step", "first", "last"])
    host = np.flatnonzero((graph.kind == Kind.HOST) & (step < 0))
    if not len(windows) or not len(host):
        return step
    windows = windows.sort("rank", "first")
    at = ints(windows["rank"]), ints(windows["first"])
    row = last_by(at, np.arange(len(windows)), (graph.rank[host], graph.end_ns[host]))
    closes = ints(windows.select(pl.col("last").max().over("rank")).to_series())
    inside = (row >= 0) & (graph.end_ns[host] <= closes[row])
    step[host] = np.where(inside, ints(windows["step"])[row], -1)
    return step
