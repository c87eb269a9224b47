"""A job of hand-made rows, opened as a connection with the whole library."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import duckdb
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from retime.ingest.schema import TABLES
from retime.queries import loader

Rows = list[dict[str, Any]]


def write(folder: Path, tables: dict[str, Rows]) -> dict[str, list[str]]:
    """Parquet files of the rows, columns left out being null: table -> files."""
    folder.mkdir(parents=True, exist_ok=True)
    files = {}
    for name, rows in tables.items():
        columns = {c for row in rows for c in row}
        batch = TABLES[name].batch({c: [row.get(c) for row in rows] for c in columns})
        path = folder / f"{name}.parquet"
        pq.write_table(pa.Table.from_batches([batch]), path)
        files[name] = [str(path)]
    return files


@pytest.fixture
def open_job(tmp_path: Path) -> Callable[..., duckdb.DuckDBPyConnection]:
    """`open_job(ranks=[...], events=[...])`: a connection over those rows, as job `j`."""

    def open_it(**tables: Rows) -> duckdb.DuckDBPyConnection:
        return loader.connect({"j": write(tmp_path / "j", tables)}, threads=1)

    return open_it


@pytest.fixture
def one_host() -> Callable[..., Rows]:
    """`one_host(0, 1)`: rows of `ranks` for ranks that share one clock."""

    def rows(*ranks: int) -> Rows:
        shared = {"host": "h", "start_ns": 0, "end_ns": 1000}
        clock = {"clock_offset_ns": 0, "clock_error_ns": 0}
        return [{"rank": r} | shared | clock for r in ranks]

    return rows


@pytest.fixture
def event() -> Callable[..., dict[str, Any]]:
    """`event(rank, event_id, kind, start_ns, end_ns, **more)`: a row of `events`."""

    def row(rank: int, event_id: int, kind: str, start: int, end: int, **more: Any) -> dict:
        name = f"{kind}{event_id}"
        times = {"start_ns": start, "dur_ns": end - start}
        return {"rank": rank, "event_id": event_id, "kind": kind, "name": name} | times | more

    return row


@pytest.fixture
def part() -> Callable[..., dict[str, Any]]:
    """`part(rank, start_ns, end_ns, **more)`: a row of `collectives`, all-reduce 1 of comm w."""

    def row(rank: int, start: int, end: int, **more: Any) -> dict:
        which = {"collective_id": 1, "comm": "w", "op": "all_reduce", "match": "exact"}
        return {"rank": rank, "start_ns": start, "end_ns": end} | which | more

    return row
