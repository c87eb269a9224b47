"""Record batches from strangers: checked in full, plain, in pieces of bounded size."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import pairwise
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute

PIECE_BYTES = 16 << 20

FREE_BYTES = 256 << 20
MOST_RATIO = 100
"""Rows may take `FREE_BYTES` and this many bytes for a byte of the file: runs of one value shrink
without limit, so a small file can claim any number of rows."""

_pc: Any = pyarrow.compute


def checked(batch: pa.RecordBatch, names: Sequence[str], *, text: bool) -> list[pa.Array]:
    """The columns of these names (the first of each), every offset and index of them checked.

    Without `text` strings become bytes, as they may be no UTF-8. Raises ArrowException.
    """
    there = batch.schema.names
    columns = []
    for name in names:
        column = batch.column(there.index(name))
        if not text:
            column = _bytes(column)
        column.validate(full=True)
        columns.append(column)
    return columns


def _bytes(column: pa.Array) -> pa.Array:
    if isinstance(column, pa.DictionaryArray):
        values = _bytes(column.dictionary)
        return pa.DictionaryArray.from_arrays(column.indices, values, safe=False)
    if pa.types.is_string(column.type):
        return column.view(pa.binary())
    if pa.types.is_large_string(column.type):
        return column.view(pa.large_binary())
    return column


def row_bytes(columns: Sequence[pa.Array], n: int) -> np.ndarray:
    """What each row of dictionary columns takes once they are plain, in bytes.

    Raises ValueError for a dictionary of nested values.
    """
    total = np.zeros(n, np.int64)
    for column in columns:
        if isinstance(column, pa.DictionaryArray):
            lengths = _lengths(column.dictionary)
            at = column.indices.fill_null(0).to_numpy(zero_copy_only=False)
            total += lengths[at] if len(lengths) else 0
    return total


def _lengths(values: pa.Array) -> np.ndarray:
    kind = values.type
    if pa.types.is_nested(kind) or pa.types.is_dictionary(kind):
        raise ValueError("a dictionary of nested values")
    try:
        width = kind.bit_width // 8 + 1
    except ValueError:
        return _pc.binary_length(values).fill_null(0).to_numpy().astype(np.int64)
    return np.full(len(values), width, np.int64)


class Allowance:
    """What the rows of a file may still take."""

    def __init__(self, size_bytes: int):
        self._size = size_bytes
        self._left = FREE_BYTES + MOST_RATIO * size_bytes

    def take(self, n_bytes: int) -> None:
        """Takes from it. Raises ValueError where nothing is left."""
        self._left -= n_bytes
        if self._left < 0:
            most = FREE_BYTES + MOST_RATIO * self._size
            raise ValueError(
                f"refused: {self._size} bytes gave over {most} bytes of rows (a file made to fill "
                "memory)"
            )


def pieces(
    columns: Sequence[pa.Array], names: Sequence[str], allowance: Allowance
) -> Iterator[pa.RecordBatch]:
    """Batches of these columns without dictionaries, cut so that none grows beyond PIECE_BYTES.

    A dictionary names a long value in few bytes, row after row. A row is never cut. Raises
    ValueError where the rows outgrow the file.
    """
    n = len(columns[0]) if columns else 0
    if n and not any(isinstance(c, pa.DictionaryArray) for c in columns):
        batch = pa.RecordBatch.from_arrays(columns, names=names)
        allowance.take(batch.nbytes)
        yield batch
        return
    total = np.cumsum(row_bytes(columns, n))
    ends = [0]
    while ends[-1] < n:
        before = int(total[ends[-1] - 1]) if ends[-1] else 0
        end = int(np.searchsorted(total, before + PIECE_BYTES, side="right"))
        ends.append(max(ends[-1] + 1, end))
    for a, b in pairwise(ends):
        plain = [_plain(c.slice(a, b - a)) for c in columns]
        batch = pa.RecordBatch.from_arrays(plain, names=names)
        allowance.take(batch.nbytes)
        yield batch


def _plain(column: pa.Array) -> pa.Array:
    return column.dictionary_decode() if isinstance(column, pa.DictionaryArray) else column
