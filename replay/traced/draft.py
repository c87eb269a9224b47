"""A task graph from the pieces of a job: tasks in the order of time, predecessors, names."""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from typing import Any, NamedTuple

import numpy as np

from ...ingest.compiled import compiled
from ...ingest.tasks.collectives import Collectives
from ...ingest.tasks.events import Words
from ...ingest.tasks.names import OpNames
from ...ingest.tasks.piece import BLOCKS, COLUMNS, EXTRA, Piece
from ..graph import GraphCycle, TaskGraph, label
from ..sweep import beside
from . import likeness
from . import order as ordering
from .residual import fill

FILLED = ("end_ns", "release_ns", "dur_ns", "pin")
"""Columns by which, with the beginnings, gaps and spans are filled in."""


class Links(NamedTuple):
    """Predecessors of tasks that are numbered piece by piece, then joins: in CSR form."""

    ptr: np.ndarray
    """int64 [n + 1]"""
    src: np.ndarray
    """int32 [m]"""


def graph(
    pieces: Sequence[Piece],
    all_: Collectives,
    ops: OpNames,
    words: Words,
    *,
    is_part: bool = False,
) -> tuple[TaskGraph, np.ndarray, int]:
    """The graph of all pieces with gaps and spans filled in; by how much each task is late (ns).

    Collectives whose joins go round in a circle are taken apart: how many is the third. Empties the
    pieces. Raises GraphCycle for a circle without a join. Of some ranks of a job (`is_part`) gaps
    and spans say nothing: what fills them in (`pin`) stays in `extra`, and nothing is `like`.
    """
    bases = np.concatenate([[0], np.cumsum([p.n for p in pieces])]).astype(np.int64)
    n_joins = len(all_.joins["order_ns"])
    n = int(bases[-1]) + n_joins
    if n >= ordering.MOST_TASKS:
        raise ValueError(f"{n} tasks: a graph has fewer than {ordering.MOST_TASKS}")
    arrive, transfer = _participations(pieces, bases, len(all_.parts))

    (feed, task_of), links = beside(
        partial(_by_time, pieces, bases, all_, arrive, transfer),
        partial(_links, pieces, bases, n_joins, all_, arrive, transfer),
    )
    apart = 0
    while True:
        order = ordering.topological(task_of, links.ptr, links.src)
        if len(order) == n:
            break
        stuck = _stuck(pieces, bases, all_, ops, words, links, order, feed, task_of)
        links = _without(links, int(bases[-1]), stuck)
        apart += len(stuck)
    del feed, task_of
    places = order.astype(np.intp), ordering.inverse(order)  # what takes needs no conversion
    column = partial(_ordered, pieces, bases, all_, ops, words, *places)
    first = (*likeness.COLUMNS, *FILLED)
    (pred_ptr, pred), *made = beside(
        partial(ordering.in_order, order, links.ptr, links.src),
        *(partial(column, name) for name in first),
    )
    columns = dict(zip(first, made, strict=True))
    del links, order
    rest = [name for name in (*COLUMNS, *EXTRA) if name not in first]
    (gap, dur, late), like, *made = beside(
        lambda: fill(pred_ptr, pred, **{name: columns[name] for name in (*FILLED, "start_ns")}),
        lambda: None if is_part else likeness.of(*(columns[n] for n in likeness.COLUMNS)),
        *(partial(column, name) for name in rest),
    )
    columns |= dict(zip(rest, made, strict=True)) | {"dur_ns": dur}
    extra = {name: columns.pop(name) for name in EXTRA}
    if not is_part:
        del extra["pin"]
        extra["like"] = like
    whole = TaskGraph(
        gap_ns=gap,
        pred_ptr=pred_ptr,
        pred=pred,
        op_names=tuple(ops.known),
        comm_names=tuple(all_.comm_names),
        extra=extra,
        **columns,
    )
    return whole, late, apart


def _by_time(
    pieces: Sequence[Piece],
    bases: np.ndarray,
    all_: Collectives,
    arrive: np.ndarray,
    transfer: np.ndarray,
) -> tuple[np.ndarray, np.ndarray]:
    """All tasks in the order of `_feed`, and by time; int32 [n] each."""
    ready = all_.joins["order_ns"]
    feed = _feed(pieces, bases, arrive, transfer, len(ready))
    key = _column(pieces, len(feed), "start_ns", *COLUMNS["start_ns"])
    key[bases[-1] :] = ready
    task_of = ordering.by_key(feed, key)
    _settle_ties(pieces, bases, key, task_of)
    return feed, task_of


def _ordered(
    pieces: Sequence[Piece],
    bases: np.ndarray,
    all_: Collectives,
    ops: OpNames,
    words: Words,
    order: np.ndarray,
    place: np.ndarray,
    name: str,
) -> np.ndarray:
    """A column of the tasks in their order, of which `place` is the inverse. Pieces lose it."""
    dtype, default = (COLUMNS | EXTRA)[name]
    if name != "op" and 2 * _said(pieces, name, default) < len(order):
        made = np.full(len(order), default, dtype)
        _put(made, pieces, place, name, default)
        if name in all_.joins:
            made[place[bases[-1] :]] = all_.joins[name]
    else:
        whole = _column(pieces, len(order), name, dtype, default)
        if name in all_.joins:
            whole[bases[-1] :] = all_.joins[name]
        if name == "op":
            _named(whole, pieces, bases, ops, words, order)
        made = whole.take(order)
    for piece in pieces:
        for block in piece.blocks.values():
            block.columns.pop(name, None)
    return made


def _said(pieces: Sequence[Piece], name: str, default: int) -> int:
    """How many tasks of blocks have a value of their own, as far as can be told by the block."""
    return sum(
        block.n
        for piece in pieces
        for block in piece.blocks.values()
        if isinstance(of := block.columns.get(name, default), np.ndarray) or of != default
    )


def _put(
    out: np.ndarray, pieces: Sequence[Piece], place: np.ndarray, name: str, default: int
) -> None:
    """Puts what blocks say of a column, where that is not the default, to their tasks' places."""
    base = 0
    for piece in pieces:
        for kind, block in piece.blocks.items():
            values = block.columns.get(name, default)
            if isinstance(values, np.ndarray) or values != default:
                if name == "shape" and kind == "activity":
                    values = piece.shape_codes[values]
                first = base + block.base
                out[place[first : first + block.n]] = values
        base += piece.n


def _participations(
    pieces: Sequence[Piece], bases: np.ndarray, n: int
) -> tuple[np.ndarray, np.ndarray]:
    """The numbers of the arrive and the transfer task of each participation, int32 [p] each."""
    out = np.empty((2, n), np.int32)
    for piece, base in zip(pieces, bases.tolist(), strict=False):
        for i, name in enumerate(BLOCKS[:2]):
            block = piece.blocks[name]
            out[i, piece.rows] = base + block.base + np.arange(block.n)
    return out[0], out[1]


def _links(
    pieces: Sequence[Piece],
    bases: np.ndarray,
    n_joins: int,
    all_: Collectives,
    arrive: np.ndarray,
    transfer: np.ndarray,
) -> Links:
    """All edges by where they lead. Empties the pieces' own."""
    joins = int(bases[-1])
    also: dict[int, list[tuple[np.ndarray, np.ndarray]]] = {}
    if len(all_.also_row):
        # Kernels with several peers wait for the join with each.
        src, dst = joins + all_.also_instance, transfer[all_.also_row].astype(np.int64)
        of = np.searchsorted(bases, dst, "right") - 1
        for p in np.unique(of).tolist():
            also.setdefault(p, []).append((src[of == p], dst[of == p]))
    counts, sources = [], []
    for p, piece in enumerate(pieces):
        src, dst = piece.taken_edges()
        src = np.where(src < 0, joins + ~src, src + bases[p])
        for more_src, more_dst in also.get(p, ()):
            src = np.concatenate([src, more_src])
            dst = np.concatenate([dst, more_dst - bases[p]])
        count, by = _by_end(piece.n, src, dst)
        counts.append(count)
        sources.append(by)
    awaited = np.flatnonzero(all_.parts.is_awaited)
    src = np.concatenate([arrive[awaited], arrive[all_.also_row]])
    dst = np.concatenate([all_.parts.instance[awaited], all_.also_instance])
    count, by = _by_end(n_joins, src.astype(np.int64), dst)
    ptr = np.zeros(joins + n_joins + 1, np.int64)
    np.cumsum(np.concatenate([*counts, count]), out=ptr[1:])
    return Links(ptr, np.concatenate([*sources, by]))


@compiled
def _by_end(n, src, dst):  # pragma: no cover - compiled
    """How many edges lead to each of n tasks (int32), and where they come from, by task (int32)."""
    count = np.zeros(n, np.int32)
    for t in dst:
        count[t] += 1
    at = np.zeros(n + 1, np.int64)
    for t in range(n):
        at[t + 1] = at[t] + count[t]
    out = np.empty(len(src), np.int32)
    for e in range(len(src)):
        out[at[dst[e]]] = src[e]
        at[dst[e]] += 1
    return count, out


def _feed(
    pieces: Sequence[Piece],
    bases: np.ndarray,
    arrive: np.ndarray,
    transfer: np.ndarray,
    n_joins: int,
) -> np.ndarray:
    """int32 [n]: all tasks in the order in which those of equal times go: by block, then rank."""

    def of(name: str) -> list[np.ndarray]:
        return [
            np.arange(base + b.base, base + b.base + b.n, dtype=np.int32)
            for base, b in ((base, p.blocks[name]) for p, base in zip(pieces, bases, strict=False))
        ]

    joins = np.arange(bases[-1], bases[-1] + n_joins, dtype=np.int32)
    return np.concatenate(
        [arrive, transfer, *of("activity"), *of("cut"), joins, *of("begins"), *of("ends")]
    )


def _settle_ties(
    pieces: Sequence[Piece], bases: np.ndarray, key: np.ndarray, task_of: np.ndarray
) -> None:
    """Activities of different ranks that start together go by their ends, then their events."""
    n = len(key)
    is_activity = np.zeros(n, bool)
    for piece, base in zip(pieces, bases.tolist(), strict=False):
        block = piece.blocks["activity"]
        is_activity[base + block.base : base + block.base + block.n] = True
    runs = ordering.runs(task_of, is_activity, key)
    if len(runs):
        end = _column(pieces, n, "end_ns", *COLUMNS["end_ns"])
        event = _column(pieces, n, "event_id", *EXTRA["event_id"])
        ordering.settle(task_of, runs, end, event)


def _column(pieces: Sequence[Piece], n: int, name: str, dtype: Any, default: int) -> np.ndarray:
    """A column of all tasks as they are numbered; joins have the default."""
    out = np.empty(n, dtype)
    base = 0
    for piece in pieces:
        shapes = piece.shape_codes if name == "shape" else None
        for kind, block in piece.blocks.items():
            values = block.columns.get(name, default)
            if shapes is not None and kind == "activity":
                values = shapes[values]
            out[base + block.base : base + block.base + block.n] = values
        base += piece.n
    out[base:] = default
    return out


def _named(
    op: np.ndarray,
    pieces: Sequence[Piece],
    bases: np.ndarray,
    ops: OpNames,
    words: Words,
    order: np.ndarray,
) -> None:
    """Codes of `Words` become those of `ops`, in place: names in the order of their first tasks.

    Those of activities by time, then of host segments by rank and thread, then of marks.
    """
    texts = [*words.texts, None]
    table = np.full(len(texts), -1, np.int64)

    def numbered(codes: np.ndarray) -> None:
        # -1, which is no name, is the last place.
        for code in ordering.first_seen(codes, len(texts)).tolist():
            if table[code] < 0:
                table[code] = ops.code(texts[code])

    starts = bases[:-1].tolist()
    spans = {
        name: [
            (b + p.blocks[name].base, p.blocks[name].n) for p, b in zip(pieces, starts, strict=True)
        ]
        for name in BLOCKS[2:]
    }
    is_activity = np.zeros(len(op), bool)
    for first, n in spans["activity"]:
        is_activity[first : first + n] = True
    in_order = order[is_activity[order]]
    numbered(op[in_order])
    for name in BLOCKS[3:]:
        for first, n in spans[name]:
            numbered(op[first : first + n])
    for spans_of in spans.values():
        for first, n in spans_of:
            op[first : first + n] = table[op[first : first + n]]


def _stuck(
    pieces: Sequence[Piece],
    bases: np.ndarray,
    all_: Collectives,
    ops: OpNames,
    words: Words,
    links: Links,
    placed: np.ndarray,
    feed: np.ndarray,
    task_of: np.ndarray,
) -> np.ndarray:
    """The collectives on one circle of tasks; raises GraphCycle where it has none."""
    n = len(task_of)
    # Numbers by block, then time and rank, so that which circle is found is no matter of pieces.
    number = np.empty(n, np.int64)
    number[feed] = np.arange(n)
    lowest = 2 * len(all_.parts)
    n_activities = sum(p.blocks["activity"].n for p in pieces)
    in_time = task_of[(number[task_of] >= lowest) & (number[task_of] < lowest + n_activities)]
    number[in_time] = lowest + np.arange(n_activities)
    dst = np.repeat(np.arange(n), np.diff(links.ptr))
    cycle = ordering.cycle(n, number[links.src], number[dst], number[placed])
    of = np.empty(n, np.int64)
    of[number] = np.arange(n)
    tasks = of[cycle]
    joins = tasks[tasks >= bases[-1]]
    if len(joins):
        return np.unique(joins - bases[-1])
    columns = {
        name: _column(pieces, n, name, *COLUMNS[name]) for name in ("kind", "rank", "step", "op")
    }
    _named(columns["op"], pieces, bases, ops, words, task_of)
    raise GraphCycle(cycle, [label(columns, tuple(ops.known), t) for t in tasks.tolist()])


def _without(links: Links, joins: int, stuck: np.ndarray) -> Links:
    """The edges but those from the joins of some collectives."""
    kept = ~np.isin(links.src, joins + stuck)
    owner = np.repeat(np.arange(len(links.ptr) - 1), np.diff(links.ptr))[kept]
    ptr = np.zeros_like(links.ptr)
    np.cumsum(np.bincount(owner, minlength=len(links.ptr) - 1), out=ptr[1:])
    return Links(ptr, links.src[kept])
