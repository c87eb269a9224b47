"""The events of one rank after another, from all sources of a job, as arrays."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, fields
from typing import NamedTuple

import numpy as np
import pyarrow as pa

from .. import memory
from ..ahead import cores, prefetch
from ..keeping import slices
from ..manifest import Manifest, Part
from ..matching.participations import ints
from ..schema import EVENTS
from .aligned import Odd
from .causes import BLOCKING, collects_garbage, loads_data
from .segmented import LEAST

COLUMNS = ("rank", "event_id", "kind", "name", "thread", "start_ns", "dur_ns", "correlation",
           "category")  # fmt: skip
KINDS = ("kernel", "memcpy", "memset", "runtime", "host_op", "annotation", "python")
KERNEL, MEMCPY, MEMSET, RUNTIME, HOST_OP, ANNOTATION, PYTHON = range(len(KINDS))

LOADS, GARBAGE = 1, 2
"""An event of the host is a wait for data; it collects garbage."""

MOST_ROWS = 12_000_000
"""Rows of a source that are held at a time; the ranks of a larger one are read in turns. Where
ranks have unequal shares, of which no manifest tells, up to twice as many."""

AHEAD_ROWS = 100_000
"""From so many on they are read by a thread, a row group ahead of what picks among them."""

GIVE_BACK_ROWS = 1_000_000
"""From so many on the memory that reading them took is given back."""


class Texts:
    """Numbers for texts that come again and again, the same for the same text."""

    def __init__(self) -> None:
        self.all: list[str] = []
        self._at: dict[str, int] = {}

    def codes(self, texts: Sequence[str | None]) -> np.ndarray:
        """int64[texts + 1]: the number of each, -1 for None and at the end."""
        out = np.full(len(texts) + 1, -1, np.int64)
        for i, text in enumerate(texts):
            if text is not None:
                if (at := self._at.get(text)) is None:
                    at = self._at[text] = len(self.all)
                    self.all.append(text)
                out[i] = at
        return out

    def of(self, code: np.ndarray, texts: pa.Array) -> np.ndarray:
        """The numbers of rows by their codes of `texts`, -1 null.

        Texts that none of the rows has get no number: a file may have one for every range of its
        hosts.
        """
        used = np.flatnonzero(np.bincount(code[code >= 0], minlength=len(texts)))
        out = np.full(len(texts) + 1, -1, np.int64)
        out[used] = self.codes(texts.take(pa.array(used)).to_pylist())[:-1]
        return out[code]


@dataclass(slots=True)
class Events:
    """The rows of a rank that tell of work, launches and waits for data; arrays of one length."""

    rank: int
    kind: np.ndarray
    """code in KINDS"""
    name: np.ndarray
    """code in the job's names, -1 null, and of annotations and frames, whose `marks` say enough"""
    thread: np.ndarray
    """code in the job's threads, -1 null"""
    category: np.ndarray
    """code in the job's categories, -1 null"""
    event: np.ndarray
    start_ns: np.ndarray
    dur_ns: np.ndarray
    """`LEAST` null"""
    correlation: np.ndarray
    """`LEAST` null"""
    marks: np.ndarray
    """LOADS and GARBAGE, added up, of host kinds"""

    def let_go(self) -> None:
        """Forgets the rows, for whoever holds it: what they were used for takes their place."""
        for f in fields(self)[1:]:
            setattr(self, f.name, np.zeros(0, getattr(self, f.name).dtype))


class Words(NamedTuple):
    """The texts of a job's events."""

    names: Texts
    threads: Texts
    categories: Texts


def by_rank(opened: slices.Open, manifests: Sequence[Manifest], words: Words) -> Iterator[Events]:
    """The events of each rank that has any, in order of rank within what is read together.

    Raises Odd for rows without a rank, for a rank in a source that does not name it, for more
    rows of one rank than may be held, and for a file that cannot be read.
    """
    for group in _together(manifests):
        parts = [p for m in group for p in m.tables.get("events", [])]
        if not parts:
            continue
        ranks = sorted({r for m in group for r in m.ranks})
        rows = sum(p.rows for p in parts)
        turns = min(len(ranks), -(-rows // MOST_ROWS))
        if not ranks or rows > MOST_ROWS * turns:
            raise Odd
        for turn in np.array_split(np.array(ranks), turns):
            yield from _read(opened, parts, ranks, turn, words)


def _together(manifests: Sequence[Manifest]) -> list[list[Manifest]]:
    """Sources that share a rank are read together; in order of their lowest rank."""
    at: dict[int, list[Manifest]] = {}
    for m in sorted(manifests, key=lambda m: m.id):
        if not m.tables.get("events"):
            continue
        if not m.ranks:
            raise Odd
        groups = {id(g): g for r in m.ranks if (g := at.get(r)) is not None}
        whole = [m]
        for g in groups.values():
            whole = g + whole
        for r in {r for one in whole for r in one.ranks}:
            at[r] = whole
    found = {id(g): g for g in at.values()}
    return sorted(found.values(), key=lambda g: min(r for m in g for r in m.ranks))


def _read(
    opened: slices.Open, parts: list[Part], ranks: list[int], turn: np.ndarray, words: Words
) -> Iterator[Events]:
    devices = _with_kernels(opened, parts)
    # What a manifest says of rows may not be so; room that is not used costs nothing.
    room = _Room(min(sum(p.rows for p in parts), MOST_ROWS))
    # A pack numbers texts otherwise, and rows here are in the order of these numbers.
    pieces: Iterator[pa.Table] = map(slices.renumbered, _pieces(opened, parts, COLUMNS))
    if sum(p.rows for p in parts) >= AHEAD_ROWS and cores() > 1:
        pieces = prefetch(pieces)
    for piece in pieces:
        room.add(_needed(piece, ranks, turn, devices, words))
        if room.n > 2 * MOST_ROWS:
            raise Odd
        del piece
    if not room.n:
        return
    whole = room.columns()
    if room.n >= GIVE_BACK_ROWS:
        memory.give_back()
    del room
    rank = whole[0]
    if len(rank) and rank[0] == rank[-1] and np.all(rank == rank[0]):
        one = Events(int(rank[0]), *whole[1:])
        del rank, whole  # `one` is let go by who takes it
        yield one
        return
    order = np.argsort(rank, kind="stable")
    for rows in np.split(order, np.flatnonzero(np.diff(rank[order])) + 1):
        if len(rows):
            yield Events(int(rank[rows[0]]), *(c[rows] for c in whole[1:]))


class _Room:
    """Columns that are filled piece by piece, so that they stand in memory once."""

    def __init__(self, rows: int):
        self._rows = rows
        self._columns: list[np.ndarray] = []
        self.n = 0

    def add(self, piece: list[np.ndarray]) -> None:
        """Appends rows, an array a column; they are copied."""
        a, b = self.n, self.n + len(piece[0])
        if not self._columns:
            self._columns = [np.empty(max(self._rows, b), c.dtype) for c in piece]
        if b > len(self._columns[0]):
            for i, old in enumerate(self._columns):
                self._columns[i] = np.empty(2 * b, old.dtype)
                self._columns[i][:a] = old[:a]
        for column, values in zip(self._columns, piece, strict=True):
            column[a:b] = values
        self.n = b

    def columns(self) -> list[np.ndarray]:
        """What was added."""
        return [c[: self.n] for c in self._columns]


def _pieces(opened: slices.Open, parts: list[Part], columns: Sequence[str]) -> Iterator[pa.Table]:
    """All rows. Whoever asks for those of a damaged file is told; a job can be opened without."""
    try:
        for part in parts:
            yield from slices.pieces(opened, part, list(columns))
    except (pa.ArrowException, OSError) as e:
        raise Odd from e


def _with_kernels(opened: slices.Open, parts: list[Part]) -> np.ndarray:
    """Ranks that have a device: what their hosts did is no work of theirs."""
    found = {-1}
    for piece in _pieces(opened, parts, ("rank", "kind")):
        if "rank" in piece.column_names and "kind" in piece.column_names:
            kind, kinds = _dictionary(piece["kind"])
            if "kernel" in kinds:
                rank = ints(piece, "rank", -1)
                found.update(np.unique(rank[kind == kinds.index("kernel")]).tolist())
    return np.array(sorted(found), np.int64)


def _needed(
    piece: pa.Table, ranks: list[int], turn: np.ndarray, devices: np.ndarray, words: Words
) -> list[np.ndarray]:
    if missing := [c for c in COLUMNS if c not in piece.column_names]:
        nulls = {c: pa.nulls(len(piece), EVENTS.schema.field(c).type) for c in missing}
        for c, values in nulls.items():
            piece = piece.append_column(c, values)
    null = int(LEAST)
    rank = ints(piece, "rank", null)
    every = rank if len(rank) == 0 or rank.min() != rank.max() else rank[:1]
    if not np.all(np.isin(every, ranks)):
        raise Odd
    kind, kinds = _dictionary(piece["kind"])
    at = np.array([KINDS.index(k) if k in KINDS else -1 for k in kinds] + [-1], np.int8)
    kind = at[kind]
    name, names = coded(piece["name"])
    marks = of_rows(kind, name, names)
    correlation = ints(piece, "correlation", null)
    kept = _tells(kind, name, names, correlation, marks)
    kept |= ~np.isin(every, devices) & (kind >= 0) & (kind != PYTHON)
    rows = np.flatnonzero(kept)
    number = words.names.of(np.where(kind[rows] < ANNOTATION, name[rows], -1), names)
    in_turn = np.broadcast_to(np.isin(every, turn), len(rank))
    rows, number = rows[in_turn[rows]], number[in_turn[rows]]
    thread, threads = coded(piece["thread"])
    category, categories = coded(piece["category"])
    start, event = ints(piece, "start_ns", null), ints(piece, "event_id", null)
    # Of the many frames of Python's stack only marks tell anything.
    told = (kind >= 0) & in_turn & ((kind != PYTHON) | (marks > 0))
    if np.any(told & ((start == LEAST) | (event == LEAST))):
        raise Odd
    # Codes are few: half the width is room for all of them.
    return [
        rank[rows].astype(np.int32), kind[rows], number.astype(np.int32),
        words.threads.of(thread[rows], threads).astype(np.int32),
        words.categories.of(category[rows], categories).astype(np.int32), event[rows],
        start[rows], ints(piece, "dur_ns", null)[rows], correlation[rows], marks[rows],
    ]  # fmt: skip


def _tells(
    kind: np.ndarray, name: np.ndarray, names: pa.Array, correlation: np.ndarray, marks: np.ndarray
) -> np.ndarray:
    """bool: of a rank with a device, it is work, a launch, a blocking call or a mark."""
    call = kind == RUNTIME
    found = ((kind >= 0) & (kind <= MEMSET)) | (call & (correlation != LEAST)) | (marks > 0)
    called = _distinct(name[call])
    blocking = [n for n in called.tolist() if names[n].as_py() in BLOCKING]
    if blocking:
        found |= call & np.isin(name, blocking)
    return found


def of_rows(kind: np.ndarray, name: np.ndarray, names: pa.Array) -> np.ndarray:
    """int8[rows]: LOADS and GARBAGE, added up, of the rows of host kinds that are either."""
    found = np.zeros(len(kind), np.int8)
    for host in (HOST_OP, ANNOTATION, PYTHON):
        of = kind == host
        used = _distinct(name[of])
        if not len(used):
            continue
        texts = names.take(pa.array(used))
        what = LOADS * loads_data(texts, KINDS[host]) + GARBAGE * collects_garbage(
            texts, KINDS[host]
        )
        if what.any():
            by_name = np.zeros(len(names) + 1, np.int8)
            by_name[used] = what
            found[of] = by_name[name[of]]
    return found


def _distinct(codes: np.ndarray) -> np.ndarray:
    """The codes that there are, but for -1; by counting, as they are few."""
    return np.flatnonzero(np.bincount(codes[codes >= 0]))


def marked(events: Events, wanted: int) -> np.ndarray:
    """bool: rows that are what is wanted (LOADS, GARBAGE) of the host."""
    return (events.marks & wanted) > 0


def _dictionary(column: pa.ChunkedArray) -> tuple[np.ndarray, list[str | None]]:
    """Codes of a text column and its texts; -1 null."""
    code, texts = coded(column)
    return code, texts.to_pylist()


def coded(column: pa.ChunkedArray) -> tuple[np.ndarray, pa.Array]:
    """Codes of a text column and its texts as they are in memory; -1 null."""
    if not pa.types.is_dictionary(column.type):
        column = column.dictionary_encode()
    if column.num_chunks > 1:
        column = column.unify_dictionaries()
    flat = column.combine_chunks()
    if isinstance(flat, pa.ChunkedArray):
        if not flat.num_chunks:
            return np.zeros(0, np.int64), pa.array([], pa.string())
        flat = flat.chunk(0)
    index = flat.indices.fill_null(-1).to_numpy(zero_copy_only=False).astype(np.int64)
    return index, flat.dictionary
