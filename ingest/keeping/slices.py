"""The rows of a part: a whole file, or of a pack's file those of one source."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from ..manifest import Part
from ..store import Folder, reading

Open = Callable[[str], pq.ParquetFile]
"""Opens a file of the job's folder by its path there."""


FEW_ROWS = 16_384
"""To read the columns of no more rows by several threads takes longer than by one."""


def of(job: Folder) -> Open:
    """Opens files of a job, of which only the columns and row groups that are read come."""
    return lambda file: reading.parquet(job.address(file))


def rows(opened: Open, part: Part, columns: Sequence[str] | None = None) -> pa.Table:
    """The rows of one part; of a shared file only the row groups that hold them are read."""
    found = list(pieces(opened, part, columns))
    return pa.concat_tables(found)


def pieces(opened: Open, part: Part, columns: Sequence[str] | None = None) -> Iterator[pa.Table]:
    """The rows of one part by row group, in order; at least one, which may be empty.

    Columns that a file lacks are left out. Raises OSError and pyarrow's errors.
    """
    with opened(part.file) as file:
        first, last = 0, file.metadata.num_rows
        if part.first is not None:
            first, last = part.first, part.first + part.rows
        n = file.metadata.num_row_groups
        ends = np.cumsum([file.metadata.row_group(i).num_rows for i in range(n)], dtype=np.int64)
        at_once = last - first > FEW_ROWS
        groups = [i for i in range(n) if ends[i] > first and (ends[i - 1] if i else 0) < last]
        if not groups:
            yield file.read(columns, use_threads=at_once).slice(0, 0)
        for i in groups:
            before = int(ends[i - 1]) if i else 0
            begin, end = max(first - before, 0), min(last, int(ends[i])) - before
            found = file.read_row_group(i, columns, use_threads=at_once)
            yield found.slice(begin, end - begin)


def completed(found: pa.Table, schema: pa.Schema) -> pa.Table:
    """The rows with every column of the schema: one that an older version did not write is null."""
    if found.schema.equals(schema):
        return found
    columns = [
        found[f.name] if f.name in found.column_names else pa.nulls(len(found), f.type)
        for f in schema
    ]
    return pa.table(dict(zip(schema.names, columns, strict=True))).cast(schema)


def renumbered(found: pa.Table) -> pa.Table:
    """The same rows; codes of dictionaries count their texts in the order in which rows have them.

    So a table is the same, to the byte, whichever files its rows came from.
    """
    columns = [
        _renumbered(c) if pa.types.is_dictionary(c.type) else c
        for c in found.unify_dictionaries().combine_chunks().columns
    ]
    return pa.Table.from_arrays(columns, schema=found.schema)


def _renumbered(column: pa.ChunkedArray) -> pa.Array:
    kind = column.type
    assert isinstance(kind, pa.DictionaryType)
    if not column.num_chunks or not len(column):
        return pa.array([], kind)
    chunk = column.chunk(0) if column.num_chunks == 1 else column.combine_chunks()
    assert isinstance(chunk, pa.DictionaryArray)
    if not len(chunk.dictionary):
        return chunk
    whole = not chunk.null_count
    null = None if whole else chunk.indices.is_null().to_numpy(zero_copy_only=False)
    codes = (chunk.indices if whole else chunk.indices.fill_null(0)).to_numpy(zero_copy_only=False)
    real = codes if null is None else codes[~null]
    if _in_order(real, len(chunk.dictionary)):
        return chunk
    first = np.full(len(chunk.dictionary), len(real), np.int64)
    first[real[::-1]] = np.arange(len(real) - 1, -1, -1)  # of several the last one stays
    order = np.argsort(first, kind="stable")[: np.count_nonzero(first < len(real))]
    number = np.zeros(len(chunk.dictionary), np.int32)
    number[order] = np.arange(len(order), dtype=np.int32)
    return pa.DictionaryArray.from_arrays(
        pa.array(number[codes], pa.int32(), mask=null),
        chunk.dictionary.take(pa.array(order)),
    )


def _in_order(codes: np.ndarray, n: int) -> bool:
    """Whether codes, of `n` texts, are those in order of first use; as this project's files are."""
    if not len(codes) or codes[0]:
        return False
    most = np.maximum.accumulate(codes)
    return int(most[-1]) == n - 1 and bool(np.all(most[1:] - most[:-1] <= 1))
