"""How much later each task could end before a step of the job ends later."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import polars as pl
import pyarrow as pa

from ...ingest.compiled import compiled
from ...ingest.schema import SLACK
from ..graph import NULL, Kind, TaskGraph

UNBOUNDED = np.iinfo(np.int64).max
"""Slack of a task that no step's end waits for."""

SHOWN = (Kind.COMPUTE, Kind.COPY, Kind.HOST, Kind.ARRIVE, Kind.TRANSFER)
"""Kinds of tasks that are somebody's: joins are all ranks', the rest (marks) take no time."""


def slack(graph: TaskGraph, start: np.ndarray, end: np.ndarray) -> np.ndarray:
    """int64 [n], ns: how much later each task could end in a replay, all else as it is.

    No step then ends later: a step of a traced job ends at the last of the marks that end it on
    a rank, one of a recorded job with its last task. Never negative, 0 on the critical paths,
    `UNBOUNDED` where nothing that a step's end waits for comes after. The latest end of a task is
    the least, over those that wait for it, of their latest end less their duration and gap: one
    pass from the last task to the first.
    """
    return backward(graph, _ends(graph, start, end), end)


def backward(graph: TaskGraph, latest: np.ndarray, end: np.ndarray) -> np.ndarray:
    """`slack` from the latest ends that tasks are bound to themselves (int64 [n], ns; `UNBOUNDED`
    for none), which are overwritten."""
    _backward(graph.gap_ns, graph.dur_ns, graph.pred_ptr, graph.pred, UNBOUNDED, latest)
    return np.where(latest == UNBOUNDED, UNBOUNDED, latest - end)


def _ends(graph: TaskGraph, start: np.ndarray, end: np.ndarray) -> np.ndarray:
    """int64 [n]: the end of its step for each task that may end one, `UNBOUNDED` for others."""
    latest = np.full(graph.n, UNBOUNDED, np.int64)
    if "ends" in graph.extra:
        last = np.flatnonzero(graph.extra["ends"] != NULL)
        step, moment = graph.extra["ends"][last], start[last]
    else:
        last = np.flatnonzero(graph.step >= 0)
        step, moment = graph.step[last], end[last]
    if len(last):
        latest[last] = last_of(step, moment)
    return latest


def last_of(step: np.ndarray, moment: np.ndarray) -> np.ndarray:
    """int64 [m]: the last moment of each one's step."""
    _, index = np.unique(step, return_inverse=True)
    index = index.reshape(-1)
    over = np.full(int(index.max(initial=-1)) + 1, np.iinfo(np.int64).min)
    np.maximum.at(over, index, moment)
    return over[index]


@compiled
def _backward(gap, dur, pred_ptr, pred, unbounded, latest):  # pragma: no cover - compiled
    for i in range(len(dur) - 1, -1, -1):
        if latest[i] == unbounded:
            continue
        by = latest[i] - dur[i] - gap[i]
        for e in range(pred_ptr[i], pred_ptr[i + 1]):
            latest[pred[e]] = min(latest[pred[e]], by)


def rows(graph: TaskGraph, start: np.ndarray, end: np.ndarray, step: np.ndarray) -> pa.RecordBatch:
    """The table `slack`: the tasks of one name on a rank in a step together.

    `step` int64 [n] is each task's, negative for none; tasks without one, and those that no
    step's end waits for, are left out.
    """
    return table(by_name(graph, slack(graph, start, end), step), graph.op_names)


def by_name(graph: TaskGraph, later: np.ndarray, step: np.ndarray) -> pl.DataFrame:
    """Rows of `table` from the `slack` of each task (int64 [n], ns), in no order."""
    kept = np.flatnonzero((later != UNBOUNDED) & (step >= 0) & np.isin(graph.kind, SHOWN))
    # Of several with the least slack the one that began first is shown.
    kept = kept[np.argsort(graph.start_ns[kept], kind="stable")]
    event = graph.extra.get("event_id", np.full(graph.n, -1))
    tasks = pl.DataFrame(
        {
            "step": step[kept],
            "rank": graph.rank[kept],
            "kind": graph.kind[kept],
            "op": graph.op[kept],
            "dur_ns": graph.dur_ns[kept],
            "slack_ns": later[kept],
            "event_id": event[kept],
        }
    )
    return (
        tasks.group_by("step", "rank", "kind", "op")
        .agg(
            pl.len().cast(pl.Int64).alias("tasks"),
            pl.col("dur_ns").sum(),
            pl.col("slack_ns").min(),
            pl.col("slack_ns").median().floor().cast(pl.Int64).alias("median_slack_ns"),
            (pl.col("slack_ns") == 0).sum().cast(pl.Int64).alias("critical"),
            pl.col("event_id").get(pl.col("slack_ns").arg_min()),
        )
    )  # fmt: skip


def table(rows: pl.DataFrame, op_names: Sequence[str]) -> pa.RecordBatch:
    """The table `slack` of the rows of `by_name`, in order."""
    names = pl.Series([*op_names, None], dtype=pl.String)
    named = rows.with_columns(name=names.gather(rows["op"].to_numpy() % len(names)))
    named = named.drop("op").sort("step", "rank", "slack_ns", "kind", "name")
    out = {name: named[name].to_numpy() for name in named.columns}
    kind, event_id = out.pop("kind"), out.pop("event_id")
    return SLACK.batch(
        {
            **out,
            "kind": np.array([k.name.lower() for k in Kind], object)[kind],
            "event_id": pa.array(event_id, mask=event_id < 0),
        }
    )
