"""A made-up trace format whose traces can fail in every way, and a look at whole folders."""

import hashlib
from pathlib import Path

import pyarrow.parquet as pq
import pytest

HERE = Path(__file__).resolve().parent


@pytest.fixture
def traces(monkeypatch):
    """`traces(path, rank, **said)` writes a made-up trace; its format is the only one known."""
    monkeypatch.syspath_prepend(str(HERE))
    import standins

    known = dict(standins.detect.FORMATS)
    standins.use_fake_format(monkeypatch.setitem)
    yield standins.write_trace
    standins.known_are(known)


@pytest.fixture
def forks(monkeypatch):
    """Starts ingests of made-up traces in processes of their own."""
    monkeypatch.syspath_prepend(str(HERE))
    from forks import Forks

    started = Forks()
    yield started
    started.close()


@pytest.fixture
def kineto_forks(monkeypatch):
    """The same of real traces, each ingest with two workers."""
    monkeypatch.syspath_prepend(str(HERE))
    from forks import Forks

    started = Forks("2")
    yield started
    started.close()


@pytest.fixture
def tree():
    """`tree(folder)`: every path below it, with time of change and content of files."""

    def look(folder: Path):
        return {
            str(p.relative_to(folder)): (
                p.stat().st_mtime_ns,
                hashlib.sha256(p.read_bytes()).hexdigest() if p.is_file() else "folder",
            )
            for p in sorted(folder.rglob("*"))
        }

    return look


@pytest.fixture
def rows():
    """All rows of a snapshot by table, or of one; but for the time at which it was ingested."""

    def of_table(files):
        found = [r for f in files for r in pq.ParquetFile(f).read().to_pylist()]
        for r in found:
            r.pop("created_at_ns", None)
        return found

    def read(snapshot, table=None):
        if table is not None:
            return of_table(snapshot.files[table])
        return {t: of_table(files) for t, files in snapshot.files.items()}

    return read
