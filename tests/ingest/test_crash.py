"""kill -9 at random moments, and several processes at once: the warehouse is never wrong."""

import hashlib
import os
import random
import signal
import time

import pyarrow.parquet as pq
import pytest
from retime.ingest import tidying
from retime.ingest.manifest import read_generation
from retime.ingest.run import ingest
from retime.ingest.warehouse import Warehouse

LONG = os.environ.get("RETIME_FAULTS") == "long"
KILLS = 50 if LONG else 6
"""At random; tests/faults kills before each call that others see."""
KILLS_A_WAREHOUSE = 3
KINETO_KILLS = 4 if LONG else 2
ROWS = 1500 if LONG else 300


@pytest.fixture
def job(tmp_path, traces):
    """A folder with traces of five ranks."""
    for rank in range(5):
        traces(tmp_path / "in" / f"rank{rank}.fake", rank, rows=ROWS, lost=rank == 3)
    return tmp_path / "in"


def assert_whole(warehouse):
    """Everything that a snapshot names is there, whole, and of the sources it names."""
    for job in warehouse.jobs():
        snapshot = warehouse.snapshot(job)
        assert snapshot.problems == []
        folder = warehouse.job_folder(job)
        for part in [p for m in [*snapshot.manifests, snapshot.generation] for p in m.parts]:
            data = (folder / part.file).read_bytes()
            assert hashlib.sha256(data).hexdigest() == part.sha256
            assert pq.ParquetFile(folder / part.file).metadata.num_rows == part.rows
        ranks = {r for m in snapshot.manifests for r in m.ranks}
        for table in ("events", "ranks", "collectives"):
            read = [pq.ParquetFile(f).read(["rank"])["rank"] for f in snapshot.files[table]]
            assert {r for column in read for r in column.unique().to_pylist()} == ranks


def leave_only_the_newest(warehouse, monkeypatch):
    """Removes derived tables that others took the place of: they stay for their readers only.

    Each of them is whole, and there is no derived file of any other.
    """
    folder = warehouse.job_folder("j")
    manifests = sorted((folder / "_manifests").glob("derived-*.json"))
    parts = {p.file for path in manifests for p in read_generation(path).parts}
    assert {str(p.relative_to(folder)) for p in folder.glob("*/derived-*.parquet")} == parts
    assert len(manifests) <= tidying.MOST_GENERATIONS
    with monkeypatch.context() as m:
        m.setattr(tidying, "SUPERSEDED_S", 0.0)
        removed = warehouse.remove_orphans("j")
    assert all("/derived-" in path for path in removed)
    assert len(list((folder / "_manifests").glob("derived-*.json"))) == 1


def contents(folder):
    """Content of every file but those that hold the time of the ingest."""
    return {
        str(p.relative_to(folder)): p.read_bytes()
        for p in sorted(folder.rglob("*"))
        if p.is_file() and p.parent.name not in ("_manifests", "jobs", "_incoming")
    }


def test_killed_at_any_moment_it_opens_and_finishing_gives_the_same(
    tmp_path, job, forks, tree, rows, monkeypatch
):
    reference = Warehouse(tmp_path / "reference")
    began = time.monotonic()
    assert forks.wait(forks.start(reference.path, [job], "j")) == 1  # rank 3 lost something
    duration = time.monotonic() - began
    whole = rows(reference.snapshot("j"))
    assert len(whole["events"]) == 5 * ROWS
    at = random.Random(7)
    killed = n = 0
    while killed < KILLS:
        warehouse = Warehouse(tmp_path / f"w{(n := n + 1)}")
        for _ in range(KILLS_A_WAREHOUSE):
            pid = forks.start(warehouse.path, [job], "j")
            time.sleep(at.uniform(0, duration))
            os.kill(pid, signal.SIGKILL)
            if forks.wait(pid) != -signal.SIGKILL:
                break  # it had finished
            killed += 1
            if warehouse.path.exists():
                assert_whole(warehouse)
        ingest(warehouse, [job], job="j")
        assert_whole(warehouse)
        assert rows(warehouse.snapshot("j"), "jobs") == whole["jobs"]
        leave_only_the_newest(warehouse, monkeypatch)
        assert contents(warehouse.path) == contents(reference.path)
        assert set(tree(warehouse.path)) == set(tree(reference.path))  # nothing left behind


def test_real_traces_killed_with_their_workers_busy_finish_the_same(
    tmp_path, demo_job, kineto_forks, tree, rows, monkeypatch
):
    paths = [demo_job / f"rank{rank}.json.gz" for rank in range(2)]
    reference = Warehouse(tmp_path / "reference")
    began = time.monotonic()
    assert kineto_forks.wait(kineto_forks.start(reference.path, paths, "j")) == 0
    duration = time.monotonic() - began
    assert [r["rank"] for r in rows(reference.snapshot("j"), "ranks")] == [0, 1]
    killed = 0
    warehouse = Warehouse(tmp_path / "killed")
    for n in range(KINETO_KILLS):
        pid = kineto_forks.start(warehouse.path, paths, "j")
        time.sleep(duration * (n + 0.5) / KINETO_KILLS)
        os.kill(pid, signal.SIGKILL)
        killed += kineto_forks.wait(pid) == -signal.SIGKILL
        if warehouse.path.exists():
            assert_whole(warehouse)
    assert kineto_forks.wait(kineto_forks.start(warehouse.path, paths, "j")) == 0
    assert killed  # the later ones may have found little left to do and finished
    assert_whole(warehouse)
    # A worker outlives its parent by a moment, in which it may write where things are removed.
    warehouse.remove_orphans("j")
    leave_only_the_newest(warehouse, monkeypatch)
    assert contents(warehouse.path) == contents(reference.path)
    assert set(tree(warehouse.path)) == set(tree(reference.path))  # nothing left behind


def test_four_processes_bring_their_ranks_into_one_job_at_once(
    tmp_path, job, forks, rows, monkeypatch
):
    files = sorted(job.iterdir())
    serial, at_once = Warehouse(tmp_path / "serial"), Warehouse(tmp_path / "at-once")
    ingest(serial, [job], job="j")
    shares = [files[:2], files[1:3], files[3:4], files[4:]]  # rank 1 is brought twice
    started = [forks.start(at_once.path, share, "j") for share in shares]
    # Rank 3 lost something, and whoever brings it says so.
    assert [forks.wait(pid) for pid in started] == [0, 0, 1, 0]
    assert_whole(at_once)
    leave_only_the_newest(at_once, monkeypatch)
    assert rows(at_once.snapshot("j")) == rows(serial.snapshot("j"))
    assert contents(at_once.path) == contents(serial.path)


def test_two_processes_with_different_traces_of_a_rank_cannot_both_win(
    tmp_path, traces, forks, rows
):
    for attempt in range(5 if LONG else 2):
        a = traces(tmp_path / "a.fake", 0, salt=1)
        b = traces(tmp_path / "b.fake", 0, salt=2)
        warehouse = Warehouse(tmp_path / f"w{attempt}")
        started = [forks.start(warehouse.path, [p], "j") for p in (a, b)]
        assert sorted(forks.wait(pid) for pid in started) == [0, 1]
        assert_whole(warehouse)
        assert len(rows(warehouse.snapshot("j"), "events")) == 10
