"""Columns of lists as codes: equal lists have one, and the column can be had back."""

from __future__ import annotations

import pyarrow as pa
import pytest
from retime.ingest.matching.lists import coded

RANKS = pa.list_(pa.int32())
ROWS = [[0, 1], None, [], [0, 1], [0], [1, 0], [None, 1], None, [0, 1], [None, 1], []]


@pytest.mark.parametrize(
    "column",
    [
        pytest.param(pa.chunked_array([ROWS], RANKS), id="one chunk"),
        pytest.param(pa.chunked_array([ROWS[:4], [], ROWS[4:]], RANKS), id="chunks"),
        pytest.param(pa.chunked_array([[[9], None, *ROWS, [7, 7]]], RANKS).slice(2, 11), id="part"),
    ],
)
def test_equal_lists_have_one_code(column):
    lists = coded(column)
    assert lists.code.tolist() == [0, -1, 1, 0, 2, 3, 4, -1, 0, 4, 1]
    assert lists.distinct == [[0, 1], [], [0], [1, 0], [None, 1]]
    assert lists.column().to_pylist() == ROWS
    assert lists.column().type == RANKS


def test_no_rows_have_no_lists():
    for column in (pa.chunked_array([], RANKS), pa.chunked_array([[None]], RANKS)):
        lists = coded(column)
        assert (lists.code.tolist(), lists.distinct) == ([-1] * len(column), [])
        assert lists.column().to_pylist() == column.to_pylist()
