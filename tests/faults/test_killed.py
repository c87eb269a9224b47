"""kill -9 before each call that changes what others see, and at random moments."""

import random
import shutil
import time

import pytest
from processes import MORE_MOMENTS
from retime.ingest import labels, settings, store
from retime.ingest.warehouse import Warehouse
from whole import partly, whole

EVERY = 7
"""Of the moments of an act, one of so many is tried, unless all are to be."""


def moments(long, seed, every=EVERY):
    """The n-th calls to die before, without end."""
    n = 0 if long else random.Random(seed).randrange(every)
    while True:
        yield n
        n += 1 if long else every


def no_claims(warehouse):
    """A dead writer's claims, which others wait out, are over."""
    folder = store.folder(Warehouse(warehouse).job_folder("j"))
    folder.remove([f for f in folder.entries() if f.startswith("_claims/")])


@pytest.fixture
def kinds(long):
    return {"moments": MORE_MOMENTS} if long else {}


def test_an_ingest_that_dies_loses_and_doubles_nothing(job, processes, place, long, kinds):
    paths, expected = job
    died = 0
    for n in moments(long, 1, EVERY if place.kind == "disk" else 4 * EVERY):
        warehouse = place.new(f"w{n}")
        came = processes.run("ingest", warehouse, paths, "j", kill_at=n, **kinds, **place.meets)
        died += came.killed
        partly(warehouse, "j", expected)
        if place.kind == "store":
            no_claims(warehouse)
        assert processes.run("ingest", warehouse, paths, "j", **place.meets).error == ""
        whole(warehouse, "j", expected, paths)
        if not came.killed:
            break
    assert died >= (2 if place.kind == "disk" else 1)


def test_deriving_that_dies_is_done_by_the_next_reader(tmp_path, job, processes, long, kinds):
    paths, expected = job
    before = tmp_path / "before"
    assert processes.run("ingest", before, paths, "j", {"derive_now": False}).error == ""
    died = 0
    for n in moments(long, 2):
        warehouse = shutil.copytree(before, tmp_path / f"w{n}")
        came = processes.run("derive", warehouse, "j", kill_at=n, **kinds)
        died += came.killed
        whole(warehouse, "j", expected)
        whole(warehouse, "j", expected, paths)
        if not came.killed:
            break
    assert died


@pytest.mark.parametrize("keep", [False, True])
def test_an_upload_that_dies_is_finished_by_the_next(tmp_path, job, processes, long, kinds, keep):
    paths, expected = job
    died = 0
    for n in moments(long, 3):
        warehouse, spool = tmp_path / f"w{n}", tmp_path / f"spool{n}"
        if not keep:  # with it, there is no warehouse at first, and the spool takes files in
            warehouse.mkdir()
        came = processes.run(
            "upload", paths, warehouse, "j", spool, {"keep": keep}, kill_at=n, **kinds
        )
        died += came.killed
        warehouse.mkdir(exist_ok=True)
        partly(warehouse, "j", expected)
        # What was written down is delivered without being named again; the rest by the same call.
        left = processes.run("upload", [], None, None, spool, {"retry": True})
        assert (left.error, left.result[1]) == ("", 0)
        assert set(left.result[0]) <= {"new", "already"}
        partly(warehouse, "j", expected)
        again = processes.run("upload", paths, warehouse, "j", spool)
        assert set(again.result[0]) <= {"new", "already"}
        assert not any((spool / "entries").iterdir())
        assert not any(p.name != "sender.lock" for p in (spool / "claims").iterdir())
        assert not any((spool / "files").iterdir())
        whole(warehouse, "j", expected, paths)
        if not came.killed:
            break
    assert died >= 2


def test_keeping_computed_rows_that_dies_keeps_all_of_them_or_none(
    tmp_path, job, processes, long, kinds
):
    paths, expected = job
    before = tmp_path / "before"
    assert processes.run("ingest", before, paths, "j").error == ""
    for n in moments(True, 4):
        warehouse = shutil.copytree(before, tmp_path / f"w{n}")
        came = processes.run("keep", warehouse, "j", kill_at=n, **kinds)
        kept = processes.run("kept_rows", warehouse, "j").result
        assert kept is None or [r["score_ns"] for r in kept] == [7]
        assert processes.run("keep", warehouse, "j").result is True
        assert len(processes.run("kept_rows", warehouse, "j").result) == 1
        whole(warehouse, "j", expected, paths)
        if not came.killed:
            break
    assert n


def test_saying_something_of_a_job_that_dies_is_said_or_not(tmp_path, job, processes, long, kinds):
    paths, expected = job
    warehouse = Warehouse(tmp_path / "w")
    folder = warehouse.job_folder("j")
    assert processes.run("ingest", warehouse.path, paths, "j").error == ""
    assert processes.run("kernels", warehouse.path, "j", "a*", "gemm").result == 1
    for n in moments(True, 5):
        came = processes.run("kernels", warehouse.path, "j", f"b{n}*", "gemm", kill_at=n, **kinds)
        said = [r.pattern for r in settings.read(folder).kernels]
        assert said[-1] == "a*"
        assert came.killed or said[0] == f"b{n}*"
        whole(warehouse.path, "j", expected, paths)
        if not came.killed:
            break
    assert n


def test_a_compaction_that_dies_changes_nothing(tmp_path, job, processes, long, kinds):
    paths, expected = job
    before = tmp_path / "before"
    assert processes.run("ingest", before, paths, "j").error == ""
    for n in moments(True, 7):
        warehouse = shutil.copytree(before, tmp_path / f"w{n}")
        came = processes.run("compact", warehouse, "j", kill_at=n, **kinds)
        whole(warehouse, "j", expected)
        assert processes.run("compact", warehouse, "j").error == ""
        whole(warehouse, "j", expected, paths)
        if not came.killed:
            break
    assert n


def test_a_prune_that_dies_has_taken_the_job_or_not(tmp_path, job, processes, long, kinds):
    paths, expected = job
    before = tmp_path / "before"
    assert processes.run("ingest", before, paths, "j").error == ""
    gone = []
    for n in moments(long, 8, EVERY):
        warehouse = shutil.copytree(before, tmp_path / f"w{n}")
        came = processes.run("prune", warehouse, "j", {"grace_s": 0.0}, kill_at=n, **kinds)
        gone.append("j" not in Warehouse(warehouse).jobs())
        if not gone[-1]:
            whole(warehouse, "j", expected)
        assert processes.run("ingest", warehouse, paths, "j").error == ""
        whole(warehouse, "j", expected, paths)
        if not came.killed:
            break
    assert gone == sorted(gone)
    assert gone[-1]


def test_a_tag_of_a_process_that_dies_is_there_or_not(tmp_path, job, processes, long, kinds):
    paths, expected = job
    warehouse = tmp_path / "w"
    assert processes.run("ingest", warehouse, paths, "j").error == ""
    tags = {}
    for n in moments(True, 9):
        came = processes.run("tag", warehouse, "j", f"k{n}", "v", kill_at=n, **kinds)
        found = labels.read(Warehouse(warehouse).folder("j")).values
        assert {k: v for k, v in found.items() if k != f"k{n}"} == tags
        assert came.killed or found[f"k{n}"] == "v"
        tags = dict(found)
        whole(warehouse, "j", expected, paths)
        if not came.killed:
            break
    assert n


def test_many_deaths_at_random_moments(tmp_path, job, processes, long):
    paths, expected = job
    chance = random.Random(6)
    warehouse, spool = tmp_path / "w", tmp_path / "spool"
    warehouse.mkdir()
    acts = [
        lambda: ("ingest", warehouse, chance.sample(paths, 2), "j"),
        lambda: ("upload", chance.sample(paths, 2), warehouse, "j", spool),
        lambda: ("derive", warehouse, "j"),
        lambda: ("keep", warehouse, "j"),
        lambda: ("kernels", warehouse, "j", "a*", "gemm"),
        lambda: ("count", warehouse, "j"),
        lambda: ("compact", warehouse, "j"),
        lambda: ("tag", warehouse, "j", "a", str(chance.random())),
    ]
    died = 0
    for _ in range(300 if long else 10):
        started = [processes.start(*chance.choice(acts)()) for _ in range(2)]
        time.sleep(chance.expovariate(4.0))
        died += sum(processes.kill(pid).killed for pid in started)
        partly(warehouse, "j", expected)
    assert died
    assert processes.run("upload", paths, warehouse, "j", spool).error == ""
    whole(warehouse, "j", expected, paths)
