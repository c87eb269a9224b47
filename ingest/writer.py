"""Parquet parts from a stream of batches, written by a thread of their own while more are made."""

from __future__ import annotations

import hashlib
import os
import queue
import threading
from collections.abc import Callable
from pathlib import Path
from typing import NamedTuple

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from . import syncing
from .schema import TABLES, TEXT

ROW_GROUP_ROWS = 131_072
FILE_ROWS = 64_000_000
QUEUED_BYTES = 16 << 20
"""Of batches that wait for the writer, or one larger batch: this bounds the memory, not the input.
A file's last small tables need not wait for its last large one."""

ENCODED_ROWS = 16_384
"""Rows that the encoder takes at a time: with its own thousand a fifth of its time is overhead."""

SPARSE_DICTIONARY = 4096
"""A dictionary with more entries than this is cut down to the ones its rows use."""

PLAIN_ROWS = 512
"""In a file of no more rows nothing is compressed, and no number coded by a dictionary: to set that
up for each column takes as long as all else of writing it, and saves a page or two."""

BUFFERED_BYTES = 64 << 10
"""Of a file before it is written to: the encoder writes each header and page by itself."""

_DELTA = ("event_id", "start_ns", "end_ns", "correlation", "external_id", "time_ns", "at_ns",
          "compute_ns", "with_transfer_ns", "with_unsplit_ns", "with_comm_ns",
          "with_copy_ns", "gap", "launch_ns")  # fmt: skip
"""Integers that grow along a file: stored as differences."""

_LIGHTLY = ("_made_tasks", "_made_task_edges", "topology")
"""Packed so that it takes hardly any time, to some more bytes: tables of which each replay reads
all, and one of mostly codes of texts, which zstd took a quarter of the time to write to make it a
tenth smaller."""

_MIXED = ("topology", "transfers")
"""Tables of many short rows whose texts come mixed: the least and greatest text of a row group
would leave none out, and to find them is a fifth of writing it."""


Seen = Callable[[str, pa.Table], None]


class Written(NamedTuple):
    """A finished file: table, name in the writer's folder, rows, bytes, SHA-256."""

    table: str
    file: str
    rows: int
    bytes: int
    sha256: str


class PartWriter:
    """Writes batches of any tables into `<table>-<nnn>.parquet` files of one folder.

    Rows keep the order in which they are given; row groups have `ROW_GROUP_ROWS` rows or one
    batch, whichever is more. `seen` is told of each table and row group by the writing thread,
    as it is written. `close` returns the files, synced to disk. OSError of that thread is
    raised by the next `write` or by `close`.
    """

    def __init__(self, folder: Path, seen: Seen | None = None):
        self._folder = folder
        self._seen = seen
        self._open: dict[str, _TableFile] = {}
        self._done: list[_TableFile] = []
        self._queue: queue.SimpleQueue = queue.SimpleQueue()
        self._queued_bytes = 0
        self._taken = threading.Condition()
        self._failure: BaseException | None = None
        self._thread = threading.Thread(target=self._run, name="parquet-writer", daemon=True)
        self._thread.start()

    def write(self, table: str, batch: pa.RecordBatch) -> None:
        """Queues a batch; waits while the writer is behind."""
        if batch.schema != TABLES[table].schema:
            raise TypeError(f"a batch of {table} does not have the table's schema")
        if self._failure is not None:
            self.close()
        if batch.num_rows:
            n = batch.nbytes
            with self._taken:
                self._taken.wait_for(
                    lambda: not self._queued_bytes or self._queued_bytes + n <= QUEUED_BYTES
                )
                self._queued_bytes += n
            self._queue.put((table, batch))

    def finish(self, table: str) -> None:
        """Says that no more rows of a table come: what waits for a row group to be full need not.

        Rows that come after all begin another row group.
        """
        self._queue.put((table, None))

    def close(self) -> list[Written]:
        """Finishes every file; in order of table and number. Raises what the writing met."""
        self._queue.put(None)
        self._thread.join()
        if self._failure is not None:
            raise self._failure
        written = syncing.side_by_side(_TableFile.synced, self._done)
        return sorted(written, key=lambda w: (w.table, w.file))

    def abort(self) -> None:
        """Stops and closes without finishing; the files are for the caller to remove."""
        self._failure = self._failure or RuntimeError("aborted")
        self._queue.put(None)
        self._thread.join()

    def _run(self) -> None:
        while (item := self._queue.get()) is not None:
            if item[1] is not None:
                with self._taken:
                    self._queued_bytes -= item[1].nbytes
                    self._taken.notify()
            if self._failure is not None:
                continue  # keep taking, so that the producer is never left waiting
            try:
                self._take(*item)
            except BaseException as e:
                self._failure = e
        for file in self._open.values():
            try:
                file.close()
                self._done.append(file)
            except BaseException as e:
                self._failure = self._failure or e

    def _take(self, table: str, batch: pa.RecordBatch | None) -> None:
        file = self._open.get(table)
        if batch is None:
            if file is not None:
                file.flush()
            return
        if file is not None and file.rows >= FILE_ROWS:
            self._done.append(self._open.pop(table))
            file.close()
            file = None
        if file is None:
            n = sum(w.table == table for w in self._done)
            path = self._folder / f"{table}-{n:03d}.parquet"
            file = self._open[table] = _TableFile(table, path, self._seen)
        file.add(batch)


class _TableFile:
    """One Parquet file that is being written, with the rows of its next row group."""

    def __init__(self, table: str, path: Path, seen: Seen | None):
        self.table = table
        self._path, self._seen = path, seen
        self._waiting: list[pa.RecordBatch] = []
        self._n_waiting = 0
        self.rows = 0
        self._file: pa.NativeFile | None = None
        self._writer: pq.ParquetWriter | None = None

    def _begun(self) -> pq.ParquetWriter:
        """What writes the file, which is made when its first row group is full or its last."""
        if self._writer is not None:
            return self._writer
        schema = TABLES[self.table].schema
        text = [f.name for f in schema if f.type == TEXT]
        plain = self.rows <= PLAIN_ROWS
        packed = "none" if plain else "lz4" if self.table in _LIGHTLY else "zstd"
        delta = [f.name for f in schema if f.name in _DELTA]
        rest = [] if plain else [f.name for f in schema if f.type in (pa.int32(), pa.int64())]
        numbers = [f.name for f in schema if f.type != TEXT]
        # Opened here: the writer leaves its file open where closing meets a full disk.
        self._file = pa.BufferedOutputStream(pa.OSFile(str(self._path), "wb"), BUFFERED_BYTES)
        self._writer = pq.ParquetWriter(
            self._file,
            schema,
            compression=packed,
            compression_level=1 if packed == "zstd" else None,
            use_dictionary=text + [c for c in rest if c not in _DELTA],  # type: ignore[arg-type]
            column_encoding=dict.fromkeys(delta, "DELTA_BINARY_PACKED"),
            write_batch_size=ENCODED_ROWS,
            write_statistics=numbers if self.table in _MIXED else True,  # type: ignore[arg-type]
        )
        return self._writer

    def add(self, batch: pa.RecordBatch) -> None:
        self._waiting.append(batch)
        self._n_waiting += batch.num_rows
        self.rows += batch.num_rows
        if self._n_waiting >= ROW_GROUP_ROWS:
            self.flush()

    def flush(self) -> None:
        """Writes what waits as a row group."""
        if not self._waiting:
            return
        batches = [compact(b) for b in self._waiting]
        # One dictionary a row group: the encoder gives up dictionaries when they change.
        rows = pa.Table.from_batches(batches)
        rows = rows.unify_dictionaries() if len(batches) > 1 else rows
        if self._seen is not None:
            self._seen(self.table, rows)
        size = max(ROW_GROUP_ROWS, rows.num_rows)
        self._begun().write_table(rows, row_group_size=size)
        self._waiting, self._n_waiting = [], 0

    def close(self) -> None:
        try:
            try:
                self.flush()
            finally:
                if self._writer is not None:
                    self._writer.close()
        finally:
            if self._file is not None:
                self._file.close()

    def synced(self) -> Written:
        """The finished file, brought to the disk proper."""
        with open(self._path, "rb") as f:
            os.fsync(f.fileno())
            digest = hashlib.file_digest(f, "sha256").hexdigest()
            return Written(self.table, self._path.name, self.rows, f.tell(), digest)


def compact(batch: pa.RecordBatch) -> pa.RecordBatch:
    """The same rows, with dictionaries far larger than the rows need cut down to what they use."""
    columns = [
        _compact_column(c)
        if pa.types.is_dictionary(c.type)
        and len(c.dictionary) > max(SPARSE_DICTIONARY, batch.num_rows // 4)
        else c
        for c in batch.columns
    ]
    return pa.RecordBatch.from_arrays(columns, schema=batch.schema)


def _compact_column(column: pa.DictionaryArray) -> pa.DictionaryArray:
    codes = column.indices.fill_null(0).to_numpy(zero_copy_only=False)
    used = np.zeros(len(column.dictionary), bool)
    used[codes] = True
    renumbered = (np.cumsum(used, dtype=np.int32) - np.int32(1))[codes]
    mask = column.indices.is_null().to_numpy(zero_copy_only=False)
    return pa.DictionaryArray.from_arrays(
        pa.array(renumbered, pa.int32(), mask=mask),
        column.dictionary.take(pa.array(np.flatnonzero(used))),
    )
