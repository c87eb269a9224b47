"""A large job's tasks in shares of its ranks: each share a graph of its own, kept in columns."""

from __future__ import annotations

import threading
from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np
import polars as pl

from ....ingest import kernel_rules
from ....ingest.tasks import collectives as of_collectives
from ....ingest.tasks import shares as of_shares
from ....ingest.tasks import tables as of_tables
from ....ingest.tasks.codes import distinct
from ....ingest.tasks.events import Words
from ....ingest.tasks.job import SHARE_ROWS, Job, Share
from ....ingest.tasks.names import OpNames
from ....ingest.tasks.piece import Piece
from ... import load, sweep
from ...graph import NULL, Kind, TaskGraph
from ...traced import build, draft
from ..joining import check_clocks
from .columns import Columns

COLUMNS = ("start_ns", "end_ns", "dur_ns", "pred_ptr", "pred", "kind", "rank", "step", "op",
           "collective")  # fmt: skip
"""Columns of a share's graph that are kept as they are, with those of `EXTRA` and `MARKS`."""

EXTRA = ("event_id", "thread", "pin")

MARKS = ("begins", "ends")
"""Columns that only few tasks have."""

OF_COLLECTIVES = (
    "rank", "start_ns", "end_ns", "step", "op", "comm", "collective_id", "event_id", "group_size",
    "algo", "root", "peer", "in_bytes", "out_bytes", "timing",
)  # fmt: skip


class Arrivals(NamedTuple):
    """Who feeds the join of each collective: arrays [a], by join."""

    join: np.ndarray
    share: np.ndarray
    task: np.ndarray
    """Its number in the share."""
    rank: np.ndarray
    first: np.ndarray
    """int64 [joins + 1]: where those of each join lie."""


class Shares(NamedTuple):
    """A job in shares of some ranks each; numbers of joins are those of the whole job."""

    columns: Columns
    n: int
    """How many shares."""
    load: int
    """Three times the tasks of the largest share: what a pass over it holds, as `sweep` counts."""
    ready_ns: np.ndarray
    """int64 [joins]: when each is measured to be free to go."""
    arrivals: Arrivals
    op_names: list[str]
    frames: dict[str, pl.DataFrame]
    """`ranks` and `steps`."""
    of_part: np.ndarray
    """int64 [3, p]: rank, join and event (-1: none) of each participation."""

    def graph(self, share: int) -> TaskGraph:
        """The tasks of a share with those columns that findings ask for; gaps are 0 at first."""
        of = dict(zip(COLUMNS, self.columns.some(share, *COLUMNS), strict=True))
        n = len(of["kind"])
        extra: dict[str, np.ndarray] = {
            **dict(zip(EXTRA, self.columns.some(share, *EXTRA), strict=True)),
            **{name: self.sparse(share, name, n, int(NULL)) for name in MARKS},
        }
        nothing = np.broadcast_to(np.int64(0), n)
        return TaskGraph(
            gap_ns=nothing, release_ns=self.sparse(share, "release_ns", n, 0), comm=nothing,
            bytes=nothing, op_names=tuple(self.op_names), extra=extra, **of,
        )  # fmt: skip

    def sparse(self, share: int, name: str, n: int, default: int) -> np.ndarray:
        """int64 [n]: a column that only some tasks have."""
        out = np.full(n, default, np.int64)
        out[self.columns.get(share, f"{name}_at")] = self.columns.get(share, name)
        return out


def cut(snapshot: Any, columns: Columns) -> Shares | None:
    """The job of a `Snapshot` in shares; None where tasks wait for each other in a circle.

    Each share is read and put in order by itself, on all cores. Raises UnusableInput as
    `joining.check_clocks`.
    """
    categories = kernel_rules.categories(snapshot.files, getattr(snapshot, "kernels", ()))
    asked = {"ranks": None, "steps": None, "comms": None, "collectives": OF_COLLECTIVES}
    frames = {t: load.read(snapshot.files, t, columns=c) for t, c in asked.items()}
    frames["collectives"] = frames["collectives"].filter(of_tables.timed())
    tables = of_tables.aligned(frames)
    del frames["collectives"]
    ops, words = OpNames(), Words()
    all_ = of_collectives.collectives(tables.collectives, tables.comms, ops)
    check_clocks(all_.parts.rank, all_.parts.instance, frames["ranks"])
    whole = Job(tables, all_, words)
    making = _Making(whole, all_, ops, words, columns)
    shares = of_shares.of_files(snapshot.files.get("events") or (), categories)
    most = max((share.rows for share in shares), default=0)
    made = sweep.over(making.share, list(enumerate(shares)), tasks=3 * max(most, SHARE_ROWS))
    whole_ones = [found for found in made if found is not None]
    if len(whole_ones) < len(made):
        return None
    ready = np.asarray(all_.joins["order_ns"])
    return Shares(
        columns, len(made), 3 * max(found.tasks for found in whole_ones), ready,
        _together([found.arrivals for found in whole_ones], len(ready)),
        list(making.names), frames,
        np.stack([all_.parts.rank, all_.parts.instance, all_.parts.event_id]),
    )  # fmt: skip


class _Made(NamedTuple):
    """What is held of a share."""

    tasks: int
    arrivals: np.ndarray
    """int64 [4, a]: join, share, task and rank."""


class _Making:
    def __init__(
        self,
        whole: Job,
        all_: of_collectives.Collectives,
        ops: OpNames,
        words: Words,
        columns: Columns,
    ):
        self._whole, self._all, self._words, self._columns = whole, all_, words, columns
        self._base = dict(ops.known)
        self.names = dict(ops.known)
        self._lock = threading.Lock()

    def share(self, numbered: tuple[int, Share]) -> _Made | None:
        """Makes and keeps a share; None where it has a circle."""
        number, share = numbered
        piece = self._whole.piece(share)
        build._number_shapes([piece])
        own, joins = _of_share(self._all, piece)
        ops = OpNames()
        ops.known |= self._base
        graph, _, apart = draft.graph([piece], own, ops, self._words, is_part=True)
        if apart:
            return None
        self._keep(number, graph, ops, joins)
        into = np.flatnonzero(graph.kind == Kind.JOIN)
        many = np.diff(graph.pred_ptr)[into]
        first = graph.pred_ptr[into]
        task = graph.pred[np.repeat(first, many) + of_tables.within(many)]
        join = joins[np.repeat(graph.collective[into], many)]
        found = np.stack([join, np.full(len(task), number), task, graph.rank[task]])
        return _Made(graph.n, found)

    def _keep(self, number: int, graph: TaskGraph, ops: OpNames, joins: np.ndarray) -> None:
        with self._lock:
            table = [self.names.setdefault(t, len(self.names)) for t in ops.known]
        code = np.append(np.array(table, np.int64), -1)
        columns = {name: getattr(graph, name) for name in COLUMNS}
        columns |= {name: graph.extra[name] for name in EXTRA}
        columns["op"] = code[graph.op]
        columns["collective"] = np.append(joins, -1)[graph.collective]
        free = np.flatnonzero(np.diff(graph.pred_ptr) == 0)
        columns |= {"release_ns_at": free, "release_ns": graph.release_ns[free]}
        for name in MARKS:
            there = np.flatnonzero(graph.extra[name] != NULL)
            columns |= {f"{name}_at": there, name: graph.extra[name][there]}
        self._columns.put(number, **columns)


def _of_share(
    all_: of_collectives.Collectives, piece: Piece
) -> tuple[of_collectives.Collectives, np.ndarray]:
    """The collectives that a piece takes part in, numbered anew, and the numbers they had.

    The piece's edges and participations are numbered likewise.
    """
    rows = piece.rows
    also = np.flatnonzero(np.isin(all_.also_row, rows))
    parts = all_.parts.take(rows)
    joins = distinct(np.concatenate([parts.instance, all_.also_instance[also]]))[0]

    def numbered(instance: np.ndarray) -> np.ndarray:
        return np.searchsorted(joins, instance)

    src, dst = piece.taken_edges()
    from_join = src < 0
    src[from_join] = ~numbered(~src[from_join])
    piece.edge(src, dst)
    piece.rows = np.arange(len(rows))
    own = of_collectives.Collectives(
        of_collectives.Participations(
            **parts._asdict() | {"row": piece.rows, "instance": numbered(parts.instance)}
        ),
        np.searchsorted(rows, all_.also_row[also]),
        numbered(all_.also_instance[also]),
        {k: v[joins] if isinstance(v, np.ndarray) else v for k, v in all_.joins.items()}
        | {"collective": np.arange(len(joins))},
        all_.comm_names,
        [],
    )
    collective = numbered(parts.instance)
    for name in ("arrive", "transfer"):
        piece.blocks[name].columns["collective"] = collective
    return own, joins


def _together(found: Sequence[np.ndarray], joins: int) -> Arrivals:
    """The arrivals of all shares by join; those of one in the order of shares."""
    join, share, task, rank = np.concatenate([np.empty((4, 0), np.int64), *found], axis=1)
    order = np.argsort(join, kind="stable")
    first = np.zeros(joins + 1, np.int64)
    np.cumsum(np.bincount(join, minlength=joins), out=first[1:])
    return Arrivals(join[order], share[order], task[order], rank[order], first)
