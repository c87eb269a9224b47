"""How time, memory and bytes grow with the number of ranks: 64, 256, 1,024 of the made-up job.

    python -m benchmarks.scale [--ranks 64,256,1024] [--steps 4] [--layers 8] [--microbatches 2]
        [--folder DIR] [--views NAME,...] [--table FILE] [--json FILE]

For each size, on two cores: the job is made (not counted), each host's 8 ranks are ingested by a
process of their own, two at a time; the derived tables are made; what is known of the job is held
against what is found; the job is replayed, unchanged and under two policies; then `show`, `report`
and every public view, every column, each in a process of its own. `--folder` is where all of it is
made and removed again (some 3 GB for 1,024 ranks).
"""

from __future__ import annotations

import argparse
import json
import os
import shutil
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

from .generate import arguments, generate, host_folders, shape_of
from .measured import Running, Took, cli, measured
from .stage import JOB
from .table import markdown

RANKS = "64,256,1024"
POLICIES = ("align-arrivals", "scale-fabric:factor=2")
AT_ONCE = 2


def size(asked: argparse.Namespace, ranks: int, folder: Path) -> dict[str, Any]:
    """All stages of one number of ranks: rows of the result, with what was found."""
    traces, warehouse = folder / f"traces-{ranks}", folder / f"warehouse-{ranks}"
    out: dict[str, Any] = {"ranks": ranks, "stages": {}, "views": []}

    def keep(name: str, took: Took, **more: Any) -> None:
        out["stages"][name] = {**took._asdict(), **more}
        del out["stages"][name]["printed"]
        _tell(f"{ranks:5} ranks  {name:28} {took.seconds:8.1f} s  cpu {took.cpu_s:8.1f} s  "
              f"peak {took.peak_bytes / 1e6:7.0f} MB")  # fmt: skip

    try:
        began = time.perf_counter()
        truth = generate(traces, shape_of(asked, ranks), AT_ONCE)
        out |= {"events": truth["events"], "trace_bytes": truth["bytes"],
                "made_s": time.perf_counter() - began}  # fmt: skip
        _tell(f"{ranks:5} ranks  made: {out['events']:,} events, {truth['bytes'] / 1e6:,.0f} MB, "
              f"{out['made_s']:.1f} s")  # fmt: skip
        keep("ingest", *_ingested(traces, warehouse, truth["events"]))
        shutil.copy(traces / "truth.json", folder / f"truth-{ranks}.json")
        shutil.rmtree(traces)
        keep("derive", measured(_stage("derive", str(warehouse))))
        out["warehouse_bytes"] = _bytes(warehouse)
        at = ["--warehouse", str(warehouse)]
        keep("replay, unchanged", measured(cli("replay", JOB, "--json", *at)))
        for policy in POLICIES:
            took = measured(cli("replay", JOB, "--policy", policy, "--json", *at))
            keep(f"replay, {policy}", took)
        if not asked.no_views:
            out["views"] = _views(asked, warehouse, ranks)
        keep("show", measured(cli("show", JOB, *at)))
        keep("report", measured(cli("report", JOB, "-o", str(folder / "report.html"), *at)))
        found = measured(_stage("held", str(warehouse), str(folder / f"truth-{ranks}.json")))
        out["found"] = json.loads(found.printed)
    finally:
        for place in (traces, warehouse):
            shutil.rmtree(place, ignore_errors=True)
        for file in (folder / "report.html", folder / f"truth-{ranks}.json"):
            file.unlink(missing_ok=True)
    return out


def _ingested(traces: Path, warehouse: Path, events: int) -> tuple[Took,]:
    """Every host by itself, two at a time; CPU and wall are sums, memory that of the largest."""
    began = time.perf_counter()
    waiting, running, done = host_folders(traces), [], []
    while waiting or running:
        while waiting and len(running) < AT_ONCE:
            running.append(Running(_stage("ingest", str(warehouse), str(waiting.pop(0)))))
        done.append(running.pop(0).done())
    rows = sum(int(t.printed) for t in done)
    if rows != events:
        raise RuntimeError(f"{events} events were made and {rows} are in the warehouse")
    return (
        Took(time.perf_counter() - began, sum(t.cpu_s for t in done),
             max(t.peak_bytes for t in done), ""),
    )  # fmt: skip


def _views(asked: argparse.Namespace, warehouse: Path, ranks: int) -> list[dict[str, Any]]:
    from benchmarks.views import JOB as THEIRS
    from benchmarks.views import measure, public_views

    assert THEIRS == JOB
    rows = []
    for name in asked.views.split(",") if asked.views else public_views():
        row = measure(warehouse, name, 1)
        if "error" in row:
            raise RuntimeError(f"view {name}: {row['error']}")
        rows.append(row)
    worst = max(rows, key=lambda r: r["seconds"])
    _tell(f"{ranks:5} ranks  {len(rows)} views, {sum(r['seconds'] for r in rows):.1f} s, "
          f"slowest {worst['view']} {worst['seconds']:.1f} s, "
          f"peak {max(r['peak_mb'] for r in rows):.0f} MB")  # fmt: skip
    return rows


def _stage(name: str, *words: str) -> list[str]:
    return [sys.executable, "-m", "benchmarks.scale.stage", name, *words]


def _bytes(folder: Path) -> int:
    return sum(p.stat().st_size for p in folder.rglob("*") if p.is_file())


def _tell(line: str) -> None:
    print(line, file=sys.stderr, flush=True)


def main() -> None:
    """Measure, print the table."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--ranks", default=RANKS, help=f"sizes, with commas ({RANKS})")
    arguments(parser)
    parser.add_argument("--folder", type=Path, help="where to make it (default: a temporary one)")
    parser.add_argument("--views", help="names, with commas; else all public views")
    parser.add_argument("--no-views", action="store_true", help="leave the views out")
    parser.add_argument("--table", type=Path, help="write the Markdown table here, too")
    parser.add_argument("--json", type=Path, help="write all figures here")
    asked = parser.parse_args()
    # DuckDB, Polars and our own threads take a core each.
    os.sched_setaffinity(0, sorted(os.sched_getaffinity(0))[:2])
    if asked.folder is not None:
        asked.folder.mkdir(parents=True, exist_ok=True)
    sizes = []
    with tempfile.TemporaryDirectory(dir=asked.folder, prefix="scale-") as scratch:
        for ranks in map(int, asked.ranks.split(",")):
            sizes.append(size(asked, ranks, Path(scratch)))
            if asked.json is not None:
                whole = {"sizes": sizes, "load": os.getloadavg()[0]}
                asked.json.write_text(json.dumps(whole, indent=1) + "\n")
    text = markdown(sizes)
    if asked.table is not None:
        asked.table.write_text(text)
    print(text, end="")


if __name__ == "__main__":
    main()
