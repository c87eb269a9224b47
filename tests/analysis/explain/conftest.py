"""A job small enough to explain by hand, and what an oracle says each rank does at each moment."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from retime.analysis.explain import gather
from retime.replay import run, scenarios
from retime.replay.graph import Kind
from retime.replay.load import load
from retime.replay.policy import ReplayJob

from ..export.conftest import ask, bundled, decode, job_of

__all__ = ["ask", "bundled", "decode", "job_of"]


@pytest.fixture
def found(rows, job_of) -> Callable[..., tuple[dict[str, Any], run.Timelines]]:
    """What `gather` makes of the job of two ranks under policies, and the timelines it draws."""

    def make(*policies: str, rows=rows) -> tuple[dict[str, Any], run.Timelines]:
        return explained(load(job_of(rows).snapshot), *policies)

    return make


def explained(
    job: ReplayJob, *policies: Any, step: int | None = None
) -> tuple[dict[str, Any], run.Timelines]:
    """`gather` of a job's replay under policies, and `run.timelines` of the same scenario."""
    plans = scenarios.plan(policies)
    data = gather.gather(job, run.replay(job, policies, step=step), plans, step)
    base = run.baseline(job)
    return data, run.timelines(base, plans[-1], (data["step"].step,))


def doing(graph, start: np.ndarray, end: np.ndarray, rank: int, moment: float) -> str:
    """What a rank does at a moment of a replay, task by task, for ranks with a device."""
    now = set()
    for task in range(graph.n):
        kind = Kind(int(graph.kind[task]))
        if graph.rank[task] != rank or kind not in (Kind.COMPUTE, Kind.COPY, Kind.TRANSFER):
            continue
        if start[task] <= moment < end[task]:
            now.add(kind)
        if kind == Kind.TRANSFER:
            (arrive,) = (
                t for t in range(graph.n)
                if graph.kind[t] == Kind.ARRIVE and graph.rank[t] == rank
                and graph.collective[t] == graph.collective[task]
            )  # fmt: skip
            if end[arrive] <= moment < start[task]:
                now.add(Kind.ARRIVE)
    if Kind.COMPUTE in now:
        beside = now & {Kind.TRANSFER, Kind.ARRIVE}
        return "compute_with_comm" if beside else "compute"
    for kind, words in (
        (Kind.TRANSFER, "exposed_transfer"),
        (Kind.ARRIVE, "exposed_wait"),
        (Kind.COPY, "exposed_memcpy"),
    ):
        if kind in now:
            return words
    return "idle"
