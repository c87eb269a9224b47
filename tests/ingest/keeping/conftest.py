"""A made-up job of a few ranks to keep, and what it holds."""

import hashlib

import pyarrow.parquet as pq
import pytest
from retime.ingest.run import ingest
from retime.ingest.warehouse import Warehouse


@pytest.fixture
def bring(tmp_path, traces):
    """`bring(warehouse, job, ranks)` ingests made-up traces of these ranks, one after the other."""

    def into(warehouse, job, ranks, **said):
        for rank in ranks:
            path = traces(tmp_path / "in" / job / f"rank{rank}.fake", rank, **said)
            ingest(warehouse, [path], job=job)

    return into


@pytest.fixture
def warehouse(tmp_path, bring):
    """A warehouse with job `j` of four ranks."""
    warehouse = Warehouse(tmp_path / "warehouse")
    bring(warehouse, "j", range(4), rows=1500)
    return warehouse


@pytest.fixture
def held():
    """`held(snapshot)`: the rows of every table as sorted texts, but for when it was ingested."""

    def rows(snapshot):
        out = {}
        for table, files in snapshot.files.items():
            found = [r for f in files for r in pq.ParquetFile(f).read().to_pylist()]
            for r in found:
                r.pop("created_at_ns", None)
            out[table] = sorted(map(repr, found))
        return out

    return rows


@pytest.fixture
def digests():
    """`digests(folder)`: SHA-256 of each derived table's file, but for when it was ingested."""

    def of(folder):
        return {
            str(p.relative_to(folder)): hashlib.sha256(p.read_bytes()).hexdigest()
            for p in folder.glob("*/derived-*.parquet")
            if p.parent.name != "jobs"
        }

    return of
