"""How long each public view takes on a job of 64 ranks with 100,000 events each.

    python benchmarks/views.py [--folder DIR] [--views NAME,...] [--runs 1] [--json]

The job is made on the first run (`benchmarks/cluster_job.py`) and used again where `--folder`
keeps it. Each view is asked in a process and a connection of its own, on two cores, for all
of its columns: `SELECT count(*), sum(hash(columns))`. Absolute times depend on the machine,
and on what else it does: where it is busy, look at the seconds of CPU, both cores together.
"""

from __future__ import annotations

import argparse
import json
import statistics
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).resolve().parent.parent))

JOB = "cluster"

ONE_VIEW = """
import json, os, sys, time
os.sched_setaffinity(0, sorted(os.sched_getaffinity(0))[:2])  # DuckDB takes a thread a core
import retime
folder, job, view = sys.argv[1:4]
wh = retime.open(folder)
wh.connect(job).close()  # derived tables stand, modules are loaded
t, before = time.perf_counter(), os.times()
con = wh.connect(job)
columns = [r[0] for r in con.execute(f'DESCRIBE "{view}"').fetchall()]
opened = time.perf_counter()
hashed = ", ".join('"' + c + '"' for c in columns)
rows, check = con.execute(f'SELECT count(*), sum(hash({hashed})) FROM "{view}"').fetchone()
done, after = time.perf_counter(), os.times()
with open("/proc/self/status") as f:
    peak_kb = next(int(line.split()[1]) for line in f if line.startswith("VmHWM"))
cpu_s = after.user + after.system - before.user - before.system
print(json.dumps({"rows": rows, "seconds": done - t, "open_s": opened - t, "cpu_s": cpu_s,
                  "peak_mb": peak_kb / 1e3, "check": str(check)}))
"""


def public_views() -> list[str]:
    """Names of the views that the manual lists, and of the tables that a replay gives.

    Of these the first replays the job, if nothing is kept of it, and the others read what it kept.
    """
    from retime.ingest.schema import TABLES
    from retime.queries.manual import dictionary

    computed = [t.name for t in TABLES.values() if t.computed]
    return [*computed, *(e.name for e in dictionary() if e.kind == "view")]


def measure(folder: Path, view: str, runs: int) -> dict[str, Any]:
    """Median seconds from a closed connection to the last row, rows, and peak MB of the process."""
    results = [_asked(folder, view) for _ in range(runs)]
    if failed := [r for r in results if "error" in r]:
        return {"view": view, **failed[0]}
    return {
        "view": view,
        "rows": results[0]["rows"],
        "seconds": statistics.median(r["seconds"] for r in results),
        "cpu_s": statistics.median(r["cpu_s"] for r in results),
        "open_s": statistics.median(r["open_s"] for r in results),
        "peak_mb": max(r["peak_mb"] for r in results),
        "check": results[0]["check"],
    }


def _asked(folder: Path, view: str) -> dict[str, Any]:
    done = subprocess.run(
        [sys.executable, "-c", ONE_VIEW, str(folder), JOB, view], capture_output=True, text=True
    )
    if done.returncode:
        return {"error": (done.stderr.strip().splitlines() or [str(done.returncode)])[-1]}
    return json.loads(done.stdout)


def main() -> None:
    """Make the job, measure, print."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--folder", type=Path, help="warehouse to make the job in, and keep it")
    parser.add_argument("--views", help="names, with commas; else all public views")
    parser.add_argument("--runs", type=int, default=1)
    parser.add_argument("--hosts", type=int, default=8)
    parser.add_argument("--events", type=int, default=100_000, help="a rank")
    parser.add_argument("--json", action="store_true")
    args = parser.parse_args()
    from benchmarks.cluster_job import make

    with tempfile.TemporaryDirectory() as scratch:
        folder = args.folder or Path(scratch) / "warehouse"
        make(folder, JOB, args.hosts, args.events)
        rows = []
        for view in args.views.split(",") if args.views else public_views():
            rows.append(measure(folder, view, args.runs))
            if not args.json:
                print(_line(rows[-1]), flush=True)
    if args.json:
        print(json.dumps(rows, indent=1))
        return
    timed = sorted((r for r in rows if "seconds" in r), key=lambda r: -r["seconds"])
    if timed:
        print(f"slowest: {timed[0]['view']}, {timed[0]['seconds']:.2f} s")


def _line(row: dict[str, Any]) -> str:
    if "error" in row:
        return f"{row['view']:24} {row['error']}"
    return (
        f"{row['view']:24} {row['rows']:10,} rows  {row['seconds']:6.2f} s "
        f"(open {row['open_s']:.2f}, cpu {row['cpu_s']:.2f})  peak {row['peak_mb']:6.0f} MB"
    )


if __name__ == "__main__":
    main()
