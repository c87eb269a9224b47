"""A job of two ranks small enough to work out by hand, as the files that a warehouse would give."""

from __future__ import annotations

import functools
from collections.abc import Callable
from pathlib import Path
from typing import Any

import duckdb
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from retime.ingest.schema import TABLES
from retime.queries.loader import connect, materialise

HOSTILE = "</script><img src=x onerror=alert(1)>\u2028[bold]\x1b[31m"
"""A name that tries HTML, JSON in a script, rich markup and a terminal escape."""

Rows = dict[str, list[dict[str, Any]]]


def two_ranks() -> Rows:
    """One step of 1000 ns. Rank 0 computes 400 and waits 300 for rank 1, which computes 700.

    The all-reduce: rank 0 from 400 to 900, rank 1 from 700 to 900; so ready = 700, wait 300 + 0,
    transfer 200 + 200. Both copy from 900 to 950 and idle to 1000. On rank 1 compute also runs
    under the last 100 of the all-reduce.
    """
    kernels = [
        (0, 1, "gemm", "gemm", 7, 0, 400),
        (0, 2, "ncclDevKernel_AllReduce", "comm", 8, 400, 500),
        (0, 3, "Memcpy DtoD", "copy", 7, 900, 50),
        (1, 4, "gemm", "gemm", 7, 0, 700),
        (1, 5, "ncclDevKernel_AllReduce", "comm", 8, 700, 200),
        (1, 6, "gemm", "gemm", 7, 800, 100),
        (1, 7, "Memcpy DtoD", "copy", 7, 900, 50),
    ]
    return {
        "jobs": [
            {
                "world_size": 2,
                "ranks_seen": 2,
                "framework": "kineto",
                "sources": 2,
                "created_at_ns": 1_700_000_000_000_000_000,
                "tool_version": "0.1.0",
                "clocks": "one-host",
            }
        ],
        "ranks": [
            {
                "rank": r,
                "host": "a",
                "host_source": "recorded",
                "local_rank": r,
                "device_name": "H100",
                "world_size": 2,
                "start_ns": 0,
                "end_ns": 1000,
                "clock_offset_ns": 0,
                "clock_error_ns": 0,
            }
            for r in (0, 1)
        ],
        "steps": [
            {
                "rank": r,
                "step": 5,
                "start_ns": 0,
                "end_ns": 1000,
                "host_start_ns": 0,
                "host_end_ns": 1000,
                "found_by": "annotation",
            }
            for r in (0, 1)
        ],
        "events": [
            {
                "rank": rank,
                "event_id": id,
                "kind": "memcpy" if category == "copy" else "kernel",
                "name": name,
                "stream": stream,
                "device": rank,
                "start_ns": start,
                "dur_ns": dur,
                "category": category,
                "step": 5,
            }
            for rank, id, name, category, stream, start, dur in kernels
        ],
        "comms": [
            {
                "comm": "world",
                "name": "world",
                "ranks": [0, 1],
                "size": 2,
                "dim": "dp",
                "dim_source": "description",
                "backend": "nccl",
            }
        ],
        "collectives": [
            {
                "comm": "world",
                "seq": 1,
                "collective_id": 77,
                "match": "exact",
                "rank": rank,
                "op": "all_reduce",
                "dtype": "bf16",
                "in_bytes": 2048,
                "out_bytes": 2048,
                "group_size": 2,
                "start_ns": start,
                "end_ns": 900,
                "stream": 8,
                "step": 5,
                "event_id": id,
                "source": "kineto",
            }
            for rank, start, id in ((0, 400, 2), (1, 700, 5))
        ],
        "problems": [
            {"severity": "info", "code": "note", "message": "harmless", "count": 1, "source": "f"},
            {
                "severity": "lost",
                "code": "truncated",
                "message": f"cut {HOSTILE}",
                "count": 3,
                "source": f"{HOSTILE}.json",
                "rank": 1,
                "offset": 12345,
            },
            {"severity": "warning", "code": "odd", "message": "doubtful", "count": 2},
        ],
    }


@pytest.fixture(name="rows")
def rows_of_two_ranks() -> Rows:
    """`two_ranks`, fresh for a test that changes it."""
    return two_ranks()


def connection(folder: Path, rows: Rows, job: str = "small") -> duckdb.DuckDBPyConnection:
    """A connection over rows by table, as the loader makes it over a warehouse's files."""
    files: dict[str, list[str]] = {}
    for name, of_table in rows.items():
        table = TABLES[name]
        keys = {k for r in of_table for k in r}
        batch = table.batch({k: [r.get(k) for r in of_table] for k in keys})
        path = folder / f"{job}-{name}.parquet"
        pq.write_table(pa.Table.from_batches([batch], schema=table.schema), path)
        files[name] = [str(path)]
    return connect({job: files})


@pytest.fixture
def open_rows(tmp_path: Path) -> Callable[..., duckdb.DuckDBPyConnection]:
    """`connection` with files in the test's own folder."""
    return functools.partial(connection, tmp_path)


@pytest.fixture(scope="module")
def small_job(tmp_path_factory: pytest.TempPathFactory) -> duckdb.DuckDBPyConnection:
    """A connection to `two_ranks` that a module's tests share; its costly views are kept."""
    con = connection(tmp_path_factory.mktemp("small"), two_ranks())
    materialise(con)
    return con


@pytest.fixture
def small(open_rows: Callable[..., duckdb.DuckDBPyConnection]) -> duckdb.DuckDBPyConnection:
    """A connection to `two_ranks`."""
    return open_rows(two_ranks())
