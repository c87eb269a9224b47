"""Re-timing: the inner loop, a job's graph from its tables, policies on a step, a published job."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np

from benchmarks.suite.clock import KEPT, fastest, timed

JOB = "cluster"
EDGES_A_TASK = 1.7
STREAMS = 1024


def random_graph(tasks: int) -> tuple[np.ndarray, ...]:
    """gap, dur, pred_ptr, pred, release, end: a task follows the one before on its stream, and 7
    of 10 another that began some thousand tasks before."""
    rng = np.random.default_rng(0)
    streams = min(STREAMS, tasks)
    many = np.where(rng.random(tasks) < EDGES_A_TASK - 1, 2, 1)
    many[:streams] = 0
    ptr = np.zeros(tasks + 1, np.int64)
    np.cumsum(many, out=ptr[1:])
    pred = np.empty(ptr[-1], np.int64)
    task = np.arange(streams, tasks)
    pred[ptr[task]] = task - streams
    other = task[many[streams:] == 2]
    pred[ptr[other] + 1] = np.maximum(0, other - rng.integers(1, 20 * streams, len(other)))
    gap, dur = rng.integers(0, 100, tasks), rng.integers(0, 1000, tasks)
    return gap, dur, ptr, pred, np.zeros(tasks, np.int64), np.empty(tasks, np.int64)


def loop(tasks: str) -> dict[str, Any]:
    """The engine's inner loop over a random graph, one core, the fastest of five passes."""
    from retime.replay import engine

    arrays = random_graph(int(tasks))
    fastest(lambda: engine.ends(*arrays), 5)
    return {"answer": int(arrays[-1].max())}


def loop_python(tasks: str) -> dict[str, Any]:
    """The same in plain Python: lists, a loop, `max`."""
    *arrays, _ = random_graph(int(tasks))
    gap, dur, ptr, pred, release = (a.tolist() for a in arrays)

    def go() -> int:
        end = [0] * len(dur)
        for i in range(len(dur)):
            before = pred[ptr[i] : ptr[i + 1]]
            ready = max(end[p] for p in before) if before else release[i]
            end[i] = ready + gap[i] + dur[i]
        return max(end)

    return {"answer": timed(go)}


def graph(folder: str) -> dict[str, Any]:
    """A job's task graph from its tables, compiled code loaded by a small job before."""
    import retime
    from retime.replay import load

    warm, real = (retime.open(f).job(JOB) for f in folder.split("|"))
    load.load(warm.snapshot)
    job = timed(lambda: load.load(real.snapshot))
    return {"rows": job.graph.n}


def events(folder: str) -> dict[str, Any]:
    """Every column of a job's events read from Parquet."""
    import polars as pl

    files = sorted(Path(folder).glob(f"job={JOB}/events/*.parquet"))
    return {"rows": timed(lambda: pl.read_parquet(files, hive_partitioning=False).height)}


def step(ranks: str, per_rank: str, policy: str) -> dict[str, Any]:
    """One policy on a made-up step whose graph and unchanged replay stand; fastest of three."""
    base = _base(int(ranks), int(per_rank))
    from retime.replay import run

    (scenario,) = run.plan([policy])
    fastest(lambda: run.estimate(base, scenario), 3)
    return {"rows": base.job.graph.n}


def sweep(ranks: str, per_rank: str, points: str) -> dict[str, Any]:
    """Links from half to twice as fast, in so many points, of the same step."""
    base = _base(int(ranks), int(per_rank))
    from retime.replay import run

    factors = np.linspace(0.5, 2.0, int(points)).tolist()
    run.estimates(base, run.plan(["scale-fabric:factor=3"]))
    tries = run.plan(["scale-fabric"], {"factor": factors})
    return {"rows": len(timed(lambda: run.estimates(base, tries)))}


def _base(ranks: int, per_rank: int) -> Any:
    from retime.replay import run

    from benchmarks.replay import made

    return run.baseline(made(ranks, per_rank))


def published(trace: str, out: str) -> dict[str, Any]:
    """The what-if set of the straggler study's job AR, from its tables on."""
    from retime.ingest.run import ingest
    from retime.ingest.warehouse import Warehouse
    from retime.replay import recorded
    from retime.replay.findings import stragglers

    ingest(out, [trace], job="ar")
    files = Warehouse(out).snapshot("ar").files
    found = fastest(lambda: stragglers.analyse(recorded.load(files, launches=False).graph), 3)
    return {"answer": {"slowdown": float(found.slowdown)}}


def published_study(artifact: str, python: str) -> dict[str, Any]:
    """The study's own analyser on its own copy of that file: from the file on, by its timer."""
    from benchmarks.replay import _analyse

    told = _analyse(Path(artifact), Path(python), "perf_counter")
    KEPT["seconds"] = told["e2e"]
    return {"answer": {"slowdown": float(told["S"])}}
