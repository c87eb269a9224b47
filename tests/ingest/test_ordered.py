"""Rows by columns of integers: in the order in which Arrow sorts them."""

import random

import numpy as np
import pyarrow as pa
import pytest
from retime.ingest.ordered import narrow, order_by, taken


@pytest.mark.parametrize("seed", range(60))
def test_rows_are_in_the_order_of_a_stable_sort_with_nulls_last(seed):
    r = random.Random(seed)
    n, most = r.choice((0, 1, 7, 300)), r.choice((2, 10, (1 << 15) - 1, 1 << 15, 1 << 62))
    nulls = [r.choice((0, 0.3, 1)) for _ in range(3)]
    table = pa.table(
        {
            name: pa.array(
                [None if r.random() < p else r.choice((-most, r.randint(-most, most), most))
                 for _ in range(n)],
                kind,
            )
            for name, p, kind in zip("abc", nulls, (pa.int64(),) * 3, strict=True)
        }
    )  # fmt: skip
    rows = table.append_column("row", pa.array(range(n), pa.int64()))
    wanted = rows.sort_by([(k, "ascending") for k in ("a", "b", "c", "row")])["row"].to_pylist()
    found = order_by([table[k] for k in "abc"])
    assert (list(range(n)) if found is None else found.tolist()) == wanted


def test_rows_that_are_in_order_are_left_alone():
    column = pa.chunked_array([[1, 2, 2], [3, None, None]], pa.int32())
    assert order_by([column]) is None
    assert order_by([column, pa.array([0, 1, 1, 0, 5, 5])]) is None
    found = order_by([column, pa.array([0, 1, 0, 0, 5, 5])])
    assert found is not None
    assert found.tolist() == [0, 2, 1, 3, 4, 5]
    assert order_by([pa.nulls(4, pa.int64())]) is None


@pytest.mark.parametrize("low", [-(1 << 63), -3, 0, (1 << 63) - 65536])
def test_integers_that_have_room_in_16_bits_keep_their_order_in_them(low):
    key = low + np.array([0, 65535, 7, 32768], np.int64)
    assert narrow(key).dtype == np.uint16
    assert np.argsort(narrow(key)).tolist() == [0, 2, 3, 1]


def test_other_keys_are_given_back_as_they_are():
    wide = np.array([-(1 << 63), (1 << 63) - 1])
    for key in (wide, np.array([0, 1 << 16]), np.array([0.5, 0.25]), np.array([True, False])):
        assert narrow(key) is key
    assert not len(narrow(np.empty(0, np.int64)))


def test_a_column_that_all_rows_have_alike_changes_no_order():
    times, rank = pa.array([5, 9, 1, 9, 1], pa.int64()), pa.array([3] * 5, pa.int32())
    alone, beside = order_by([times]), order_by([rank, times, rank])
    assert alone is not None
    assert beside is not None
    assert alone.tolist() == beside.tolist() == [2, 4, 0, 1, 3]
    assert order_by([rank, rank]) is None
    found = order_by([pa.array([None, 3, 3], pa.int32())])
    assert found is not None
    assert found.tolist() == [1, 2, 0]


def test_columns_are_taken_in_an_order():
    order = pa.array([2, 0, 1])
    nothing = pa.nulls(3, pa.dictionary(pa.int32(), pa.string()))
    assert taken(nothing, order).equals(nothing.take(order))
    assert taken(pa.array([1, None, 3]), order).to_pylist() == [3, 1, None]
    assert taken(pa.chunked_array([["a"], ["b", None]]), order).to_pylist() == [None, "a", "b"]
