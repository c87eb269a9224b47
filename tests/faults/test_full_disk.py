"""A disk that is full at any stage: what is said, what stays, and that more room mends it."""

import contextlib
import shutil

import pytest
from retime.ingest import settings
from retime.ingest.warehouse import Warehouse
from whole import partly, whole

FREE_KIB = (0, 4, 16, 44, 80, 112)


@pytest.fixture
def disk(small_disk):
    """A disk whose room `left(KiB)` leaves, and `more()` gives back."""

    class Disk:
        folder = small_disk("4m")
        _filler = folder / ".filler"

        def left(self, kib):
            with self._filler.open("wb", buffering=0) as f, contextlib.suppress(OSError):
                while True:
                    f.write(b"x" * 4096)
            with self._filler.open("rb+") as f:
                f.truncate(max(0, self._filler.stat().st_size - kib * 1024))

        def more(self):
            self._filler.unlink(missing_ok=True)

    return Disk()


def test_an_ingest_at_every_stage(disk, job, processes, long):
    paths, expected = job
    told = done = 0
    for kib in range(0, 200, 4) if long else FREE_KIB:
        warehouse = disk.folder / f"w{kib}"
        disk.left(kib)
        came = processes.run("ingest", warehouse, paths, "j")
        if came.error:
            told += 1
            assert came.kind == "WarehouseError"
            assert "full" in came.error
            assert "run the same command again" in came.error
        else:
            done += 1
        partly(warehouse, "j", expected)
        assert not list(warehouse.glob("job=j/_incoming/*/*"))
        disk.more()
        assert processes.run("ingest", warehouse, paths, "j").error == ""
        whole(warehouse, "j", expected, paths)
        shutil.rmtree(warehouse)  # else the disk has no room for the later ones at all
    assert told >= 4


def test_derived_tables_that_have_no_room_are_made_elsewhere(disk, job, processes):
    paths, expected = job
    warehouse = disk.folder / "w"
    assert processes.run("ingest", warehouse, paths, "j", {"derive_now": False}).error == ""
    for kib in (0, 8, 24):
        disk.left(kib)
        came = processes.run("derive", warehouse, "j")
        assert (came.kind, "full" in came.error) == ("WarehouseError", True)
        whole(warehouse, "j", expected)
        assert not list(warehouse.glob("job=j/*/derived-*"))
        disk.more()
    assert processes.run("derive", warehouse, "j").result is True
    whole(warehouse, "j", expected, paths)


def test_computed_rows_and_settings_that_have_no_room(disk, job, processes):
    paths, expected = job
    warehouse = Warehouse(disk.folder / "w")
    assert processes.run("ingest", warehouse.path, paths, "j").error == ""
    assert processes.run("kernels", warehouse.path, "j", "a*", "gemm").result == 1
    disk.left(0)
    assert processes.run("keep", warehouse.path, "j").result is False
    came = processes.run("kernels", warehouse.path, "j", "b*", "gemm")
    assert (came.kind, "space" in came.error or "full" in came.error) == ("WarehouseError", True)
    said = settings.read(warehouse.job_folder("j"))
    assert [r.pattern for r in said.kernels] == ["a*"]
    disk.more()
    whole(warehouse.path, "j", expected, paths)
    assert processes.run("keep", warehouse.path, "j").result is True
    assert processes.run("kernels", warehouse.path, "j", "b*", "gemm").result == 2
    whole(warehouse.path, "j", expected, paths)


@pytest.mark.parametrize("kib", [0, 12, 40])
def test_an_upload_into_a_full_warehouse_stays_in_the_spool(disk, job, processes, tmp_path, kib):
    paths, expected = job
    warehouse = disk.folder / "w"
    warehouse.mkdir()
    disk.left(kib)
    came = processes.run("upload", paths, warehouse, "j", tmp_path / "spool")
    assert came.error == ""
    assert "waiting" in came.result[0]
    partly(warehouse, "j", expected)
    disk.more()
    came = processes.run("upload", [], None, None, tmp_path / "spool", {"retry": True})
    assert "new" in came.result[0]
    assert set(came.result[0]) <= {"new", "already"}
    whole(warehouse, "j", expected, paths)


@pytest.mark.parametrize("keep", [False, True])
def test_a_spool_on_a_full_disk_delivers_all_the_same(disk, job, processes, tmp_path, keep):
    paths, expected = job
    warehouse, spool = tmp_path / "w", disk.folder / "spool"
    spool.mkdir(mode=0o700)
    disk.left(0)
    # Not there, so it would have to wait: the call says that nobody will.
    came = processes.run("upload", paths, warehouse, "j", spool, {"keep": keep})
    assert set(came.result[0]) == {"waiting"}
    warehouse.mkdir()
    came = processes.run("upload", paths, warehouse, "j", spool, {"keep": keep})
    assert set(came.result[0]) == {"new"}
    whole(warehouse, "j", expected, paths)
