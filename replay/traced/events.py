"""The events of some ranks as arrays: what is read of them, from Parquet files or a frame."""

from __future__ import annotations

import threading
from collections.abc import Callable, Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np
import polars as pl
import pyarrow as pa

from ...ingest.store import reading
from ..graph import NULL
from .columns import coded, numbers
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
        chosen = np.zeros(len(KINDS), bool)
        chosen[[KINDS.index(k) for k in kinds]] = True
        return np.flatnonzero(chosen[self.kind])

    def take(self, rows: np.ndarray) -> Events:
        """Some of the rows."""
        return Events(*(column[rows] for column in self))


Needed = Callable[[np.ndarray, np.ndarray, np.ndarray], np.ndarray]
"""Places in `KINDS` (int8 [n]), ranks and events (int64 [n]) -> the rows that count (int64)."""


def of_frame(
    frame: pl.DataFrame, words: Words, needed: Needed, categories: Mapping[str, str] | None = None
) -> Events:
    """The rows of a frame with these columns (left out: null) that count."""
    table = frame.select(c for c in COLUMNS if c in frame.columns).to_arrow()
    return _of_table(table, words, needed, categories or {})


def of_files(
    paths: Sequence[str], words: Words, needed: Needed, categories: Mapping[str, str]
) -> Events:
    """The rows of Parquet files that count."""
    tables = []
    for path in paths:
        with reading.parquet(path) as file:
            known = set(file.schema_arrow.names)
            columns = [c for c in COLUMNS if c in known]
            groups = range(file.num_row_groups)
            tables += [file.read_row_group(g, columns=columns, use_threads=False) for g in groups]
    if not tables:
        return of_frame(pl.DataFrame({"kind": []}, {"kind": pl.String}), words, needed)
    return _of_table(_together(tables), words, needed, categories)


def _together(tables: Sequence[pa.Table]) -> pa.Table:
    """The rows of files of which some may lack columns."""
    if len({tuple(t.column_names) for t in tables}) == 1:
        return pa.concat_tables(tables)
    return pa.concat_tables(tables, promote_options="default")


def _of_table(
    table: pa.Table, words: Words, needed: Needed, categories: Mapping[str, str]
) -> Events:
    every = np.arange(table.num_rows)
    kind = coded(table["kind"], every, _places).astype(np.int8)
    kept = np.flatnonzero(kind >= 0)
    rank, event = (_numbers(table, name, kept) for name in ("rank", "event_id"))
    some = needed(kind[kept], rank, event)
    if len(some) < len(kept):
        kept, rank, event = kept[some], rank[some], event[some]
    columns: dict[str, Any] = {"kind": kind[kept], "rank": rank, "event_id": event}
    for name in COLUMNS:
        if name in columns or name == "category":
            continue
        if name in ("name", "thread"):
            there = name in table.column_names
            columns[name] = (
                coded(table[name], kept, words.codes) if there else np.full(len(kept), -1, np.int32)
            )
        else:
            columns[name] = _numbers(table, name, kept)
    is_comm = np.zeros(len(kept), bool)
    if "category" in table.column_names:
        is_comm = coded(table["category"], kept, _are_comm) == 1
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


def _numbers(table: pa.Table, name: str, rows: np.ndarray) -> np.ndarray:
    null = _NULLS.get(name, int(NULL))
    if name not in table.column_names:
        return np.full(len(rows), null)
    return numbers(table[name], rows, null)
