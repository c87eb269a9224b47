"""Hand-made jobs of all-to-alls over several hosts, and one policy applied to a job."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any

import numpy as np
import polars as pl
import pytest
from retime.ingest.schema import TABLES
from retime.replay import run
from retime.replay.graph import Kind
from retime.replay.policies import resolve
from retime.replay.policy import ReplayJob
from retime.replay.traced import build as kineto


def table(name: str, rows: Sequence[dict[str, Any]]) -> pl.DataFrame:
    """A frame of a warehouse table."""
    columns = {c.name: [row.get(c.name) for row in rows] for c in TABLES[name].columns}
    frame = pl.from_arrow(TABLES[name].batch(columns))
    assert isinstance(frame, pl.DataFrame)
    return frame


@pytest.fixture
def a2a_job(tables) -> Callable[..., ReplayJob]:
    """`a2a_job(steps, took_us, hosts, places, ...)`: ranks that compute, then exchange.

    `steps` holds for each step its all-to-alls, each a matrix of bytes; `took_us` the time of each
    (one, or a function of the matrix) from the last arrival on; `late_us` how much later than the
    first some ranks arrive, `algo` what the source says of it. `splits` and `named` (hosts) say
    whether they are recorded, `extra` has rows of further tables.
    """

    def make(
        steps,
        took_us=100.0,
        hosts=2,
        places=4,
        *,
        routing=(),
        splits=True,
        named=True,
        dim="ep",
        extra=None,
        late_us=None,
        algo=None,
    ) -> ReplayJob:
        n = hosts * places
        at, instance = 0.0, 0
        for step, exchanges in enumerate(steps):
            begin = at
            for matrix in exchanges:
                matrix = np.asarray(matrix, float)
                took = took_us(matrix) if callable(took_us) else took_us
                late = [(late_us or {}).get(rank, 0.0) for rank in range(n)]
                end = at + 50 + max(late) + took
                for rank in range(n):
                    begun = at + 50 + late[rank]
                    tables.kernel(rank, "grouped_gemm", at, begun, step=step)
                    more = {"in_splits": [int(x) for x in matrix[rank]]} if splits else {}
                    size = int(matrix[rank].sum())
                    tables.part(
                        rank, "all_to_all", begun, end, instance=instance, stream=7, step=step,
                        comm="e", group_size=n, in_bytes=size, out_bytes=size, algo=algo, **more,
                    )  # fmt: skip
                at = round(end, 3)
                instance += 1
            for rank in range(n):
                tables.step(rank, step, begin, at)
        frames = tables.frames()
        host = [f"h{r // places}" if named else None for r in range(n)]
        frames["ranks"] = frames["ranks"].with_columns(
            host=pl.Series(host, dtype=pl.String),
            local_rank=pl.Series([r % places if named else None for r in range(n)], dtype=pl.Int32),
            device_name=pl.lit("NVIDIA H100"),
        )
        frames["comms"] = table(
            "comms", [{"comm": "e", "ranks": list(range(n)), "size": n, "dim": dim}]
        )
        job = kineto.build(frames, "exchanges")
        rows = {"routing": routing, **(extra or {})}
        held = {t: table(t, rows.get(t, ())) for t in TABLES}
        return replace(job, facts={**job.facts, "tables": held.__getitem__})

    return make


@pytest.fixture
def under() -> Callable[..., ReplayJob]:
    """`under(job, spec)`: the job under one policy."""

    def apply(job: ReplayJob, spec) -> ReplayJob:
        policy, values = resolve(spec)
        return policy.apply(run.baseline(job).job, **values)

    return apply


@pytest.fixture
def moved_ns() -> Callable[[ReplayJob], list[int]]:
    """`moved_ns(job)`: the transfer of each collective, in order, the longest over its ranks."""

    def longest(job: ReplayJob) -> list[int]:
        graph = job.graph
        task = graph.kind == Kind.TRANSFER
        out: dict[int, int] = {}
        for collective, took in zip(graph.collective[task], graph.dur_ns[task], strict=True):
            out[int(collective)] = max(out.get(int(collective), 0), int(took))
        return [out[c] for c in sorted(out)]

    return longest


@pytest.fixture
def unchanged() -> Callable[[ReplayJob, ReplayJob], bool]:
    """`unchanged(before, after)`: no duration, gap or size differs."""

    def same(before: ReplayJob, after: ReplayJob) -> bool:
        pairs = ((getattr(before.graph, c), getattr(after.graph, c))
                 for c in ("dur_ns", "gap_ns", "bytes"))  # fmt: skip
        return all(np.array_equal(a, b) for a, b in pairs)

    return same
