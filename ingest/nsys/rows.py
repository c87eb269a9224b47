"""Rows of `events` from a report's tables: device work, synchronisation, host calls, ranges."""

from __future__ import annotations

from collections.abc import Callable, Iterator

import numpy as np
import pyarrow as pa

from .. import kernels
from ..kineto.events import record_batch
from ..kineto.rawbatch import NULL
from ..kineto.steps import numbers_of, step_index_at
from ..schema import TEXT, event_id
from ..scratch import Scratch
from ..sorting import Lookup, Sorted, share
from . import nvtx
from .arrow import compute as pc
from .columns import (
    CUDA_EVENT,
    EVENT_SPACE,
    KERNEL,
    MEMCPY,
    MEMSET,
    ROW_BITS,
    RUNTIME,
    SYNC,
)  # fmt: skip
from .commkernels import CommKernels, comm_kernels, joined
from .encode import (
    SYNC_KINDS,
    categories,
    coded,
    copy_name,
    int32,
    names_of,
    nullable,
    product,
    same,
    set_name,
    small,
    stream_of,
)
from .rank import Rank
from .tables import Report
from .times import Clock, spans
from .who import TID_MASK, process_key

BATCH_ROWS = 131_072
STREAM_WAITS = 2
"""The `syncType` of a stream that waits for an event."""

_RECORD = ("globalPid", "eventId", "eventSyncId")
"""What names an event's record, and a wait for it."""


class Maker:
    """Makes rows of `events` of one report; keeps what steps and collectives need of them."""

    def __init__(self, report: Report, clock: Clock, ranks: dict[int, Rank]):
        self._report = report
        self._clock = clock
        self._ranks = ranks
        self.comm_kernels: dict[int, CommKernels] = {}

    def device(self, table: str) -> Iterator[pa.RecordBatch]:
        """Kernels, copies, sets or whole graphs, by rank in order of start."""
        for rank, pieces in self._by_start(table, lambda t: _numbers(table, t)):
            kept: list[CommKernels] = []
            for start, row, end, *numbers in pieces:
                yield from self._of_rank(table, rank, start, row, end, numbers, kept)
            if kept:
                self.comm_kernels[rank.rank] = joined(kept)

    def _by_start(
        self, table: str, numbers: Callable[[pa.Table], list[np.ndarray]]
    ) -> Iterator[tuple[Rank, Iterator[np.ndarray]]]:
        """Of each rank start, row, end and the numbers of its rows, in order of start."""
        scratch = Scratch()  # one for all: of files a process may have few
        held = {key: Sorted(2, share(len(self._ranks)), scratch) for key in self._ranks}
        at = 0
        for batch in self._report.batches(table):
            row, start, end = spans(batch, self._clock, self._report, table, at)
            t = batch.take(pa.array(row)) if len(row) < batch.num_rows else batch
            key = process_key(t["globalPid"].fill_null(0).to_numpy())
            columns = [start, row + at, end, *numbers(t)]
            for k, its in held.items():
                mine = np.flatnonzero(key == k)
                its.add(*(c[mine] for c in columns))
            at += batch.num_rows
        for k, rank in self._ranks.items():
            yield rank, held.pop(k).pieces(BATCH_ROWS)

    def _described(
        self, table: str, what: np.ndarray
    ) -> tuple[pa.DictionaryArray, dict[str, str] | str | None, str]:
        """Names as a dictionary, the category of each (or of all), and the kind; see `_what`."""
        if table == KERNEL:
            names = names_of(what, self._report.strings, "unknown kernel")
            words = names.dictionary.to_pylist()
            return names, {w: kernels.category_of_kernel(w) for w in words}, "kernel"
        if table == MEMCPY:
            return coded(what, copy_name), "copy", "memcpy"
        if table == MEMSET:
            return coded(what, set_name), "memset", "memset"
        return coded(what, lambda i: f"graph {i}" if i >= 0 else "graph"), None, "other"

    def _of_rank(
        self, table: str, rank: Rank, start: np.ndarray, row: np.ndarray, end: np.ndarray,
        numbers: list[np.ndarray], kept: list[CommKernels],
    ) -> Iterator[pa.RecordBatch]:  # fmt: skip
        what, device, streams, correlation, *sizes = numbers
        names, category, kind = self._described(table, what)
        launched, thread = rank.launched(correlation)
        index = step_index_at(rank.steps, launched)
        rank.work(index, start, end)
        rank.see(start, end)
        step = numbers_of(rank.steps, index)
        ids = _ids(rank.rank, table, row)
        stream = stream_of(nullable(streams))
        columns = {
            "rank": np.full(len(row), rank.rank, np.int32),
            "event_id": ids,
            "kind": same(kind, len(row)),
            "name": names,
            "stream": stream,
            "device": int32(nullable(device)),
            "start_ns": start,
            "dur_ns": end - start,
            "correlation": nullable(correlation),
            "step": nullable(step),
        }
        categorized = {} if category is None or isinstance(category, str) else category
        if isinstance(category, str):
            columns["category"] = same(category, len(row))
        elif categorized:
            columns["category"] = categories(names, categorized)
        if table == KERNEL:
            columns["grid_blocks"] = nullable(sizes[0])
            columns["block_threads"] = int32(nullable(sizes[1]))
            mine = comm_kernels(
                names, categorized, ids, start, end, stream, launched, thread, step, sizes[0]
            )
            if mine is not None:
                kept.append(mine)
        elif table in (MEMCPY, MEMSET):
            columns["bytes"] = nullable(sizes[0])
        yield from events(columns)

    def synchronisation(self) -> Iterator[pa.RecordBatch]:
        """Waits of streams and of the host, with the record of the event that is waited for."""
        records = _records(self._report)

        def numbers(t: pa.Table) -> list[np.ndarray]:
            waits = t["syncType"].fill_null(0).to_numpy() == STREAM_WAITS
            found = np.full((2, t.num_rows), NULL)
            asked = [_ints(t, c) for c in _RECORD]
            waits &= np.all([a != NULL for a in asked], axis=0)
            found[:, waits] = records.find(*(a[waits] for a in asked))
            return [small(t["syncType"]), _ints(t, "streamId"), _ints(t, "correlationId"), *found]

        for rank, pieces in self._by_start(SYNC, numbers):
            for start, row, end, kind, stream, correlation, *waited in pieces:
                called, _ = rank.launched(correlation)
                rank.see(start, end)
                index = step_index_at(rank.steps, np.where(called != NULL, called, start))
                yield from events(
                    {
                        "rank": np.full(len(row), rank.rank, np.int32),
                        "event_id": _ids(rank.rank, SYNC, row),
                        "kind": same("sync", len(row)),
                        "name": coded(kind, lambda c: SYNC_KINDS.get(c, "Sync")),
                        "stream": stream_of(nullable(stream)),
                        "start_ns": start,
                        "dur_ns": end - start,
                        "correlation": nullable(correlation),
                        "wait_stream": nullable(waited[0]),
                        "wait_correlation": nullable(waited[1]),
                        "step": nullable(numbers_of(rank.steps, index)),
                    }
                )
        records.close()

    def host(self, table: str, kind: str) -> Iterator[pa.RecordBatch]:
        """Runtime calls, or the profiler's own overhead."""
        at = 0
        for batch in self._report.batches(table):
            row, start, end = spans(batch, self._clock, self._report, table, at)
            t = batch.take(pa.array(row))
            names = names_of(_ints(t, "nameId"), self._report.strings, "unknown call")
            correlation = t["correlationId"].combine_chunks() if table == RUNTIME else None
            yield from self._on_threads(table, kind, t, row + at, start, end, names, correlation)
            at += batch.num_rows

    def ranges(self) -> Iterator[pa.RecordBatch]:
        """NVTX ranges and marks as annotations."""
        for batch, (row, start, end, ids) in nvtx.batches(self._report, self._clock):
            t = batch.take(pa.array(row))
            text = nvtx.text_or_id(self._report, t["text"], t["textId"])
            names = pc.fill_null(text, "").dictionary_encode()
            marks = t["eventType"].fill_null(0).to_numpy() == nvtx.MARK
            kinds = pa.DictionaryArray.from_arrays(
                pa.array(marks.astype(np.int32)), pa.array(["annotation", "instant"])
            )
            yield from self._on_threads(nvtx.NVTX, kinds, t, ids, start, end, names, None)

    def _on_threads(
        self, table: str, kind, t: pa.Table, ids: np.ndarray, start: np.ndarray, end: np.ndarray,
        names: pa.DictionaryArray, correlation: pa.Array | None,
    ) -> Iterator[pa.RecordBatch]:  # fmt: skip
        tid = t["globalTid"].fill_null(0).to_numpy()
        key = process_key(tid)
        for k, rank in self._ranks.items():
            mine = np.flatnonzero(key == k)
            if not len(mine):
                continue
            mine = mine[np.argsort(start[mine], kind="stable")]
            take = pa.array(mine)
            rank.see(start[mine], end[mine])
            index = step_index_at(rank.steps, start[mine])
            columns = {
                "rank": np.full(len(mine), rank.rank, np.int32),
                "event_id": _ids(rank.rank, table, ids[mine]),
                "kind": same(kind, len(mine)) if isinstance(kind, str) else kind.take(take),
                "name": names.take(take),
                "thread": coded(tid[mine] & TID_MASK, str),
                "start_ns": start[mine],
                "dur_ns": (end - start)[mine],
                "step": nullable(numbers_of(rank.steps, index)),
            }
            if correlation is not None:
                columns["correlation"] = correlation.take(take)
            yield from events(columns)


def events(columns: dict) -> Iterator[pa.RecordBatch]:
    """Batches of `events` from columns of one length."""
    made = {name: pa.array(v) if isinstance(v, np.ndarray) else v for name, v in columns.items()}
    for name, v in made.items():
        if isinstance(v, pa.DictionaryArray) and v.type != TEXT:
            made[name] = pa.DictionaryArray.from_arrays(
                v.indices.cast(pa.int32()), v.dictionary.cast(pa.string())
            )
    n = len(made["event_id"])
    for at in range(0, n, BATCH_ROWS):
        its = {name: v.slice(at, BATCH_ROWS) for name, v in made.items()}
        yield record_batch(its, min(BATCH_ROWS, n - at))


def _ids(rank: int, table: str, row: np.ndarray) -> np.ndarray:
    return event_id(rank, "nsys", EVENT_SPACE[table] << ROW_BITS) + (
        row.astype(np.int64) & ((1 << ROW_BITS) - 1)
    )


def _ints(t: pa.Table, column: str) -> np.ndarray:
    """int64[rows], NULL null."""
    return t[column].fill_null(NULL).to_numpy()


def _numbers(table: str, t: pa.Table) -> list[np.ndarray]:
    """What names the work, its device, stream and correlation; sizes of a kernel or of a copy."""
    common = [_what(table, t), *(_ints(t, c) for c in ("deviceId", "streamId", "correlationId"))]
    if table == KERNEL:
        sizes = (product(t, *(f"{of}{axis}" for axis in "XYZ")) for of in ("grid", "block"))
        return [*common, *(s.fill_null(NULL).to_numpy() for s in sizes)]
    return [*common, _ints(t, "bytes")] if table in (MEMCPY, MEMSET) else common


def _what(table: str, t: pa.Table) -> np.ndarray:
    """int64[rows]: the id of a kernel's name, the kinds of a copy or of memory, or a graph's id."""
    if table == KERNEL:
        return pc.coalesce(t["demangledName"], t["shortName"]).fill_null(NULL).to_numpy()
    if table == MEMCPY:
        kind, source, target = (small(t[c]) for c in ("copyKind", "srcKind", "dstKind"))
        return kind << 16 | source << 8 | target
    if table == MEMSET:
        return small(t["memKind"])
    return t["graphId"].fill_null(-1).to_numpy()


def _records(report: Report) -> Lookup:
    """Stream and correlation of the first record of each event that has them."""
    found = Lookup(3, 3, 5)
    if "eventSyncId" in report.columns(CUDA_EVENT):
        for t in report.batches(CUDA_EVENT):
            key = [_ints(t, c) for c in _RECORD]
            known = np.all([k != NULL for k in key], axis=0)
            values = (_ints(t, c) for c in ("streamId", "correlationId"))
            found.add(*(c[known] for c in (*key, *values)))
    return found
