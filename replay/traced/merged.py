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
from . import columns, gathered, likeness, memory, windows
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

PIECES = 8
"""That columns are filled in: several cores have some each, and none waits long for the last."""


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


class Room(NamedTuple):
    """Memory for a graph of so many tasks and joins."""

    key: np.ndarray
    """int64 [n]: the tasks' starts; then, of joins, when the last one came."""
    aside: Columns
    """Arrays that nobody needs once the graph stands."""
    kept: Columns
    """Those that are of the graph."""


def room(n: int, edges: int) -> Room:
    """Room for so many tasks and joins, and at most so many edges."""
    numbers = dict.fromkeys(("place", "order", "code"), (np.int32, n))
    links = {"ptr": (np.int32, n + 1), "src": (np.int32, edges), "ends": (np.int64, n)}
    kept = {name: (of, n) for name, of in TYPES.items()} | {"like": (np.int64, n)}
    pred = {"pred_ptr": (np.int64, n + 1), "pred": (np.int64, edges)}
    return Room(
        memory.array(n, np.int64), memory.arrays(numbers | links), memory.arrays(kept | pred)
    )


def graph(
    tasks: Columns, back: np.ndarray, parts: Columns, words: Words, room: Room
) -> tuple[TaskGraph, np.ndarray]:
    """The graph, and by how much each task is late (ns). Raises Odd.

    `tasks` and `parts` are the columns of those tables, `back` that of the edges', `room` is for as
    many; `start_ns` of the tasks is the beginning of its key. Of arrivals and transfers `op`
    becomes the participation.
    """
    n = len(room.key)
    run = beside if len(tasks["what"]) > FEW else one_by_one
    known = _participations(tasks, back, parts, words)
    if len(tasks["what"]) + len(known.first) != n:
        raise Odd
    room.key[len(tasks["what"]) :] = known.ready_ns
    kept, aside = room.kept, room.aside
    # What the graph's arrays are is not known before all else: till then others use the memory.
    task_of, *others = (
        half for c in ("gap_ns", "dur_ns") for half in kept[c].view(np.int32).reshape(2, n)
    )
    place = aside["place"]
    places = np.array([w.place for w in stored.WHAT])
    ties = places, *(tasks[c] for c in windows.TIES), known.columns["row"]
    links = partial(_links, tasks, back, known, aside)
    ((ptr, src),) = windows.by_time(room.key, ties, task_of, place, run, links)
    order, kinds = run(
        partial(ordering.placed, task_of, place, ptr, src, aside["order"], others),
        partial(_alike, tasks, known, words, aside["code"]),
    )
    if len(order) < n:
        raise Odd
    table, op_names = _names(order, tasks, words)
    (pred_ptr, pred), *_ = run(
        partial(_predecessors, order, place, ptr, src, tasks, room),
        partial(_like, order, aside["code"], kinds, tasks, table, kept["like"]),
        *_columns(order, tasks, known, table, words, kept),
    )
    made = TaskGraph(
        gap_ns=kept["gap_ns"],
        pred_ptr=pred_ptr,
        pred=pred,
        op_names=op_names,
        comm_names=tuple(words.comms),
        extra={name: kept[name] for name in (*EXTRA, "like") if name != "pin"},
        **{name: kept[name] for name in COLUMNS},
    )
    return made, kept["late_ns"]


def _participations(tasks: Columns, back: np.ndarray, parts: Columns, words: Words) -> Parts:
    what = tasks["what"]
    arrive, transfer = (np.flatnonzero(what == w) for w in (stored.ARRIVE, stored.TRANSFER))
    if len(arrive) != len(transfer):
        raise Odd
    joins = _checked(tasks, back, parts, words, len(arrive))
    tasks["op"][arrive] = tasks["op"][transfer] = np.arange(len(arrive))
    own, more = (
        {name: column[its] for name, column in parts.items()}
        for its in (slice(0, len(arrive)), slice(len(arrive), None))
    )
    at = np.empty(len(arrive), np.int64)
    at[own["row"]] = np.arange(len(arrive))
    known = Parts(
        arrive, transfer, own, at[more["row"]], more["collective"],
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
        and 0 < len(tasks["what"]) <= len(tasks["what"]) + joins < ordering.MOST_TASKS
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


def _links(
    tasks: Columns, back: np.ndarray, known: Parts, room: Columns
) -> tuple[np.ndarray, np.ndarray]:
    """Predecessors of all tasks, then joins, in CSR form; int32 both."""
    n, parts = len(tasks["what"]), known.columns
    waits, awaited = np.flatnonzero(parts["waits"]), np.flatnonzero(parts["awaited"])
    join = n + parts["collective"].astype(np.int64)
    also_join = n + known.also_in.astype(np.int64)
    dst = (known.transfer[waits], known.transfer[known.also], join[awaited], also_join)
    src = (join[waits], also_join, known.arrive[awaited], known.arrive[known.also])
    dst, src = np.concatenate(dst), np.concatenate(src)
    if len(back) + len(src) > min(len(room["src"]), ordering.MOST_TASKS - 1):
        raise Odd
    ptr, out = room["ptr"], room["src"][: len(back) + len(src)]
    ptr[:] = 0
    if not gathered.links(tasks["preds"], back, src, dst, ptr, out):
        raise Odd
    return ptr, out


def _alike(tasks: Columns, known: Parts, words: Words, code: np.ndarray) -> np.ndarray:
    """`gathered.alike`: the code of each task and join, and what each code stands for (given)."""
    none = words.names.index("?") if "?" in words.names else len(words.names)
    return gathered.alike(
        KIND, int(Kind.JOIN), none, *(tasks[c] for c in ("what", "step", "op", "detail")),
        known.columns["op"], known.arrive[known.first], known.first, code,
    )  # fmt: skip


def _like(
    order: np.ndarray, code: np.ndarray, kinds: np.ndarray, tasks: Columns, table: np.ndarray,
    out: np.ndarray,
) -> np.ndarray:  # fmt: skip
    """`likeness.of` all tasks."""
    step, kind, op, thread = kinds.T
    named = ~np.isin(kind, (Kind.ARRIVE, Kind.TRANSFER, Kind.JOIN))
    op[named] = table[op[named]]
    of = step, kind, op, thread
    return likeness.placed(of, code, order, tasks["rank"], tasks["start_ns"], int(NULL), out)


def _predecessors(
    order: np.ndarray, place: np.ndarray, ptr: np.ndarray, src: np.ndarray, tasks: Columns,
    room: Room,
) -> tuple[np.ndarray, np.ndarray]:  # fmt: skip
    """Predecessors in CSR form; fills gaps, spans and lateness."""
    kept, ends = room.kept, room.aside["ends"]
    pred_ptr, pred = kept["pred_ptr"], kept["pred"]
    many = gathered.predecessors(
        order, place, ptr, src, *(tasks[c] for c in ("what", "start_ns", "dur_ns")), PIN, int(NULL),
        ends, pred_ptr, pred, *(kept[c] for c in ("gap_ns", "dur_ns", "late_ns")),
    )  # fmt: skip
    return pred_ptr, pred[:many]


def _columns(
    order: np.ndarray, tasks: Columns, known: Parts, table: np.ndarray, words: Words, room: Columns
) -> list[Callable[[], None]]:
    """What fills the columns that no replay is needed for, some tasks each."""
    arrays = (
        order, *(tasks[c] for c in columns.TASKS),
        *(known.columns[c] for c in columns.PARTS), known.arrive[known.first], known.first, KIND,
        table, _shape_codes(words.shapes), int(NULL), int(Kind.JOIN),
        *(room[c] for c in columns.COLUMNS),
    )  # fmt: skip
    cuts = np.linspace(0, len(order), PIECES + 1).astype(int).tolist()
    return [partial(columns.fill, a, b, *arrays) for a, b in pairwise(cuts)]


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
    code = np.zeros(max(1, len(shapes)), np.int32)
    code[np.lexsort((shapes[:, 1], shapes[:, 0]))] = np.arange(len(shapes))
    return code
