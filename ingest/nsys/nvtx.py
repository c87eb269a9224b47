"""NVTX ranges: those that are steps, those that are NCCL calls, and rows for all of them."""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
import pyarrow as pa

from ..classify import Dtype
from ..sorting import NULL
from . import payload
from .arrow import compute as pc
from .callranges import Calls
from .columns import NVTX
from .stepnames import step_of
from .tables import Report, text_or_id
from .times import Clock, spans
from .who import TID_MASK, process_key

MARK, PUSH_POP, START_END = 34, 59, 60
"""Event types of what happened in time."""
THREAD, DOMAIN = 39, 75
"""Event types that give a thread or a domain its name."""

_STEP_LIKE = r"(?i)step|iter"


@dataclass
class Ranges:
    """Ranges of one sort, in the order of the table: times in raw ns."""

    key: np.ndarray
    thread: np.ndarray
    start: np.ndarray
    end: np.ndarray
    row: np.ndarray

    def of(self, key: int) -> np.ndarray:
        """Index of a process's ranges."""
        return np.flatnonzero(self.key == key)


@dataclass
class StepRanges(Ranges):
    """Ranges named like steps; number -1 where the name has none."""

    family: np.ndarray
    number: np.ndarray


class Scan(NamedTuple):
    """What one pass over the ranges finds."""

    steps: StepRanges
    calls: Calls
    mpi_ranks: dict[int, int]
    """by process: MPI tracing names the thread, which is all that older exports have of it"""
    keys: set[int]
    """processes with ranges"""


def scan(report: Report, clock: Clock) -> Scan:
    """The ranges that steps and collectives come from, and ranks; times are absolute."""
    found = _Found(report, clock)
    for batch in report.batches(NVTX):
        found.take(batch)
    if found.lost:
        report.odd(
            "payload_unread", "NCCL payloads that no schema of the report describes, or cut ones",
            count=found.lost,
        )  # fmt: skip
    return Scan(_steps(found.steps), found.calls, found.mpi_ranks, found.keys)


class _Found:
    """What the batches so far held."""

    def __init__(self, report: Report, clock: Clock):
        self._report = report
        self._offset = clock.offset_ns
        self._schemas = payload.schemas(report)
        self._nccl_domains = {d for d, _ in self._schemas}
        self._families: dict[str, int] = {}
        self._at = 0
        self.steps: list[tuple] = []
        self.calls = Calls()
        self.mpi_ranks: dict[int, int] = {}
        self.keys: set[int] = set()
        self.lost = 0

    def take(self, batch: pa.Table) -> None:
        types = batch["eventType"].fill_null(PUSH_POP).to_numpy()
        text = text_or_id(self._report, batch["text"], batch["textId"])
        domain = batch["domainId"].fill_null(0).to_numpy()
        tid = batch["globalTid"].fill_null(0).to_numpy()
        self.keys.update(np.unique(process_key(tid)).tolist())
        self._take_names(types, text, domain, tid)
        start = batch["start"].fill_null(-1).to_numpy()
        end = batch["end"].fill_null(-1).to_numpy()
        timed = np.isin(types, (PUSH_POP, START_END)) & (start >= 0) & (end >= start)
        times = start + self._offset, end + self._offset
        self._take_steps(np.flatnonzero(timed & _true(pc.match_substring_regex(text, _STEP_LIKE))),
                         text, tid, *times)  # fmt: skip
        nccl = _true(pc.starts_with(text, "nccl"))
        if self._nccl_domains:
            named = text.is_valid().to_numpy(zero_copy_only=False)
            nccl |= named & np.isin(domain, list(self._nccl_domains))
        self._take_calls(np.flatnonzero(timed & nccl), batch, text, tid, *times)
        self._at += batch.num_rows

    def _take_names(
        self, types: np.ndarray, text: pa.Array, domain: np.ndarray, tid: np.ndarray
    ) -> None:
        """Events that name a domain or a thread."""
        for i in np.flatnonzero(types == DOMAIN).tolist():
            if text[i].as_py() == "NCCL":
                self._nccl_domains.add(int(domain[i]))
        for i in np.flatnonzero(types == THREAD).tolist():
            rank = re.fullmatch(r"MPI Rank (\d{1,7})", text[i].as_py() or "")
            if rank:
                self.mpi_ranks.setdefault(int(tid[i]) & ~TID_MASK, int(rank.group(1)))

    def _take_steps(
        self, rows: np.ndarray, text: pa.Array, tid: np.ndarray, start: np.ndarray, end: np.ndarray
    ) -> None:
        for i in rows.tolist():
            found = step_of(text[i].as_py() or "")
            if found:
                family = self._families.setdefault(found[0], len(self._families))
                self.steps.append(
                    (int(tid[i]), start[i], end[i], self._at + i, family, found[1])
                )  # fmt: skip

    def _take_calls(
        self, rows: np.ndarray, batch: pa.Table, text: pa.Array, tid: np.ndarray,
        start: np.ndarray, end: np.ndarray,
    ) -> None:  # fmt: skip
        if not len(rows):
            return
        took = pa.array(rows)
        blobs = batch["binaryData"].take(took).combine_chunks()
        integers, bad = payload.decode(_one(blobs, pa.binary()), self._schemas)
        self.lost += bad
        dtypes = _add_json(
            integers,
            text_or_id(self._report, batch["jsonText"].take(took), batch["jsonTextId"].take(took)),
        )
        names = [t.removeprefix("nccl") for t in text.take(took).to_pylist()]
        self.calls.add(tid[rows], start[rows], end[rows], rows + self._at, names, integers, dtypes)


def _one(column: pa.Array | pa.ChunkedArray, kind: pa.DataType) -> pa.Array:
    if isinstance(column, pa.ChunkedArray):
        return pa.concat_arrays(column.chunks) if column.num_chunks else pa.nulls(0, kind)
    return column


def _true(mask: pa.Array) -> np.ndarray:
    return mask.fill_null(False).to_numpy(zero_copy_only=False)


def _add_json(integers: dict[str, np.ndarray], texts: pa.Array) -> list[Dtype | None]:
    """Fills in what the bytes of a payload do not say; gives the element types."""
    dtypes: list[Dtype | None] = [None] * len(texts)
    if texts.null_count == len(texts):
        return dtypes
    for i, text in enumerate(texts.to_pylist()):
        for field, value in payload.of_json(text).items():
            if field == "dtype":
                dtypes[i] = payload.dtype_named(value)
            elif integers[field][i] == NULL:
                integers[field][i] = value
    return dtypes


def _steps(found: list[tuple]) -> StepRanges:
    columns = np.array(found, np.int64).reshape(-1, 6).T
    tid = columns[0]
    return StepRanges(process_key(tid), tid & TID_MASK, *columns[1:6])


def largest_places(calls: Calls) -> dict[int, tuple[int, int]]:
    """By process: size of the largest communicator it was seen to join, and its place there."""
    best: dict[int, tuple[int, int]] = {}
    for key, _, size, place in calls.joins():
        if key not in best or size > best[key][0]:
            best[key] = size, place
    return best


def batches(report: Report, clock: Clock) -> Iterator[tuple[pa.Table, tuple]]:
    """(batch, (row, start, end, first row of the batch)) of everything that happened in time."""
    at = 0
    for batch in report.batches(
        NVTX, "start", "end", "eventType", "text", "textId", "globalTid"
    ):  # fmt: skip
        n = batch.num_rows
        types = batch["eventType"].fill_null(PUSH_POP).to_numpy()
        rows = np.flatnonzero(np.isin(types, (MARK, PUSH_POP, START_END)))
        kept = batch.take(pa.array(rows)) if len(rows) < n else batch
        if kept.num_rows:
            if (types[rows] == MARK).any():
                ends = pc.if_else(pa.array(types[rows] == MARK), kept["start"], kept["end"])
                kept = kept.set_column(kept.schema.get_field_index("end"), "end", ends)
            row, start, end = spans(kept, clock, report, NVTX, rows + at)
            yield kept, (row, start, end, rows[row] + at)
        at += n
