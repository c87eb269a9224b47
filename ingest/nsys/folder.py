"""Tables of a folder export: `<TABLE>.parquet` (parquetdir) or `<TABLE>.arrow` (arrowdir)."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import TYPE_CHECKING

import pyarrow as pa
import pyarrow.parquet as pq

from ..errors import UnusableInput
from .columns import READ
from .fit import OnOdd

if TYPE_CHECKING:
    from ..sources import Source

BATCH_ROWS = 65536
HONEST_ROWS = 1_000_000
HONEST_ROWS_A_BYTE = 8
"""A file that claims more rows than these allow is a trap: run lengths hold billions in a page."""

_TROUBLE = (pa.ArrowException, OSError, ValueError, KeyError, TypeError, EOFError, OverflowError)


class FolderTables:
    """The tables of a folder, by the names of its files."""

    def __init__(self, members: Mapping[str, Source], name: str, odd: OnOdd):
        self._odd = odd
        self._members = {t: m for t, m in members.items() if t in READ}
        self.other = [t for t in members if t not in READ]
        self.columns: dict[str, list[str]] = {}
        for table, member in list(self._members.items()):
            try:
                with member.as_file() as path:
                    self.columns[table] = _names(path)
            except UnusableInput:
                raise
            except _TROUBLE as e:
                self._odd("damaged_table", f"{table} cannot be read ({_said(e)})", "lost")
        if not self.columns:
            raise UnusableInput(
                "a folder without any readable table of an Nsight Systems export", path=name
            )

    def close(self) -> None:
        """Nothing is held open between reads."""

    def has_rows(self, table: str) -> bool:
        """Folders hold no empty tables unless asked to: what is there counts."""
        return True

    def batches(self, table: str, columns: dict[str, str]) -> Iterator[pa.RecordBatch]:
        """Batches with these columns, in the order of the file's rows.

        Where the file cannot be read further the table ends, and a problem says so.
        """
        n = 0
        try:
            with self._members[table].as_file() as path:
                for batch in _batches(path, list(columns)):
                    n += batch.num_rows
                    yield batch
        except _TROUBLE as e:
            self._odd(
                "damaged_table",
                f"{table} cannot be read beyond row {n} ({_said(e)}); what came before is kept",
                "lost",
                offset=n,
            )


def _is_parquet(path: Path) -> bool:
    with open(path, "rb") as f:
        return f.read(4) == b"PAR1"


def _names(path: Path) -> list[str]:
    if _is_parquet(path):
        with pq.ParquetFile(path) as file:
            return list(file.schema_arrow.names)
    with _ipc(path) as reader:
        return list(reader.schema.names)


def _ipc(path: Path):
    """A reader of an Arrow file, or of the stream format, in memory."""
    data = pa.OSFile(str(path), "rb")
    head = data.read(6)
    data.seek(0)
    return pa.ipc.open_file(data) if head == b"ARROW1" else pa.ipc.open_stream(data)


def _batches(path: Path, names: list[str]) -> Iterator[pa.RecordBatch]:
    if _is_parquet(path):
        with pq.ParquetFile(path) as file:
            size = path.stat().st_size
            if file.metadata.num_rows > HONEST_ROWS + HONEST_ROWS_A_BYTE * size:
                raise ValueError(f"{file.metadata.num_rows} rows in {size} bytes")
            yield from file.iter_batches(BATCH_ROWS, columns=names)
        return
    with _ipc(path) as reader:
        if isinstance(reader, pa.ipc.RecordBatchFileReader):
            found = (reader.get_batch(i) for i in range(reader.num_record_batches))
        else:
            found = iter(reader)
        for batch in found:
            yield _sound(batch, names)


def _sound(batch: pa.RecordBatch, names: list[str]) -> pa.RecordBatch:
    """The columns as bytes where they claim to be text, checked in full: offsets may be forged."""
    arrays = []
    for name in names:
        column = batch.column(batch.schema.get_field_index(name))
        if pa.types.is_string(column.type):
            column = column.view(pa.binary())
        column.validate(full=True)
        arrays.append(column)
    return pa.RecordBatch.from_arrays(arrays, names=names)


def _said(e: Exception) -> str:
    text = (str(e).splitlines() or [type(e).__name__])[0]
    return "".join(c if c.isprintable() else "?" for c in text[:160])
