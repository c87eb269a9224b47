"""What compiled functions sort with, against Python's own."""

from __future__ import annotations

import heapq

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from retime.ingest.tasks import sorting

values = st.lists(st.integers(-9, 9), max_size=40)


@settings(max_examples=100, deadline=None)
@given(values, st.integers(0, 40), st.integers(0, 40))
def test_a_part_of_an_array_is_sorted(drawn, a, b):
    a, b = sorted(min(x, len(drawn)) for x in (a, b))
    got = np.array(drawn, np.int64)
    sorting.sort(got, a, b)
    assert got.tolist() == drawn[:a] + sorted(drawn[a:b]) + drawn[b:]


@settings(max_examples=100, deadline=None)
@given(values, st.randoms())
def test_rows_of_one_key_are_in_order_of_their_numbers(key, random):
    rows = list(range(len(key)))
    random.shuffle(rows)
    got = np.array(rows, np.int64)
    sorting.sort_rows(got, np.array(key, np.int64), 0, len(rows))
    assert got.tolist() == sorted(rows, key=lambda r: (key[r], r))


@settings(max_examples=100, deadline=None)
@given(values.filter(bool), st.data())
def test_selection_has_nothing_greater_before_it(drawn, data):
    k = data.draw(st.integers(0, len(drawn) - 1))
    got = np.array(drawn, np.int64)
    assert sorting.select(got, 0, len(got), k) == sorted(drawn)[k]
    assert sorted(got.tolist()) == sorted(drawn)
    assert (got[:k] <= got[k]).all()


def test_selection_sorts_where_no_step_is_left(monkeypatch):
    select = getattr(sorting.select, "py_func", sorting.select)
    monkeypatch.setattr(sorting, "STEPS", 0)
    got = np.array([3, 1, 2, 0])
    assert select(got, 0, 4, 2) == 2


@settings(max_examples=100, deadline=None)
@given(st.lists(st.one_of(st.none(), st.integers(-9, 9)), max_size=40))
def test_a_heap_gives_its_least(drawn):
    heap, size, like = np.empty(40, np.int64), 0, []
    for value in drawn:
        if value is not None:
            sorting.push(heap, size, value)
            heapq.heappush(like, value)
            size += 1
        elif size:
            assert sorting.pop(heap, size) == heapq.heappop(like)
            size -= 1


@settings(max_examples=50, deadline=None)
@given(values, st.integers(-10, 10))
def test_places_of_a_value(drawn, value):
    got = np.array(sorted(drawn), np.int64)
    ends = 0, len(got)
    assert sorting.first_not_below(got, *ends, value) == np.searchsorted(got, value, "left")
    assert sorting.first_above(got, *ends, value) == np.searchsorted(got, value, "right")


def test_an_array_grows_and_shrinks():
    assert sorting.grown(np.array([1, 2, 3]), 5)[:3].tolist() == [1, 2, 3]
    assert sorting.grown(np.array([1, 2, 3]), 2).tolist() == [1, 2]


def test_rows_grow_and_shrink():
    table = np.arange(6).reshape(3, 2)
    assert sorting.grown_rows(table, 5)[:3].tolist() == table.tolist()
    assert sorting.grown_rows(table, 2).tolist() == table[:2].tolist()


def test_more_rows_compile_nothing_of_texts():
    event = pytest.importorskip("numba.core.event")
    numba = pytest.importorskip("numba")
    if not hasattr(sorting.grown_rows, "py_func"):
        pytest.skip("nothing is compiled")
    with event.install_recorder("numba:compile") as found:
        numba.njit(sorting.grown_rows.py_func)(np.zeros((2, 2), np.int64), 3)
    compiled = {e.data["dispatcher"].py_func.__module__ for _, e in found.buffer}
    assert sorting.__name__ in compiled
    assert "numba.cpython.unicode" not in compiled
