"""The task graph of a job: arrays of tasks in topological order, and what builds them."""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import TYPE_CHECKING, Any

import numpy as np

from ..ingest.compiled import compiled
from ..ingest.errors import UnusableInput
from ..ingest.tasks.codes import distinct
from ..ingest.tasks.kinds import NULL, Kind
from ..ingest.tasks.sorting import grown, pop, push, sort

if TYPE_CHECKING:
    import polars as pl

    from .arrivals import Chains


class GraphCycle(UnusableInput):
    """The edges go round in a circle; `tasks` are the indices (as given) along one circle."""

    def __init__(self, tasks: list[int], labels: list[str]):
        self.tasks = tasks
        shown = " -> ".join(x[:60] for x in labels[:8]) + (" -> ..." if len(labels) > 8 else "")
        super().__init__(
            f"task graph has a cycle of {len(tasks)} tasks: {shown}; "
            "clocks or matching put an effect before its cause: check the `problems` of the job"
        )


@dataclass(frozen=True)
class TaskGraph:
    """n tasks in topological order, m edges in CSR form by predecessor.

    Every array has shape [n] but `pred_ptr` [n+1] and `pred` [m] (predecessor index < own index).
    `op` and `comm` are codes into `op_names` and `comm_names` (-1: none); `collective` numbers
    the instance of a participation (-1: none); `rank` of a join is -1. `extra` holds further
    columns of shape [n] that one source knows (stage, dp_rank, event_id, ...).
    """

    gap_ns: np.ndarray
    """int64: delay between the end of the last predecessor and the start (host, launch)."""
    dur_ns: np.ndarray
    """int64: duration, >= 0."""
    pred_ptr: np.ndarray
    pred: np.ndarray
    release_ns: np.ndarray
    """int64: moment from which a task without predecessors may start (`gap_ns` comes on top)."""
    kind: np.ndarray
    """int8: a `Kind`."""
    rank: np.ndarray
    step: np.ndarray
    op: np.ndarray
    comm: np.ndarray
    collective: np.ndarray
    bytes: np.ndarray
    start_ns: np.ndarray
    """int64: measured start in the job's clock, `NULL` where there is none."""
    end_ns: np.ndarray
    """int64: measured end in the job's clock, `NULL` where there is none."""
    op_names: tuple[str, ...] = ()
    comm_names: tuple[str, ...] = ()
    extra: dict[str, np.ndarray] = field(default_factory=dict)

    @property
    def n(self) -> int:
        """Number of tasks."""
        return len(self.dur_ns)

    @cached_property
    def chains(self) -> Chains:
        """What walks back from arrivals need, for all estimates that begin with this graph."""
        from .arrivals import Chains

        return Chains(self)

    @cached_property
    def instances(self) -> pl.DataFrame:
        """`calibrate.instances`: the matched collectives, for all policies of this graph."""
        from .calibration.calibrate import instances

        return instances(self)

    @cached_property
    def steps(self) -> tuple[np.ndarray, np.ndarray]:
        """Steps (sorted, int64 [s], none below 0), and the place of each task's own (-1: none)."""
        known = self.step >= 0
        steps, place = distinct(self.step[known])
        index = np.full(self.n, -1, np.int64)
        index[known] = place
        return steps, index

    @cached_property
    def shared(self) -> dict[str, Any]:
        """What replays of the same tasks have in common, whatever their times: by who made it."""
        return {}

    def with_(self, **arrays) -> TaskGraph:
        """A copy with some fields replaced; the rest is shared, so never written to."""
        made = replace(self, **arrays)
        if "step" not in arrays and "steps" in self.__dict__:
            made.__dict__["steps"] = self.__dict__["steps"]
        same_events = made.extra.get("event_id") is self.extra.get("event_id")
        if same_events and not arrays.keys() & _TASKS:
            made.__dict__["shared"] = self.shared
        return made

    def is_(self, *kinds: Kind) -> np.ndarray:
        """bool [n]: tasks of one of `kinds`."""
        chosen = np.zeros(max(Kind) + 1, bool)
        chosen[list(kinds)] = True
        return chosen[self.kind]

    def ops(self, *names: str) -> np.ndarray:
        """bool [n]: tasks whose op is one of `names`."""
        codes = [i for i, name in enumerate(self.op_names) if name in names]
        return np.isin(self.op, codes)


_TASKS = {"kind", "rank", "step", "collective", "start_ns"}
"""Fields that what is `shared` depends on, with the events of tasks."""

_DEFAULTS: dict[str, tuple[type, int]] = {
    "gap_ns": (np.int64, 0),
    "dur_ns": (np.int64, 0),
    "release_ns": (np.int64, 0),
    "kind": (np.int8, int(Kind.OTHER)),
    "rank": (np.int32, -1),
    "step": (np.int64, -1),
    "op": (np.int32, -1),
    "comm": (np.int32, -1),
    "collective": (np.int64, -1),
    "bytes": (np.int64, 0),
    "start_ns": (np.int64, int(NULL)),
    "end_ns": (np.int64, int(NULL)),
}


def build(
    n: int,
    src: np.ndarray,
    dst: np.ndarray,
    *,
    order_ns: np.ndarray | None = None,
    op_names: tuple[str, ...] = (),
    comm_names: tuple[str, ...] = (),
    extra: dict[str, np.ndarray] | None = None,
    **columns: np.ndarray | None,
) -> tuple[TaskGraph, np.ndarray]:
    """A TaskGraph from tasks in any order and edges `src[i] -> dst[i]`; and the order taken.

    `columns` are fields of TaskGraph of shape [n] (left out: their neutral value). Among tasks
    that are free to go, the one with the smallest `order_ns` (default `start_ns`, unmeasured
    ones first) is placed first, then the smallest index: the result does not depend on the order
    of the edges. Equal edges count once. `order[i]` is the given index of task i of the graph.
    Raises GraphCycle, and ValueError for a column of another length or a negative time.
    """
    cols: dict[str, np.ndarray] = {}
    constant = set()
    for name, (dtype, neutral) in _DEFAULTS.items():
        given = columns.pop(name, None)
        if given is None:
            constant.add(name)
        col = np.full(n, neutral, dtype) if given is None else np.asarray(given).astype(dtype)
        if col.shape != (n,):
            raise ValueError(f"column {name} has shape {col.shape}, expected ({n},)")
        cols[name] = col
    if columns:
        raise ValueError(f"a task graph has no column {sorted(columns)}")
    for name in ("gap_ns", "dur_ns"):
        if n and cols[name].min() < 0:
            at = int(cols[name].argmin())
            raise ValueError(f"task {at}: {name} is {cols[name][at]}, expected >= 0")
    src = np.asarray(src, np.int64)
    dst = np.asarray(dst, np.int64)
    if len(src) and (min(src.min(), dst.min()) < 0 or max(src.max(), dst.max()) >= n):
        raise ValueError("an edge names a task that is not there")
    key = cols["start_ns"] if order_ns is None else np.asarray(order_ns, np.int64)
    priority = np.empty(n, np.int64)
    priority[np.argsort(key, kind="stable")] = np.arange(n)

    succ_ptr, succ = lists(n, src, dst)
    order = topological_order(succ_ptr, succ, priority)
    if len(order) < n:
        tasks = a_cycle(n, np.repeat(np.arange(n), np.diff(succ_ptr)), succ, order)
        raise GraphCycle(tasks, [label(cols, op_names, t) for t in tasks])

    place = np.empty(n, np.int64)
    place[order] = np.arange(n)
    pred_ptr, pred = lists(n, place[dst], place[src])
    graph = TaskGraph(
        pred_ptr=pred_ptr,
        pred=pred,
        op_names=tuple(op_names),
        comm_names=tuple(comm_names),
        extra={k: np.asarray(v)[order] for k, v in (extra or {}).items()},
        **{name: col if name in constant else col[order] for name, col in cols.items()},
    )
    return graph, order


def topological_order(succ_ptr: np.ndarray, succ: np.ndarray, priority: np.ndarray) -> np.ndarray:
    """Kahn's order of n tasks; among free tasks the smallest priority goes first.

    `succ_ptr` int64 [n+1] and `succ` int64 [m] are the successors in CSR form, `priority` a
    permutation of 0..n-1. Returns int64 [k]; k < n where a cycle keeps tasks from being placed.
    """
    return _kahn(succ_ptr, succ, priority)


@compiled
def lists(n, of, other):  # pragma: no cover - compiled
    """Edges in CSR form by `of`: where each task's begin (int64 [n + 1]), and their `other` ends,
    sorted, each once (int64)."""
    first = np.zeros(n + 1, np.int64)
    for t in of:
        first[t + 1] += 1
    for t in range(n):
        first[t + 1] += first[t]
    at = first[:-1].copy()
    ends = np.empty(len(of), np.int64)
    for e in range(len(of)):
        ends[at[of[e]]] = other[e]
        at[of[e]] += 1
    kept = 0
    for t in range(n):
        a, b = first[t], first[t + 1]
        first[t] = kept
        if b - a > 16:
            sort(ends, a, b)
        else:
            for i in range(a + 1, b):
                value, j = ends[i], i
                while j > a and ends[j - 1] > value:
                    ends[j] = ends[j - 1]
                    j -= 1
                ends[j] = value
        for i in range(a, b):
            if i == a or ends[i] != ends[kept - 1]:
                ends[kept] = ends[i]
                kept += 1
    first[n] = kept
    return first, grown(ends, kept)


@compiled
def _kahn(succ_ptr, succ, priority):  # pragma: no cover - compiled
    n = len(priority)
    waiting = np.zeros(n, np.int64)
    for j in succ:
        waiting[j] += 1
    task_of = np.empty(n, np.int64)
    for i in range(n):
        task_of[priority[i]] = i
    # A binary heap of priorities: the free tasks.
    heap = np.empty(n, np.int64)
    size = 0
    for p in range(n):
        if waiting[task_of[p]] == 0:
            heap[size] = p  # appended in rising order: already a heap
            size += 1
    order = np.empty(n, np.int64)
    placed = 0
    while size > 0:
        i = task_of[pop(heap, size)]
        size -= 1
        order[placed] = i
        placed += 1
        for e in range(succ_ptr[i], succ_ptr[i + 1]):
            j = succ[e]
            waiting[j] -= 1
            if waiting[j] == 0:
                push(heap, size, priority[j])
                size += 1
    return order[:placed]


def a_cycle(n: int, src: np.ndarray, dst: np.ndarray, placed: np.ndarray) -> list[int]:
    """One cycle among the tasks that could not be placed, in the direction of its edges."""
    stuck = np.ones(n, bool)
    stuck[placed] = False
    inside = stuck[src] & stuck[dst]
    # Every stuck task has a stuck predecessor, so walking back must meet itself.
    back = dict(zip(dst[inside].tolist(), src[inside].tolist(), strict=True))
    seen: dict[int, int] = {}
    walk: list[int] = []
    at = next(iter(back))
    while at not in seen:
        seen[at] = len(walk)
        walk.append(at)
        at = back[at]
    return walk[seen[at] :][::-1]


def label(cols: dict[str, np.ndarray], op_names: tuple[str, ...], task: int) -> str:
    code = int(cols["op"][task])
    name = op_names[code] if 0 <= code < len(op_names) else Kind(int(cols["kind"][task])).name
    return f"{name} (rank {int(cols['rank'][task])}, step {int(cols['step'][task])})"
