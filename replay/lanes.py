"""What-ifs that differ by groups of tasks, eight at once: one walk of the graph serves them all."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from ..ingest.compiled import compiled
from . import steps, sweep
from .graph import TaskGraph

LANES = 8
"""What-ifs of a walk: their ends lie side by side in memory, so that the processor takes several
with one instruction, and each edge is read once for all of them."""


def step_times(
    graph: TaskGraph, other_ns: np.ndarray, what_ifs: Sequence[tuple[np.ndarray, int]]
) -> np.ndarray:
    """Steps' times, float64 [k, s] in ns, where some tasks keep their durations and others do not.

    A what-if is the group of each task (integers, [n]) and the one group that keeps the graph's
    durations while the rest take `other_ns` (int64 [n]). Gaps are the graph's. Times are those of
    `steps.step_times`, in its order of steps. On all cores.
    """
    own, other = (np.ascontiguousarray(x, np.int64) for x in (graph.dur_ns, other_ns))
    gap, edges = graph.gap_ns, (graph.pred_ptr, graph.pred, graph.release_ns)
    numbers, index = graph.steps
    marks = "begins" in graph.extra
    # Ends are kept until no later task needs them: few tasks on, so that they stay in the cache.
    # A mark's are read once all is walked, wherever it is.
    kept = 1 << (graph.n if marks else reach(graph)).bit_length()
    walks = range(0, len(what_ifs), LANES)
    workers = min(sweep.cores(), len(walks))

    def walked(worker: int) -> list[np.ndarray]:
        # Written anew by each walk: fresh memory costs as much as the walk itself.
        end, keeps = np.empty((kept, LANES), np.int64), np.empty(graph.n, np.uint8)
        times = []
        for first in walks[worker::workers]:
            some = what_ifs[first : first + LANES]
            keeps[:] = 0
            for k, (group, own_group) in enumerate(some):
                _keep(group, own_group, np.uint8(1 << k), keeps)
            spans = _walk(gap, own, other, keeps, *edges, index, len(numbers), end)
            if marks:
                spans = [
                    _marked(graph, end[: graph.n, k], keeps >> k & 1, other)
                    for k in range(len(some))
                ]
            times.append(np.asarray(spans[: len(some)], np.float64))
        return times

    by_worker = sweep.over(walked, range(workers), tasks=graph.n)
    return np.concatenate([by_worker[w % workers][w // workers] for w in range(len(walks))])


def one_rank_other(
    graph: TaskGraph, other_dur_ns: np.ndarray, other_gap_ns: np.ndarray, ranks: np.ndarray
) -> np.ndarray:
    """Steps' times, float64 [r, s] in ns: each with one of `ranks` (int64 [r]) as in the others.

    That rank's tasks take `other_dur_ns` after `other_gap_ns` (int64 [n]), all else the graph's.
    Times are those of `steps.step_times`, in its order of steps. On all cores.
    """
    own = graph.gap_ns, graph.dur_ns, other_gap_ns, other_dur_ns
    edges = graph.rank, graph.pred_ptr, graph.pred, graph.release_ns
    numbers, index = graph.steps
    marks = steps.Marks.of(graph) if "begins" in graph.extra else None
    mark = np.full(graph.n if marks else 0, -1, np.int32)
    if marks is not None:
        mark[marks.tasks] = np.arange(len(marks.tasks))
    kept = 1 << reach(graph).bit_length()
    n_ranks = int(graph.rank.max(initial=-1)) + 1
    walks = range(0, len(ranks), LANES)
    workers = min(sweep.cores(), len(walks))

    def walked(worker: int) -> list[np.ndarray]:
        end, times = np.empty((kept, LANES), np.int64), []
        starts = np.empty((0 if marks is None else len(marks.tasks), LANES), np.int64)
        for first in walks[worker::workers]:
            some = ranks[first : first + LANES]
            # The last place is that of tasks of no rank.
            lane = np.full(n_ranks + 1, -1, np.int64)
            lane[some] = np.arange(len(some))
            spans = _walk_ranks(*own, *edges, lane, index, len(numbers), mark, starts, end)
            if marks is not None:
                spans = [marks.times(starts[:, k]) for k in range(len(some))]
            times.append(np.asarray(spans[: len(some)], np.float64))
        return times

    by_worker = sweep.over(walked, range(workers), tasks=graph.n)
    return np.concatenate([by_worker[w % workers][w // workers] for w in range(len(walks))])


def reach(graph: TaskGraph) -> int:
    """How many places before a task its farthest predecessor is, of any task."""
    known = graph.shared.get("reach")
    if known is None or known[0] is not graph.pred:
        known = graph.shared["reach"] = graph.pred, _reach(graph.pred_ptr, graph.pred)
    return known[1]


def _marked(graph: TaskGraph, ends: np.ndarray, own: np.ndarray, other: np.ndarray) -> np.ndarray:
    """`steps.step_times` of a traced job's what-if, whose steps lie between marks."""
    ends = np.ascontiguousarray(ends)
    return steps.step_times(graph, ends - np.where(own == 1, graph.dur_ns, other), ends)[1]


@compiled
def _keep(group, own_group, bit, keeps):  # pragma: no cover - compiled
    for i in range(len(group)):
        keeps[i] |= bit if group[i] == own_group else np.uint8(0)


@compiled
def _reach(pred_ptr, pred):  # pragma: no cover - compiled
    most = 0
    for i in range(len(pred_ptr) - 1):
        for e in range(pred_ptr[i], pred_ptr[i + 1]):
            most = max(most, i - pred[e])
    return most


@compiled
def _walk(
    gap, own, other, keeps, pred_ptr, pred, release, index, n_steps, end
):  # pragma: no cover - compiled
    """Last end less first start of each step, int64 [LANES, steps].

    Lane k takes a task's own time where bit k of `keeps` is set. `end` (int64 [w, LANES], w a
    power of 2 above `reach`) has the ends of the last w tasks, that of task i in row i modulo w.
    """
    least = np.full((n_steps, LANES), np.iinfo(np.int64).max)
    most = np.full((n_steps, LANES), np.iinfo(np.int64).min)
    ring = len(end) - 1
    for i in range(len(own)):
        a, b = pred_ptr[i], pred_ptr[i + 1]
        at = i & ring
        if a == b:
            for k in range(LANES):
                end[at, k] = release[i]
        else:
            j = pred[a] & ring
            for k in range(LANES):
                end[at, k] = end[j, k]
            for e in range(a + 1, b):
                j = pred[e] & ring
                for k in range(LANES):
                    end[at, k] = max(end[at, k], end[j, k])
        takes, more, kept, s = other[i], own[i] - other[i], np.int64(keeps[i]), index[i]
        if s < 0:
            for k in range(LANES):
                end[at, k] += gap[i] + takes + more * ((kept >> k) & 1)
            continue
        for k in range(LANES):
            start = end[at, k] + gap[i]
            least[s, k] = min(least[s, k], start)
            end[at, k] = start + takes + more * ((kept >> k) & 1)
            most[s, k] = max(most[s, k], end[at, k])
    out = np.empty((LANES, n_steps), np.int64)
    for s in range(n_steps):
        for k in range(LANES):
            out[k, s] = most[s, k] - least[s, k]
    return out


@compiled
def _walk_ranks(
    gap, dur, other_gap, other_dur, rank, pred_ptr, pred, release, lane, index, n_steps, mark,
    starts, end,
):  # fmt: skip  # pragma: no cover - compiled
    """As `_walk`, but lane k takes the other times for the tasks of the rank whose `lane` is k.

    Starts of tasks with a `mark` go to its row of `starts` ([marks, LANES]).
    """
    least = np.full((n_steps, LANES), np.iinfo(np.int64).max)
    most = np.full((n_steps, LANES), np.iinfo(np.int64).min)
    ring = len(end) - 1
    start = np.empty(LANES, np.int64)
    for i in range(len(dur)):
        a, b = pred_ptr[i], pred_ptr[i + 1]
        at = i & ring
        if a == b:
            for k in range(LANES):
                start[k] = release[i]
        else:
            j = pred[a] & ring
            for k in range(LANES):
                start[k] = end[j, k]
            for e in range(a + 1, b):
                j = pred[e] & ring
                for k in range(LANES):
                    start[k] = max(start[k], end[j, k])
        other = lane[rank[i]]
        late, took = gap[i], dur[i]
        for k in range(LANES):
            start[k] += late
        if other >= 0:
            start[other] += other_gap[i] - late
        for k in range(LANES):
            end[at, k] = start[k] + took
        if other >= 0:
            end[at, other] += other_dur[i] - took
        if len(mark):
            if mark[i] >= 0:
                for k in range(LANES):
                    starts[mark[i], k] = start[k]
            continue
        s = index[i]
        if s >= 0:
            for k in range(LANES):
                least[s, k] = min(least[s, k], start[k])
                most[s, k] = max(most[s, k], end[at, k])
    out = np.empty((LANES, n_steps), np.int64)
    for s in range(n_steps):
        for k in range(LANES):
            out[k, s] = most[s, k] - least[s, k]
    return out
