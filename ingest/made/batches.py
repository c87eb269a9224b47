"""Batches of rows that are made, from arrays."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

import numpy as np
import pyarrow as pa

from ..schema import TABLES
from ..writer import ROW_GROUP_ROWS
from .segmented import LEAST


def text_array(code: np.ndarray, texts: pa.Array) -> pa.Array:
    """The texts of codes; -1 null."""
    index = pa.array(code.astype(np.int32), mask=code < 0)
    return pa.DictionaryArray.from_arrays(index, texts)


def int_array(values: np.ndarray) -> pa.Array:
    """Whole numbers; `LEAST` null."""
    return pa.array(values, pa.int64(), mask=values == LEAST)


def row_batch(table: str, columns: Mapping[str, pa.Array | np.ndarray]) -> pa.RecordBatch:
    """Rows of a table; arrays of numbers are as `int_array` has them."""
    return TABLES[table].batch(
        {c: v if isinstance(v, pa.Array) else int_array(v) for c, v in columns.items()}
    )


def slices(n: int) -> Iterator[slice]:
    """So many rows, some at a time."""
    return (slice(at, at + ROW_GROUP_ROWS) for at in range(0, n, ROW_GROUP_ROWS))
