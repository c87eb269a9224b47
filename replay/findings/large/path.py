"""The critical paths of a large job: walked back through one share after another."""

from __future__ import annotations

from collections.abc import Callable
from functools import lru_cache
from typing import NamedTuple

import numpy as np
import pyarrow as pa

from ....ingest.compiled import compiled
from ...graph import Kind, TaskGraph
from .. import critical
from ..critical import UNEXPLAINED, put
from .shares import Shares

HELD = 16
"""Shares that are held at a time: a path goes from rank to rank."""


class Marks(NamedTuple):
    """The marks of all shares, arrays [m]; share by share, in the order of tasks."""

    share: np.ndarray
    task: np.ndarray
    rank: np.ndarray
    begins: np.ndarray
    """The step that it begins, `NULL` for none."""
    ends: np.ndarray
    start_ns: np.ndarray
    """In the unchanged replay."""


class _Share(NamedTuple):
    graph: TaskGraph
    start: np.ndarray
    end: np.ndarray
    classes: np.ndarray
    is_join: np.ndarray


def rows(
    shares: Shares,
    replayed: Callable[[int], tuple[TaskGraph, np.ndarray, np.ndarray]],
    marks: Marks,
    steps: np.ndarray,
    arrive_end_ns: np.ndarray,
    ids: Callable[[np.ndarray], np.ndarray],
) -> pa.RecordBatch:
    """The table `critical_path`, as `critical.rows`.

    `replayed` gives a share's graph with its start and end (int64 [n], ns); `arrive_end_ns` int64
    [a] is when each of `shares.arrivals` ends; `ids` gives `collective_id` (-1: none) of joins (-1:
    none).
    """

    @lru_cache(HELD)
    def of(share: int) -> _Share:
        graph, start, end = replayed(share)
        into = np.append(np.diff(shares.arrivals.first) > 0, False)[graph.collective]
        is_join = (graph.kind == Kind.JOIN) & into
        return _Share(graph, start, end, critical.classes(graph), is_join)

    found = []
    for step in steps.tolist():
        share, task, since = _last(marks, step)
        now, back = None, []
        while True:
            its = of(share)
            now = int(its.end[task]) if now is None else now
            arrays = its.graph.gap_ns, its.graph.pred_ptr, its.graph.pred, its.start, its.end
            rest = its.classes, its.is_join, task, now, since
            n, at, until = _walk(*arrays, *rest, np.empty((0, 4), np.int64))
            pieces = np.empty((n, 4), np.int64)
            _walk(*arrays, *rest, pieces)
            back.append(_columns(its.graph, step, pieces))
            now = until
            if at < 0:
                break
            join = int(its.graph.collective[at])
            feeding = slice(*shares.arrivals.first[join : join + 2])
            arrived = shares.arrivals.rank[feeding], arrive_end_ns[feeding]
            one = feeding.start + critical.last_of(*arrived)
            share, task = int(shares.arrivals.share[one]), int(shares.arrivals.task[one])
        found += back[::-1]
    none = _columns(shares.graph(0), 0, np.empty((0, 4), np.int64))
    whole = {name: np.concatenate([f[name] for f in (none, *found)]) for name in none}
    whole["collective_id"] = ids(whole.pop("collective"))
    return critical.table(shares.op_names, whole)


def _last(marks: Marks, step: int) -> tuple[int, int, int]:
    """The mark at which a step ends, its share and task, and when the step begins on its rank."""
    of = np.flatnonzero(marks.ends == step)
    last = of[critical.last_of(marks.rank[of], marks.start_ns[of])]
    first = (marks.begins == step) & (marks.rank == marks.rank[last])
    since = int(marks.start_ns[first].min())
    return int(marks.share[last]), int(marks.task[last]), since


def _columns(graph: TaskGraph, step: int, pieces: np.ndarray) -> dict[str, np.ndarray]:
    """What the table asks of pieces (task, class, start, end; last to first), first to last."""
    task, kind, start, end = pieces[::-1].T
    return {
        "step": np.full(len(task), step), "class": kind, "start_ns": start, "end_ns": end,
        **critical.of_tasks(graph, task), "collective": graph.collective[task],
    }  # fmt: skip


@compiled
def _walk(
    gap, pred_ptr, pred, start, end, classes, is_join, task, now, since, out
):  # pragma: no cover - compiled
    """As `critical._walk`, but only to the first join that others arrive at.

    How many pieces, the join (-1: the walk is at its end) and the moment.
    """
    n = 0
    i = task
    while now > since:
        if is_join[i]:
            return n, i, now
        began = max(start[i], since)
        n = put(out, n, i, np.int64(classes[i]), began, now)
        now = began
        if now <= since:
            break
        a, b = pred_ptr[i], pred_ptr[i + 1]
        if a == b:
            n = put(out, n, i, UNEXPLAINED, since, now)
            break
        ready = max(now - gap[i], since)
        n = put(out, n, i, UNEXPLAINED, ready, now)
        now = ready
        i = pred[a]
        for e in range(a + 1, b):
            if end[pred[e]] > end[i]:
                i = pred[e]
    return n, -1, now
