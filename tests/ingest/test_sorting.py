"""Rows come out in order, and are found by their keys, whether they fit in memory or not."""

from __future__ import annotations

import errno
import tempfile
from typing import IO

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from retime.ingest import scratch, sorting
from retime.ingest.scratch import Scratch, ScratchError
from retime.ingest.sorting import NULL, Lookup, Sorted


@pytest.fixture(autouse=True, params=["in memory", "on the disk"])
def room(request, monkeypatch: pytest.MonkeyPatch) -> None:
    if request.param == "on the disk":
        sizes = {"RUN_ROWS": 500, "MARK_ROWS": 16, "MERGED_ROWS": 128, "BLOCK_ROWS": 100}
        for name, rows in sizes.items():
            monkeypatch.setattr(sorting, name, rows)


def batches(rng: np.random.Generator, columns: np.ndarray):
    at = 0
    while at < columns.shape[1]:
        n = int(rng.integers(1, 400))
        yield columns[:, at : at + n]
        at += n


@given(st.integers(0, 1 << 32), st.integers(1, 3), st.sampled_from([3, 100, 10**6]))
def test_rows_come_in_order_and_those_that_tie_as_they_were_added(seed: int, keys: int, most: int):
    rng = np.random.default_rng(seed)
    n = int(rng.integers(0, 4000))
    columns = np.stack([*(rng.integers(0, most, n) for _ in range(keys)), np.arange(n)])
    rows = Sorted(keys)
    for batch in batches(rng, columns):
        rows.add(*batch)
    pieces = list(rows.pieces(77))
    assert all(p.shape[1] == 77 for p in pieces[:-1])
    found = np.concatenate(pieces, axis=1) if pieces else columns[:, :0]
    assert np.array_equal(found, columns[:, np.lexsort(columns[:keys][::-1])])


def test_rows_that_all_tie_are_brought_together_some_at_a_time(monkeypatch: pytest.MonkeyPatch):
    brought = []
    its_range = Sorted._range

    def seen(*asked) -> np.ndarray:
        found = its_range(*asked)
        brought.append(found.shape[1])
        return found

    monkeypatch.setattr(Sorted, "_range", seen)
    rows = Sorted(2, 50)
    for at in range(0, 20_000, 40):
        rows.add(np.full(40, 7), np.full(40, 8), np.arange(at, at + 40))
    found = np.concatenate(list(rows.pieces(64)), axis=1)
    assert np.array_equal(found[2], np.arange(20_000))
    assert sum(brought) == 20_000
    assert max(brought) <= sorting.MERGED_ROWS


@pytest.fixture
def opened(monkeypatch: pytest.MonkeyPatch) -> list[IO]:
    """The temporary files that are made."""
    files: list[IO] = []
    make = tempfile.TemporaryFile

    def made(*args, **how) -> IO:
        files.append(make(*args, **how))
        return files[-1]

    monkeypatch.setattr(scratch.tempfile, "TemporaryFile", made)
    return files


def test_many_share_one_file_which_goes_with_the_last(opened: list[IO]):
    scratch = Scratch()
    rows = [Sorted(1, 10, scratch) for _ in range(50)]
    lookups = [Lookup(1, 1, 2, 10, scratch) for _ in range(50)]
    for at in range(0, 600, 20):
        for k, (its, lookup) in enumerate(zip(rows, lookups, strict=True)):
            its.add(np.arange(at, at + 20)[::-1] * k)
            lookup.add(np.arange(at, at + 20), np.arange(at, at + 20) * k)
    del scratch
    for k, (its, lookup) in enumerate(zip(rows, lookups, strict=True)):
        found = np.concatenate(list(its.pieces(100)), axis=1)
        assert np.array_equal(found[0], np.arange(600) * k)
        assert np.array_equal(lookup.find(np.array([3, 599]))[0], [3 * k, 599 * k])
    assert len(opened) == 1
    assert not opened[0].closed
    for lookup in lookups:
        lookup.close()
    assert opened[0].closed


@given(st.integers(0, 1 << 32), st.integers(1, 3), st.sampled_from([3, 100, 10**6]))
def test_of_a_key_the_first_values_that_are_there_are_found(seed: int, keys: int, most: int):
    rng = np.random.default_rng(seed)
    n = int(rng.integers(0, 4000))
    values = np.where(rng.random((2, n)) < 0.5, NULL, np.arange(n))
    columns = np.concatenate([rng.integers(0, most, (keys, n)), values])
    lookup = Lookup(keys, keys, keys + 2)
    for batch in batches(rng, columns):
        lookup.add(*batch)
    first: dict[tuple, list[int]] = {}
    for *key, a, b in columns.T.tolist():
        its = first.setdefault(tuple(key), [NULL, NULL])
        its[:] = (new if old == NULL else old for old, new in zip(its, (a, b), strict=True))
    wanted = rng.integers(-1, most + 1, (keys, 200))
    for _ in range(2):
        expected = [first.get(tuple(key), [NULL, NULL]) for key in wanted.T.tolist()]
        assert lookup.find(*wanted).T.tolist() == expected


def test_of_calls_with_one_key_the_earliest_is_found():
    calls = Lookup(1, 2, 3)
    calls.add(np.array([5, 5, 5, 7]), np.array([30, 10, 20, 1]), np.array([1, 2, 3, 4]))
    assert calls.find(np.array([5, 6, 7])).tolist() == [[10, NULL, 1], [2, NULL, 4]]


def test_a_full_temporary_folder_is_named(monkeypatch: pytest.MonkeyPatch):
    def full(*asked):
        raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr(scratch.os, "pwrite", full)
    rows = Sorted(1, 10)
    with pytest.raises(ScratchError) as told:
        rows.add(np.arange(20))
    assert (told.value.errno, told.value.strerror) == (
        errno.ENOSPC,
        f"No space left on device in the temporary folder {tempfile.gettempdir()}, "
        "where many rows wait (set TMPDIR)",
    )
