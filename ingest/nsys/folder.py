"""Tables of a folder export: `<TABLE>.parquet` (parquetdir) or `<TABLE>.arrow` (arrowdir)."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import TYPE_CHECKING

import pyarrow as pa

from .. import arrow_in, parquet_in
from ..errors import UnusableInput, line_of
from .columns import READ
from .damage import until_damage
from .fit import OnOdd

if TYPE_CHECKING:
    from ..sources import Source


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
            except parquet_in.TROUBLE as e:
                self._odd("damaged_table", f"{table} cannot be read ({line_of(e)})", "lost")
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
        found = _batches(self._members[table], list(columns))
        yield from until_damage(found, table, parquet_in.TROUBLE, self._odd)


def _is_parquet(path: Path) -> bool:
    with open(path, "rb") as f:
        return f.read(4) == b"PAR1"


def _names(path: Path) -> list[str]:
    if _is_parquet(path):
        with parquet_in.opened(path) as file:
            return list(file.schema.names)
    with _ipc(path) as reader:
        return list(reader.schema.names)


def _ipc(path: Path):
    """A reader of an Arrow file, or of the stream format, in memory."""
    data = pa.OSFile(str(path), "rb")
    head = data.read(6)
    data.seek(0)
    return pa.ipc.open_file(data) if head == b"ARROW1" else pa.ipc.open_stream(data)


def _batches(member: Source, names: list[str]) -> Iterator[pa.RecordBatch]:
    """Text as bytes, as it may be no UTF-8; all of it checked."""
    with member.as_file() as path:
        if _is_parquet(path):
            with parquet_in.opened(path) as file:
                yield from file.batches(names, text=False)
            return
        with _ipc(path) as reader:
            if isinstance(reader, pa.ipc.RecordBatchFileReader):
                found = (reader.get_batch(i) for i in range(reader.num_record_batches))
            else:
                found = iter(reader)
            allowance = arrow_in.Allowance(path.stat().st_size)
            for batch in found:
                columns = arrow_in.checked(batch, names, text=False)
                yield from arrow_in.pieces(columns, names, allowance)
