"""Rows that parsers of small formats collect: many at once are as many, one by one."""

from __future__ import annotations

import pytest
from retime.ingest.collect import Collector
from retime.ingest.sources import Source


def collector():
    return Collector(Source("job.log", 0, lambda: None))  # type: ignore[arg-type]


def rows(c):
    found = {}
    for table, batch in c.rest():
        found.setdefault(table, []).append(batch)
    return found


def test_rows_added_at_once_stand_where_rows_one_by_one_would():
    names, sizes, ranks = ["b", None, "a", "b"], [2, 1, None, 4], [[0, 1], [3], None, None]
    one_by_one, at_once = collector(), collector()
    for c in (one_by_one, at_once):
        c.add("comms", comm="first", member=7)
    for name, size, members in zip(names, sizes, ranks, strict=True):
        one_by_one.add("comms", comm=name, size=size, ranks=members)
    at_once.add_all("comms", 4, comm=names, size=sizes, ranks=ranks)
    at_once.add_all("comms", 0, comm=[], size=[])
    for c in (one_by_one, at_once):
        c.add("comms", comm="last", backend="nccl")
        assert c.n("comms") == 6
    (found,), (wanted,) = rows(at_once)["comms"], rows(one_by_one)["comms"]
    assert found.equals(wanted)
    assert found.column("comm").dictionary.to_pylist() == ["first", "b", "a", "last"]
    assert found.column("member").to_pylist() == [7, None, None, None, None, None]


def test_a_column_that_is_not_there_is_no_column():
    with pytest.raises(KeyError):
        collector().add_all("comms", 1, nothing=[1])


@pytest.mark.parametrize(
    ("values", "kept", "problems"),
    [
        (["a", None, "b", "a"], ["a", None, "b", "a"], None),
        (["a\ud800", "b"], ["a?", "b"], None),
        ([b"a", "b"], [None, "b"], "wrong_type"),
        ([5, "b"], [None, "b"], "wrong_type"),
    ],
)
def test_texts_of_strangers_fit_their_column(values, kept, problems):
    c = collector()
    for value in values:
        c.add("comms", comm=value)
    found = rows(c)
    assert found["comms"][0].column("comm").to_pylist() == kept
    told = found["problems"][0].column("code").to_pylist() if "problems" in found else [None]
    assert told == [problems]
