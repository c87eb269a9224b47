"""Folders and files that cannot be written, or not be read: said, and read as far as that goes."""

import os

import pytest
from disks import mounted
from processes import NOBODY
from retime.ingest import settings
from retime.ingest.warehouse import Warehouse
from whole import rows, whole

root_only = pytest.mark.skipif(os.geteuid() != 0, reason="only root may become another user")


def refused(came):
    return came.kind == "WarehouseError" and "cannot be written" in came.error


def test_a_read_only_file_system_is_said_and_read(tmp_path, job, processes, read_only):
    paths, expected = job
    with mounted(tmp_path / "disk", "size=8m") as disk:
        warehouse = disk / "w"
        assert processes.run("ingest", warehouse, paths[:3], "j", {"derive_now": False}).error == ""
        read_only(disk)
        assert refused(processes.run("ingest", warehouse, paths, "j"))
        assert refused(processes.run("derive", warehouse, "j"))
        came = processes.run("kernels", warehouse, "j", "a*", "gemm")
        assert (came.kind, "annot be written" in came.error) == ("WarehouseError", True)
        assert processes.run("keep", warehouse, "j").result is False
        came = processes.run("upload", paths, warehouse, "j", tmp_path / "spool")
        assert came.result[0] == ["waiting"] * 4
        # Derived apart: each reader for itself, and nothing of it in the job.
        for rank in range(3):
            got = rows(Warehouse(warehouse).snapshot("j"))
            assert got["events"][rank] == expected["events"][rank]
        assert sorted(got["collectives"]) == [0, 1, 2]
        assert processes.run("count", warehouse, "j", "collectives").result == 9
        assert not list(warehouse.glob("job=j/*/derived-*"))
        read_only(disk, again=True)
        came = processes.run("upload", [], None, None, tmp_path / "spool", {"retry": True})
        assert sorted(came.result[0]) == ["already"] * 3 + ["new"]
        whole(warehouse, "j", expected, paths)


@root_only
def test_a_warehouse_of_another_user_is_said_and_read(shared_folder, job, processes):
    paths, expected = job
    warehouse = shared_folder / "w"
    mine = {"uid": NOBODY}
    spool = shared_folder / "spool"
    spool.mkdir(mode=0o700)
    os.chown(spool, NOBODY, NOBODY)
    traces = shared_folder / "in"
    traces.mkdir()
    copies = [traces / p.name for p in paths]
    for path, copy in zip(paths, copies, strict=True):
        copy.write_bytes(path.read_bytes())
        copy.chmod(0o644)
    assert processes.run("ingest", warehouse, copies[:3], "j", {"derive_now": False}).error == ""
    assert refused(processes.run("ingest", warehouse, copies, "j", **mine))
    assert processes.run("count", warehouse, "j", **mine).result == 27
    locked_away = shared_folder / "cache"
    locked_away.mkdir(mode=0o700)
    elsewhere = {"uid": NOBODY, "env": {"XDG_CACHE_HOME": str(locked_away / "below")}}
    assert processes.run("count", warehouse, "j", "collectives", **elsewhere).result == 9
    came = processes.run("upload", copies, warehouse, "j", spool, **mine)
    assert came.result[0] == ["waiting"] * 4
    # Only the job's folders refuse: what is staged there is what first meets it.
    warehouse.chmod(0o777)
    assert refused(processes.run("ingest", warehouse, copies, "j", **mine))
    for folder, _, _ in os.walk(warehouse):
        os.chown(folder, NOBODY, NOBODY)
    for lock in (warehouse / "job=j" / "_incoming").iterdir():
        os.chown(lock, NOBODY, NOBODY)
    came = processes.run("upload", [], None, None, spool, {"retry": True}, **mine)
    assert sorted(came.result[0]) == ["already"] * 3 + ["new"]
    found = rows(Warehouse(warehouse).snapshot("j"))
    assert found["events"] == expected["events"]
    assert found["collectives"] == expected["collectives"]


@root_only
def test_files_that_cannot_be_read_are_one_clear_error(shared_folder, job, processes):
    paths, expected = job
    warehouse = Warehouse(shared_folder / "w")
    folder = warehouse.job_folder("j")
    assert processes.run("ingest", warehouse.path, paths, "j").error == ""
    settings.write(folder, settings.Settings())
    m = next(m for m in warehouse.manifests("j")[0] if m.ranks == [1])
    for file, what in (
        (m.tables["events"][0].file, "ermission denied"),
        (f"_manifests/{m.id[:16]}.json", None),
        ("_settings.json", None),
    ):
        (folder / file).chmod(0)
        came = processes.run("count", warehouse.path, "j", uid=NOBODY)
        if what:
            assert (came.result, what in came.error) == (None, True), came
        elif file == "_settings.json":
            assert came.result == 36  # what was said is left aside, and said
        else:
            assert came.result == 27
        (folder / file).chmod(0o644)
    whole(warehouse.path, "j", expected, paths)
