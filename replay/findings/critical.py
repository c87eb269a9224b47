"""The critical path of each step, and what it is made of: what a faithful replay rests on.

From the end of a step back to its beginning, always to the predecessor that ended last. The path
covers the whole step, so what each kind of time has of it are shares of the step. Measured gaps
that no recorded dependency explains make any graph replay its own measurement; their share says
how much of the step the replay takes over without knowing why.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import NamedTuple

import numpy as np
import pyarrow as pa

from ...ingest.compiled import compiled
from ...ingest.schema import CRITICAL_PATH
from ...ingest.tasks.host import GAP
from ..graph import NULL, Kind, TaskGraph

CLASSES = ("work", "host", "transfer", "unexplained")
WORK, HOST, TRANSFER, UNEXPLAINED = range(4)


class CriticalPath(NamedTuple):
    """Shares of the steps' critical paths, from 0 to 1; they add up to 1 (0 without a path)."""

    work_share: float
    """Measured work: kernels, copies, named host operations."""
    host_share: float
    """Host time between calls."""
    transfer_share: float
    """Communication, from the moment the last participant had arrived."""
    unexplained_share: float
    """Gaps behind the last predecessor, kept as measured."""


class Pieces(NamedTuple):
    """Pieces of critical paths, int64 [p] each: steps in the order given, each first to last."""

    step: np.ndarray
    task: np.ndarray
    """Whose time it is; of an unexplained piece the task that it comes before."""
    kind: np.ndarray
    """Place in `CLASSES`."""
    start_ns: np.ndarray
    end_ns: np.ndarray


def critical_path(
    graph: TaskGraph, start: np.ndarray, end: np.ndarray, steps: np.ndarray
) -> CriticalPath:
    """What the critical paths of these steps are made of in a replay (start, end int64 [n], ns).

    See `pieces`.
    """
    found = pieces(graph, start, end, steps)
    total = np.bincount(found.kind, found.end_ns - found.start_ns, len(CLASSES))
    return CriticalPath(*(total / max(int(total.sum()), 1)).tolist())


def pieces(graph: TaskGraph, start: np.ndarray, end: np.ndarray, steps: np.ndarray) -> Pieces:
    """The critical paths of these steps in a replay (start, end int64 [n], ns), piece by piece.

    A traced job's step is that of the rank on which it ends last, between its marks; a recorded
    job's lasts from its first start to its last end. Pieces of a step follow each other without
    a gap and add up to it; none has no length. Time before a task without predecessors counts as
    unexplained.
    """
    of = classes(graph)
    walked = []
    for step, (task, since) in zip(steps, _windows(graph, start, end, steps), strict=True):
        rank = graph.rank, graph.kind == Kind.JOIN
        arrays = graph.gap_ns, graph.pred_ptr, graph.pred, start, end, of, *rank, task, since
        pieces = np.empty((_walk(*arrays, np.empty((0, 4), np.int64)), 4), np.int64)
        _walk(*arrays, pieces)
        found = np.insert(pieces, 0, step, axis=1)
        walked.append(found[::-1])
    return Pieces(*np.concatenate([np.empty((0, 5), np.int64), *walked]).T)


def rows(
    graph: TaskGraph,
    start: np.ndarray,
    end: np.ndarray,
    steps: np.ndarray,
    collective_id: np.ndarray,
) -> pa.RecordBatch:
    """The table `critical_path`: `pieces`, and what the task of each is.

    `collective_id` int64 [n] is that of `collectives` for each task, negative for none.
    """
    found = pieces(graph, start, end, steps)
    return table(
        graph.op_names,
        {
            "step": found.step,
            "class": found.kind,
            "start_ns": found.start_ns,
            "end_ns": found.end_ns,
            **of_tasks(graph, found.task),
            "collective_id": collective_id[found.task],
        },
    )


def of_tasks(graph: TaskGraph, task: np.ndarray) -> dict[str, np.ndarray]:
    """What the table asks of the tasks of a path's pieces."""
    event = graph.extra.get("event_id", np.full(graph.n, -1))
    columns = {"rank": graph.rank, "kind": graph.kind, "op": graph.op, "event_id": event}
    return {name: column[task] for name, column in columns.items()}


def table(op_names: Sequence[str], pieces: Mapping[str, np.ndarray]) -> pa.RecordBatch:
    """The table `critical_path` of pieces, step by step: columns with codes for texts, and -1 for
    what there is none of."""
    _, first, index = np.unique(pieces["step"], return_index=True, return_inverse=True)
    kinds = np.array([k.name.lower() for k in Kind], object)
    names = np.array([*op_names, None], object)
    return CRITICAL_PATH.batch(
        {
            "step": pieces["step"],
            "position": np.arange(len(pieces["step"])) - first[index.reshape(-1)],
            "rank": _known(pieces["rank"]),
            "class": np.array(CLASSES, object)[pieces["class"]],
            "kind": kinds[pieces["kind"]],
            "name": names[pieces["op"]],
            "event_id": _known(pieces["event_id"]),
            "collective_id": _known(pieces["collective_id"]),
            "start_ns": pieces["start_ns"],
            "end_ns": pieces["end_ns"],
            "dur_ns": pieces["end_ns"] - pieces["start_ns"],
        }
    )


def _known(values: np.ndarray) -> pa.Array:
    return pa.array(values, mask=values < 0)


def classes(graph: TaskGraph) -> np.ndarray:
    """int8 [n]: what the duration of each task counts as."""
    out = np.full(graph.n, WORK, np.int8)
    out[np.isin(graph.kind, (Kind.TRANSFER, Kind.OTHER))] = TRANSFER
    out[(graph.kind == Kind.HOST) & graph.ops(GAP)] = HOST
    return out


def _windows(
    graph: TaskGraph, start: np.ndarray, end: np.ndarray, steps: np.ndarray
) -> list[tuple[int, int]]:
    """For each step the task at its end, and the moment it begins."""
    out = []
    if "begins" not in graph.extra:
        for step in steps:
            inside = np.flatnonzero(graph.step == step)
            out.append((int(inside[np.argmax(end[inside])]), int(start[inside].min())))
        return out
    begins, ends = graph.extra["begins"], graph.extra["ends"]
    opens, closes = np.flatnonzero(begins != NULL), np.flatnonzero(ends != NULL)
    for step in steps:
        of = closes[ends[closes] == step]
        last = int(of[last_of(graph.rank[of], start[of])])
        first = opens[(begins[opens] == step) & (graph.rank[opens] == graph.rank[last])]
        out.append((last, int(start[first].min())))
    return out


def last_of(rank: np.ndarray, at_ns: np.ndarray) -> int:
    """Which row comes last; of several that come together that of the lowest rank."""
    return int(np.lexsort((rank, -at_ns))[0])


@compiled
def put(out, n, task, kind, since, until):  # pragma: no cover - compiled
    if since >= until:
        return n
    if len(out):
        out[n, 0] = task
        out[n, 1] = kind
        out[n, 2] = since
        out[n, 3] = until
    return n + 1


@compiled
def _walk(
    gap, pred_ptr, pred, start, end, classes, rank, is_join, task, since, out
):  # pragma: no cover - compiled
    """Pieces, last to first, as rows (task, class, start, end) of `out`; how many there are.

    Of ranks that arrive at a join together the lowest counts as the last.

    With an `out` of no rows they are only counted.
    """
    n = 0
    i, now = task, end[task]
    while now > since:
        began = max(start[i], since)
        n = put(out, n, i, np.int64(classes[i]), began, now)
        now = began
        if now <= since:
            break
        a, b = pred_ptr[i], pred_ptr[i + 1]
        if a == b:
            # Nothing led to it: the rest of the step is not explained either.
            n = put(out, n, i, UNEXPLAINED, since, now)
            break
        ready = max(now - gap[i], since)
        n = put(out, n, i, UNEXPLAINED, ready, now)
        now = ready
        meets = is_join[i]
        i = pred[a]
        for e in range(a + 1, b):
            p = pred[e]
            if end[p] > end[i] or (meets and end[p] == end[i] and rank[p] < rank[i]):
                i = p
    return n
