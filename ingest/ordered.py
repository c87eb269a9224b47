"""The order of rows by columns of integers: nulls behind all else, rows that tie as they come."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TypeVar

import numpy as np
import pyarrow as pa

Column = TypeVar("Column", pa.Array, pa.ChunkedArray)


def order_by(columns: Sequence[pa.Array | pa.ChunkedArray]) -> np.ndarray | None:
    """int64[rows]: the rows in order of the columns, the first before all; None where they are."""
    keys: list[np.ndarray] = []
    for column in columns:
        null = column.null_count
        if null == len(column):
            continue
        if null:
            keys.append(column.is_null().to_numpy(zero_copy_only=False))
            column = column.fill_null(0)
        key = column.to_numpy(zero_copy_only=False)
        # One that all rows have says nothing, and would keep the sort from seeing their runs.
        if key[0] != key[-1] or np.any(key != key[0]):
            keys.append(key)
    if not keys or _in_order(keys):
        return None
    # Rows come in runs that are in order, which a stable sort puts together.
    keys = [narrow(key) for key in keys]
    return np.argsort(keys[0], kind="stable") if len(keys) == 1 else np.lexsort(keys[::-1])


def narrow(key: np.ndarray) -> np.ndarray:
    """Integers in 16 bits, where all fit: numpy sorts these by their digits, several times faster.

    Their order stays; what has another type or more values is given back as it is.
    """
    if key.dtype.kind != "i" or not len(key):
        return key
    low, high = key.min(), key.max()
    return (key - low).astype(np.uint16) if int(high) - int(low) < 1 << 16 else key


def taken(column: Column, order: pa.Array) -> Column:
    """The rows of a column in an order of all of them; one that is the same in any is itself."""
    if column.null_count == len(column):
        return column
    return column.take(order)


def _in_order(keys: list[np.ndarray]) -> bool:
    """Whether no row comes before the one that it follows."""
    tie = np.ones(max(len(keys[0]) - 1, 0), bool)
    for key in keys:
        before, after = key[:-1], key[1:]
        if np.any(tie & (after < before)):
            return False
        tie &= after == before
    return True
