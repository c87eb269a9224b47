"""The events of some ranks as arrays: what is read of them, from Parquet files or a frame."""

from __future__ import annotations

import threading
from collections.abc import Callable, Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np
import polars as pl
import pyarrow as pa
import pyarrow.parquet as pq

from ..store import reading
from .columns import coded, numbers
from .kinds import NULL
from .tables import DEVICE, HOST

COLUMNS = (
    "rank", "event_id", "kind", "name", "stream", "device", "thread", "start_ns", "dur_ns",
    "correlation", "category", "grid_blocks", "block_threads", "bytes", "wait_stream",
    "wait_correlation", "step",
)  # fmt: skip
"""What is read."""

KINDS = (*DEVICE, *HOST, "sync")
"""A row's `kind` is a place in this."""

CORE = (*DEVICE, "runtime", "sync")
"""Kinds that are read of every rank; those of `HOST` only of ranks that need them."""

_NULLS = {"device": -1, "grid_blocks": -1, "block_threads": -1, "bytes": 0,
          "step": -1, "rank": -1, "dur_ns": 0, "start_ns": 0}  # fmt: skip
"""What stands for null; elsewhere it is `NULL`."""


class Words:
    """Texts and their codes, in the order in which they came; that of null is -1."""

    def __init__(self) -> None:
        self.known: dict[str, int] = {}
        self._lock = threading.Lock()

    @property
    def texts(self) -> list[str]:
        """The texts by code."""
        return list(self.known)

    def codes(self, texts: Sequence[str | None]) -> list[int]:
        """The codes of some texts."""
        known = self.known
        with self._lock:
            return [-1 if t is None else known.setdefault(t, len(known)) for t in texts]

    def code(self, text: str) -> int:
        """The code of one text."""
        with self._lock:
            return self.known.setdefault(text, len(self.known))


class Events(NamedTuple):
    """Rows, int64 [n] where nothing else is said; `NULL` is null but where `_NULLS` says else."""

    rank: np.ndarray
    event_id: np.ndarray
    kind: np.ndarray
    """int8: a place in `KINDS`."""
    name: np.ndarray
    """int32: a code of the job's `Words`, as is `thread`."""
    stream: np.ndarray
    device: np.ndarray
    thread: np.ndarray
    start_ns: np.ndarray
    dur_ns: np.ndarray
    correlation: np.ndarray
    is_comm: np.ndarray
    """bool: the category is that of communication."""
    grid_blocks: np.ndarray
    block_threads: np.ndarray
    bytes: np.ndarray
    wait_stream: np.ndarray
    wait_correlation: np.ndarray
    step: np.ndarray

    def of(self, *kinds: str) -> np.ndarray:
        """Rows of these kinds, int64."""
        places = [KINDS.index(k) for k in kinds]
        low, high = min(places), max(places)
        if high - low + 1 == len(set(places)):  # side by side: no table
            return np.flatnonzero((self.kind >= low) & (self.kind <= high))
        chosen = np.zeros(len(KINDS), bool)
        chosen[places] = True
        return np.flatnonzero(chosen[self.kind])

    def take(self, rows: np.ndarray) -> Some:
        """Some of the rows."""
        return Some(self, rows)


class Some:
    """Some rows of events: a column of `Events` is taken when it is asked for first."""

    def __init__(self, events: Events, rows: np.ndarray):
        self._events, self._rows = events, rows

    def __getattr__(self, name: str) -> np.ndarray:
        if name.startswith("_"):
            raise AttributeError(name)
        taken = getattr(self._events, name)[self._rows]
        self.__dict__[name] = taken
        return taken

    def __len__(self) -> int:
        return len(self._rows)

    def take(self, rows: np.ndarray) -> Some:
        """Some of these."""
        return Some(self._events, self._rows[rows])


Needed = Callable[[np.ndarray, np.ndarray, np.ndarray], np.ndarray]
"""Places in `KINDS` (int8 [n]), ranks and events (int64 [n]) -> the rows that count (int64)."""


def of_frame(
    frame: pl.DataFrame, words: Words, needed: Needed, categories: Mapping[str, str] | None = None
) -> Events:
    """The rows of a frame with these columns (left out: null) that count."""
    table = frame.select(c for c in COLUMNS if c in frame.columns).to_arrow()
    return _of_tables([table], words, needed, categories or {})


def of_files(
    files: Sequence[tuple[str, pq.FileMetaData]],
    words: Words,
    needed: Needed,
    categories: Mapping[str, str],
) -> Events:
    """The rows of Parquet files, each with what its footer says, that count."""
    tables = []
    for path, meta in files:
        with reading.parquet(path, meta) as file:
            for g in range(file.num_row_groups):
                columns = _with_values(meta.row_group(g))
                tables.append(file.read_row_group(g, columns=columns, use_threads=False))
    if not tables:
        return of_frame(pl.DataFrame({"kind": []}, {"kind": pl.String}), words, needed)
    return _of_tables(tables, words, needed, categories)


def _with_values(group: pq.RowGroupMetaData) -> list[str]:
    """The columns that a row group has and has values in, as its own statistics say."""
    found = ["kind"]
    for i in range(group.num_columns):
        column = group.column(i)
        name = column.path_in_schema
        if name in COLUMNS and name != "kind":
            told = column.statistics
            bare = told is not None and told.has_null_count and told.null_count == group.num_rows
            if not bare:
                found.append(name)
    return found


def _of_tables(
    tables: Sequence[pa.Table], words: Words, needed: Needed, categories: Mapping[str, str]
) -> Events:
    every = np.arange(sum(t.num_rows for t in tables))
    kind = coded(tables, "kind", every, _places).astype(np.int8)
    kept = np.flatnonzero(kind >= 0)
    rank, event = (_numbers(tables, name, kept) for name in ("rank", "event_id"))
    kind = kind[kept]
    some = needed(kind, rank, event)
    if len(some) < len(kept):
        kept, kind, rank, event = kept[some], kind[some], rank[some], event[some]
    columns: dict[str, Any] = {"kind": kind, "rank": rank, "event_id": event}
    for name in COLUMNS:
        if name in ("name", "thread"):
            columns[name] = coded(tables, name, kept, words.codes)
        elif name not in columns and name != "category":
            columns[name] = _numbers(tables, name, kept)
    is_comm = coded(tables, "category", kept, _are_comm) == 1
    if categories:
        is_comm = _by_rules(columns["name"], columns["kind"], is_comm, words, categories)
    return Events(is_comm=is_comm, **columns)


def _places(kinds: Sequence[str | None]) -> list[int]:
    return [KINDS.index(k) if k in KINDS else -1 for k in kinds]


def _are_comm(categories: Sequence[str | None]) -> list[int]:
    return [int(c == "comm") for c in categories]


def _by_rules(
    name: np.ndarray, kind: np.ndarray, is_comm: np.ndarray, words: Words, said: Mapping[str, str]
) -> np.ndarray:
    """What a job's own rules say of its kernels' names takes the place of what was stored."""
    texts = words.texts
    known = np.array([t in said for t in texts] + [False])
    comm = np.array([said.get(t) == "comm" for t in texts] + [False])
    ruled = known[name] & (kind == KINDS.index("kernel"))
    return np.where(ruled, comm[name], is_comm)


def _numbers(tables: Sequence[pa.Table], name: str, rows: np.ndarray) -> np.ndarray:
    return numbers(tables, name, rows, _NULLS.get(name, int(NULL)))
