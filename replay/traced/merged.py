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

Columns = Mapping[str, np.ndarray]

FEW = 100_000
"""Of fewer tasks one core makes a graph as fast as several."""

TYPES = {"gap_ns": np.int64, "late_ns": np.int64} | {
    name: dtype for name, (dtype, _) in (COLUMNS | EXTRA).items() if name != "pin"
}

MOST_NS = 1 << 62
"""From the first start to the last."""

KIND, PIN = (np.array([getattr(w, c) for w in stored.WHAT], np.int8) for c in ("kind", "pin"))

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


class Parts(NamedTuple):
    """Participations, in the order of their tasks, and the joins of their collectives."""

    of: np.ndarray
    """int32 [tasks]: the participation that each task is of, -1 for none."""
    arrive: np.ndarray
    """int64 [p]: the task of each."""
    transfer: np.ndarray
    columns: Columns
    also: np.ndarray
    """int64: those that take part in further collectives, and (`also_in`) in which."""
    also_in: np.ndarray
    ready_ns: np.ndarray
    """int64 [joins]: when the last of each came."""
    first: np.ndarray
    """int64 [joins]: the participation of each with the least row."""


def room(n: int) -> dict[str, np.ndarray]:
    """Arrays [n] for what is made of tasks, in one stretch of memory that is there to be used."""
    sizes = [-(-n * np.dtype(of).itemsize // 64) * 64 for of in TYPES.values()]
    whole = gathered.empty(sum(sizes))
    since = np.cumsum([0, *sizes]).tolist()
    return {
        name: whole[at : at + n * np.dtype(of).itemsize].view(of)
        for at, (name, of) in zip(since, TYPES.items(), strict=False)
    }


def graph(
    tasks: Columns, back: np.ndarray, parts: Columns, words: Words, room: dict[str, np.ndarray]
) -> tuple[TaskGraph, np.ndarray]:
    """The graph, and by how much each task is late (ns). Raises Odd.

    `tasks` and `parts` are the columns of those tables, `back` that of the edges', `room` is what
    `room` gives for as many tasks and collectives.
    """
    run = beside if len(tasks["what"]) > FEW else one_by_one
    known = _participations(tasks, back, parts, words)
    if len(tasks["what"]) + len(known.first) != len(room["kind"]):
        raise Odd
    key = np.concatenate([tasks["start_ns"], known.ready_ns])
    places = np.array([w.place for w in stored.WHAT])
    ties = places, *(tasks[c] for c in windows.TIES), known.of, known.columns["row"]
    links = partial(_links, tasks, back, known)
    (task_of, place), (ptr, src) = windows.by_time(key, ties, run, links)
    order, (code, kinds) = run(
        partial(ordering.placed, task_of, place, ptr, src), partial(_alike, tasks, known, words)
    )
    if len(order) < len(key):
        raise Odd
    table, op_names = _names(order, tasks, words)
    (pred_ptr, pred), like, *_ = run(
        partial(_predecessors, order, place, ptr, src, tasks, key, room),
        partial(_like, order, code, kinds, tasks, table),
        *_columns(order, tasks, known, table, words, room),
    )
    made = TaskGraph(
        gap_ns=room["gap_ns"],
        pred_ptr=pred_ptr,
        pred=pred,
        op_names=op_names,
        comm_names=tuple(words.comms),
        extra={name: room[name] for name in EXTRA if name != "pin"} | {"like": like},
        **{name: room[name] for name in COLUMNS},
    )
    return made, room["late_ns"]


def _participations(tasks: Columns, back: np.ndarray, parts: Columns, words: Words) -> Parts:
    what = tasks["what"]
    arrive, transfer = (np.flatnonzero(what == w) for w in (stored.ARRIVE, stored.TRANSFER))
    if len(arrive) != len(transfer):
        raise Odd
    joins = _checked(tasks, back, parts, words, len(arrive))
    of = np.full(len(what), -1, np.int32)
    of[arrive] = of[transfer] = np.arange(len(arrive))
    own, more = (
        {name: column[its] for name, column in parts.items()}
        for its in (slice(0, len(arrive)), slice(len(arrive), None))
    )
    at = np.empty(len(arrive), np.int64)
    at[own["row"]] = np.arange(len(arrive))
    known = Parts(
        of, arrive, transfer, own, at[more["row"]], more["collective"],
        np.empty(joins, np.int64), np.empty(joins, np.int64),
    )  # fmt: skip
    gathered.joins(
        known.ready_ns, known.first, tasks["start_ns"], arrive, own["row"], own["collective"],
        known.also, known.also_in,
    )  # fmt: skip
    return known


def _checked(tasks: Columns, back: np.ndarray, parts: Columns, words: Words, own: int) -> int:
    """How many collectives there are. Raises Odd for numbers that nothing stands behind."""
    names, shapes = len(words.names), len(words.shapes)
    least, most = gathered.bounds(tasks["what"], tasks["op"], tasks["detail"], tasks["preds"])
    joins = int(parts["collective"].max(initial=-1)) + 1
    sound = (
        own <= len(parts["row"])
        and 0 < len(tasks["what"]) + joins < ordering.MOST_TASKS
        and int(tasks["start_ns"].max()) - int(tasks["start_ns"].min()) < MOST_NS
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


def _links(tasks: Columns, back: np.ndarray, known: Parts) -> tuple[np.ndarray, np.ndarray]:
    """Predecessors of all tasks, then joins, in CSR form; int32 both."""
    n, parts = len(tasks["what"]), known.columns
    waits, awaited = np.flatnonzero(parts["waits"]), np.flatnonzero(parts["awaited"])
    join = n + parts["collective"].astype(np.int64)
    also_join = n + known.also_in.astype(np.int64)
    dst = (known.transfer[waits], known.transfer[known.also], join[awaited], also_join)
    src = (join[waits], also_join, known.arrive[awaited], known.arrive[known.also])
    dst, src = np.concatenate(dst), np.concatenate(src)
    if len(back) + len(src) >= ordering.MOST_TASKS:
        raise Odd
    ptr = np.zeros(n + len(known.first) + 1, np.int32)
    out = np.empty(len(back) + len(src), np.int32)
    if not gathered.links(tasks["preds"], back, src, dst, ptr, out):
        raise Odd
    return ptr, out


def _alike(tasks: Columns, known: Parts, words: Words) -> tuple[np.ndarray, np.ndarray]:
    """`gathered.alike`: the code of each task and join, and what each code stands for."""
    none = words.names.index("?") if "?" in words.names else len(words.names)
    return gathered.alike(
        KIND, int(Kind.JOIN), none, *(tasks[c] for c in ("what", "step", "op", "detail")),
        known.of, known.columns["op"], known.arrive[known.first], known.first,
    )  # fmt: skip


def _like(
    order: np.ndarray, code: np.ndarray, kinds: np.ndarray, tasks: Columns, table: np.ndarray
) -> np.ndarray:
    """`likeness.of` all tasks."""
    step, kind, op, thread = kinds.T
    named = ~np.isin(kind, (Kind.ARRIVE, Kind.TRANSFER, Kind.JOIN))
    op[named] = table[op[named]]
    of = step, kind, op, thread
    return likeness.placed(of, code, order, tasks["rank"], tasks["start_ns"], int(NULL))


def _predecessors(
    order: np.ndarray, place: np.ndarray, ptr: np.ndarray, src: np.ndarray, tasks: Columns,
    ends: np.ndarray, room: Columns,
) -> tuple[np.ndarray, np.ndarray]:  # fmt: skip
    """Predecessors in CSR form; fills gaps, spans and lateness."""
    pred_ptr, pred = (gathered.empty(8 * m).view(np.int64) for m in (len(order) + 1, len(src)))
    kept = gathered.predecessors(
        order, place, ptr, src, *(tasks[c] for c in ("what", "start_ns", "dur_ns")), PIN, int(NULL),
        ends, pred_ptr, pred, *(room[c] for c in ("gap_ns", "dur_ns", "late_ns")),
    )  # fmt: skip
    return pred_ptr, pred if kept == len(pred) else pred[:kept].copy()


def _columns(
    order: np.ndarray, tasks: Columns, known: Parts, table: np.ndarray, words: Words, room: Columns
) -> list[Callable[[], None]]:
    """What fills the columns that no replay is needed for, some tasks each."""
    arrays = (
        order, *(tasks[c] for c in gathered.TASKS), known.of,
        *(known.columns[c] for c in gathered.PARTS), known.arrive[known.first], known.first, KIND,
        table, _shape_codes(words.shapes), int(NULL), int(Kind.JOIN),
        *(room[c] for c in gathered.COLUMNS),
    )  # fmt: skip
    cuts = np.linspace(0, len(order), PIECES + 1).astype(int).tolist()
    return [partial(gathered.columns, a, b, *arrays) for a, b in pairwise(cuts)]


def one_by_one(*calls: Callable[[], Any]) -> list[Any]:
    """What some calls return, in their order: what `beside` does, on one core."""
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
