"""Reads execution traces for the tests of this room, as ingest would: detected, then parsed."""

from __future__ import annotations

import pytest
from retime.ingest import detect
from retime.ingest.sources import find_sources


@pytest.fixture(scope="session")
def read():
    """Tables by member name (the file's own name): {name: {table: rows}}; checks the format."""

    def of(path, format=None, rank=None):
        out = {}
        for source in find_sources([str(path)], lambda *_: None):
            if format is not None:
                assert detect.detect(source) == format, source.name
            tables = out.setdefault(source.name.rsplit("/", 1)[-1], {})
            for table, batch in detect.parser(detect.detect(source)).parse(source, rank=rank):
                tables.setdefault(table, []).extend(batch.to_pylist())
        return out

    return of


@pytest.fixture(scope="session")
def codes():
    """Count by code of a source's problems."""

    def of(tables):
        return {p["code"]: p["count"] for p in tables.get("problems", [])}

    return of
