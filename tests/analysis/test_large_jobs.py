"""A large job's rows that only a replay gives are there when its ingest ends."""

from __future__ import annotations

import errno
from pathlib import Path

import pytest
import retime
from retime.analysis import computed, terminal, tracking
from retime.ingest import kept
from retime.ingest.tasks import shares
from retime.replay.findings import computed as replayed
from retime.replay.findings.large import columns

DEMO = Path(retime.__file__).parent / "analysis" / "demo_job"
SCORES = "SELECT rank, score_ns, low_ns, high_ns, step_ns, how FROM replay_scores ORDER BY rank"


def is_kept(warehouse, job) -> bool:
    snapshot, folder = warehouse.store.snapshot(job), warehouse.store.job_folder(job)
    return kept.find(folder, kept.key(folder, snapshot.generation)) is not None


@pytest.fixture
def ingested(monkeypatch, tmp_path):
    """`ingested(name, many)`: a warehouse with the bundled job, where so many events are many."""

    def ingest(name: str, many: int):
        monkeypatch.setattr(kept, "LARGE_EVENTS", many)
        monkeypatch.setattr(replayed, "LARGE_EVENTS", many)
        warehouse = retime.open(str(tmp_path / name))
        report = warehouse.ingest([str(DEMO)], job="demo")
        assert (report.exit_code, report.events > 100_000) == (0, True)
        return warehouse

    return ingest


def test_they_are_those_of_a_job_that_is_asked_first(ingested, monkeypatch):
    small, large = ingested("small", 1_000_000), ingested("large", 100_000)
    assert not is_kept(small, "demo")
    assert is_kept(large, "demo")
    monkeypatch.setattr(replayed, "LARGE_EVENTS", 1_000_000)
    for query in (SCORES, "FROM critical_path ORDER BY ALL", "FROM slack ORDER BY ALL"):
        found = large.connect("demo").execute(query).fetchall()
        assert found == small.connect("demo").execute(query).fetchall() != []


def test_a_full_disk_is_said_and_not_kept(ingested, monkeypatch):
    def full(*_):
        raise OSError(errno.ENOSPC, "No space left on device")

    with monkeypatch.context() as patched:
        patched.setattr(columns.np, "save", full)
        large = ingested("large", 100_000)
        assert not is_kept(large, "demo")
        con = large.connect("demo")
        assert con.execute(SCORES).fetchall() == []
        [said] = con.execute(
            f"SELECT message FROM problems WHERE code = '{computed.NOT_REPLAYED}'"
        ).fetchall()
        assert "No space left on device" in said[0]
        assert "TMPDIR" in said[0]
    assert len(large.connect("demo").execute(SCORES).fetchall()) == 8
    assert is_kept(large, "demo")


def test_a_rank_with_too_many_events_is_left_to_who_asks(ingested, monkeypatch, capsys):
    small = ingested("small", 1_000_000)
    monkeypatch.setattr(shares, "SHARE_ROWS", 10_000)
    monkeypatch.setattr(kept, "LARGE_EVENTS", 100_000)
    monkeypatch.setattr(replayed, "LARGE_EVENTS", 100_000)
    warehouse = retime.open(str(small.url).replace("small", "left"))
    report = warehouse.ingest([str(DEMO)], job="demo")
    [(place, said)] = [p for p in report.problems if p[1].code == tracking.NOT_YET_REPLAYED]
    assert (place, report.exit_code, report.n_problems) == ("demo", 0, 0)
    assert f"{max(s.rows['events'] for s in report.sources):,} events" in said.message
    assert "retime analyse demo" in said.message
    tracking.show(terminal.console(), report)
    assert "retime analyse demo" in capsys.readouterr().out
    assert not is_kept(warehouse, "demo")

    [row] = warehouse.analyse("demo")
    assert (row["status"], is_kept(warehouse, "demo")) == ("computed", True)
    found = warehouse.connect("demo").execute(SCORES).fetchall()
    assert found == small.connect("demo").execute(SCORES).fetchall() != []
    again = warehouse.ingest([str(DEMO)], job="demo")
    assert not [p for p in again.problems if p[1].code == tracking.NOT_YET_REPLAYED]


def test_a_file_that_cannot_be_read_does_not_fail_the_ingest_after_it(ingested, monkeypatch):
    store = ingested("damaged", 1_000_000).store
    monkeypatch.setattr(replayed, "LARGE_EVENTS", 100_000)
    monkeypatch.setattr(shares, "SHARE_ROWS", 10_000)
    snapshot, folder = store.snapshot("demo"), store.job_folder("demo")
    assert computed.left(snapshot, folder) is not None
    Path(snapshot.files["events"][0]).write_bytes(b"PAR1 cut")
    assert computed.left(snapshot, folder) is None
