"""Questions to a job: the views, and what else answers them, written the obvious way."""

from __future__ import annotations

import json
import os
import re
import shutil
import subprocess
import sys
import time
from collections import Counter
from pathlib import Path
from typing import Any

from benchmarks.suite import clock
from benchmarks.suite.clock import timed

JOB = "cluster"


def view(folder: str, name: str) -> dict[str, Any]:
    """Every column of a view, from a closed connection and files that no page cache holds.

    Modules are loaded and derived tables stand.
    """
    import retime

    warehouse = retime.open(folder)
    warehouse.connect(JOB).close()
    _forget(Path(folder))

    def ask() -> tuple[int, str]:
        con = warehouse.connect(JOB)
        columns = [r[0] for r in con.execute(f'DESCRIBE "{name}"').fetchall()]
        hashed = ", ".join(f'"{c}"' for c in columns)
        query = f'SELECT count(*), sum(hash({hashed})) FROM "{name}"'
        if clock.PROFILED:
            told = con.execute(f"EXPLAIN (ANALYZE, FORMAT json) {query}").fetchone()
            clock.KEPT["operators"] = _operators(json.loads(told[1]))
            return 0, ""
        rows, check = con.execute(query).fetchone()
        return rows, str(check)

    rows, check = timed(ask)
    if operators := clock.KEPT.pop("operators", []):
        clock.KEPT["profile"]["modules"] = operators
    return {"rows": rows, "answer": check}


def _operators(told: dict[str, Any]) -> list[list[Any]]:
    """Seconds of DuckDB's operators, all threads together, by kind of operator."""
    spent: Counter[str] = Counter()

    def add(node: dict[str, Any]) -> None:
        spent[f"DuckDB: {node['name']}"] += float(node.get("timing", 0))
        for child in node.get("children", ()):
            add(child)

    for root in told["operator"]:
        add(root)
    return [[k, round(s, 4)] for k, s in spent.most_common(8) if s >= 0.0001]


def _forget(folder: Path) -> None:
    """Drops the files from the page cache, as far as the system lets one."""
    for path in folder.rglob("*.parquet"):
        with open(path, "rb") as f:
            os.posix_fadvise(f.fileno(), 0, 0, os.POSIX_FADV_DONTNEED)


def views(folder: str, *names: str) -> dict[str, Any]:
    """Each view in a process of its own, one after the other: seconds of each, and of all."""
    parts: dict[str, float] = {}
    cpu_parts: dict[str, float] = {}
    for name in names or public_views():
        done = subprocess.run(
            [sys.executable, "-m", "benchmarks.suite.run_way", "queries.view", folder, name],
            capture_output=True, text=True,
        )  # fmt: skip
        if done.returncode:
            raise SystemExit(f"view {name}: {(done.stderr.strip().splitlines() or ['?'])[-1]}")
        told = json.loads(done.stdout.strip().splitlines()[-1])
        parts[name] = told["seconds"]
        cpu_parts[name] = told["cpu_s"]
    return {
        "parts": parts, "cpu_parts": cpu_parts,
        "seconds": sum(parts.values()), "cpu_s": sum(cpu_parts.values()),
    }  # fmt: skip


def together(folder: str) -> dict[str, Any]:
    """Every view by one connection, one after the other: seconds of each.

    What a replay gives is computed anew whatever the size, though large jobs keep it from their
    ingest: else a size that computes would be beside one that reads.
    """
    import retime
    from retime.ingest import rooms

    shutil.rmtree(Path(folder) / f"job={JOB}" / rooms.KEPT, ignore_errors=True)
    con = retime.open(folder).connect(JOB)
    parts: dict[str, float] = {}
    cpu_parts: dict[str, float] = {}

    def ask() -> None:
        for name in public_views():
            began, cpu = time.perf_counter(), time.process_time()
            columns = [r[0] for r in con.execute(f'DESCRIBE "{name}"').fetchall()]
            hashed = ", ".join(f'"{c}"' for c in columns)
            con.execute(f'SELECT count(*), sum(hash({hashed})) FROM "{name}"').fetchone()
            parts[name] = time.perf_counter() - began
            cpu_parts[name] = time.process_time() - cpu

    timed(ask)
    return {"parts": parts, "cpu_parts": cpu_parts}


def warm(folder: str, *names: str) -> dict[str, Any]:
    """Each view by a connection that is open and has answered it once: seconds of each, as a cell
    of a notebook that is run again has them."""
    import retime

    con = retime.open(folder).connect(JOB)
    parts: dict[str, float] = {}
    cpu_parts: dict[str, float] = {}

    def hashed(name: str) -> str:
        columns = [r[0] for r in con.execute(f'DESCRIBE "{name}"').fetchall()]
        listed = ", ".join(f'"{c}"' for c in columns)
        return f'SELECT count(*), sum(hash({listed})) FROM "{name}"'

    for name in names:
        con.execute(hashed(name)).fetchone()

    def ask() -> None:
        for name in names:
            query, began, cpu = hashed(name), time.perf_counter(), time.process_time()
            con.execute(query).fetchone()
            parts[name] = time.perf_counter() - began
            cpu_parts[name] = time.process_time() - cpu

    timed(ask)
    return {"parts": parts, "cpu_parts": cpu_parts}


def public_views() -> list[str]:
    """As `benchmarks.views` has them: what a replay gives first, then what the manual lists."""
    from benchmarks.views import public_views as names

    return names()


MOST_ASKED = {
    "step_breakdown": "where a step went: asked nine times, by most notebooks and by every page",
    "waits": "a rank's part in a collective: what all that is said of waiting is counted from",
    "collective_instances": "whole collectives: late starts, sizes and their bandwidths",
    "idle_gaps": "why a rank has nothing to do",
    "step_composition": "what the time of a step on a rank is of, down to the kernel",
    "stragglers": "who is late and why: the first question of two notebooks and of `show`",
    "lateness_trend": "whether a rank is getting later: drawn by the notebook of late ranks",
}
"""The public views that the notebooks ask more than once, and so people by them, with what for:
these have to answer while one waits for a cell. Others are asked once a notebook."""


def in_notebooks() -> list[str]:
    """The public views that the notebooks ask more than once, all notebooks together."""
    import retime.analysis.notebooks as notebooks

    counts: Counter[str] = Counter()
    for source in (Path(notebooks.__file__).parent / "source").glob("*.md"):
        counts.update(re.findall(r"(?i)\b(?:from|join)\s+(\w+)", source.read_text()))
    return [n for n in public_views() if counts[n] > 1]


# The same question of the same Parquet files: communication, compute and both, by rank. A union
# of intervals by a running maximum of their ends.

OVERLAP = """
WITH k AS (
    SELECT rank, start_ns, start_ns + dur_ns AS end_ns, name LIKE 'nccl%' AS comm
    FROM read_parquet({files}) WHERE kind = 'kernel'
),
sides AS (
    SELECT rank, 'comm' AS side, start_ns, end_ns FROM k WHERE comm
    UNION ALL SELECT rank, 'compute', start_ns, end_ns FROM k WHERE NOT comm
    UNION ALL SELECT rank, 'both', start_ns, end_ns FROM k
),
reached AS (
    SELECT *, max(end_ns) OVER (
        PARTITION BY rank, side ORDER BY start_ns, end_ns
        ROWS BETWEEN UNBOUNDED PRECEDING AND 1 PRECEDING
    ) AS before_ns
    FROM sides
)
SELECT rank, side, sum(greatest(0, end_ns - greatest(start_ns, coalesce(before_ns, start_ns))))
FROM reached GROUP BY rank, side ORDER BY rank, side
"""


def overlap_ours(folder: str) -> dict[str, Any]:
    """`overlap_by_rank`, from a closed connection."""
    import retime

    warehouse = retime.open(folder)
    warehouse.connect(JOB).close()
    rows = timed(
        lambda: warehouse.connect(JOB).execute(
            "SELECT rank, comm_ns, compute_ns, overlap_ns FROM overlap_by_rank ORDER BY rank"
        ).fetchall()
    )  # fmt: skip
    return {"answer": _totals([(r, c, k, c + k - o) for r, c, k, o in rows])}


def _totals(rows: list[tuple[Any, ...]]) -> dict[str, int]:
    return {"comm_ns": int(sum(r[1] for r in rows))}


def _events(folder: str) -> list[str]:
    return sorted(map(str, Path(folder).glob(f"job={JOB}/events/*.parquet")))


def overlap_duckdb(folder: str) -> dict[str, Any]:
    """Windows in plain DuckDB."""
    import duckdb

    query = OVERLAP.replace("{files}", repr(_events(folder)))
    rows = timed(lambda: duckdb.connect().execute(query).fetchall())
    return {"answer": {"comm_ns": int(sum(r[2] for r in rows if r[1] == "comm"))}}


def overlap_polars(folder: str) -> dict[str, Any]:
    """A running maximum by rank in plain Polars."""
    import polars as pl

    def union(frame: Any) -> Any:
        before = pl.col("end").cum_max().shift(1).over("rank")
        start = pl.max_horizontal("start_ns", pl.coalesce(before, "start_ns"))
        return (
            frame.sort("rank", "start_ns", "end")
            .with_columns(new=(pl.col("end") - start).clip(0))
            .group_by("rank").agg(pl.col("new").sum())
        )  # fmt: skip

    def ask() -> int:
        kernels = (
            pl.scan_parquet(_events(folder)).filter(pl.col("kind") == "kernel")
            .select("rank", "start_ns", end=pl.col("start_ns") + pl.col("dur_ns"),
                    comm=pl.col("name").cast(pl.String).str.starts_with("nccl"))
        )  # fmt: skip
        sides = pl.collect_all(
            [union(kernels.filter("comm")), union(kernels.filter(~pl.col("comm"))), union(kernels)]
        )
        return int(sides[0]["new"].sum())

    return {"answer": {"comm_ns": timed(ask)}}


def overlap_pandas(folder: str) -> dict[str, Any]:
    """The same with pandas, a group a rank."""
    import numpy as np
    import pandas as pd

    def union(frame: Any) -> int:
        total = 0
        for _, g in frame.sort_values(["rank", "start_ns", "end"]).groupby("rank"):
            start, end = g["start_ns"].to_numpy().copy(), g["end"].to_numpy()
            start[1:] = np.maximum(start[1:], np.maximum.accumulate(end)[:-1])
            total += int((end - start).clip(0).sum())
        return total

    def ask() -> int:
        columns = ["rank", "start_ns", "dur_ns", "name", "kind"]
        frame = pd.concat([pd.read_parquet(f, columns=columns) for f in _events(folder)])
        frame = frame[frame["kind"] == "kernel"]
        frame["end"] = frame["start_ns"] + frame["dur_ns"]
        comm = frame["name"].astype(str).str.startswith("nccl")
        union(frame)
        union(frame[~comm])
        return union(frame[comm])

    return {"answer": {"comm_ns": timed(ask)}}


def overlap_hta(folder: str) -> dict[str, Any]:
    """HolisticTraceAnalysis's overlap of a folder of traces, from the files to the numbers."""
    from hta.trace_analysis import TraceAnalysis

    def ask() -> int:
        return len(TraceAnalysis(trace_dir=folder).get_comm_comp_overlap(visualize=False))

    return {"rows": timed(ask)}


def overlap_hta_loaded(folder: str) -> dict[str, Any]:
    """The same, once it holds the traces."""
    from hta.trace_analysis import TraceAnalysis

    held = TraceAnalysis(trace_dir=folder)
    return {"rows": len(timed(lambda: held.get_comm_comp_overlap(visualize=False)))}


def overlap_from_traces(folder: str, out: str, workers: str) -> dict[str, Any]:
    """Ours from the files to the numbers: ingest, then the view."""
    import retime

    def ask() -> int:
        warehouse = retime.open(out)
        warehouse.ingest([folder], job=JOB, workers=int(workers))
        with warehouse.connect(JOB) as con:
            return len(con.execute("FROM overlap_by_rank").fetchall())

    return {"rows": timed(ask)}


def scan(folder: str) -> dict[str, Any]:
    """The columns that overlap needs, read from Parquet and hashed: the limit of any engine."""
    import duckdb

    query = (
        f"SELECT sum(hash(rank, start_ns, dur_ns, name, kind)) FROM read_parquet({_events(folder)})"
    )
    timed(lambda: duckdb.connect().execute(query).fetchall())
    return {}
