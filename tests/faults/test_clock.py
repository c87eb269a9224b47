"""Clocks that are a year off on one node: nothing goes too early, nothing waits for ever.

What is off is the clock of a process. That of the file system is not, as with one that is shared.
"""

import os
import time

import pytest
from retime.ingest import owners, tidying
from retime.ingest.store import folder
from retime.ingest.warehouse import Warehouse
from whole import left_behind, rows, whole

YEAR_S = 365 * 86_400.0


@pytest.mark.parametrize(
    "off", [(0, YEAR_S, 0, -YEAR_S), (-YEAR_S, 0, YEAR_S, 0), (YEAR_S, -YEAR_S, 0, YEAR_S)]
)
def test_writers_with_clocks_apart_and_readers_that_go_on(tmp_path, job, processes, off):
    paths, expected = job
    warehouse = Warehouse(tmp_path / "w")
    held = []
    for path, clock_s in zip(paths, off, strict=True):
        came = processes.run("ingest", warehouse.path, [path], "j", clock_s=clock_s)
        assert came.result == ["new"]
        snapshot = warehouse.snapshot("j")
        held.append((snapshot, rows(snapshot)))
    for snapshot, read in held:
        assert rows(snapshot) == read  # no file of it has gone
    whole(warehouse.path, "j", expected, paths)


def test_what_is_out_of_use_goes_though_it_was_made_in_the_future(tmp_path, job, processes):
    paths, expected = job
    warehouse = Warehouse(tmp_path / "w")
    for path in paths[:3]:
        processes.run("ingest", warehouse.path, [path], "j", clock_s=YEAR_S)
    here = warehouse.job_folder("j")
    old = time.time() - 2 * tidying.SUPERSEDED_S
    for path in here.rglob("*derived-*"):
        os.utime(path, (old, old))  # two days later
    assert processes.run("ingest", warehouse.path, paths, "j").error == ""
    whole(warehouse.path, "j", expected, paths)
    # Superseded a moment ago is the last of them alone.
    assert len(list((here / "_manifests").glob("derived-*.json"))) == 2


@pytest.mark.parametrize("clock_s", [YEAR_S, -YEAR_S])
def test_unfinished_work_of_another_node_stays_while_it_is_worked_on(
    tmp_path, job, processes, clock_s
):
    paths, expected = job
    warehouse = Warehouse(tmp_path / "w")
    assert processes.run("ingest", warehouse.path, paths[:2], "j").error == ""
    incoming = warehouse.job_folder("j") / "_incoming"
    for name in ("at-work", "left"):
        (incoming / f"{name}.{'0' * 12}.7.7.{'0' * 8}").mkdir()
    at_work, left = sorted(p for p in incoming.iterdir() if p.is_dir())
    old = time.time() - 2 * owners.ABANDONED_S
    os.utime(left, (old, old))
    assert processes.run("ingest", warehouse.path, paths, "j", clock_s=clock_s).error == ""
    assert at_work.exists()
    assert not left.exists()
    at_work.rmdir()
    whole(warehouse.path, "j", expected, paths)


@pytest.mark.parametrize(("before_s", "after_s"), [(YEAR_S, 0), (-YEAR_S, 0), (0, -YEAR_S)])
def test_an_upload_is_tried_again_whatever_the_clock_did(
    tmp_path, job, processes, before_s, after_s
):
    paths, expected = job
    warehouse, spool = tmp_path / "w", tmp_path / "spool"
    came = processes.run("upload", paths, warehouse, "j", spool, clock_s=before_s)
    assert came.result[0] == ["waiting"] * 4
    warehouse.mkdir()
    came = processes.run("upload", [], None, None, spool, clock_s=after_s)
    assert came.result[0] == ["new"] * 4
    whole(warehouse, "j", expected, paths)
    assert left_behind(folder(Warehouse(warehouse).job_folder("j"))) == []


@pytest.mark.parametrize(("writer_s", "pruner_s"), [(-YEAR_S, 0), (0, YEAR_S)])
def test_a_young_job_is_not_taken_for_an_old_one(tmp_path, job, processes, writer_s, pruner_s):
    paths, expected = job
    warehouse = Warehouse(tmp_path / "w")
    assert processes.run("ingest", warehouse.path, paths, "j", clock_s=writer_s).error == ""
    old = {"older_than": "90d"}
    assert processes.run("prune", warehouse.path, None, old, clock_s=pruner_s).result == []
    assert rows(warehouse.snapshot("j")) == expected
    then = time.time() - YEAR_S
    for path in (warehouse.job_folder("j") / "_manifests").iterdir():
        os.utime(path, (then, then))
    late = processes.run("prune", warehouse.path, None, old, clock_s=pruner_s)
    assert late.result == ["pruned"]


@pytest.mark.parametrize(("pruner_s", "finisher_s"), [(YEAR_S, 0), (0, YEAR_S), (-YEAR_S, 0)])
def test_a_pruned_job_s_files_stay_a_day_and_no_year(
    tmp_path, job, processes, pruner_s, finisher_s
):
    paths, expected = job
    warehouse = Warehouse(tmp_path / "w")
    assert processes.run("ingest", warehouse.path, paths, "j").error == ""
    snapshot = warehouse.snapshot("j")
    assert processes.run("prune", warehouse.path, "j", {}, clock_s=pruner_s).result == ["pruned"]
    others = {"older_than": "90d"}  # any prune finishes those before it
    assert processes.run("prune", warehouse.path, None, others, clock_s=finisher_s).error == ""
    assert rows(snapshot) == expected
    then = time.time() - 2 * tidying.SUPERSEDED_S
    for path in warehouse.job_folder("j").rglob("*"):
        os.utime(path, (then, then))
    assert processes.run("prune", warehouse.path, None, others, clock_s=finisher_s).error == ""
    assert not warehouse.job_folder("j").exists()
