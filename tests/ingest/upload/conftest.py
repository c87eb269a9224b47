"""Small real traces, a warehouse and a spool, and the command line in a process of its own."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest


def kineto(rank: int, world: int = 4, salt: int = 0, steps: int = 3) -> str:
    """A small trace as the profiler writes it: kernels and all-reduces of one rank."""
    events = []
    for step in range(steps):
        at = 1000.0 + 100.0 * step
        events += [
            {"ph": "X", "cat": "user_annotation", "name": f"ProfilerStep#{step}", "pid": 7,
             "tid": 7, "ts": at, "dur": 90.0},
            {"ph": "X", "cat": "kernel", "name": "gemm", "pid": 0, "tid": 7, "ts": at + 5,
             "dur": 10.0 + rank + salt, "args": {"device": 0, "stream": 7}},
            {"ph": "X", "cat": "kernel", "name": "ncclDevKernel_AllReduce_Sum_f32_RING_LL",
             "pid": 0, "tid": 9, "ts": at + 20 + rank, "dur": 30.0 - rank,
             "args": {"device": 0, "stream": 9, "Collective name": "allreduce", "dtype": "Float",
                      "In msg nelems": 1024, "Out msg nelems": 1024, "Group size": world,
                      "Process Group Name": "0", "Process Group Description": "default_pg",
                      "Process Group Ranks": str(list(range(world)))}},
        ]  # fmt: skip
    return json.dumps(
        {
            "schemaVersion": 1,
            "distributedInfo": {"backend": "nccl", "rank": rank, "world_size": world},
            "deviceProperties": [{"id": 0, "name": "a GPU"}],
            "traceEvents": events,
        }
    )


@pytest.fixture
def trace(tmp_path: Path):
    """`trace(rank, ...)` writes a trace into the folder `traces`; gives its path."""

    def write(rank: int, folder: str = "traces", **said) -> Path:
        path = tmp_path / folder / f"rank{rank}.json"
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(kineto(rank, **said))
        return path

    return write


@pytest.fixture
def spool(tmp_path: Path) -> Path:
    return tmp_path / "spool"


@pytest.fixture
def wh(tmp_path: Path) -> Path:
    (tmp_path / "warehouse").mkdir()
    return tmp_path / "warehouse"


@pytest.fixture
def store(monkeypatch: pytest.MonkeyPatch):
    """The way to the warehouse: `store.goes_down()`, `store.is_back()`."""
    from retime.ingest.errors import WarehouseError
    from retime.ingest.upload import delivery

    class Store:
        down, tries = False, 0

        def goes_down(self):
            self.down = True

        def is_back(self):
            self.down = False

    store, real = Store(), delivery.ingest

    def reached(*args, **options):
        store.tries += 1
        if store.down:
            raise WarehouseError("the warehouse: no route to host")
        return real(*args, **options)

    monkeypatch.setattr(delivery, "ingest", reached)
    return store


@pytest.fixture(autouse=True)
def _no_pauses(monkeypatch: pytest.MonkeyPatch) -> None:
    """Pauses are short, and nothing of the machine's own environment names a job or a place."""
    from retime.ingest.upload import backoff

    monkeypatch.setattr(backoff, "FIRST_S", 0.01)
    monkeypatch.setattr(backoff, "MOST_S", 0.05)
    for name in list(os.environ):
        if name.startswith(("RETIME_", "SLURM_", "TORCHELASTIC_")) and name != "RETIME_TRACES":
            monkeypatch.delenv(name)


@pytest.fixture
def rows_of():
    """`rows_of(warehouse, job)`: how many events, and ranks, the job has."""
    import pyarrow.parquet as pq
    from retime.ingest.warehouse import Warehouse

    def count(warehouse, job: str) -> tuple[int, list[int]]:
        snapshot = Warehouse(str(warehouse)).snapshot(job)
        assert snapshot.problems == []
        events = sum(pq.read_metadata(f).num_rows for f in snapshot.files["events"])
        ranks = [r for f in snapshot.files["ranks"] for r in pq.read_table(f)["rank"].to_pylist()]
        return events, sorted(ranks)

    return count


@pytest.fixture
def command(tmp_path: Path) -> Path:
    """A `retime` that can be run by path, whatever the environment."""
    path = tmp_path / "bin" / "retime"
    path.parent.mkdir()
    code = "from retime.cli import main; main()"
    paths = os.pathsep.join(os.path.abspath(p) for p in sys.path if p)
    path.write_text(f"#!/bin/sh\nPYTHONPATH='{paths}' exec {sys.executable} -c '{code}' \"$@\"\n")
    path.chmod(0o755)
    return path


@pytest.fixture
def cli(capfd: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch, tmp_path: Path):
    """`cli("upload", ...)` runs a command line; gives exit code, stdout, stderr."""
    from retime import cli

    monkeypatch.chdir(tmp_path)

    def run(*args) -> tuple[int, str, str]:
        capfd.readouterr()
        code = cli.run([str(a) for a in args])
        return (code, *capfd.readouterr())

    return run


@pytest.fixture
def epilog(tmp_path, command, user):
    """`epilog(**environment)` runs the shipped script as slurmd would, which sets little."""
    from retime.ingest.upload.examples import example

    script = tmp_path / "slurm-epilog.sh"
    script.write_text(example("slurm"))
    script.chmod(0o755)
    logger = command.with_name("logger")  # stands for the system's, and says it where we see it
    logger.write_text('#!/bin/sh\nshift 3; echo "$@" >> "$HOME/syslog"\n')
    logger.chmod(0o755)

    def run(**environment) -> subprocess.CompletedProcess[str]:
        env = {
            "SLURM_JOB_ID": "4711", "SLURM_JOB_USER": user, "SLURMD_NODENAME": "node7",
            "RETIME_COMMAND": str(command), "RETIME_UPLOAD_CONF": str(tmp_path / "upload.conf"),
            "HOME": str(tmp_path), "PATH": f"{command.parent}:{os.environ['PATH']}",
        }  # fmt: skip
        return subprocess.run(
            ["bash", str(script)], env=env | environment, capture_output=True, text=True,
            timeout=120, cwd="/",
        )  # fmt: skip

    return run


@pytest.fixture
def user() -> str:
    import pwd

    return pwd.getpwuid(os.getuid()).pw_name
