"""The events of one rank after another, from all sources of a job, as arrays."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
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
from ..scratch import Scratch
from ..writer import ROW_GROUP_ROWS
from .aligned import Odd
from .causes import BLOCKING, collects_garbage, loads_data
from .segmented import LEAST, runs

COLUMNS = ("rank", "event_id", "kind", "name", "thread", "start_ns", "dur_ns", "correlation",
           "category")  # fmt: skip
KINDS = ("kernel", "memcpy", "memset", "runtime", "host_op", "annotation", "python")
KERNEL, MEMCPY, MEMSET, RUNTIME, HOST_OP, ANNOTATION, PYTHON = range(len(KINDS))

LOADS, GARBAGE = 1, 2
"""An event of the host is a wait for data; it collects garbage."""

HELD_ROWS = 250_000
"""Rows of the ranks of a source that are held at a time; of more they wait on a disk."""

MOST_ROWS = 12_000_000
"""Rows of a rank without a device, which are looked at together."""

AHEAD_ROWS = 100_000
"""From so many on they are read by a thread, a row group ahead of what picks among them."""

GIVE_BACK_ROWS = 200_000
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


class Rows:
    """The rows of a rank that tell of work, launches and waits for data."""

    def __init__(self, rank: int, on_device: bool, kept: Kept):
        self.rank = rank
        self.on_device = on_device
        """it has kernels"""
        self._kept = kept

    def __len__(self) -> int:
        return self._kept.rows(self.rank)

    def whole(self) -> Events:
        """All of them; they are for the caller to let go."""
        columns = [np.concatenate(c) for c in zip(*self._kept.pieces(self.rank), strict=True)]
        self.forget()
        return Events(self.rank, *columns) if columns else nothing(self.rank)

    def forget(self) -> None:
        """Lets go of them."""
        self._kept.forget(self.rank)

    def pieces(self) -> Iterator[Events]:
        """All of them, some at a time."""
        for columns in self._kept.pieces(self.rank):
            yield Events(self.rank, *columns)


def nothing(rank: int) -> Events:
    """No rows of a rank."""
    return Events(rank, *(np.zeros(0, t) for t in TYPES))


def without_events(rank: int) -> Rows:
    """A rank that has none."""
    return Rows(rank, False, Kept(TYPES))


def by_rank(
    opened: slices.Open,
    manifests: Sequence[Manifest],
    words: Words,
    at_hand: Callable[[Manifest, Words], Rows | None] = lambda source, words: None,
) -> Iterator[Rows]:
    """The events of each rank that has any, in order of rank within what is read together.

    What `at_hand` gives of a source that shares no rank is not read. Raises Odd for rows without a
    rank, for a rank in a source that does not name it, for more rows of one rank than may be held,
    and for a file that cannot be read.
    """
    for group in _together(manifests):
        parts = [p for m in group for p in m.tables.get("events", [])]
        if not parts:
            continue
        if len(group) == 1 and (rows := at_hand(group[0], words)) is not None:
            yield rows
            rows.forget()
            continue
        ranks = sorted({r for m in group for r in m.ranks})
        if not ranks:
            raise Odd
        yield from _read(opened, parts, ranks, words)


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


def _read(opened: slices.Open, parts: list[Part], ranks: list[int], words: Words) -> Iterator[Rows]:
    devices = _with_kernels(opened, parts)
    kept = Kept(TYPES)
    # A pack numbers texts otherwise, and rows here are in the order of these numbers.
    pieces: Iterator[pa.Table] = map(slices.renumbered, _pieces(opened, parts, COLUMNS))
    if sum(p.rows for p in parts) >= AHEAD_ROWS and cores() > 1:
        pieces = prefetch(pieces)
    read = 0
    for piece in pieces:
        kept.add(*needed(piece, ranks, devices, words))
        read += len(piece)
        del piece
        if read >= GIVE_BACK_ROWS:
            memory.give_back()
            read = 0
    if kept.all_rows > HELD_ROWS:
        memory.give_back()
    on_device = set(devices.tolist())
    for rank in kept.ranks():
        if rank not in on_device and kept.rows(rank) > MOST_ROWS:
            raise Odd
        rows = Rows(rank, rank in on_device, kept)
        yield rows
        rows.forget()


TYPES = (np.int8, np.int32, np.int32, np.int32, np.int64, np.int64, np.int64, np.int64, np.int8)
"""Of the columns of `Events`."""


class Kept:
    """Rows by rank, in the order in which they were added; columns of these types.

    Beyond `held_rows` of them (`HELD_ROWS`) they wait on a disk.
    """

    def __init__(self, types: Sequence[type], held_rows: int | None = None):
        self._types = types
        self._most = HELD_ROWS if held_rows is None else held_rows
        self._held: dict[int, list[list[np.ndarray]]] = {}
        self._n_held = 0
        self._away: dict[int, list[tuple[int, int]]] = {}
        self._rows: dict[int, int] = {}
        self._scratch = Scratch()
        self.all_rows = 0

    def add(self, rank: np.ndarray, columns: list[np.ndarray]) -> None:
        """Takes rows of any ranks."""
        if not len(rank):
            return
        if rank[0] == rank[-1] and np.all(rank == rank[0]):
            found = [(int(rank[0]), columns)]
        else:
            by = runs(rank)
            each = np.split(by.order, by.first[1:])
            found = [(int(rank[rows[0]]), [c[rows] for c in columns]) for rows in each]
        for one, its in found:
            self._held.setdefault(one, []).append(its)
            self._rows[one] = self._rows.get(one, 0) + len(its[0])
        self._n_held += len(rank)
        self.all_rows += len(rank)
        if self._n_held > self._most:
            self._put_away()

    def _put_away(self) -> None:
        for rank, pieces in self._held.items():
            rows = np.stack([np.concatenate(c) for c in zip(*pieces, strict=True)])
            self._away.setdefault(rank, []).append((self._scratch.put(rows), rows.shape[1]))
        self._held, self._n_held = {}, 0

    def ranks(self) -> list[int]:
        """Those that have rows, in order."""
        return sorted(self._rows)

    def rows(self, rank: int) -> int:
        """How many a rank has."""
        return self._rows.get(rank, 0)

    def pieces(self, rank: int) -> Iterator[list[np.ndarray]]:
        """The columns of its rows, some at a time."""
        for at, n in self._away.get(rank, []):
            for first in range(0, n, ROW_GROUP_ROWS):
                rows = min(ROW_GROUP_ROWS, n - first)
                yield [
                    self._scratch.get(at + 8 * (c * n + first), rows).astype(t)
                    for c, t in enumerate(self._types)
                ]
        yield from self._held.get(rank, [])

    def forget(self, rank: int) -> None:
        """Lets go of its rows."""
        self._held.pop(rank, None)
        self._away.pop(rank, None)


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


def needed(
    piece: pa.Table, ranks: list[int], devices: np.ndarray, words: Words
) -> tuple[np.ndarray, list[np.ndarray]]:
    """The ranks of the rows that tell anything, and the columns of `Events` of them."""
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
    thread, threads = coded(piece["thread"])
    category, categories = coded(piece["category"])
    start, event = ints(piece, "start_ns", null), ints(piece, "event_id", null)
    # Of the many frames of Python's stack only marks tell anything.
    told = (kind >= 0) & ((kind != PYTHON) | (marks > 0))
    if np.any(told & ((start == LEAST) | (event == LEAST))):
        raise Odd
    # Codes are few: half the width is room for all of them.
    return rank[rows], [
        kind[rows], number.astype(np.int32),
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
