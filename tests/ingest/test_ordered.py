"""Rows by columns of integers: in the order in which Arrow sorts them."""

import random

import numpy as np
import pyarrow as pa
import pytest
from retime.ingest.ordered import narrow, order_by


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
