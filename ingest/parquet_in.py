"""Parquet from strangers: footers and rows with bounds on what they may grow to."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING

import pyarrow as pa
import pyarrow.parquet as pq

from .errors import UnusableInput

if TYPE_CHECKING:
    from .sources import Source

FREE_BYTES = 256 << 20
MOST_RATIO = 100
"""Rows may take `FREE_BYTES` and this many bytes for a byte of the file: runs of one value shrink
without limit, so a small file can claim any number of rows."""

BATCH_ROWS = 65536


@contextlib.contextmanager
def opened(source: Source) -> Iterator[pq.ParquetFile]:
    """The file behind a source, its footer read; memory-mapped from a local path.

    Inside, whatever the reader meets becomes UnusableInput with the source's name.
    """
    try:
        with source.as_file() as path, pa.memory_map(str(path)) as data:
            # Strings of a damaged file may claim any length: the reader checks them itself.
            yield pq.ParquetFile(data, thrift_string_size_limit=64 << 20)
    except (pa.ArrowException, OSError, ValueError, OverflowError, MemoryError) as e:
        if isinstance(e, UnusableInput):
            raise
        raise UnusableInput(f"not readable as Parquet: {_line(e)}", path=source.name) from e


def names(file: pq.ParquetFile) -> list[str]:
    """The top-level column names."""
    return list(file.schema_arrow.names)


def batches(
    file: pq.ParquetFile, source: Source, columns: Sequence[str] | None = None
) -> Iterator[pa.RecordBatch]:
    """Rows in batches of `BATCH_ROWS`. Raises UnusableInput where they outgrow the file."""
    most = FREE_BYTES + MOST_RATIO * source.size_bytes
    n = 0
    for batch in file.iter_batches(
        BATCH_ROWS, columns=None if columns is None else list(columns), use_threads=False
    ):
        batch.validate(full=True)  # strings that are not UTF-8 end other libraries' processes
        n += batch.nbytes
        if n > most:
            raise UnusableInput(
                f"refused: {source.size_bytes} bytes of Parquet gave over {n} bytes of rows "
                "(a file made to fill memory)",
                path=source.name,
            )
        yield batch


def table(source: Source, columns: Sequence[str] | None = None) -> pa.Table:
    """All rows of a source; `columns` that it lacks are left out. Raises UnusableInput."""
    with opened(source) as file:
        there = names(file)
        wanted = None if columns is None else [c for c in columns if c in there]
        schema = file.schema_arrow
        if wanted is not None:
            schema = pa.schema([schema.field(c) for c in wanted])
        return pa.Table.from_batches(list(batches(file, source, wanted)), schema)


def _line(error: BaseException) -> str:
    """An error's text on one line and of bounded length."""
    return " ".join(str(error).split())[:300]
