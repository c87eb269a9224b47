"""How long each step of a job took in a replay, and which tasks are of it."""

from __future__ import annotations

import numpy as np

from ..ingest.tasks.codes import distinct
from .engine import step_spans
from .graph import NULL, Kind, TaskGraph


def step_times(
    graph: TaskGraph, start: np.ndarray, end: np.ndarray
) -> tuple[np.ndarray, np.ndarray]:
    """Steps (sorted, int64 [s]) and the time each took (float64 [s], ns).

    Where the graph has marks (traced jobs: `begins` and `ends` in `extra`), a step on a rank
    lasts from the mark that begins it to the one that ends it (where the next step's work
    begins), and the job's step is the mean over ranks: the iteration time that a training loop
    prints. Else (recorded operations) it is the last end less the first start.
    """
    if "begins" not in graph.extra:
        steps, spans = step_spans(graph, start, end)
        return steps, spans.astype(np.float64)
    marks = Marks.of(graph)
    return marks.steps, marks.times(start[marks.tasks])


class Marks:
    """The marks of a traced job's graph, for many replays of it."""

    @classmethod
    def of(cls, graph: TaskGraph) -> Marks:
        """Those of a graph."""
        return cls(graph.rank, graph.extra["begins"], graph.extra["ends"])

    def __init__(self, rank: np.ndarray, begins: np.ndarray, ends: np.ndarray):
        """From the rank of each task and the steps that it begins and ends (`NULL`: none)."""
        opens, closes = np.flatnonzero(begins != NULL), np.flatnonzero(ends != NULL)
        opens = opens[np.lexsort((rank[opens], begins[opens]))]
        closes = closes[np.lexsort((rank[closes], ends[closes]))]
        self.steps, self._index = np.unique(begins[opens], return_inverse=True)
        """Steps, sorted, int64 [s]."""
        self.tasks, place = distinct(np.concatenate([opens, closes]))
        """The marks, sorted, int64 [k]."""
        self._opens, self._closes = place[: len(opens)], place[len(opens) :]

    def times(self, start: np.ndarray) -> np.ndarray:
        """float64 [s], ns: what each step takes where its marks start so (int64 [k])."""
        took = (start[self._closes] - start[self._opens]).astype(np.float64)
        return np.bincount(self._index, took) / np.bincount(self._index)


def within(graph: TaskGraph, step: int) -> np.ndarray:
    """bool [n]: tasks of a step; between its marks on their rank, by measured start, if it has any.

    Where there are marks the host runs ahead of the device, so that a task's own step says which
    work it is for, not when it ran.
    """
    if "begins" not in graph.extra:
        return graph.step == step
    n_ranks = int(graph.rank.max(initial=-1)) + 1
    first = np.full(n_ranks + 1, np.iinfo(np.int64).max)
    last = np.full(n_ranks + 1, np.iinfo(np.int64).min)
    opens = np.flatnonzero(graph.extra["begins"] == step)
    closes = np.flatnonzero(graph.extra["ends"] == step)
    first[graph.rank[opens]] = graph.start_ns[opens]
    last[graph.rank[closes]] = graph.start_ns[closes]
    return (graph.start_ns >= first[graph.rank]) & (graph.start_ns < last[graph.rank])


def of_steps(graph: TaskGraph, wanted: np.ndarray) -> np.ndarray:
    """bool [n]: tasks whose own step is one of those wanted."""
    numbers, place = graph.steps
    there = np.append(np.isin(numbers, wanted), False)
    return there[place]


def measured(graph: TaskGraph) -> tuple[np.ndarray, np.ndarray]:
    """`step_times` of the measurement itself."""
    if "begins" in graph.extra:
        return step_times(graph, graph.start_ns, graph.end_ns)
    known = graph.start_ns != NULL
    if known.all():
        return step_times(graph, graph.start_ns, graph.end_ns)
    return step_times(
        graph.with_(step=np.where(known, graph.step, -1)), graph.start_ns, graph.end_ns
    )


def participations(graph: TaskGraph) -> tuple[np.ndarray, np.ndarray]:
    """The arrive and the transfer task of each participation, int64 [p] each."""
    pairs = []
    for kind in (Kind.ARRIVE, Kind.TRANSFER):
        tasks = np.flatnonzero(graph.kind == kind)
        event = graph.extra.get("event_id", graph.start_ns)[tasks]
        pairs.append(tasks[np.lexsort((event, graph.rank[tasks], graph.collective[tasks]))])
    return pairs[0], pairs[1]
