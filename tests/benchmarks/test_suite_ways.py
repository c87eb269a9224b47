"""What the suite compares is the same question: peers' answers and ours are equal."""

from __future__ import annotations

import shutil
import tempfile
from pathlib import Path

import pytest
import retime

from benchmarks.limits import files, passes
from benchmarks.suite import clock
from benchmarks.suite.inputs import without
from benchmarks.suite.make import gzipped, tiled
from benchmarks.suite.ways import fabric, ingest, queries, replay
from benchmarks.tiled import DEMO


@pytest.fixture(scope="module")
def trace(tmp_path_factory):
    """A trace of 0.2 MB, and the same in gzip."""
    path = tmp_path_factory.mktemp("suite") / "a.json"
    tiled(str(path), "2e5")
    gzipped(str(path), f"{path}.gz")
    return path


@pytest.fixture(scope="module")
def warehouse(trace):
    """A job `cluster` of one rank of the bundled job."""
    folder = trace.parent / "warehouse"
    retime.open(str(folder)).ingest([str(DEMO / "rank0.json.gz")], job="cluster")
    return str(folder)


def test_ingest_reads_the_same_from_gzip(trace, tmp_path):
    plain = ingest.ours(str(trace), str(trace), str(tmp_path / "a"), "1")
    packed = ingest.ours(f"{trace}.gz", str(trace), str(tmp_path / "b"), "1")
    assert plain == packed
    assert plain["answer"] > 300
    assert clock.KEPT["seconds"] > 0


@pytest.fixture
def on_disk(trace):
    """The trace where the tests are: temporary files may lie in memory."""
    with tempfile.TemporaryDirectory(dir=Path(__file__).parent) as folder:
        yield Path(shutil.copy(trace, folder))


def test_a_cold_file_is_in_no_cache_when_the_clock_starts(on_disk, tmp_path, monkeypatch):
    trace = on_disk
    try:
        files.forgotten_there(str(trace))
    except SystemExit as e:
        pytest.skip(str(e))
    held, before = [], []
    monkeypatch.setattr(clock, "BEFORE", before)
    monkeypatch.setattr(ingest, "ours", lambda *words: clock.timed(lambda: held.append(
        files.held_bytes(words[0]))))  # fmt: skip
    trace.read_bytes()
    assert files.held_bytes(str(trace)) >= trace.stat().st_size
    ingest.cold(str(trace), str(trace), str(tmp_path), "1")
    assert held == [0]


def test_hashed_limits_read_all(trace):
    n = trace.stat().st_size
    assert files.read_hashed(str(trace))["rows"] == n
    assert files.inflate_hashed(f"{trace}.gz")["rows"] == n


def test_peers_read_every_event(trace, tmp_path):
    whole = files.read(str(trace))["rows"]
    assert whole == trace.stat().st_size == files.inflate(f"{trace}.gz")["rows"]
    duckdb = ingest.duckdb(str(trace), str(tmp_path))["rows"]
    assert duckdb == ingest.polars(str(trace), str(tmp_path))["rows"]
    if not without("simdjson"):
        assert files.simdjson_dom(str(trace))["rows"] == duckdb
    if not without("pandas"):
        assert ingest.pandas(str(trace), str(tmp_path))["rows"] == duckdb


def test_overlap_is_the_same_by_every_engine(warehouse):
    ours = queries.overlap_ours(warehouse)
    assert ours["answer"]["comm_ns"] > 0
    assert queries.overlap_duckdb(warehouse) == ours
    assert queries.overlap_polars(warehouse) == ours
    if not without("pandas"):
        assert queries.overlap_pandas(warehouse) == ours


def test_a_view_is_asked_and_profiled(warehouse, monkeypatch):
    told = queries.view(warehouse, "waits")
    assert told["rows"] == queries.view(warehouse, "waits")["rows"]
    monkeypatch.setattr(clock, "PROFILED", True)
    queries.view(warehouse, "step_breakdown")
    assert any(name.startswith("DuckDB: ") for name, _ in clock.KEPT.pop("profile")["modules"])


def test_notebooks_ask_views_that_there_are():
    assert set(queries.in_notebooks()) == set(queries.MOST_ASKED) < set(queries.public_views())


def test_views_are_asked_again_by_an_open_connection(warehouse):
    told = queries.warm(warehouse, "waits", "step_breakdown")
    assert set(told["parts"]) == {"waits", "step_breakdown"}
    assert min(told["parts"].values()) > 0


def test_plain_python_replays_as_the_engine_does():
    assert replay.loop("3000") == replay.loop_python("3000")
    assert passes.count("3000")["rows"] > 0
    assert passes.bare("3000") == {"rows": 3000}


def test_progressive_filling_takes_as_long_as_the_simulation():
    assert fabric.filling("16", "h100") == fabric.exchange("16", "h100")
    assert passes.pairs("16")["rows"] == 240
