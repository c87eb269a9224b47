"""The tables of the schema that only a replay can give, of one job."""

from __future__ import annotations

import tempfile
from pathlib import Path
from typing import Any

import numpy as np
import polars as pl
import pyarrow as pa

from ...ingest.errors import RetimeError
from ...ingest.kept import LARGE_EVENTS
from ...ingest.tasks import shares
from .. import engine, load
from .. import steps as timing
from ..graph import Kind
from . import critical, scores, slack
from .joining import check_clocks, collective_ids
from .large import tables as by_share
from .task_steps import task_steps


def tables(snapshot: Any) -> dict[str, pa.Table]:
    """`replay_scores`, `critical_path` and `slack` of a `Snapshot`, from one unchanged replay.

    Empty where the job has no steps. Of a large job temporary files take some 35 bytes an event.
    Raises UnusableInput where it cannot be replayed, or where ranks that wait for each other are on
    clocks that nothing ties together, OSError where those files cannot be written.
    """
    if not has_steps(snapshot):
        return {}
    made = _by_share(snapshot) if is_large(snapshot) else None
    made = _of_graph(snapshot) if made is None else made
    return {name: pa.Table.from_batches([batch]) for name, batch in made.items()}


def is_large(snapshot: Any) -> bool:
    """Whether the job is a traced one whose graph is too large to be held as a whole."""
    manifests = getattr(snapshot, "manifests", ())
    events = sum(p.rows for m in manifests for p in m.tables.get("events", ()))
    whole = "events" not in getattr(snapshot, "pruned", ())
    return events >= LARGE_EVENTS and whole and load.source(snapshot.files) != "recorded"


def too_many_at_once(snapshot: Any) -> int:
    """The events of a large job's largest share, where they are more than a share is to have.

    They are of one rank, or of ranks whose events lie in the same files. 0 where no share has too
    many, or nothing is replayed by shares. Reads the ends of files.
    """
    if not is_large(snapshot) or not has_steps(snapshot):
        return 0
    found = shares.of_files(snapshot.files.get("events") or (), {})
    most = max((s.rows for s in found), default=0)
    return most if most > shares.SHARE_ROWS else 0


def _by_share(snapshot: Any) -> dict[str, pa.RecordBatch] | None:
    with tempfile.TemporaryDirectory(prefix="retime-") as folder:
        return by_share.tables(snapshot, Path(folder))


def _of_graph(snapshot: Any) -> dict[str, pa.RecordBatch]:
    job = load.load(snapshot)
    graph = job.graph
    arrive = np.flatnonzero((graph.kind == Kind.ARRIVE) & (graph.collective >= 0))
    check_clocks(graph.rank[arrive], graph.collective[arrive], job.facts["ranks"])
    start, end = engine.replay(graph)
    steps, _ = timing.step_times(graph, start, end)
    if not len(steps):
        return {}
    step = task_steps(job)
    joined = np.flatnonzero(graph.collective >= 0)
    ids = np.full(graph.n, -1, np.int64)
    code = graph.collective[joined]
    ids[joined] = collective_ids(snapshot, graph.extra["event_id"][joined], code)[code]
    return {
        "critical_path": critical.rows(graph, start, end, steps, ids),
        "slack": slack.rows(graph, start, end, step),
        "replay_scores": scores.rows(scores.scores(graph, start, end, step)),
    }


def why_none(error: Exception) -> str:
    """The sentence that says why there are no rows."""
    said = str(error) if isinstance(error, RetimeError) else f"{type(error).__name__}: {error}"
    return f"replay_scores, critical_path and slack are empty: the job cannot be replayed: {said}"


def has_steps(snapshot: Any) -> bool:
    """Whether any rank has a step with a beginning and an end."""
    window = pl.col("end_ns") > pl.col("start_ns")
    return bool(len(load.read(snapshot.files, "steps", window, ("rank",))))
