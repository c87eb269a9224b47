"""Kernels behind tasks: their grids and what they compute, from the table of events."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
import polars as pl

from ..calibration import machines
from ..graph import Kind, TaskGraph
from ..policy import ReplayJob

MATRIX = ("gemm", "attention", "conv")
"""Categories of kernels that more SMs make faster; others wait for memory."""


class Kernels(NamedTuple):
    """By task of a graph."""

    blocks: np.ndarray
    """int64 [n]: thread blocks of its kernel, -1 where not recorded."""
    matrix: np.ndarray
    """bool [n]: computations whose category is one of MATRIX."""
    gemm: np.ndarray
    """bool [n]: GEMMs among them."""
    memory: np.ndarray
    """bool [n]: computations of other categories, which wait for memory."""


def of(job: ReplayJob) -> Kernels:
    """The kernels of a job's tasks; nothing is known of tasks without a recorded event."""
    graph = job.graph
    none = Kernels(np.full(graph.n, -1), *(np.zeros(graph.n, bool) for _ in range(3)))
    events = job.table("events")
    if not len(events) or "event_id" not in graph.extra:
        return none
    kernels = (
        events.filter(pl.col("kind").cast(pl.String) == "kernel")
        .select("event_id", "grid_blocks", category=pl.col("category").cast(pl.String))
        .drop_nulls("event_id")
        .unique("event_id", keep="first")
        .sort("event_id")
    )
    if not len(kernels):
        return none
    ids = kernels["event_id"].to_numpy()
    at = np.minimum(np.searchsorted(ids, graph.extra["event_id"]), len(ids) - 1)
    known = ids[at] == graph.extra["event_id"]
    blocks = kernels["grid_blocks"].fill_null(-1).to_numpy()[at]
    computes = known & (graph.kind == Kind.COMPUTE)
    kinds = [kernels["category"].is_in(c).fill_null(False).to_numpy() for c in (MATRIX, ["gemm"])]
    other = kernels["category"].is_not_null().to_numpy() & ~kinds[0]
    return Kernels(np.where(known, blocks, -1), *(computes & k[at] for k in (*kinds, other)))


def sms(job: ReplayJob) -> tuple[int, str]:
    """SMs of most of a job's devices, and what says so."""
    ranks = job.facts.get("ranks")
    if ranks is not None and "n_sms" in ranks.columns:
        said = ranks["n_sms"].drop_nulls()
        if len(said):
            return int(
                said.mode().sort()[0]
            ), f"{int(said.mode().sort()[0])} SMs a device (recorded)"
    machine, words = machines.of(job)
    return machine.n_sms, f"{machine.n_sms} SMs a device ({words})"


def work_before(graph: TaskGraph, arrive: np.ndarray) -> np.ndarray:
    """int64 [k]: the last computation on its rank that each arrival waits for itself; -1: none."""
    return _nearest(graph, arrive, graph.pred_ptr, graph.pred, last=True)


def work_after(graph: TaskGraph, transfer: np.ndarray) -> np.ndarray:
    """int64 [k]: the first computation on its rank that waits for each transfer; -1: none."""
    dst = np.repeat(np.arange(graph.n), np.diff(graph.pred_ptr))
    order = np.argsort(graph.pred, kind="stable")
    ptr = np.searchsorted(graph.pred[order], np.arange(graph.n + 1))
    return _nearest(graph, transfer, ptr, dst[order], last=False)


def _nearest(graph: TaskGraph, task: np.ndarray, ptr, to, *, last: bool) -> np.ndarray:
    out = np.full(len(task), -1)
    for i, t in enumerate(task.tolist()):
        near = to[ptr[t] : ptr[t + 1]]
        near = near[(graph.kind[near] == Kind.COMPUTE) & (graph.rank[near] == graph.rank[t])]
        if len(near):
            out[i] = (
                near[np.argmax(graph.start_ns[near])]
                if last
                else near[np.argmin(graph.start_ns[near])]
            )
    return out
