"""The tables of the schema that only a replay can give, of one job."""

from __future__ import annotations

from typing import Any

import numpy as np
import polars as pl
import pyarrow as pa

from ..ingest.errors import RetimeError
from . import critical, engine, load, scores, slack
from . import steps as timing
from .graph import TaskGraph
from .task_steps import task_steps


def tables(snapshot: Any) -> dict[str, pa.Table]:
    """`replay_scores`, `critical_path` and `slack` of a `Snapshot`, from one unchanged replay.

    Empty where the job has no steps. Raises UnusableInput where it cannot be replayed.
    """
    if not has_steps(snapshot):
        return {}
    job = load.load(snapshot)
    graph = job.graph
    start, end = engine.replay(graph)
    steps, _ = timing.step_times(graph, start, end)
    step = task_steps(job)
    ids = _collective_ids(graph, snapshot)
    made = {
        "critical_path": critical.rows(graph, start, end, steps, ids),
        "slack": slack.rows(graph, start, end, step),
        "replay_scores": scores.rows(scores.scores(graph, start, end, step)),
    }
    return {name: pa.Table.from_batches([batch]) for name, batch in made.items()}


def why_none(error: Exception) -> str:
    """The sentence that says why there are no rows."""
    said = str(error) if isinstance(error, RetimeError) else f"{type(error).__name__}: {error}"
    return f"replay_scores, critical_path and slack are empty: the job cannot be replayed: {said}"


def has_steps(snapshot: Any) -> bool:
    """Whether any rank has a step with a beginning and an end."""
    window = pl.col("end_ns") > pl.col("start_ns")
    return bool(len(load.read(snapshot.files, "steps", window, ("rank",))))


def _collective_ids(graph: TaskGraph, snapshot: Any) -> np.ndarray:
    """int64 [n]: `collective_id` of each task of a collective, -1 for none.

    Tasks know the events of their participations; those of one collective share its id. Of several
    that a kernel carries the first counts, as in the graph.
    """
    rows = load.read(
        snapshot.files, "collectives", columns=("event_id", "collective_id", "start_ns")
    )
    rows = rows.drop_nulls(["event_id", "collective_id"]).sort("start_ns", "collective_id")
    rows = rows.unique("event_id", keep="first", maintain_order=True).sort("event_id")
    event, id = rows["event_id"].to_numpy(), rows["collective_id"].to_numpy()
    out = np.full(graph.n, -1, np.int64)
    tasks = np.flatnonzero(graph.collective >= 0)
    if not len(event) or not len(tasks):
        return out
    asked = graph.extra["event_id"][tasks]
    at = np.minimum(np.searchsorted(event, asked), len(event) - 1)
    known = event[at] == asked
    code = graph.collective[tasks]
    of_code = np.full(int(code.max()) + 1, -1, np.int64)
    of_code[code[known]] = id[at[known]]
    out[tasks] = of_code[code]
    return out
