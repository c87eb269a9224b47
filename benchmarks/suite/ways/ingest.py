"""Traces to tables: retime in a warm process, and what else reads them, written the obvious way."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from benchmarks.limits import files
from benchmarks.suite import clock
from benchmarks.suite.clock import timed


def cold(big: str, small: str, out: str, workers: str) -> dict[str, Any]:
    """As `ours`, of a file that the system's cache has not: what was just uploaded lies on disk."""
    clock.BEFORE.append(lambda: files.forget(big))
    return ours(big, small, out, workers)


def ours(big: str, small: str, out: str, workers: str) -> dict[str, Any]:
    """To finished Parquet, committed and matched, after the small file went the same way."""
    import retime
    from retime.ingest import kineto, machine_code

    warehouse = retime.open(out)
    kineto.prepare(10**12)
    _have_compiled(big)
    warehouse.ingest([small], job="warm-up", workers=int(workers))
    if machine_code.wait():  # the first on a machine has begun to make it
        warehouse.ingest([small], job="warmed-up", workers=int(workers))
    report = timed(lambda: warehouse.ingest([big], job="big", workers=int(workers)))
    if report.n_lost:
        raise SystemExit(f"{report.n_lost} rows of input lost")
    return {"answer": sum(s.rows.get("events", 0) for s in report.sources)}


def _have_compiled(path: str) -> None:
    """Has the code that NCCL's large logs are read by in this process: small ones ask for none."""
    from retime.ingest import detect, machine_code, sources
    from retime.ingest.nccl import compiled_code, debug_log_scan_code, inspector_scan_code

    codes = {"nccl-log": debug_log_scan_code.CODE, "nccl-inspector": inspector_scan_code.CODE}
    (source, *_) = sources.find_sources([path], lambda *_: None)
    code = codes.get(detect.detect(source))
    if code is not None and machine_code.load(code) is None:
        compiled_code.made(code)


def hta(*paths: str) -> dict[str, Any]:
    """HolisticTraceAnalysis's parser, file by file: JSON to a data frame with its links."""
    from hta.common.trace import parse_trace_file

    return {"rows": timed(lambda: sum(len(parse_trace_file(p)[1]) for p in paths))}


def each(out: str, *paths: str) -> dict[str, Any]:
    """Real files of any kind, a job each: what of their bytes is read, in megabytes."""
    import retime
    from retime.ingest.errors import RetimeError

    warehouse = retime.open(out)

    def read() -> int:
        done = 0
        for k, path in enumerate(paths):
            try:
                warehouse.ingest([path], job=f"job-{k}", workers=1)
            except RetimeError:
                continue
            done += Path(path).stat().st_size
        return done

    return {"amount": timed(read) / 1e6}


def hta_each(*paths: str) -> dict[str, Any]:
    """The same files through HolisticTraceAnalysis's parser; one that it fails on counts not."""
    import logging

    from hta.common.trace import parse_trace_file

    logging.disable(logging.CRITICAL)

    def read() -> int:
        done = 0
        for path in paths:
            try:
                parse_trace_file(path)
            except Exception:
                continue
            done += Path(path).stat().st_size
        return done

    return {"amount": timed(read) / 1e6}


DUCKDB = """
COPY (
    SELECT unnest(e, recursive := true)
    FROM (
        SELECT unnest(traceEvents) AS e
        FROM read_json(?, maximum_object_size = 4000000000, columns = {
            traceEvents: 'STRUCT(ph VARCHAR, cat VARCHAR, "name" VARCHAR, pid VARCHAR, tid VARCHAR,
                ts DOUBLE, dur DOUBLE, args STRUCT(stream BIGINT, device BIGINT,
                correlation BIGINT, "External id" BIGINT, "Collective name" VARCHAR,
                "In msg nelems" BIGINT, "Out msg nelems" BIGINT, "Group size" BIGINT,
                dtype VARCHAR, "Process Group Name" VARCHAR, "Process Group Ranks" VARCHAR,
                grid BIGINT[], block BIGINT[]))[]'})
    )
) TO '{out}' (FORMAT parquet, COMPRESSION zstd)
"""


def duckdb(path: str, out: str) -> dict[str, Any]:
    """DuckDB's own reader of JSON with the columns said, to one Parquet file."""
    import duckdb

    con = duckdb.connect()
    to = Path(out) / "events.parquet"
    timed(lambda: con.execute(DUCKDB.replace("{out}", str(to)), [path]))
    return {"rows": con.execute(f"SELECT count(*) FROM '{to}'").fetchone()[0]}  # type: ignore[index]


def pandas(path: str, out: str) -> dict[str, Any]:
    """The standard library's JSON, `json_normalize`, Parquet."""
    import json

    import pandas as pd

    def read() -> int:
        with open(path) as f:
            events = json.load(f)["traceEvents"]
        frame = pd.json_normalize(events)
        # A column of several types is not one of Parquet's.
        for column in frame.select_dtypes(object).columns:
            frame[column] = frame[column].map(lambda v: v if isinstance(v, str) else repr(v))
        frame.to_parquet(Path(out) / "events.parquet", compression="zstd")
        return len(frame)

    return {"rows": timed(read)}


def polars(path: str, out: str) -> dict[str, Any]:
    """Polars' own reader of JSON, its types inferred, to Parquet."""
    import polars as pl

    def read() -> int:
        frame = pl.read_json(path, infer_schema_length=None)
        frame = frame.select(pl.col("traceEvents").explode()).unnest("traceEvents")
        frame.write_parquet(Path(out) / "events.parquet", compression="zstd")
        return len(frame)

    return {"rows": timed(read)}


ROUTING = """
COPY (
    SELECT step, layer, rank, expert, count(*) AS tokens
    FROM (SELECT step, layer, rank, unnest(string_split(experts, ' '))::INTEGER AS expert
          FROM read_csv(?))
    GROUP BY ALL
) TO '{out}' (FORMAT parquet, COMPRESSION zstd)
"""


def routing_duckdb(path: str, out: str) -> dict[str, Any]:
    """Tokens by step, layer, rank and expert of a routing log in CSV, in plain DuckDB."""
    import duckdb

    con = duckdb.connect()
    to = Path(out) / "routing.parquet"
    timed(lambda: con.execute(ROUTING.replace("{out}", str(to)), [path]))
    return {"rows": con.execute(f"SELECT count(*) FROM '{to}'").fetchone()[0]}  # type: ignore[index]
