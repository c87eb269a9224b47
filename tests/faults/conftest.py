"""What every fault's tests share: small traces, processes to disturb, disks that are too small."""

import contextlib
import os
import shutil
import sys
import tempfile
from pathlib import Path
from typing import NamedTuple

import pytest

HERE = Path(__file__).resolve().parent
if str(HERE) not in sys.path:
    sys.path.insert(0, str(HERE))

import small_job  # noqa: E402
from disks import mounted, remount  # noqa: E402
from processes import Processes  # noqa: E402
from whole import undisturbed  # noqa: E402


@pytest.fixture(scope="session")
def long():
    """Whether every moment is to be tried, not a choice of them."""
    return os.environ.get("RETIME_FAULTS") == "long"


@pytest.fixture(scope="session")
def processes():
    started = Processes()
    yield started
    started.close()


@pytest.fixture(scope="session")
def job(tmp_path_factory):
    """(paths of the traces of four ranks, what an undisturbed ingest gives)"""
    folder = tmp_path_factory.mktemp("job")
    paths = small_job.write(folder / "in", range(4))
    return paths, undisturbed(folder / "warehouse", paths)


class Place(NamedTuple):
    """Where warehouses are: `new(name)` gives an address, `meets` what processes need for it."""

    kind: str
    base: str
    meets: dict

    def new(self, name):
        if self.kind == "disk":
            os.makedirs(f"{self.base}/{name}")
        return f"{self.base}/{name}"


@pytest.fixture
def in_store(s3_server, s3_url, monkeypatch, tmp_path):
    """A place in an object store."""
    said = s3_server.credentials(s3_url)
    for name, value in said.items():
        monkeypatch.setenv(name, value)
    monkeypatch.delenv("AWS_PROFILE", raising=False)
    return Place("store", f"s3://{s3_server.BUCKET}/{tmp_path.name}", {"env": said})


@pytest.fixture(params=["disk", "store"])
def place(request, tmp_path):
    """A place on a disk, and one in an object store."""
    if request.param == "store":
        return request.getfixturevalue("in_store")
    return Place("disk", str(tmp_path / "place"), {})


@pytest.fixture
def shared_folder():
    """A folder that other users may look into; pytest's own are their owner's alone."""
    folder = Path(tempfile.mkdtemp(prefix="retime-faults-", dir="/tmp"))
    folder.chmod(0o755)
    yield folder
    shutil.rmtree(folder)


@pytest.fixture
def small_disk(tmp_path):
    """`small_disk("200k")`: a folder on a file system of that size."""
    with contextlib.ExitStack() as stack:
        yield lambda size: stack.enter_context(mounted(tmp_path / "disk", f"size={size}"))


@pytest.fixture
def read_only():
    """`read_only(folder)` makes a file system one that nobody can write; with `again`, all."""

    def now(folder, again=False):
        remount(folder, "rw" if again else "ro")

    return now


@pytest.fixture(autouse=True)
def _environment(monkeypatch):
    for name in list(os.environ):
        if name.startswith(("RETIME_", "SLURM_", "TORCHELASTIC_")) and name != "RETIME_FAULTS":
            monkeypatch.delenv(name)
