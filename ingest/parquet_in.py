"""Parquet from strangers: rows with bounds on how many are read at once and what they grow to.

What a file says of its chunks is never asked: pyarrow ends the process where that is damaged.
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

import pyarrow as pa
import pyarrow.parquet as pq

from .arrow_in import Allowance, checked, pieces, row_bytes
from .errors import UnusableInput, line_of

if TYPE_CHECKING:
    from .sources import Source

FREE_ROWS = 1_000_000
MOST_ROWS_A_BYTE = 8
"""More are refused: rows of nulls take no bytes at all."""

FIRST_ROWS = 256
MOST_ROWS = 65536
MOST_ROWS_OF_LENGTHS = 8192
"""Rows of texts and lists read at once, however short those before were: the next may be long."""

AT_ONCE_BYTES = 16 << 20

TROUBLE = (
    pa.ArrowException, OSError, ValueError, KeyError, TypeError, EOFError, OverflowError,
    MemoryError,
)  # fmt: skip
"""What the reader raises on damaged files."""


class Parquet:
    """An open file. What is wrong with it is raised as one of `TROUBLE`."""

    def __init__(self, data: pa.NativeFile, size_bytes: int):
        # Strings of a damaged file may claim any length: the reader checks them itself.
        first = pq.ParquetFile(data, thrift_string_size_limit=64 << 20)
        self._size = size_bytes
        self.n_rows = first.metadata.num_rows
        if self.n_rows > FREE_ROWS + MOST_ROWS_A_BYTE * size_bytes:
            raise ValueError(
                f"refused: {self.n_rows} rows in {size_bytes} bytes (a file made to fill memory)"
            )
        texts = _texts(first)
        # Strings that repeat stay one each until `pieces` makes them plain.
        self._file = (
            pq.ParquetFile(
                data, metadata=first.metadata, read_dictionary=texts,
                thrift_string_size_limit=64 << 20,
            ) if texts else first
        )  # fmt: skip
        self.schema: pa.Schema = pa.schema(
            [(f.name, f.type.value_type if pa.types.is_dictionary(f.type) else f.type)
             for f in self._file.schema_arrow]
        )  # fmt: skip

    def batches(
        self,
        columns: Sequence[str] | None = None,
        *,
        text: bool = True,
        most_rows: int = MOST_ROWS_OF_LENGTHS,
    ) -> Iterator[pa.RecordBatch]:
        """Rows in batches of some megabytes at most, without dictionaries, checked in full.

        Without `text` strings are given as bytes, as they may be no UTF-8. `most_rows` are read at
        once where there are texts or lists. Raises ValueError where the rows outgrow the file.
        """
        names = self._names(columns)
        wanted = None if columns is None else names
        long = not all(pa.types.is_primitive(self._field(n).type) for n in names)
        most_rows = most_rows if long else MOST_ROWS
        allowance = Allowance(self._size)
        rows = FIRST_ROWS
        for batch in self._file.iter_batches(rows, columns=wanted, use_threads=False):
            if not batch.num_rows:
                continue
            found = checked(batch, names, text=text)
            a_row = 1 + _held(found, batch.num_rows) // batch.num_rows
            rows = max(1, min(rows * 4, most_rows, AT_ONCE_BYTES // a_row))
            self._file.reader.set_batch_size(rows)
            yield from pieces(found, names, allowance)

    def table(self, columns: Sequence[str] | None = None, *, text: bool = True) -> pa.Table:
        """All rows; see `batches`."""
        found = list(self.batches(columns, text=text))
        if found:
            return pa.Table.from_batches(found)
        return pa.schema([self._field(n) for n in self._names(columns)]).empty_table()

    def _names(self, columns: Sequence[str] | None) -> list[str]:
        return list(dict.fromkeys(self.schema.names if columns is None else columns))

    def _field(self, name: str) -> pa.Field:
        return self.schema.field(self.schema.names.index(name))


def _texts(file: pq.ParquetFile) -> list[str]:
    names = file.schema_arrow.names
    return [
        f.name
        for f in file.schema_arrow
        if names.count(f.name) == 1
        and f.type in (pa.string(), pa.binary(), pa.large_string(), pa.large_binary())
    ]


def _held(columns: list[pa.Array], n: int) -> int:
    """The bytes of a batch as it was read: of a dictionary no more than its rows name."""
    total = 0
    for c in columns:
        if isinstance(c, pa.DictionaryArray):
            total += min(c.dictionary.nbytes, int(row_bytes([c], n).sum())) + c.indices.nbytes
        else:
            total += c.nbytes
    return total


@contextlib.contextmanager
def opened(path: Path) -> Iterator[Parquet]:
    """A local file, memory-mapped. Raises one of `TROUBLE`."""
    with pa.memory_map(str(path)) as data:
        yield Parquet(data, path.stat().st_size)


def table(source: Source, columns: Sequence[str] | None = None) -> pa.Table:
    """All rows of a source; `columns` that it lacks are left out. Raises UnusableInput."""
    try:
        with source.as_file() as path, opened(path) as file:
            there = file.schema.names
            wanted = there if columns is None else [c for c in columns if c in there]
            return file.table(wanted)
    except TROUBLE as e:
        told = f"not readable as Parquet: {line_of(e)}"
        raise UnusableInput(told, path=source.name) from e
