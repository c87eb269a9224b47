"""A job of rings whose alpha and bandwidth are known, on one host or several."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import polars as pl
import pytest
from retime.replay import models, run
from retime.replay.graph import Kind
from retime.replay.policies import resolve
from retime.replay.traced import build as kineto


class Rings:
    """Makes jobs, applies policies to them, and reads what their collectives then take."""

    def __init__(self, tables):
        self.tables = tables

    def job(
        self, *, op="all_reduce", algo="ring", n=8, hosts=2, sizes=(10 << 10, 1 << 20, 80 << 20),
        alpha_ns=822.0, bandwidth=450e9, steps=3,
    ):  # fmt: skip
        at = 0.0
        for step in range(steps):
            begin = at
            for k, size in enumerate(sizes):
                took = float(models.time_ns(op, algo, n, size, alpha_ns, bandwidth)) / 1e3
                for rank in range(n):
                    self.tables.kernel(rank, "work", at, at + 50, step=step)
                    self.tables.part(
                        rank, op, at + 50, at + 50 + took, instance=step * 10 + k, stream=7,
                        step=step, in_bytes=size, out_bytes=size, group_size=n,
                    )  # fmt: skip
                at = round(at + 50 + took, 3)
            for rank in range(n):
                self.tables.step(rank, step, begin, at)
        job = kineto.build(self.tables.frames(), "rings")
        ranks = pl.DataFrame(
            {
                "rank": range(n),
                "host": [f"h{r * hosts // n}" for r in range(n)],
                "local_rank": [r % max(n // hosts, 1) for r in range(n)],
                "device": ["NVIDIA H100 80GB HBM3"] * n,
            }
        )
        return run.baseline(replace(job, facts={**job.facts, "ranks": ranks})).job

    @staticmethod
    def under(job, spec):
        policy, values = resolve(spec)
        return policy.apply(job, **values)

    @staticmethod
    def took_us(job, size, measured=None):
        """What a collective of a measured size takes, us."""
        graph = job.graph
        sizes = (measured or job).graph.bytes
        (ns,) = np.unique(graph.dur_ns[(graph.kind == Kind.TRANSFER) & (sizes == size)])
        return ns / 1e3


@pytest.fixture
def rings(tables):
    return Rings(tables)
