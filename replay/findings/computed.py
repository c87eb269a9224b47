"""The tables of the schema that only a replay can give, of one job."""

from __future__ import annotations

from typing import Any

import numpy as np
import polars as pl
import pyarrow as pa

from ...ingest.errors import RetimeError, UnusableInput
from .. import engine, load
from .. import steps as timing
from ..graph import Kind, TaskGraph
from . import critical, scores, slack
from .task_steps import task_steps


def tables(snapshot: Any) -> dict[str, pa.Table]:
    """`replay_scores`, `critical_path` and `slack` of a `Snapshot`, from one unchanged replay.

    Empty where the job has no steps. Raises UnusableInput where it cannot be replayed, or where
    ranks that wait for each other are on clocks that nothing ties together.
    """
    if not has_steps(snapshot):
        return {}
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


def check_clocks(rank: np.ndarray, collective: np.ndarray, ranks: pl.DataFrame) -> None:
    """Raises UnusableInput unless the ranks of each collective can be compared.

    As `_rank_clocks` has it in SQL: those that something ties to the job's clock can, and otherwise
    those of one host. `rank` (0 or more) and `collective` are those of each arrival, `ranks` the
    table.
    """
    word = pl.col("clock").cast(pl.String).fill_null("host")
    host = pl.col("host").cast(pl.String)
    own = (
        pl.when(host.is_null() | (word == "process"))
        .then(pl.format("rank {}", "rank"))
        .when(~word.is_in(["host", "recorded", "none"]))
        .then(pl.format("{} of host {}", word, host))
        .otherwise(pl.format("host {}", host))
    )
    clock = pl.when(pl.col("clock_error_ns").is_null()).then(own).otherwise(pl.lit("job"))
    known = ranks.select("rank", clock=clock.rank("dense").cast(pl.Int64)).unique("rank")
    n_ranks = int(rank.max(initial=-1)) + 1
    of_rank = -1 - np.arange(n_ranks)
    there = known.filter(pl.col("rank").is_between(0, n_ranks - 1))
    of_rank[there["rank"].to_numpy()] = there["clock"].to_numpy()
    _, instance = np.unique(collective, return_inverse=True)
    clocks = of_rank[rank]
    first = np.zeros(len(rank), np.int64)
    first[instance.reshape(-1)] = clocks
    if (first[instance.reshape(-1)] != clocks).any():
        raise UnusableInput(
            "ranks that meet in collectives are on clocks that nothing ties together: who came "
            "last, and so what set a step's time, is not known"
        )


def collective_ids(snapshot: Any, event_id: np.ndarray, code: np.ndarray) -> np.ndarray:
    """int64 [codes]: `collective_id` of the collective of each code, -1 for none.

    Tasks with a `code` (0 or more) know the events of their participations (-1: none); those of one
    collective share its id. Of several that a kernel carries the first counts, as in the graph.
    """
    rows = load.read(
        snapshot.files, "collectives", columns=("event_id", "collective_id", "start_ns")
    )
    rows = rows.drop_nulls(["event_id", "collective_id"]).sort("start_ns", "collective_id")
    rows = rows.unique("event_id", keep="first", maintain_order=True).sort("event_id")
    event, id = rows["event_id"].to_numpy(), rows["collective_id"].to_numpy()
    of_code = np.full(int(code.max(initial=-1)) + 1, -1, np.int64)
    if len(event):
        at = np.minimum(np.searchsorted(event, event_id), len(event) - 1)
        known = event[at] == event_id
        of_code[code[known]] = id[at[known]]
    return of_code
