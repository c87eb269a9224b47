"""How fast jobs are re-timed: the engine's inner loop, a step of 1,024 ranks, a published what-if.

    python benchmarks/replay.py [--tasks 10000000] [--ranks 1024] [--per-rank 5000] [--runs 5]
                                [--ar TRACE] [--artifact FOLDER] [--artifact-python PYTHON]
                                [--warehouse FOLDER --job JOB]
                                [--only loop,step,sweep,graph,ar] [--json]

loop: one pass over a random graph of 10 million tasks and 17 million edges, on one core, without
contention; beside it a bare pass, which reads the same arrays in the same order and adds them up.
graph: a job of a warehouse (`--warehouse`, as benchmarks.scale makes one) from its files to its
graph, and beside it the reading of the same columns of its events: by pyarrow, into its own arrays,
and by DuckDB, into numpy's. sweep: 100 points of a policy's parameter on the step below, with its
unchanged replay, on all cores. step: a step of 1,024 ranks by 5,000 tasks (work on two streams, 64
collectives of eight ranks each a rank and 64 of the ranks that are alike in their hosts) under
`align-arrivals`
and under faster collectives, by `run.estimate`: all that `retime replay` does but reading the job
and building its graph. ar: S, by type, by worker and by rank of the job AR of the OSDI'25
straggler study (`--ar`, its trace-AR.parquet), from its graph on; `--artifact` is a clone of that
study's public repository, whose own analyser (`analyzer/wia.py`) is then run on its copy of that
file by `--artifact-python`, an interpreter with what its requirements.txt asks for and pandas below
3 (it writes to arrays that pandas 3 makes read-only). Its own timers tell what it takes from its
graph on, and from its file on, which is held against ours from the ingested tables on; its whole
process starts Python and imports too, which ours leaves out. It also tells every step by group;
ours each rank by itself, M_W and M_S. The best of `--runs` counts; the last line says how busy the
machine was.
"""

from __future__ import annotations

import argparse
import gc
import json
import os
import re
import resource
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numba
import numpy as np

sys.path.insert(0, str(Path(__file__).resolve().parent.parent.parent))
sys.path.insert(0, str(Path(__file__).resolve().parent.parent))
from benchmarks.suite.ways.replay import random_graph


def best(of: Callable[[], Any], runs: int) -> dict[str, float]:
    """The fastest of some runs, after one that compiles: seconds, and seconds of CPU (all cores).

    Where others use the machine the second says more. Processes that a run waits for count.
    """
    of()
    took, cpu = [], []
    for _ in range(runs):
        t, c = time.perf_counter(), _cpu_s()
        of()
        took.append(time.perf_counter() - t)
        cpu.append(_cpu_s() - c)
    return {"seconds": min(took), "cpu_s": min(cpu)}


def _cpu_s() -> float:
    children = resource.getrusage(resource.RUSAGE_CHILDREN)
    return time.process_time() + children.ru_utime + children.ru_stime


def loop(tasks: int, runs: int) -> dict[str, Any]:
    """The inner loop alone: a task follows the one before on its stream, and 7 of 10 another."""
    from retime.replay import engine

    gap, dur, ptr, pred, release, end = random_graph(tasks)
    took = best(lambda: engine.ends(gap, dur, ptr, pred, release, end), runs)
    bare = best(lambda: _read(gap, dur, ptr, pred, release), runs)
    return {
        "what": "inner loop",
        "tasks": tasks,
        "edges": len(pred),
        **took,
        "bare_s": bare["seconds"],
        "times_bare": took["seconds"] / bare["seconds"],
        "times_bare_by_cpu": took["cpu_s"] / bare["cpu_s"],
    }


@numba.njit(nogil=True)
def _read(gap, dur, ptr, pred, release):  # pragma: no cover - compiled
    """The sum of everything that the inner loop reads but ends, in its order."""
    total = 0
    for i in range(len(dur)):
        for e in range(ptr[i], ptr[i + 1]):
            total += pred[e]
        total += gap[i] + dur[i] + release[i]
    return total


def graph(warehouse: str, name: str, runs: int) -> list[dict[str, Any]]:
    """A job's graph from its files, and what reading the columns of its events alone takes."""
    import duckdb
    import pyarrow.parquet as pq
    from retime.ingest.tasks.events import COLUMNS, Words, of_files
    from retime.ingest.warehouse import Warehouse
    from retime.replay import load
    from retime.replay.findings import computed

    snapshot = Warehouse(warehouse).snapshot(name)
    paths = [str(p) for p in snapshot.files["events"]]
    held: list[Any] = []

    def built() -> None:
        held.clear()
        gc.collect()
        held.append(load.load(snapshot))

    def by_pyarrow() -> None:
        for path in paths:
            pq.ParquetFile(path).read(columns=list(COLUMNS), use_threads=False)

    def by_duckdb() -> None:
        with duckdb.connect() as con:
            sql = f"SELECT {', '.join(COLUMNS)} FROM read_parquet(?)"
            con.execute(sql, [paths]).fetchnumpy()

    def to_arrays() -> None:
        def all_(kind, _, __):
            return np.arange(len(kind))

        words = Words()
        for path in paths:
            of_files([path], words, all_, {})

    rows = []
    took = {
        what: best(of, runs)
        for what, of in (
            ("read by pyarrow", by_pyarrow),
            ("read by DuckDB to numpy", by_duckdb),
            ("read as the graph needs it", to_arrays),
            ("graph, with reading", built),
        )
    }
    whole = took["graph, with reading"]
    for what, t in took.items():
        row = {"what": f"{name}: {what}", **t}
        if t is not whole:
            # What is left of building once the columns are there.
            less = whole["cpu_s"] - took["read as the graph needs it"]["cpu_s"]
            row["building_by_reading"] = less / t["cpu_s"]
        rows.append(row)
    rows[-1] |= {"tasks": held[0].graph.n, "edges": len(held[0].graph.pred)}
    tables = best(lambda: computed.tables(snapshot), 1)
    rows.append({"what": f"{name}: tables of a replay, from its graph on", **tables})
    return rows


def sweep(ranks: int, per_rank: int, points: int = 100) -> list[dict[str, Any]]:
    """Points of a step of many ranks: what `retime replay --sweep` does once its graph stands."""
    from retime.replay import run

    job = made(ranks, per_rank)
    out = []
    for policy, parameter, values in (
        ("scale-fabric", "factor", np.linspace(1.1, 8, points)),
        ("align-arrivals", "factor", np.linspace(0, 0.99, points)),
    ):
        given = {parameter: [float(v) for v in values]}
        run.replay(job, [policy])
        t, c = time.perf_counter(), _cpu_s()
        found = run.replay(job, [policy], sweep=given)
        took = {"seconds": time.perf_counter() - t, "cpu_s": _cpu_s() - c}
        made_of = {"tasks": job.graph.n, "edges": len(job.graph.pred)}
        what = f"{len(found['policies'])} points of {policy}, {ranks} x {per_rank}"
        out.append({"what": what, **took, **made_of})
    return out


def step(ranks: int, per_rank: int, runs: int) -> list[dict[str, Any]]:
    """A step of many ranks, re-timed under two policies once its graph stands."""
    from retime.replay import run
    from retime.replay.policy import Policy
    from retime.replay.retiming import transfers

    t = time.perf_counter()
    job = made(ranks, per_rank)
    built = time.perf_counter() - t
    t = time.perf_counter()
    base = run.baseline(job)
    first = time.perf_counter() - t

    def faster(job, **_):
        job, rows = transfers.chosen(job)
        return transfers.scaled(job, rows, np.full(len(rows), 0.5))

    halved = Policy("transfers halved", "", "", (), ("none",), faster)
    out = []
    for policy in (halved, "align-arrivals"):
        (scenario,) = run.plan([policy])
        took = best(lambda s=scenario: run.estimate(base, s), runs)
        out.append(
            {
                "what": f"step of {ranks} x {per_rank}: {scenario[0][0].name}",
                "tasks": job.graph.n,
                "edges": len(job.graph.pred),
                **took,
                "graph_s": built,
                "baseline_s": first,
            }
        )
    return out


def made(ranks: int, per_rank: int):
    """One step of `ranks` on hosts of eight, about `per_rank` tasks each, as a replay job."""
    import polars as pl
    from retime.replay import engine, graph
    from retime.replay.graph import Kind
    from retime.replay.policy import ReplayJob

    each, layers = 8, 64
    work = max(1, per_rank // layers - 4)
    rng = np.random.default_rng(1)
    rank = np.arange(ranks)
    host, local = rank // each, rank % each
    n_hosts = -(-ranks // each)
    blocks: list[dict[str, np.ndarray]] = []
    src, dst = [], []
    n = 0
    last = None

    def add(k, **columns):
        nonlocal n
        blocks.append({name: np.broadcast_to(c, (k,)) for name, c in columns.items()})
        n += k
        return np.arange(n - k, n)

    collectives = 0
    for layer in range(layers):
        for _ in range(work):
            dur = rng.integers(1_000, 200_000, ranks)
            now = add(ranks, kind=Kind.COMPUTE, rank=rank, op=0, dur_ns=dur)
            if last is not None:
                src.append(last)
                dst.append(now)
            last = now
        for group, first in ((host, 0), (n_hosts + local, n_hosts)):
            size = 1 << int(rng.integers(12, 26))
            code = collectives + group - first
            part = {"comm": group, "collective": code, "bytes": size, "op": 1}
            arrive = add(ranks, kind=Kind.ARRIVE, rank=rank, **part)
            groups = int(group.max()) - first + 1
            join = add(groups, kind=Kind.JOIN, rank=-1, op=1, collective=collectives
                       + np.arange(groups), comm=first + np.arange(groups))  # fmt: skip
            moved = add(ranks, kind=Kind.TRANSFER, rank=rank, dur_ns=5_000 + size // 50, **part)
            src += [last, arrive, join[group - first], arrive]
            dst += [arrive, join[group - first], moved, moved]
            # Every other collective is waited for only by the next one.
            last = moved if layer % 2 else arrive
            collectives += groups
    names = ("kind", "rank", "op", "dur_ns", "comm", "collective", "bytes")
    none = {"dur_ns": 0, "comm": -1, "collective": -1, "bytes": 0}
    columns = {
        name: np.concatenate(
            [b[name] if name in b else np.full(len(b["kind"]), none[name]) for b in blocks]
        )
        for name in names
    }
    comms = [f"tp{h}" for h in range(n_hosts)] + [f"dp{i}" for i in range(each)]
    built, _ = graph.build(
        n, np.concatenate(src), np.concatenate(dst), order_ns=np.arange(n),
        step=np.zeros(n, np.int64), op_names=("work", "all_reduce"), comm_names=tuple(comms),
        **columns,
    )  # fmt: skip
    start, end = engine.replay(built)
    built = built.with_(start_ns=start, end_ns=end)
    facts = {
        "ranks": pl.DataFrame({"rank": rank, "host": [f"h{h}" for h in host], "local_rank": local}),
        "comms": pl.DataFrame({"comm": comms, "dim": ["tp"] * n_hosts + ["dp"] * each}),
    }
    return ReplayJob(built, "step", facts)


def ar(trace: Path, artifact: Path | None, python: Path, runs: int) -> list[dict[str, Any]]:
    """The published what-if set of the job AR; and the study's own analyser on the same file."""
    from retime.ingest.run import ingest
    from retime.ingest.warehouse import Warehouse
    from retime.replay import recorded
    from retime.replay.findings import stragglers

    with tempfile.TemporaryDirectory() as scratch:
        ingest(scratch, [str(trace)], job="ar")
        files = Warehouse(scratch).snapshot("ar").files
        graphs: list[Any] = []
        found: list[Any] = []
        built = best(lambda: graphs.append(recorded.load(files, launches=False).graph), runs)
        what_ifs = best(lambda: found.append(stragglers.analyse(graphs[-1])), runs)
    both = {k: built[k] + what_ifs[k] for k in built}
    told = {"S": found[-1].slowdown, "tasks": graphs[-1].n, "edges": len(graphs[-1].pred)}
    out = [
        {"what": "AR: graph from its tables", **built},
        {"what": "AR: S, by type, worker and rank", **what_ifs, **told},
        {"what": "AR: both", **both},
    ]
    if artifact is not None:
        graph_on, file_on, whole, slowdown = study(artifact, python, runs)
        for what, theirs, ours in (
            ("from its graph on", graph_on, what_ifs),
            ("from its file on", file_on, both),
            ("process, with imports", whole, both),
        ):
            times = {k: theirs[k] / ours[k] for k in ours}
            out.append({"what": f"AR: the study's {what}", **theirs, "times": times})
        out[-1]["S"] = slowdown
    return out


def study(artifact: Path, python: Path, runs: int) -> tuple[Any, Any, Any, float]:
    """The study's analyser: what it takes from its graph on, from its file on, whole; its S."""
    whole = best(lambda: _analyse(artifact, python), runs)
    graph_on: dict[str, float] = {}
    file_on: dict[str, float] = {}
    for name, clock in (("seconds", "perf_counter"), ("cpu_s", "process_time")):
        timers = [_analyse(artifact, python, clock) for _ in range(runs)]
        graph_on[name] = min(t["top-level simulation"] + t["decomposition"] for t in timers)
        file_on[name] = min(t["e2e"] for t in timers)
    return graph_on, file_on, whole, timers[-1]["S"]


def _analyse(artifact: Path, python: Path, clock: str | None = None) -> dict[str, float]:
    """The command that the study's `run_all.sh` has for this job, but its dumps of frames: its S.

    With a clock of the module `time` it runs by that one, and its own timers (s) are told as well.
    """
    script = ["analyzer/wia.py"]
    if clock is not None:
        by_clock = f"""import runpy, sys, time; time.perf_counter = time.{clock}
sys.path.insert(0, "analyzer"); runpy.run_path("analyzer/wia.py", run_name="__main__")"""
        script = ["-c", by_clock, "--verbose"]
    with tempfile.TemporaryDirectory() as scratch:
        done = subprocess.run(
            [
                python, *script, "--metadata", "data/meta-AR.yaml",
                "--trace", "data/trace-AR.parquet", "--dump-dir", scratch,
            ],
            cwd=artifact, env={**os.environ, "PYTHONPATH": str(artifact.resolve())},
            capture_output=True, text=True,
        )  # fmt: skip
        if done.returncode:
            sys.exit(f"the study's analyser failed under {python}:\n{done.stderr}")
        slowdown = json.loads((Path(scratch) / "AR.json").read_text())["blocking_slowdown"]
    timers = re.findall(r"Time of `(.+)`: ([\d.]+) seconds", done.stderr)
    return {"S": slowdown, **{name: float(s) for name, s in timers}}


def main() -> None:
    """Measure, print."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--tasks", type=int, default=10_000_000)
    parser.add_argument("--ranks", type=int, default=1024)
    parser.add_argument("--per-rank", type=int, default=5000)
    parser.add_argument("--runs", type=int, default=5)
    parser.add_argument("--ar", type=Path, help="trace-AR.parquet of the straggler study")
    parser.add_argument("--artifact", type=Path, help="a clone of that study's repository")
    parser.add_argument(
        "--artifact-python", type=Path, default=Path(sys.executable), help="what runs it"
    )
    parser.add_argument("--warehouse", help="where a job for `graph` is")
    parser.add_argument("--job", default="cluster", help="its name")
    parser.add_argument("--only", default="loop,step,sweep,graph,ar")
    parser.add_argument("--json", action="store_true")
    args = parser.parse_args()
    wanted = set(args.only.split(","))
    rows: list[dict[str, Any]] = []
    if "loop" in wanted:
        rows.append(loop(args.tasks, args.runs))
    if "step" in wanted:
        rows += step(args.ranks, args.per_rank, args.runs)
    if "sweep" in wanted:
        rows += sweep(args.ranks, args.per_rank)
    if "graph" in wanted and args.warehouse is not None:
        rows += graph(args.warehouse, args.job, args.runs)
    if "ar" in wanted and args.ar is not None:
        rows += ar(args.ar, args.artifact, args.artifact_python.absolute(), args.runs)
    load = os.getloadavg()[0]
    if args.json:
        print(json.dumps({"load": load, "rows": rows}, indent=1))
        return
    for row in rows:
        print(_line(row))
    if "graph" in wanted and args.warehouse is None:
        print("graph: not run (--warehouse takes the folder of a job's warehouse)")
    if "ar" in wanted and args.ar is None:
        print("AR: not run (--ar takes its trace)")
    elif "ar" in wanted and args.artifact is None:
        print("AR: not compared with the study's analyser (--artifact takes a clone of it)")
    print(f"load of the machine: {load:.1f} on {os.cpu_count()} cores")


def _line(row: dict[str, Any]) -> str:
    text = f"{row['what']:40} {row['seconds'] * 1e3:10.1f} ms (cpu {row['cpu_s'] * 1e3:.1f})"
    if "tasks" in row:
        text += f"  {row['tasks']:,} tasks, {row['edges']:,} edges"
    if row["what"] == "inner loop":
        rate = [row["tasks"] / row[k] / 1e6 for k in ("seconds", "cpu_s")]
        text += f": {rate[0]:.0f} M tasks/s (by cpu {rate[1]:.0f})"
        text += f", {row['times_bare']:.2f} times a bare pass ({row['times_bare_by_cpu']:.2f})"
    if "building_by_reading" in row:
        text += f"  building is {row['building_by_reading']:.2f} times this, by cpu"
    if "baseline_s" in row:
        text += f"  graph {row['graph_s']:.1f} s, unchanged replay {row['baseline_s']:.1f} s"
    if "times" in row:
        text += f"  {row['times']['seconds']:.1f} times ours (by cpu {row['times']['cpu_s']:.1f})"
    return text + (f"  S {row['S']:.6f}" if "S" in row else "")


if __name__ == "__main__":
    main()
