"""Rows of numbers to batches: values, texts and what is missing, beyond a stretch of rows."""

from __future__ import annotations

import io

import pytest
from retime.ingest.collect import Collector
from retime.ingest.nccl import columns_at
from retime.ingest.nccl.number_rows import NULL, NumberRows
from retime.ingest.source import Source

FUNCTIONS = {"columns": columns_at.columns, "recode": columns_at.recode}


@pytest.fixture
def rows():
    source = Source("log", 0, io.BytesIO)
    return NumberRows(
        Collector(source), "collectives", ("op", "seq", "rank", "peer"), ("peer",),
        {"source": "s"}, FUNCTIONS, lambda member, place: 10 * member + place if place else None,
    )  # fmt: skip


@pytest.mark.parametrize("n", [1, 8, 9, 511, 512, 513, 1030])
def test_values_texts_and_nulls(rows, n):
    for i in range(n):
        op = None if i % 9 == 8 else "ab"[i % 2]
        rows.add(op=op, seq=None if i % 512 == 3 else i << 33, rank=None if i % 8 == 7 else i)
    ((table, batch),) = rows.rest()
    assert table == "collectives"
    assert batch["op"].to_pylist() == [None if i % 9 == 8 else "ab"[i % 2] for i in range(n)]
    assert batch["seq"].to_pylist() == [None if i % 512 == 3 else i << 33 for i in range(n)]
    assert batch["rank"].to_pylist() == [None if i % 8 == 7 else i for i in range(n)]
    assert batch["source"].to_pylist() == ["s"] * n
    assert batch["root"].null_count == batch["peer"].null_count == n
    batch.validate(full=True)


def test_dictionaries_have_the_texts_of_their_rows_only(rows):
    rows.add(op="first")
    list(rows.rest())
    rows.add(op="second")
    rows.add(op="first")
    ((_, batch),) = rows.rest()
    assert batch["op"].dictionary.to_pylist() == ["second", "first"]
    assert batch["op"].indices.to_pylist() == [0, 1]


def test_what_is_alike_in_all_rows_is_as_long_as_they_are(rows):
    batches = []
    for n in (1, 5, 2):
        for _ in range(n):
            rows.add(op="x")
        batches += [batch for _, batch in rows.rest()]
    # One that a longer one came after is as it was.
    assert [b["source"].to_pylist() for b in batches] == [["s"], ["s"] * 5, ["s"] * 2]
    assert [b["root"].null_count for b in batches] == [1, 5, 2]


def test_places_become_ranks(rows):
    for peer, member in ((3, 2), (3, -1), (0, 2), (NULL, 2)):
        rows.add(op="x")
        rows.matrix[rows.n - 1, 3:] = peer, member
    ((_, batch),) = rows.rest()
    assert batch["peer"].to_pylist() == [23, 3, None, None]
