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
