"""Codes of dictionaries count texts in the order in which rows have them."""

from __future__ import annotations

import numpy as np
import pyarrow as pa
from hypothesis import given
from hypothesis import strategies as st
from retime.ingest.keeping.slices import renumbered

TEXTS = ["a", "b", "c", "d"]


@given(st.lists(st.one_of(st.none(), st.integers(0, 3)), max_size=12), st.permutations(range(4)))
def test_first_use_numbers_a_text(rows: list[int | None], texts: list[int]) -> None:
    codes = pa.array(rows, pa.int32())
    column = pa.DictionaryArray.from_arrays(codes, pa.array([TEXTS[i] for i in texts]))
    found = renumbered(pa.table({"x": column}))["x"].combine_chunks()
    assert found.to_pylist() == column.to_pylist()
    found = found.chunk(0) if isinstance(found, pa.ChunkedArray) and found.num_chunks else found
    if len(rows):
        used = list(dict.fromkeys(t for t in column.to_pylist() if t is not None))
        assert found.dictionary.to_pylist() == used
        assert found.indices.to_pylist() == [
            None if t is None else used.index(t) for t in column.to_pylist()
        ]


def test_codes_in_order_already_stay_as_they_are() -> None:
    codes = pa.array(np.array([0, 0, 1, 0, 2, 1, 2], np.int32))
    column = pa.DictionaryArray.from_arrays(codes, pa.array(["x", "y", "z"]))
    found = renumbered(pa.table({"x": column}))["x"].chunk(0)
    assert found.indices.buffers()[1].address == codes.buffers()[1].address
