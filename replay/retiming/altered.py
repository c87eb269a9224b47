"""Collectives as the policies so far have altered them: their bytes, and the algorithm they run."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace

import numpy as np
import polars as pl

from .. import models
from ..calibration.hockney import usual
from ..graph import Kind
from ..policy import ReplayJob


def present(job: ReplayJob, rows: pl.DataFrame) -> pl.DataFrame:
    """`transfers.chosen` rows, with `bytes` and `algo` as they are now, not as recorded.

    `algo` is the name of a model: what a policy made them run (`run_by`), else what the source
    says, else the usual one of the operation. `transfer_ns` stays the measured one.
    """
    return rows.with_columns(
        bytes=pl.Series(sizes_bytes(job, rows)),
        algo=pl.Series(algorithms(job, rows), dtype=pl.String),
    )


def sizes_bytes(job: ReplayJob, rows: pl.DataFrame) -> np.ndarray:
    """float64 [k]: the size of each collective after the policies so far."""
    size = rows["bytes"].to_numpy().astype(np.float64)
    measured = job.facts.get("measured", job.graph)
    if measured.bytes is job.graph.bytes:
        return size
    at = rows["collective"].to_numpy()
    top = int(at.max(initial=-1)) + 1
    was, now = (_largest(graph, top)[at] for graph in (measured, job.graph))
    return size * np.divide(now, was, out=np.ones(len(size)), where=was > 0)


def _largest(graph, top: int) -> np.ndarray:
    task = np.flatnonzero((graph.kind == Kind.TRANSFER) & (graph.collective < top))
    out = np.zeros(top)
    np.maximum.at(out, graph.collective[task], graph.bytes[task])
    return out


def algorithms(job: ReplayJob, rows: pl.DataFrame) -> list[str]:
    """The model's name of the algorithm that each collective runs now.

    What a policy made of one that has no form of its own (levels, circuits) goes by the form that
    it had: links twice as fast then save too much or too little of its messages, not nothing.
    """
    made = {c: a for c, a in job.facts.get("algorithms", {}).items() if a in models.ALGOS}
    return [
        made.get(c) or (usual(op) if algo == "?" else models.recorded(algo))
        for c, op, algo in rows.select("collective", "op", "algo").iter_rows()
    ]


def formless(job: ReplayJob, rows: pl.DataFrame) -> str:
    """What to say of rows that run what has no form; empty where all have one."""
    made = job.facts.get("algorithms", {})
    names = [made[c] for c in rows["collective"] if made.get(c, "ring") not in models.ALGOS]
    if not names:
        return ""
    return (
        f"{len(names)} collectives run {', '.join(sorted(set(names)))} by now: what changes their "
        "links is priced by the algorithm that was recorded"
    )


def run_by(job: ReplayJob, collectives: Iterable[int], algorithm: str) -> ReplayJob:
    """The job that knows what a policy made these collectives run (`facts["algorithms"]`)."""
    made = dict.fromkeys(map(int, collectives), algorithm)
    if not made:
        return job
    return replace(
        job, facts={**job.facts, "algorithms": {**job.facts.get("algorithms", {}), **made}}
    )


def untouched(job: ReplayJob, rows: pl.DataFrame, policy: str) -> tuple[ReplayJob, pl.DataFrame]:
    """The rows that no policy so far gave another algorithm; a warning counts the others."""
    made = job.facts.get("algorithms", {})
    taken = rows["collective"].is_in(list(made))
    if not taken.any():
        return job, rows
    others = ", ".join(sorted({made[c] for c in rows["collective"].filter(taken)}))
    said = (
        f"{policy}: a policy before it made {int(taken.sum())} of {len(rows)} collectives run "
        f"{others}: they stay so; try each alone"
    )
    return job.note(warnings=(said,)), rows.filter(~taken)
