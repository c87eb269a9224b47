"""Columns of lists of ranks as codes: what is worked out of a list is worked out of it once."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
import pyarrow as pa

_INSIDE = -(1 << 63)
"""Stands for a null within a list while lists are compared."""


class Lists(NamedTuple):
    """`code` is each row's place in `distinct` (-1: null), in the order of first use."""

    code: np.ndarray
    distinct: list[list[int | None]]

    def column(self) -> pa.Array:
        """The rows as a column of lists of 32 bits."""
        held = pa.array(self.distinct, pa.list_(pa.int32()))
        return held.take(pa.array(self.code, mask=self.code < 0))


def coded(column: pa.ChunkedArray) -> Lists:
    """The lists of integers that a column has."""
    lists = column.cast(pa.list_(pa.int64())).combine_chunks()
    if isinstance(lists, pa.ChunkedArray):  # of no chunk at all
        lists = pa.concat_arrays(lists.chunks) if lists.num_chunks else pa.array([], lists.type)
    values = lists.values.fill_null(_INSIDE).to_numpy(zero_copy_only=False)
    ends = lists.offsets.to_numpy(zero_copy_only=False).astype(np.int64) * values.itemsize
    valid = lists.is_valid().to_numpy(zero_copy_only=False)
    # As texts of bytes, which are told apart faster than lists.
    bits = pa.py_buffer(np.packbits(valid, bitorder="little"))
    texts = pa.Array.from_buffers(
        pa.large_binary(), len(lists), [bits, pa.py_buffer(ends), pa.py_buffer(values)]
    )
    code = texts.dictionary_encode().indices.fill_null(-1).to_numpy(zero_copy_only=False)
    code = code.astype(np.int64)
    _, first = np.unique(code[valid], return_index=True)
    first = np.flatnonzero(valid)[first]
    return Lists(code, lists.take(pa.array(first, pa.int64())).to_pylist())
