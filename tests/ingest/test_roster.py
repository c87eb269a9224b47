"""What a writer knows of a job without reading every manifest: lines that never decide alone."""

import json
import os

import pytest
from retime.ingest import manifest, roster
from retime.ingest.errors import UsageError
from retime.ingest.roster import Roster
from retime.ingest.run import ingest
from retime.ingest.warehouse import Warehouse

MANY = roster.LISTED_FROM + 8


@pytest.fixture
def job(tmp_path, traces):
    """A job of many ranks with a roster, and each rank's trace."""
    warehouse = Warehouse(tmp_path / "w")
    files = [traces(tmp_path / f"{r}.fake", r, rows=r + 1) for r in range(MANY)]
    ingest(warehouse, files, job="j", derive_now=False)
    Roster.read(warehouse.job_folder("j"))
    return warehouse, files


def _folder(warehouse):
    return warehouse.root.local / "job=j"


def _counted(monkeypatch):
    read: list[str] = []
    real = manifest.read_manifest
    for module in (roster, roster.counting):
        monkeypatch.setattr(module, "read_manifest", lambda p: read.append(p.name) or real(p))
    return read


def test_what_another_call_brought_is_not_read_again(job, tmp_path, traces, monkeypatch):
    warehouse, _ = job
    assert len(json.loads((_folder(warehouse) / roster.FILE).read_bytes())["lines"]) == MANY
    read = _counted(monkeypatch)
    new = traces(tmp_path / "new.fake", MANY, rows=3)
    report = ingest(warehouse, new, job="j", derive_now=False)
    assert [s.status for s in report.sources] == ["new"]
    assert read == []


def test_a_source_that_is_there_is_known_by_its_own_manifest(job, monkeypatch):
    warehouse, files = job
    read = _counted(monkeypatch)
    report = ingest(warehouse, files[5], job="j", derive_now=False)
    assert [s.status for s in report.sources] == ["already"]
    assert len(read) == 1


def test_a_rank_that_is_there_clashes(job, tmp_path, traces):
    warehouse, _ = job
    with pytest.raises(UsageError, match=r"rank 7 of job j clashes: .*other.fake and .*7.fake"):
        ingest(warehouse, traces(tmp_path / "other.fake", 7, rows=99), job="j", derive_now=False)


def test_one_whose_file_is_gone_comes_again(job, rows):
    warehouse, files = job
    made = Roster.read(warehouse.job_folder("j"))
    part = next(m for m in map(made.unit, made.files) if m.ranks == [5]).parts[0]
    (_folder(warehouse) / part.file).unlink()
    report = ingest(warehouse, files[5], job="j")
    assert [s.status for s in report.sources] == ["new"]
    assert any(p.code == "bad_manifest" for _, p in report.problems)
    assert len(rows(warehouse.snapshot("j"), "events")) == sum(range(1, MANY + 1))


@pytest.mark.parametrize(
    "lie",
    [
        b"",
        b"{}",
        b'{"lines": [[1]]}',
        b"\xff" * 100,
        b"[" * 100_000,
    ],
)
def test_a_damaged_roster_is_made_anew(job, lie, rows):
    warehouse, files = job
    (_folder(warehouse) / roster.FILE).write_bytes(lie)
    report = ingest(warehouse, files, job="j", derive_now=False)
    assert {s.status for s in report.sources} == {"already"}
    assert len(json.loads((_folder(warehouse) / roster.FILE).read_bytes())["lines"]) == MANY


def test_lines_that_lie_keep_nothing_out(job, tmp_path, traces, rows):
    warehouse, _ = job
    place = _folder(warehouse) / roster.FILE
    said = json.loads(place.read_bytes())
    new = traces(tmp_path / "new.fake", MANY, rows=3)
    for line in said["lines"]:  # they claim the size and the rank of what is to come
        line[4], line[6] = os.path.getsize(new), [MANY]
    place.write_text(json.dumps(said))
    report = ingest(warehouse, new, job="j")
    assert [s.status for s in report.sources] == ["new"]
    assert len(rows(warehouse.snapshot("j"), "events")) == sum(range(1, MANY + 1)) + 3


def test_a_line_of_a_file_that_changed_does_not_count(job):
    warehouse, files = job
    made = Roster.read(warehouse.job_folder("j"))
    name = next(f for f in made.files if made.unit(f).ranks == [5])
    (_folder(warehouse) / "_manifests" / name).write_text("{}")
    report = ingest(warehouse, files[5], job="j", derive_now=False)
    assert [s.status for s in report.sources] == ["new"]


def test_a_roster_that_is_a_link_is_not_written_through(job, tmp_path):
    warehouse, files = job
    victim = tmp_path / "victim"
    victim.write_text("mine")
    place = _folder(warehouse) / roster.FILE
    place.unlink()
    place.symlink_to(victim)
    ingest(warehouse, files[0], job="j", derive_now=False)
    assert victim.read_text() == "mine"


def test_what_died_is_tidied_by_the_next_writer(job, tmp_path, traces):
    warehouse, _ = job
    dead = _folder(warehouse) / "_incoming" / "host.space.1.2.abcdef"
    dead.mkdir()
    os.utime(dead, (0, 0))
    orphan = _folder(warehouse) / "events" / "0123456789abcdef-000.parquet"
    orphan.write_bytes(b"left")
    ingest(warehouse, traces(tmp_path / "new.fake", MANY, rows=3), job="j", derive_now=False)
    assert not dead.exists()
    assert not orphan.exists()
