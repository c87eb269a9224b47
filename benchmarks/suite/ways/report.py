"""What a person looks at, from tables, and from traces; and what the peer computes for it."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from benchmarks.suite.clock import timed

JOB = "cluster"


def from_traces(folder: str, out: str, workers: str) -> dict[str, Any]:
    """Ingest, then the page."""
    import retime
    from retime.ingest.errors import RetimeError

    def make() -> int:
        warehouse = retime.open(out)
        warehouse.ingest([folder], job=JOB, workers=int(workers))
        page = Path(out) / "report.html"
        try:
            warehouse.job(JOB).report(str(page))
        except RetimeError as e:
            raise SystemExit(str(e)) from e
        return page.stat().st_size

    return {"rows": timed(make)}


def hta(folder: str) -> dict[str, Any]:
    """Breakdowns of time, kernels, idleness and overlap of a folder of traces, without plots."""
    from hta.trace_analysis import TraceAnalysis

    def make() -> int:
        held = TraceAnalysis(trace_dir=folder)
        held.get_temporal_breakdown(visualize=False)
        held.get_gpu_kernel_breakdown(visualize=False)
        held.get_idle_time_breakdown(ranks=list(held.t.get_ranks()), visualize=False)
        held.get_comm_comp_overlap(visualize=False)
        return len(held.t.get_ranks())

    return {"rows": timed(make)}


def tables(folder: str) -> dict[str, Any]:
    """Every column of every table of the job read from Parquet, once."""
    import pyarrow.parquet as pq

    def read() -> int:
        return sum(
            pq.read_table(f, partitioning=None).num_rows
            for f in sorted(Path(folder).glob(f"job={JOB}/[a-z]*/*.parquet"))
        )

    return {"rows": timed(read)}
