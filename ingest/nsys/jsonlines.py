"""Tables of a JSON Lines export: one row a line, its table in the key `table`."""

from __future__ import annotations

import contextlib
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

import msgspec
import pyarrow as pa

from .. import texts
from ..errors import UnusableInput
from .columns import ARROW, BYTES, INT, READ, REAL
from .fit import OnOdd, bytes_of_text

if TYPE_CHECKING:
    from ..sources import Source

CHUNK_ROWS = 65536
CHUNK_BYTES = 32 << 20
"""Rows are kept until there are so many of a table, or their lines so long."""

MOST_LINE_BYTES = 1 << 20


class JsonLinesTables:
    """The tables of a stream of rows, sorted by table into temporary files in one pass."""

    def __init__(self, source: Source, odd: OnOdd):
        self._odd = odd
        self._stack = contextlib.ExitStack()
        self._folder = Path(self._stack.enter_context(tempfile.TemporaryDirectory("retime-")))
        self._writers: dict[str, pa.ipc.RecordBatchFileWriter] = {}
        self.columns: dict[str, list[str]] = {}
        self.other: list[str] = []
        try:
            self._sort(source)
        except BaseException:
            self.close()
            raise
        if not self.columns:
            self.close()
            raise UnusableInput(
                "no line is a row of a table of an Nsight Systems export", path=source.name
            )

    def close(self) -> None:
        """Removes the temporary files."""
        self._stack.close()

    def has_rows(self, table: str) -> bool:
        """A table is known by its rows."""
        return True

    def batches(self, table: str, columns: dict[str, str]) -> Iterator[pa.RecordBatch]:
        """Batches with these columns, in the order of the lines."""
        with pa.OSFile(str(self._folder / table)) as f, pa.ipc.open_file(f) as reader:
            for i in range(reader.num_record_batches):
                yield reader.get_batch(i).select(list(columns))

    def _sort(self, source: Source) -> None:
        decode = msgspec.json.Decoder().decode
        kept: dict[str, list[dict]] = {}
        n_bytes: dict[str, int] = {}
        other: dict[str, None] = {}
        for offset, line, complete in texts.lines(source, self._odd, MOST_LINE_BYTES):
            if not line.strip():
                continue
            try:
                row = decode(line)
            except (msgspec.DecodeError, UnicodeError, ValueError, RecursionError):
                what = "cut off" if not complete else "no JSON"
                self._odd("bad_line", f"a line is {what}: left out", "lost", offset=offset)
                continue
            table = row.get("table") if isinstance(row, dict) else None
            if not isinstance(table, str) or not table:
                self._odd("no_table", "a line names no table: left out", "lost", offset=offset)
                continue
            if table not in READ:
                if len(other) < 1000:
                    other[table] = None
                continue
            rows = kept.setdefault(table, [])
            rows.append(row)
            n_bytes[table] = n_bytes.get(table, 0) + len(line)
            if len(rows) >= CHUNK_ROWS or n_bytes[table] >= CHUNK_BYTES:
                self._write(table, rows)
                rows.clear()
                n_bytes[table] = 0
        for table, rows in kept.items():
            if rows:
                self._write(table, rows)
        for writer in self._writers.values():
            writer.close()
        self.other = list(other)

    def _write(self, table: str, rows: list[dict]) -> None:
        declared = READ[table]
        if table not in self._writers:
            schema = pa.schema([(c, ARROW[kind]) for c, kind in declared.items()])
            sink = self._stack.enter_context(pa.OSFile(str(self._folder / table), "wb"))
            self._writers[table] = pa.ipc.new_file(sink, schema)
            self.columns[table] = list(declared)
        arrays = [
            pa.array([_value(r.get(c), kind) for r in rows], ARROW[kind])
            for c, kind in declared.items()
        ]
        self._writers[table].write(pa.RecordBatch.from_arrays(arrays, names=list(declared)))


def _value(value: Any, kind: str) -> Any:
    """A JSON value as the kind; None where it is none. 64-bit numbers may stand in quotes."""
    if value is None:
        return None
    if kind == INT:
        if isinstance(value, str) and len(value) < 24:
            try:
                value = int(value)
            except ValueError:
                return None
        if isinstance(value, float) and value.is_integer() and abs(value) < 4e18:
            value = int(value)
        if not isinstance(value, int):
            return None
        if (1 << 63) <= value < (1 << 64):
            value -= 1 << 64
        return value if -(1 << 63) <= value < (1 << 63) else None
    if kind == REAL:
        try:
            return float(value) if isinstance(value, int | float | str) else None
        except (ValueError, OverflowError):
            return None
    if not isinstance(value, str):
        return None
    if kind == BYTES:
        return bytes_of_text(value)
    return value.encode("utf-8", "replace").decode()
