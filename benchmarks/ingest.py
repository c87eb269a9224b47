"""How fast Kineto JSON becomes Parquet, beside HolisticTraceAnalysis on the same file.

    python benchmarks/ingest.py [--size-mb 400] [--runs 3] [--no-peer] [--json]

Every figure is a process of its own. "After start-up" is measured inside the process once its
imports (and, for retime, the cached machine code) are loaded; retime's time includes finished
Parquet, the commit to the warehouse and the matching of ranks, the peer's is its
`parse_trace_file` alone (JSON to a data frame with its links). Absolute speeds depend on
the machine: read the ratios.
"""

from __future__ import annotations

import argparse
import json
import os
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parent.parent))
from benchmarks.tiled import write_tiled

PEER = """
import sys, time
from hta.common.trace import parse_trace_file
t = time.perf_counter()
parse_trace_file(sys.argv[1])
print("seconds", time.perf_counter() - t)
"""

OURS = """
import sys, time
import retime
from retime.ingest import kineto
big, small, folder, threads = sys.argv[1:5]
warehouse = retime.open(folder)
kineto.prepare(10**12)
warehouse.ingest([small], job="warm-up", workers=int(threads))
t = time.perf_counter()
report = warehouse.ingest([big], job="big", workers=int(threads))
print("seconds", time.perf_counter() - t)
"""


def run(command: list[str], cpus: int) -> dict[str, float]:
    """Wall seconds, seconds the process itself printed (if any) and peak MB of one process."""
    start = time.perf_counter()
    read, write = os.pipe()
    process = subprocess.Popen(
        command,
        stdout=write,
        stderr=subprocess.DEVNULL,
        preexec_fn=lambda: os.sched_setaffinity(0, set(range(cpus))),
    )
    os.close(write)
    with os.fdopen(read) as f:
        printed = f.read()
    _, status, usage = os.wait4(process.pid, 0)
    process.returncode = os.waitstatus_to_exitcode(status)
    if process.returncode:
        raise SystemExit(f"{command[:3]} ... ended with {process.returncode}")
    wall = time.perf_counter() - start
    inside = [float(x.split()[1]) for x in printed.splitlines() if x.startswith("seconds ")]
    return {
        "wall_s": wall,
        "inside_s": inside[0] if inside else wall,
        "peak_mb": usage.ru_maxrss / 1e3,
    }


def ours(big: Path, small: Path, cpus: int) -> dict[str, float]:
    """Ingest in a process that is already warm (`small` ingested first)."""
    with tempfile.TemporaryDirectory() as folder:
        return run([sys.executable, "-c", OURS, str(big), str(small), folder, str(cpus)], cpus)


def command_line(path: Path, cpus: int) -> dict[str, float]:
    """`retime ingest` as a person calls it."""
    with tempfile.TemporaryDirectory() as folder:
        args = ["ingest", str(path), "--job", "big", "--warehouse", folder, "--workers", str(cpus)]
        return run([str(Path(sys.executable).with_name("retime")), *args], cpus)


def peer(path: Path) -> dict[str, float]:
    """The peer's parser, one process (it uses one core)."""
    return run([sys.executable, "-c", PEER, str(path)], 1)


def measure(big: Path, small: Path, runs: int, with_peer: bool) -> list[dict[str, object]]:
    """One row a way of reading: median, spread, MB/s, peak memory, ratio to the peer."""
    big_mb, small_mb = big.stat().st_size / 1e6, small.stat().st_size / 1e6
    ways: list[tuple[str, float, str, object]] = [
        ("large, one core, after start-up", big_mb, "inside_s", lambda: ours(big, small, 1)),
        ("large, two cores, after start-up", big_mb, "inside_s", lambda: ours(big, small, 2)),
        ("large, one core, whole process", big_mb, "wall_s", lambda: command_line(big, 1)),
        ("large, two cores, whole process", big_mb, "wall_s", lambda: command_line(big, 2)),
        ("small, whole process", small_mb, "wall_s", lambda: command_line(small, 2)),
    ]
    peers = {}
    if with_peer:
        large, little = peer(big), peer(small)
        peers = {"large": large, "small": little}
    rows = []
    for name, mb, clock, way in ways:
        results = [way() for _ in range(runs)]  # type: ignore[operator]
        seconds = [r[clock] for r in results]
        row: dict[str, object] = {
            "way": name,
            "mb": round(mb),
            "median_s": statistics.median(seconds),
            "min_s": min(seconds),
            "max_s": max(seconds),
            "mb_per_s": mb / statistics.median(seconds),
            "peak_mb": max(r["peak_mb"] for r in results),
        }
        if with_peer:
            other = peers[name.split(",")[0]]
            row["peer_s"] = other[clock]
            row["peer_peak_mb"] = other["peak_mb"]
            row["times_faster"] = other[clock] / statistics.median(seconds)
        rows.append(row)
    return rows


def main() -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--size-mb", type=int, default=400)
    parser.add_argument("--small-mb", type=int, default=10)
    parser.add_argument("--runs", type=int, default=3)
    parser.add_argument("--no-peer", action="store_true")
    parser.add_argument("--json", action="store_true")
    parser.add_argument("--keep", type=Path, help="folder to make the files in, and keep them")
    args = parser.parse_args()
    with tempfile.TemporaryDirectory() as scratch:
        folder = args.keep or Path(scratch)
        big = write_tiled(folder / f"tiled{args.size_mb}.json", args.size_mb * 10**6)
        small = write_tiled(folder / f"tiled{args.small_mb}.json", args.small_mb * 10**6)
        rows = measure(big, small, args.runs, not args.no_peer)
    if args.json:
        print(json.dumps(rows, indent=1))
        return
    for r in rows:
        ratio = f"{r['times_faster']:6.1f}x the peer" if "times_faster" in r else ""
        print(
            f"{r['way']:34} {r['mb']:5} MB  {r['median_s']:7.2f} s "
            f"({r['min_s']:.2f} to {r['max_s']:.2f})  {r['mb_per_s']:6.0f} MB/s  "
            f"peak {r['peak_mb']:5.0f} MB  {ratio}"
        )


if __name__ == "__main__":
    main()
