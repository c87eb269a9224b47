"""How fast routing logs and Nsight exports become Parquet, beside copying and the obvious way.

    python -m benchmarks.tables_in [--tokens 2000000] [--rows 1000000] [--runs 3] [--json FILE]
        [--nsys EXPORT.sqlite] [--only NAME]

Every figure is a process of its own on one core (two where it says so), timed inside it once its
code is loaded: retime's is a whole source to finished Parquet. Limits are reading (and inflating)
the file's bytes, and for an export copying its tables into DuckDB with Python's `sqlite3` and with
a driver that gives Arrow batches. The obvious way is Polars. Read the ratios: speeds depend on the
machine.
"""

from __future__ import annotations

import argparse
import json
import os
import statistics
import subprocess
import sys
import tempfile
from collections.abc import Sequence
from pathlib import Path
from typing import Any, NamedTuple

sys.path.insert(0, str(Path(__file__).resolve().parent.parent))
from benchmarks.tables_made import FORMS, packed, write_nsys

START = "import sys, time, resource\npath = sys.argv[1]\n"
"""What each program begins with; it prints seconds, the second time it does its work."""

TIMED = """
for _ in range(2):
    t = time.perf_counter()
    work(path)
    s = time.perf_counter() - t
print("seconds", s)
"""

OURS = """
import os, tempfile
from retime.ingest import detect, stage
from retime.ingest.sources import find_sources
def work(path):
    with tempfile.TemporaryDirectory() as folder:
        source, = find_sources([path], lambda name, problem: None)
        found = detect.detect(source)
        stage.stage_source(
            source, found, detect.FORMATS[found].module, None, len(os.sched_getaffinity(0)),
            10**9, folder + "/parts", lambda n: None,
        )
"""

READING = """
import gzip
from isal import igzip
def work(path):
    n = 0
    with (igzip.open(path) if path.endswith(".gz") else open(path, "rb")) as f:
        while block := f.read(1 << 20):
            n += block.count(b"\\n")
"""

SQLITE3 = """
import sqlite3, duckdb, os, pyarrow as pa
from benchmarks.tables_made import NSYS_TABLES
def work(path):
    db = duckdb.connect()
    source = sqlite3.connect(f"file:{path}?mode=ro", uri=True)
    for name in NSYS_TABLES:
        columns = source.execute(f"PRAGMA table_info({name})").fetchall()
        kinds = {"INTEGER": pa.int64(), "REAL": pa.float64()}
        schema = pa.schema([(c[1], kinds.get(c[2], pa.string())) for c in columns])
        rows = source.execute(f"SELECT * FROM {name}")
        made = False
        while some := rows.fetchmany(65536):
            batch = pa.table([pa.array(c, f.type) for c, f in zip(zip(*some), schema)], schema)
            db.sql(f"INSERT INTO {name} FROM batch" if made
                   else f"CREATE TABLE {name} AS FROM batch")
            made = True
"""

ADBC = """
import adbc_driver_sqlite.dbapi as adbc, duckdb
from benchmarks.tables_made import NSYS_TABLES
def work(path):
    db = duckdb.connect()
    with adbc.connect(f"file:{path}?mode=ro") as source:
        for name in NSYS_TABLES:
            with source.cursor(adbc_stmt_kwargs={"adbc.sqlite.query.batch_rows": "65536"}) as c:
                c.execute(f"SELECT * FROM {name}")
                batches = c.fetch_record_batch()
                db.sql(f"CREATE TABLE {name} AS FROM batches")
"""

POLARS = """
import polars as pl
GROUP = ["step", "layer", "rank", "experts"]
def summed(frame, lists):
    return (frame.explode(lists).group_by(GROUP)
            .agg(pl.len(), *(pl.col(c).sum() for c in lists if c == "weights")).collect())
def work(path):
    if path.endswith(".parquet"):
        frame = pl.scan_parquet(path)
    elif path.endswith(".jsonl"):
        frame = pl.scan_ndjson(path)
    else:
        frame = pl.scan_csv(path)
        kinds = {"experts": pl.Int64, "weights": pl.Float64}
        frame = frame.with_columns(
            pl.col(c).str.split(" ").cast(pl.List(k))
            for c, k in kinds.items() if c in frame.collect_schema()
        )
    lists = [c for c in ("experts", "weights") if c in frame.collect_schema()]
    summed(frame, lists).write_parquet("/dev/null")
"""

MEGATRON_POLARS = """
import polars as pl
def work(path):
    frame = pl.scan_ndjson(path, infer_schema_length=1).select("step", "layer", "top_indices")
    frame.explode("top_indices").explode("top_indices").group_by(
        "step", "layer", "top_indices").len().collect().write_parquet("/dev/null")
"""

FLAME_POLARS = """
import polars as pl
def work(path):
    (pl.scan_parquet(path).explode("scores", "indices").group_by("indices")
     .agg(pl.len(), pl.col("scores").sum()).collect().write_parquet("/dev/null"))
"""


class Case(NamedTuple):
    """An input, and what reads it."""

    name: str
    path: Path
    amount: int
    """tokens, or rows of an export's tables"""
    unit: str
    ways: dict[str, str]


def run(program: str, path: Path, cores: int) -> dict[str, float]:
    """Seconds of the program's second go, and the peak memory of its process."""
    root = str(Path(__file__).resolve().parent.parent)
    environment = {**os.environ, "POLARS_MAX_THREADS": str(cores), "OMP_NUM_THREADS": str(cores)}
    environment["PYTHONPATH"] = os.pathsep.join(
        [root, *filter(None, [os.environ.get("PYTHONPATH")])]
    )
    process = subprocess.Popen(
        [sys.executable, "-c", START + program + TIMED, str(path)],
        stdout=subprocess.PIPE,
        env=environment,
        preexec_fn=lambda: os.sched_setaffinity(0, set(sorted(os.sched_getaffinity(0))[:cores])),
    )
    assert process.stdout is not None
    printed = process.stdout.read().decode()
    _, status, usage = os.wait4(process.pid, 0)
    process.returncode = os.waitstatus_to_exitcode(status)
    if process.returncode:
        raise SystemExit(f"{program.split(chr(10))[1]} ... of {path} ended with {status}")
    seconds = [float(x.split()[1]) for x in printed.splitlines() if x.startswith("seconds ")]
    return {"s": seconds[0], "peak_mb": usage.ru_maxrss / 1e3}


def cases(folder: Path, tokens: int, rows: int, export: Path | None, only: str = "") -> list[Case]:
    """The inputs, made in `folder` where they are not there yet."""
    out = []
    for name, file, write, weights, most in FORMS:
        if only not in name:
            continue
        n = min(tokens, most)
        path = folder / f"{n}" / file
        if not path.exists():
            path.parent.mkdir(parents=True, exist_ok=True)
            write(path, n, weights)
        plain = {"retime": OURS, "reading": READING}
        obvious = {"routing": POLARS, "megatron": MEGATRON_POLARS, "flame": FLAME_POLARS}
        polars = next((p for k, p in obvious.items() if name.startswith(k)), None)
        ways = plain if polars is None else {**plain, "polars": polars}
        out.append(Case(name, path, n, "tokens", ways))
        if name in ("routing csv", "routing jsonl", "megatron-router"):
            zipped = path.with_name(path.name + ".gz")
            zipped = zipped if zipped.exists() else packed(path)
            out.append(
                Case(f"{name}.gz", zipped, n, "tokens", {"retime": OURS, "reading": READING})
            )
    if export is not None and only in "nsys":
        path = folder / f"nsys{rows}.sqlite"
        one = write_nsys(folder / "one.sqlite", export, 1)
        copies = max(1, round(rows / one))
        n = one * copies if path.exists() else write_nsys(path, export, copies)
        ways = {"retime": OURS, "reading": READING, "sqlite3 to duckdb": SQLITE3,
                "adbc to duckdb": ADBC}  # fmt: skip
        out.append(Case("nsys", path, n, "rows", ways))
    return out


def measure(
    sizes: Sequence[tuple[int, int]],
    runs: int,
    *,
    export: Path | None = None,
    folder: Path | None = None,
    only: str = "",
    cores: Sequence[int] = (1, 2),
) -> list[dict[str, Any]]:
    """A row an input, way and number of cores, for each (tokens, rows of an export) of `sizes`.

    `export` is a small real export to tile (none: no Nsight rows); ways other than retime get one
    core. Medians over `runs`, with the least and the most; `ratio` is the way's time over retime's
    on one core (over 1: retime is ahead).
    """
    out: list[dict[str, Any]] = []
    with tempfile.TemporaryDirectory() as scratch:
        for tokens, n_rows in sizes:
            for case in cases(folder or Path(scratch), tokens, n_rows, export, only):
                ours = 0.0
                for way, program in case.ways.items():
                    for n in cores if way == "retime" else cores[:1]:
                        found = [run(program, case.path, n) for _ in range(runs)]
                        s = statistics.median(f["s"] for f in found)
                        mb = case.path.stat().st_size / 1e6
                        ours = ours or s
                        out.append({
                            "input": case.name, "way": way, "cores": n, "amount": case.amount,
                            "unit": case.unit, "mb": mb, "median_s": s,
                            "min_s": min(f["s"] for f in found),
                            "max_s": max(f["s"] for f in found),
                            "per_s": case.amount / s, "mb_per_s": mb / s,
                            "peak_mb": max(f["peak_mb"] for f in found), "ratio": s / ours,
                        })  # fmt: skip
    return out


def main() -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--tokens", type=int, default=2_000_000)
    parser.add_argument("--rows", type=int, default=1_000_000)
    parser.add_argument("--runs", type=int, default=3)
    parser.add_argument("--nsys", type=Path, help="a small real Nsight SQLite export to tile")
    parser.add_argument("--keep", type=Path, help="folder to make the inputs in, and keep them")
    parser.add_argument("--only", default="", help="inputs whose name holds this")
    parser.add_argument("--json", type=Path)
    args = parser.parse_args()
    rows = measure(
        [(args.tokens, args.rows)], args.runs, export=args.nsys, folder=args.keep, only=args.only
    )
    if args.json:
        args.json.write_text(json.dumps(rows, indent=1))
    for r in rows:
        print(
            f"{r['input']:26} {r['way']:18} {r['cores']} core{'s' * (r['cores'] > 1)} "
            f"{r['median_s']:7.3f} s ({r['min_s']:.3f} to {r['max_s']:.3f})  "
            f"{r['per_s'] / 1e6:6.2f} M {r['unit']}/s  {r['mb_per_s']:6.0f} MB/s  "
            f"peak {r['peak_mb']:4.0f} MB  {r['ratio']:5.2f} of retime's time"
        )


if __name__ == "__main__":
    main()
