"""A task graph from tasks that lie rank by rank, each rank's in order of start."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import partial
from itertools import pairwise
from typing import Any, NamedTuple

import numpy as np

from ...ingest.tasks import stored
from ...ingest.tasks.kinds import NULL, Kind
from ...ingest.tasks.piece import COLUMNS, EXTRA
from ..graph import TaskGraph
from ..sweep import beside
from . import gathered, likeness, windows
from . import order as ordering
from .residual import fill

FILLED = ("start_ns", "end_ns", "release_ns", "dur_ns", "pin")

Columns = Mapping[str, np.ndarray]

FEW = 100_000
"""Of fewer tasks one core makes a graph as fast as several."""

PIECES = 4
"""That columns are filled in: several cores have some each."""


class Words(NamedTuple):
    """What numbers in the tables stand for."""

    names: list[str]
    first: list[int]
    """Of these names those of host segments and marks, in the order of ranks."""
    ops: list[str]
    comms: list[str]
    shapes: np.ndarray
    """int64 [s, 2]: blocks of the grid and threads of a block."""


class Odd(Exception):
    """The tables contradict themselves, or their edges go round in a circle."""


def graph(
    tasks: Columns, back: np.ndarray, parts: Columns, words: Words
) -> tuple[TaskGraph, np.ndarray]:
    """The graph, and by how much each task is late (ns). Raises Odd.

    `tasks` and `parts` are the columns of those tables, `back` that of the edges'.
    """
    n = len(tasks["what"])
    part, arrive, transfer = _participations(tasks["what"])
    joins = _checked(tasks, back, parts, words, len(arrive))
    further = {name: column[len(arrive) :] for name, column in parts.items()}
    parts = {name: column[: len(arrive)] for name, column in parts.items()}
    at = np.empty(len(arrive), np.int64)
    at[parts["row"]] = np.arange(len(arrive))
    also = at[further["row"]]
    key = np.empty(n + joins, np.int64)
    key[:n] = tasks["start_ns"]
    first = np.empty(joins, np.int64)
    gathered.joins(
        key[n:], first, tasks["start_ns"], arrive, parts["row"], parts["collective"], also,
        further["collective"],
    )  # fmt: skip
    run = beside if n > FEW else _one_by_one
    ptr, src = _links(tasks, back, arrive, transfer, parts, also, further, joins)
    places = np.array([w.place for w in stored.WHAT])
    ties = places, *(tasks[c] for c in ("what", "dur_ns", "event_id")), part, parts["row"]
    task_of, place = windows.by_time(key, ties, run)
    order = ordering.topological(task_of, ptr, src, place)
    if len(order) < n + joins:
        raise Odd
    columns, op_names, fills = _columns(order, tasks, part, parts, arrive[first], first, words)
    (pred_ptr, pred), *_ = run(partial(ordering.in_order, order, ptr, src), *fills)
    (gap, dur, late), like = run(
        lambda: fill(pred_ptr, pred, **{name: columns[name] for name in FILLED}),
        lambda: likeness.of(*(columns[name] for name in likeness.COLUMNS)),
    )  # fmt: skip
    extra = {name: columns[name] for name in EXTRA if name != "pin"} | {"like": like}
    made = TaskGraph(
        gap_ns=gap,
        pred_ptr=pred_ptr,
        pred=pred,
        op_names=op_names,
        comm_names=tuple(words.comms),
        extra=extra,
        **{name: columns[name] for name in COLUMNS} | {"dur_ns": dur},
    )
    return made, late


def _participations(what: np.ndarray) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Of each task which participation it is of (int32, -1: none); their tasks (int64)."""
    arrive, transfer = (np.flatnonzero(what == w) for w in (stored.ARRIVE, stored.TRANSFER))
    part = np.full(len(what), -1, np.int32)
    part[arrive] = np.arange(len(arrive))
    part[transfer] = np.arange(len(transfer))
    if len(arrive) != len(transfer):
        raise Odd
    return part, arrive, transfer


def _checked(tasks: Columns, back: np.ndarray, parts: Columns, words: Words, own: int) -> int:
    """How many collectives there are. Raises Odd for numbers that nothing stands behind."""
    names, shapes = len(words.names), len(words.shapes)
    least, most = gathered.bounds(tasks["what"], tasks["op"], tasks["detail"], tasks["preds"])
    joins = int(parts["collective"].max(initial=-1)) + 1
    sound = (
        own <= len(parts["row"])
        and len(tasks["what"]) + joins < ordering.MOST_TASKS
        and joins <= len(parts["row"])
        and (least >= (0, -1, 0, 0)).all()
        and (most < (len(stored.WHAT), names, shapes, ordering.MOST_TASKS)).all()
        and int(tasks["preds"].sum(dtype=np.int64)) == len(back)
        and (np.sort(parts["row"][:own]) == np.arange(own)).all()
        and _within(parts["row"], own)
        and _within(parts["collective"], joins)
        and (np.bincount(parts["collective"], minlength=joins) > 0).all()
        and _within(parts["op"], len(words.ops))
        and _within(parts["algo"], len(words.ops))
        and _within(parts["comm"], len(words.comms))
        and all(0 <= i < names for i in words.first)
    )
    if not sound:
        raise Odd
    return joins


def _within(values: np.ndarray, n: int) -> bool:
    return not len(values) or (int(values.min()) >= 0 and int(values.max()) < n)


def _links(
    tasks: Columns,
    back: np.ndarray,
    arrive: np.ndarray,
    transfer: np.ndarray,
    parts: Columns,
    also: np.ndarray,
    further: Columns,
    joins: int,
) -> tuple[np.ndarray, np.ndarray]:
    """Predecessors of all tasks, then joins, in CSR form (int64 and int32)."""
    n = len(tasks["what"])
    waits, awaited = np.flatnonzero(parts["waits"]), np.flatnonzero(parts["awaited"])
    join = n + parts["collective"].astype(np.int64)
    also_join = n + further["collective"].astype(np.int64)
    dst = np.concatenate([transfer[waits], transfer[also], join[awaited], also_join])
    src = np.concatenate([join[waits], also_join, arrive[awaited], arrive[also]])
    ptr = np.zeros(n + joins + 1, np.int64)
    out = np.empty(len(back) + len(src), np.int32)
    if not gathered.links(tasks["preds"], back, src, dst, ptr, out):
        raise Odd
    return ptr, out


def _columns(
    order: np.ndarray,
    tasks: Columns,
    part: np.ndarray,
    parts: Columns,
    join_task: np.ndarray,
    join_part: np.ndarray,
    words: Words,
) -> tuple[dict[str, np.ndarray], tuple[str, ...], list[Callable[[], None]]]:
    """Columns of the graph, the names of operations, and what fills the columns, piece by piece."""
    n = len(order)
    table, op_names = _names(order, tasks, words)
    out = _room(n, {name: dtype for name, (dtype, _) in (COLUMNS | EXTRA).items()})
    kind, pin = (np.array([getattr(w, c) for w in stored.WHAT], np.int8) for c in ("kind", "pin"))
    arrays = (
        order, *(tasks[c] for c in gathered.TASKS), part, *(parts[c] for c in gathered.PARTS),
        join_task, join_part, kind, pin, table, _shape_codes(words.shapes), int(NULL),
        int(Kind.JOIN), *out.values(),
    )  # fmt: skip
    cuts = np.linspace(0, n, PIECES + 1).astype(int).tolist()
    fills = [partial(gathered.columns, a, b, *arrays) for a, b in pairwise(cuts)]
    return out, op_names, fills


def _room(n: int, types: Mapping[str, Any]) -> dict[str, np.ndarray]:
    """Arrays [n] that lie in one stretch of memory: many of its pages then are large ones."""
    sizes = [-(-n * np.dtype(of).itemsize // 64) * 64 for of in types.values()]
    whole = np.empty(sum(sizes), np.uint8)
    since = np.cumsum([0, *sizes]).tolist()
    return {
        name: whole[at : at + n * np.dtype(of).itemsize].view(of)
        for at, (name, of) in zip(since, types.items(), strict=False)
    }


def _one_by_one(*calls: Callable[[], Any]) -> list[Any]:
    return [call() for call in calls]


def _names(order: np.ndarray, tasks: Columns, words: Words) -> tuple[np.ndarray, tuple[str, ...]]:
    """The code of each name (int32; the last one is that of none), and the names by code.

    Operations and algorithms come first, then names of activities in the order of time, then those
    of host segments and marks by rank.
    """
    texts = [*words.names, "?"]
    codes = {text: i for i, text in enumerate(words.ops)}
    seen = gathered.first_names(order, tasks["what"], tasks["op"], len(texts))
    for i in (*seen.tolist(), *words.first):
        codes.setdefault(texts[i], len(codes))
    table = np.array([codes.get(text, -1) for text in texts], np.int32)
    return table, tuple(codes)


def _shape_codes(shapes: np.ndarray) -> np.ndarray:
    """Codes by sizes, as `codes.alike` of all of them gives."""
    code = np.empty(len(shapes), np.int32)
    code[np.lexsort((shapes[:, 1], shapes[:, 0]))] = np.arange(len(shapes))
    return code
