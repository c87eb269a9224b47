"""A task graph with other edges, or with more tasks: what stays where it is, and what moves."""

from __future__ import annotations

from typing import Any

import numpy as np

from .graph import NULL, Kind, TaskGraph, build

COLUMNS = ("gap_ns", "dur_ns", "release_ns", "kind", "rank", "step", "op", "comm", "collective",
           "bytes", "start_ns", "end_ns")  # fmt: skip


def of(graph: TaskGraph) -> tuple[np.ndarray, np.ndarray]:
    """Edges src[i] -> dst[i], int64 [m] each."""
    return graph.pred, np.repeat(np.arange(graph.n), np.diff(graph.pred_ptr))


def origin(graph: TaskGraph) -> np.ndarray:
    """int64 [n]: the recorded task that each is or, if a policy added it, was made like."""
    own = graph.extra.get("origin")
    return np.arange(graph.n) if own is None else np.where(own < 0, ~own, own)


def place(graph: TaskGraph) -> np.ndarray:
    """int64 [recorded n]: where the recorded tasks are in a graph, which may have others too."""
    own = graph.extra.get("origin")
    if own is None:
        return np.arange(graph.n)
    kept = np.flatnonzero(own >= 0)
    at = np.empty(len(kept), np.int64)
    at[own[kept]] = kept
    return at


def replaced(graph: TaskGraph, src: np.ndarray, dst: np.ndarray) -> TaskGraph:
    """The same tasks in the same order with other edges; each must go to a later task.

    Raises ValueError for one that does not. Tasks that lose their last predecessor start when
    they were measured to, less their gap.
    """
    if (src >= dst).any():
        raise ValueError("an edge goes back in the order of tasks")
    order = np.lexsort((src, dst))
    src, dst = src[order], dst[order]
    keep = np.ones(len(src), bool)
    keep[1:] = (src[1:] != src[:-1]) | (dst[1:] != dst[:-1])
    src, dst = src[keep], dst[keep]
    ptr = np.searchsorted(dst, np.arange(graph.n + 1)).astype(np.int64)
    bare = (np.diff(ptr) == 0) & (np.diff(graph.pred_ptr) > 0) & (graph.start_ns != NULL)
    release = np.where(bare, graph.start_ns - graph.gap_ns, graph.release_ns)
    return graph.with_(pred_ptr=ptr, pred=src.astype(np.int64), release_ns=release)


class Added:
    """Tasks that a policy adds, each made like one that is there; numbered on from the graph's."""

    def __init__(self, graph: TaskGraph):
        self.graph = graph
        self.like: list[int] = []
        self.changes: list[dict[str, Any]] = []
        self.src: list[int] = []
        self.dst: list[int] = []

    def task(self, like: int, **columns: int) -> int:
        """The number of a new task: as `like`, but never measured, and with other columns."""
        self.like.append(like)
        self.changes.append(columns)
        return self.graph.n + len(self.like) - 1

    def edge(self, src: int, dst: int) -> None:
        """An edge between tasks, old or new."""
        self.src.append(src)
        self.dst.append(dst)


def extended(
    graph: TaskGraph, added: Added, src: np.ndarray, dst: np.ndarray
) -> tuple[TaskGraph, np.ndarray]:
    """The graph with further tasks, edges `src -> dst` and those of `added`; and where tasks went.

    The second is int64 [old and added]: the place of each in the new graph. Tasks that were there
    keep their order as far as the edges allow, and `origin` in `extra` says which of the recorded
    ones each is. Raises GraphCycle.
    """
    like = np.concatenate([np.arange(graph.n), np.asarray(added.like, np.int64)])
    columns = {name: getattr(graph, name)[like].copy() for name in COLUMNS}
    extra = {name: values[like].copy() for name, values in graph.extra.items()}
    new = slice(graph.n, None)
    columns["start_ns"][new] = columns["end_ns"][new] = NULL
    columns["gap_ns"][new] = 0
    for name in ("begins", "ends"):
        if name in extra:
            extra[name][new] = NULL
    # Of an added task the complement: it is none of the recorded ones, but made like one.
    extra["origin"] = origin(graph)[like]
    mine = graph.extra.get("origin")
    if mine is not None:
        extra["origin"][: graph.n] = mine
    extra["origin"][new] = ~extra["origin"][new]
    for i, changes in enumerate(added.changes):
        for name, value in changes.items():
            columns[name][graph.n + i] = value
    place = np.where(np.arange(len(like)) < graph.n, 2 * like, 2 * like - 1)
    # A join has the time of its last arrival only through its edges.
    place = np.where(columns["kind"] == Kind.JOIN, place + 1, place)
    made, order = build(
        len(like),
        np.concatenate([src, np.asarray(added.src, np.int64)]),
        np.concatenate([dst, np.asarray(added.dst, np.int64)]),
        order_ns=place,
        op_names=graph.op_names,
        comm_names=graph.comm_names,
        extra=extra,
        **columns,
    )
    at = np.empty(len(like), np.int64)
    at[order] = np.arange(len(like))
    return made, at
