"""Rows of `events` from a report's tables: device work, synchronisation, host calls, ranges."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field, fields

import numpy as np
import pyarrow as pa

from .. import kernels
from ..kineto.launches import Launches, launch_of, launches
from ..kineto.rawbatch import NULL
from ..kineto.steps import HostSteps, numbers_of, step_index_at
from ..schema import TABLES, TEXT, event_id
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
from .tables import Report
from .times import Clock, spans
from .who import TID_MASK, Process, process_key

BATCH_ROWS = 131_072


@dataclass
class Rank:
    """A rank while its rows are made: how its work is joined to launches and steps."""

    process: Process
    rank: int
    steps: HostSteps
    calls: Launches
    first_ns: int = 1 << 62
    last_ns: int = -(1 << 62)
    work: list[tuple[np.ndarray, np.ndarray, np.ndarray]] = field(default_factory=list)
    """(step index, start, end) of device work"""

    def see(self, start: np.ndarray, end: np.ndarray) -> None:
        """Widens the time in which the rank was seen."""
        if len(start):
            self.first_ns = min(self.first_ns, int(start.min()))
            self.last_ns = max(self.last_ns, int(end.max()))


@dataclass
class CommKernels:
    """Communication kernels of a rank, in order of start."""

    event_id: np.ndarray
    name: list[str]
    start: np.ndarray
    end: np.ndarray
    stream: np.ndarray
    launch_ns: np.ndarray
    thread: np.ndarray
    step: np.ndarray
    blocks: np.ndarray


def _joined(parts: list[CommKernels]) -> CommKernels:
    names = [name for p in parts for name in p.name]
    arrays = {
        f.name: np.concatenate([getattr(p, f.name) for p in parts])
        for f in fields(CommKernels)
        if f.name != "name"
    }
    return CommKernels(name=names, **arrays)


def calls_of(report: Report, clock: Clock, keys: list[int]) -> dict[int, Launches]:
    """Launches by process, from the runtime calls."""
    parts: list[tuple[np.ndarray, np.ndarray, np.ndarray]] = []
    for batch in report.batches(RUNTIME, "start", "globalTid", "correlationId"):
        start = batch["start"].fill_null(NULL).to_numpy()
        tid = batch["globalTid"].fill_null(0).to_numpy()
        correlation = batch["correlationId"].fill_null(NULL).to_numpy()
        good = (start != NULL) & (correlation != NULL)
        parts.append((tid[good], correlation[good], start[good] + clock.offset_ns))
    none = np.empty(0, np.int64)
    tid, correlation, start = (
        (np.concatenate([p[k] for p in parts]) if parts else none) for k in range(3)
    )
    out = {}
    for key in keys:
        mine = process_key(tid) == key
        out[key] = launches(correlation[mine], start[mine], tid[mine] & TID_MASK)
    return out


class Maker:
    """Makes rows of `events` of one report; keeps what steps and collectives need of them."""

    def __init__(self, report: Report, clock: Clock, ranks: dict[int, Rank]):
        self._report = report
        self._clock = clock
        self._ranks = ranks
        self.comm_kernels: dict[int, CommKernels] = {}

    def device(self, table: str) -> Iterator[pa.RecordBatch]:
        """Kernels, copies, sets or whole graphs, by rank in order of start."""
        t = self._report.table(table)
        if not t.num_rows:
            return
        row, start, end = spans(t, self._clock, self._report, table)
        key = process_key(t["globalPid"].fill_null(0).to_numpy())[row]
        names, category, kind = self._described(table, t, row)
        for k, rank in self._ranks.items():
            mine = np.flatnonzero(key == k)
            mine = mine[np.argsort(start[mine], kind="stable")]
            kept: list[CommKernels] = []
            for at in range(0, len(mine), BATCH_ROWS):
                part = mine[at : at + BATCH_ROWS]
                yield from self._of_rank(
                    table, rank, t.take(pa.array(row[part])).combine_chunks(), row[part],
                    start[part], end[part], names.take(pa.array(part)), category, kind, kept,
                )  # fmt: skip
            if kept:
                self.comm_kernels[rank.rank] = _joined(kept)

    def _described(
        self, table: str, t: pa.Table, row: np.ndarray
    ) -> tuple[pa.DictionaryArray, dict[str, str] | str | None, str]:
        """Names of these rows as a dictionary, the category of each (or of all), and the kind."""
        rows = pa.array(row)
        if table == KERNEL:
            strings = self._report.strings
            ids = pc.coalesce(t["demangledName"], t["shortName"]).take(rows)
            names = names_of(ids, strings, "unknown kernel")
            words = names.dictionary.to_pylist()
            return names, {w: kernels.category_of_kernel(w) for w in words}, "kernel"
        if table == MEMCPY:
            kind, source, target = (
                small(t[c].take(rows)) for c in ("copyKind", "srcKind", "dstKind")
            )
            return coded(kind << 16 | source << 8 | target, copy_name), "copy", "memcpy"
        if table == MEMSET:
            return coded(small(t["memKind"].take(rows)), set_name), "memset", "memset"
        ids = t["graphId"].take(rows).fill_null(-1).to_numpy()
        return coded(ids, lambda i: f"graph {i}" if i >= 0 else "graph"), None, "other"

    def _of_rank(
        self, table: str, rank: Rank, t: pa.Table, row: np.ndarray, start: np.ndarray,
        end: np.ndarray, names: pa.DictionaryArray, category, kind: str, kept: list[CommKernels],
    ) -> Iterator[pa.RecordBatch]:  # fmt: skip
        correlation = t["correlationId"].fill_null(NULL).to_numpy()
        at = launch_of(rank.calls, correlation)
        launched = np.where(at >= 0, rank.calls.start_ns[at], NULL) if len(
            rank.calls.start_ns) else np.full(len(at), NULL)  # fmt: skip
        index = step_index_at(rank.steps, launched)
        rank.work.append((index, start, end))
        rank.see(start, end)
        step = numbers_of(rank.steps, index)
        ids = _ids(rank.rank, table, row)
        stream = stream_of(t["streamId"])
        columns = {
            "rank": np.full(len(row), rank.rank, np.int32),
            "event_id": ids,
            "kind": same(kind, len(row)),
            "name": names,
            "stream": stream,
            "device": int32(t["deviceId"]),
            "start_ns": start,
            "dur_ns": end - start,
            "correlation": t["correlationId"].combine_chunks(),
            "step": nullable(step),
        }
        if isinstance(category, str):
            columns["category"] = same(category, len(row))
        elif category:
            columns["category"] = categories(names, category)
        if table == KERNEL:
            columns["grid_blocks"] = product(t, "gridX", "gridY", "gridZ")
            columns["block_threads"] = int32(product(t, "blockX", "blockY", "blockZ"))
            mine = self._comm(rank, names, category, ids, start, end, stream, at, launched, step,
                              columns["grid_blocks"])  # fmt: skip
            if mine is not None:
                kept.append(mine)
        elif table in (MEMCPY, MEMSET):
            columns["bytes"] = t["bytes"].combine_chunks()
        yield from events(columns)

    def _comm(
        self, rank: Rank, names, category, ids, start, end, stream, at, launched, step, blocks
    ) -> CommKernels | None:
        """Those of these kernels that are communication."""
        words = names.dictionary.to_pylist()
        is_comm = np.array([category[w] == "comm" for w in words] or [False])
        codes = names.indices.to_numpy()
        mine = np.flatnonzero(is_comm[codes]) if len(codes) else np.empty(0, np.int64)
        if not len(mine):
            return None
        thread = np.full(len(mine), NULL)
        have = at[mine] >= 0
        thread[have] = rank.calls.thread[at[mine][have]]
        return CommKernels(
            ids[mine], [words[c] for c in codes[mine].tolist()], start[mine], end[mine],
            stream.fill_null(NULL).to_numpy()[mine], launched[mine], thread, step[mine],
            blocks.fill_null(NULL).to_numpy()[mine],
        )  # fmt: skip

    def synchronisation(self) -> Iterator[pa.RecordBatch]:
        """Waits of streams and of the host, with the record of the event that is waited for."""
        t = self._report.table(SYNC)
        if not t.num_rows:
            return
        row, start, end = spans(t, self._clock, self._report, SYNC)
        t = t.take(pa.array(row))
        key = process_key(t["globalPid"].fill_null(0).to_numpy())
        wait_stream, wait_correlation = _records(self._report, t)
        names = coded(small(t["syncType"]), lambda c: SYNC_KINDS.get(c, "Sync"))
        for k, rank in self._ranks.items():
            mine = np.flatnonzero(key == k)
            mine = mine[np.argsort(start[mine], kind="stable")]
            take = pa.array(mine)
            correlation = t["correlationId"].take(take).combine_chunks()
            at = launch_of(rank.calls, correlation.fill_null(NULL).to_numpy())
            host = np.where(at >= 0, rank.calls.start_ns[at], start[mine]) if len(
                rank.calls.start_ns) else start[mine]  # fmt: skip
            rank.see(start[mine], end[mine])
            yield from events(
                {
                    "rank": np.full(len(mine), rank.rank, np.int32),
                    "event_id": _ids(rank.rank, SYNC, row[mine]),
                    "kind": same("sync", len(mine)),
                    "name": names.take(take),
                    "stream": stream_of(t["streamId"].take(take)),
                    "start_ns": start[mine],
                    "dur_ns": (end - start)[mine],
                    "correlation": correlation,
                    "wait_stream": wait_stream.take(take),
                    "wait_correlation": wait_correlation.take(take),
                    "step": nullable(numbers_of(rank.steps, step_index_at(rank.steps, host))),
                }
            )

    def host(self, table: str, kind: str) -> Iterator[pa.RecordBatch]:
        """Runtime calls, or the profiler's own overhead."""
        at = 0
        for batch in self._report.batches(table):
            row, start, end = spans(batch, self._clock, self._report, table)
            t = batch.take(pa.array(row))
            names = names_of(t["nameId"], self._report.strings, "unknown call")
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
        yield TABLES["events"].batch({k: v.slice(at, BATCH_ROWS) for k, v in made.items()})


def _ids(rank: int, table: str, row: np.ndarray) -> np.ndarray:
    return event_id(rank, "nsys", EVENT_SPACE[table] << ROW_BITS) + (
        row.astype(np.int64) & ((1 << ROW_BITS) - 1)
    )


def _records(report: Report, t: pa.Table) -> tuple[pa.Array, pa.Array]:
    """Stream and correlation of the event record that each wait names."""
    nothing = pa.nulls(t.num_rows, pa.int64())
    made = report.table(CUDA_EVENT)
    if not made.num_rows or not {"eventSyncId"} <= report.columns(CUDA_EVENT):
        return nothing, nothing
    names = ["globalPid", "eventId", "eventSyncId"]
    made = made.filter(pc.and_(made["eventSyncId"].is_valid(), made["eventId"].is_valid()))
    first = made.group_by(names, use_threads=False).aggregate(
        [("streamId", "first"), ("correlationId", "first")]
    )
    asked = t.select(names).append_column("row", pa.array(np.arange(t.num_rows)))
    joined = asked.join(first, names, join_type="left outer").sort_by("row")
    waits = pc.equal(t["syncType"], 2).fill_null(False)
    null = pa.scalar(None, pa.int64())
    return tuple(
        pc.if_else(waits, joined[c], null).combine_chunks()
        for c in ("streamId_first", "correlationId_first")
    )  # type: ignore[return-value]
