"""Which task of a job under a policy is which task of the job without."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
import polars as pl

from ...replay.graph import NULL, Kind, TaskGraph

KEY = ("rank", "kind", "start_ns", "end_ns")
"""Columns of a graph by which a task that was measured is known again."""


class Pairs(NamedTuple):
    """The same tasks in two graphs, and those that only one has (joins are in neither)."""

    before: np.ndarray
    """int64 [k]: tasks of the first graph."""
    after: np.ndarray
    """int64 [k]: and what became of each."""
    gone: np.ndarray
    """int64: tasks of the first graph that the second has not."""
    new: np.ndarray
    """int64: tasks of the second graph that the first has not."""


def of(before: TaskGraph, after: TaskGraph) -> Pairs:
    """Tasks with the same measurement; of several alike on a rank the first is the first."""
    if before.n == after.n and all(
        np.array_equal(getattr(before, c), getattr(after, c)) for c in KEY
    ):
        same = np.flatnonzero(before.kind != Kind.JOIN)
        return Pairs(same, same, np.empty(0, np.int64), np.empty(0, np.int64))
    more = "event_id" in before.extra and "event_id" in after.extra
    rows = [_rows(graph, more) for graph in (before, after)]
    key = [c for c in rows[0].columns if c != "task"]
    both = rows[0].join(rows[1], on=key, suffix="_after").sort("task")
    found = both["task"].to_numpy(), both["task_after"].to_numpy()
    alone = (
        np.setdiff1d(np.flatnonzero(graph.kind != Kind.JOIN), known)
        for graph, known in zip((before, after), found, strict=True)
    )
    return Pairs(*found, *alone)


def _rows(graph: TaskGraph, more: bool) -> pl.DataFrame:
    task = np.flatnonzero((graph.kind != Kind.JOIN) & (graph.start_ns != NULL))
    columns = {c: getattr(graph, c)[task] for c in KEY}
    if more:
        columns["event_id"] = graph.extra["event_id"][task]
    rows = pl.DataFrame({"task": task, **columns})
    return rows.with_columns(k=pl.int_range(pl.len()).over(list(columns)))
