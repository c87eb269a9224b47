"""A task graph while it is put together: blocks of tasks, edges, and what to say about it."""

from __future__ import annotations

import numpy as np
import polars as pl

from ..graph import NULL, GraphCycle, Kind, TaskGraph
from ..graph import build as build_graph
from .residual import fill

COLUMNS = {
    "kind": int(Kind.OTHER),
    "rank": -1,
    "step": -1,
    "op": -1,
    "comm": -1,
    "collective": -1,
    "bytes": 0,
    "start_ns": int(NULL),
    "end_ns": int(NULL),
    "dur_ns": 0,
    "release_ns": int(NULL),
}
"""Columns of the graph and what they are where a block does not say."""

EXTRA = {
    "event_id": -1,
    "group_size": -1,
    "algo": -1,
    "thread": -1,
    "shape": -1,
    "begins": int(NULL),
    "ends": int(NULL),
}
"""Columns of `TaskGraph.extra`: the row of `events`; of participations the size of the group and
the algorithm (a code of `op_names`); of host segments the rank's n-th thread; of kernels a code of
grid and block size (a collective's is 0); of marks the step that begins and the one that ends."""


class Draft:
    """Tasks and edges added so far; ids are given in the order of adding."""

    def __init__(self) -> None:
        self.n = 0
        self.names: dict[str, int] = {}
        self.comm_names: list[str] = []
        self.warnings: list[str] = []
        self.assumptions: list[str] = []
        self._blocks: list[dict[str, np.ndarray]] = []
        self._edges: list[tuple[np.ndarray, np.ndarray]] = []

    def add(self, n: int, **columns) -> np.ndarray:
        """Ids (int64 [n]) of new tasks; each column is an array [n] or one value for all.

        `pin` says what the task keeps of its measurement (`residual`), `order_ns` where it goes
        among tasks that are free to go (default: its start).
        """
        unknown = set(columns) - {*COLUMNS, *EXTRA, "pin", "order_ns"}
        if unknown:
            raise KeyError(f"a task has no column {sorted(unknown)}")
        self._blocks.append(
            {k: np.broadcast_to(np.asarray(v), (n,)).astype(np.int64) for k, v in columns.items()}
        )
        ids = np.arange(self.n, self.n + n)
        self.n += n
        return ids

    def edge(self, src: np.ndarray, dst: np.ndarray) -> None:
        """Edges src[i] -> dst[i]; those with an end of -1 are left out."""
        real = (src >= 0) & (dst >= 0)
        self._edges.append((src[real], dst[real]))

    def put_before(self, task: np.ndarray, other: np.ndarray) -> None:
        """Puts task[i] in front of other[i]: it takes over the edges into that one."""
        place = np.full(self.n, -1, np.int64)
        place[other] = task
        self._edges = [
            (src, np.where(place[dst] >= 0, place[dst], dst)) for src, dst in self._edges
        ]
        self.edge(task, other)

    def codes(self, names: pl.Series) -> np.ndarray:
        """Codes (int64) of operation names in the graph's `op_names`; null is `?`."""
        text = names.cast(pl.String).fill_null("?")
        kinds = text.unique(maintain_order=True)
        table = [self.names.setdefault(k, len(self.names)) for k in kinds]
        local = text.cast(pl.Enum(kinds)).to_physical().to_numpy()
        return np.asarray(table, np.int64)[local] if len(kinds) else np.empty(0, np.int64)

    def graph(self) -> tuple[TaskGraph, np.ndarray]:
        """The graph with gaps and spans filled in, and by how much each task is late (ns).

        Collectives whose joins go round in a circle are taken apart, with a warning.
        """
        columns = {name: self._column(name, default) for name, default in COLUMNS.items()}
        extra = {name: self._column(name, default) for name, default in EXTRA.items()}
        extra["pin"] = self._column("pin", 0)
        order = self._column("order_ns", int(NULL))
        order = np.where(order == NULL, columns["start_ns"], order)
        unset = columns["release_ns"] == NULL
        columns["release_ns"] = np.where(unset, columns["start_ns"], columns["release_ns"])
        none = np.empty(0, np.int64)
        src = np.concatenate([none, *(s for s, _ in self._edges)])
        dst = np.concatenate([none, *(d for _, d in self._edges)])
        joins = columns["kind"] == Kind.JOIN
        apart = 0
        while True:
            try:
                graph, _ = build_graph(
                    self.n,
                    src,
                    dst,
                    order_ns=order,
                    op_names=tuple(self.names),
                    comm_names=tuple(self.comm_names),
                    extra=extra,
                    **columns,
                )
                break
            except GraphCycle as e:
                stuck = np.unique(columns["collective"][[t for t in e.tasks if joins[t]]])
                if not len(stuck):
                    raise
                apart += len(stuck)
                off = joins[src] & np.isin(columns["collective"][src], stuck)
                src, dst = src[~off], dst[~off]
        if apart:
            self.warnings.append(
                f"{apart} collectives wait for each other in a circle (clocks or matching are "
                "wrong): they were not joined"
            )
        pin = graph.extra.pop("pin").astype(np.int8)
        return fill(graph, pin)

    def _column(self, name: str, default: int) -> np.ndarray:
        none = np.empty(0, np.int64)
        blocks = (
            b[name] if name in b else np.full(len(b["kind"]), default, np.int64)
            for b in self._blocks
        )
        return np.concatenate([none, *blocks])
