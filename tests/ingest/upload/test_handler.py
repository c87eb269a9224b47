"""The profiler's handler: it hands over and goes on, whatever is full, broken or gone."""

from __future__ import annotations

import json
import logging
import os
import subprocess
import sys
import time
from pathlib import Path

import pytest
import retime
from retime.ingest.upload import handler, sender
from retime.ingest.upload.run import left, upload
from retime.ingest.upload.spool import Spool


class Profiler:
    """What the handler asks of torch.profiler."""

    def __init__(self, text: str):
        self.text = text

    def export_chrome_trace(self, path: str) -> None:
        Path(path).write_text(self.text)


@pytest.fixture
def profiler(trace):
    return Profiler(trace(0).read_text())


@pytest.fixture
def no_sender(monkeypatch):
    """No sender is started; gives how often one would have been."""
    started: list[Path] = []

    def start(folder, for_s):
        started.append(folder)
        return subprocess.Popen(["true"])

    monkeypatch.setattr(sender, "start", start)
    return started


def wait_for(what) -> None:
    for _ in range(600):
        if what():
            return
        time.sleep(0.1)
    raise AssertionError("it did not come")


def test_a_trace_comes_to_the_warehouse_by_a_process_of_its_own(profiler, wh, spool, rows_of):
    take = retime.trace_handler(str(wh), "j", spool=spool, for_s=30)
    take(profiler)
    pid = take._child.pid
    assert os.getsid(pid) == pid  # what ends this process's group does not end it
    wait_for(lambda: take._child.poll() is not None)
    assert take._child.returncode == 0
    said = (spool / "sender.err").read_text().splitlines()
    assert len(said) == 1
    assert said[0].endswith(f"new warehouse at {wh} (no job was there before)")
    assert rows_of(wh, "j") == (9, [0])
    assert left(spool).sent == []
    assert list((spool / "files").iterdir()) == []
    take.close()


def test_the_sender_takes_only_what_is_left_over():
    code = (
        "import os; from retime.ingest.upload.sender import be_gentle; be_gentle(); "
        "print(os.nice(0), open('/proc/self/oom_score_adj').read())"
    )
    ran = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert ran.stdout.split() == ["19", "1000"]


def test_importing_the_handler_is_light():
    code = (
        "import sys, retime; retime.trace_handler; "
        "heavy = {'torch', 'numpy', 'pyarrow', 'duckdb', 'polars', 'numba'} & set(sys.modules); "
        "sys.exit(','.join(sorted(heavy)) or 0)"
    )
    assert subprocess.run([sys.executable, "-c", code]).returncode == 0


def test_every_window_is_a_job_and_every_rank_a_file(profiler, wh, spool, no_sender, monkeypatch):
    monkeypatch.setenv("RANK", "3")
    monkeypatch.setenv("RETIME_WAREHOUSE", str(wh))
    monkeypatch.setenv("SLURM_JOB_ID", "9")
    monkeypatch.setenv("TORCHELASTIC_RESTART_COUNT", "1")
    take = retime.trace_handler(spool=spool)
    for _ in range(2):
        take(profiler)
    jobs = [(s.job, s.to, Path(s.path).name) for s in left(spool).sent]
    assert jobs == [
        ("slurm-9.attempt-1", str(wh), "rank3.json"),
        ("slurm-9.attempt-1.window-2", str(wh), "rank3.json"),
    ]


def test_in_a_folder_the_trace_stays(profiler, wh, spool, tmp_path, no_sender):
    take = retime.trace_handler(str(wh), "j", folder=tmp_path / "mine", spool=spool)
    take(profiler)
    assert [s.path for s in left(spool).sent] == [str(tmp_path / "mine" / "j" / "rank0.json")]
    assert upload(spool=spool).exit_code == 0
    assert (tmp_path / "mine" / "j" / "rank0.json").exists()


@pytest.mark.parametrize("bound", ["files", "bytes", "disk"])
def test_a_full_spool_takes_no_more_and_says_so_once(
    profiler, wh, spool, bound, no_sender, caplog, monkeypatch
):
    size = len(profiler.text)
    most = {"files": {"most_files": 2}, "bytes": {"most_bytes": 2 * size - 1}, "disk": {}}[bound]
    take = retime.trace_handler(str(wh), "j", spool=spool, **most)
    for n in range(5):
        if n == 2 and bound == "disk":
            monkeypatch.setattr("retime.ingest.upload.spool.FREE_BYTES", 1 << 62)
        take(profiler)
    assert len(left(spool).sent) == 2
    assert Spool(spool).bytes_kept() == 2 * size
    said = [r.getMessage() for r in caplog.records if "is full" in r.getMessage()]
    assert len(said) == 1
    monkeypatch.undo()
    assert upload(spool=spool).exit_code == 0  # room again
    take(profiler)
    assert len(left(spool).sent) == 1


@pytest.mark.parametrize(
    "how", ["export fails", "disk is full", "no spool", "no warehouse", "credentials", "no sender"]
)
def test_nothing_is_raised_and_everything_is_said(
    profiler, wh, spool, how, no_sender, caplog, monkeypatch, tmp_path
):
    to = str(wh)
    words = {
        "export fails": "a bug", "disk is full": "No space left", "no spool": "Not a directory",
        "no warehouse": "where to?", "credentials": "has credentials", "no sender": "was not",
    }[how]  # fmt: skip

    def fails(*_, **__):
        raise RuntimeError("a bug") if how == "export fails" else OSError(28, "No space left")

    if how in ("export fails", "disk is full"):
        monkeypatch.setattr(profiler, "export_chrome_trace", fails)
    elif how == "no spool":
        (tmp_path / "f").write_text("")
        spool = tmp_path / "f" / "spool"
    elif how == "no sender":
        monkeypatch.setattr(sender, "start", fails)
    else:
        to = None if how == "no warehouse" else "s3://me:hunter2@b"
    take = retime.trace_handler(to, "j", spool=spool, grace_s=0.1)
    take(profiler)
    take.close()
    said = "\n".join(r.getMessage() for r in caplog.records if r.levelno >= logging.ERROR)
    assert words in said
    assert "hunter2" not in said
    if how in ("no warehouse", "credentials", "no sender"):
        assert [s.path.endswith("rank0.json") for s in left(spool).sent] == [True]
        monkeypatch.undo()
        assert upload(spool=spool, to=str(wh), retry=True).exit_code == 0
    elif how != "no spool":
        assert left(spool).sent == []
        assert list((spool / "files").iterdir()) == []
        assert list((spool / "claims").iterdir()) == []


def test_a_process_that_dies_while_it_writes_leaves_what_there_is(trace, wh, spool, rows_of):
    text = trace(0).read_text()
    code = (
        "import os, sys, retime\n"
        "class Dies:\n"
        "    def export_chrome_trace(self, path):\n"
        "        open(path, 'w').write(sys.argv[3]); os.kill(os.getpid(), 9)\n"
        "retime.trace_handler(sys.argv[1], 'j', spool=sys.argv[2])(Dies())\n"
    )
    ran = subprocess.run([sys.executable, "-c", code, str(wh), str(spool), text[:-50]])
    assert ran.returncode == -9
    report = upload(spool=spool)
    assert (report.exit_code, report.sent[0].state) == (1, "new")  # cut, as far as it goes
    assert rows_of(wh, "j") == (8, [0])  # the last event is cut


def test_at_the_end_it_waits_a_bounded_time_and_leaves_the_rest(trace, tmp_path, spool):
    """In a process of its own, whose warehouse is not there: it ends, and nothing is lost."""
    path = trace(0)
    code = (
        "import shutil, sys, retime\n"
        "class P:\n"
        "    def export_chrome_trace(self, path): shutil.copy(sys.argv[3], path)\n"
        "retime.trace_handler(sys.argv[1], 'j', spool=sys.argv[2], grace_s=0.3, for_s=5)(P())\n"
    )
    ran = subprocess.run(
        [sys.executable, "-c", code, str(tmp_path / "none"), str(spool), str(path)],
        capture_output=True, text=True, timeout=60,
    )  # fmt: skip
    assert (ran.returncode, ran.stdout) == (0, "")
    wait_for(lambda: _sender_is_gone(spool))
    [s] = left(spool).sent
    assert (s.state, s.stored) == ("waiting", True)
    assert "left in the spool: " in (spool / "upload.log").read_text()


def test_a_fork_of_the_process_does_not_wait(profiler, wh, spool, no_sender):
    take = retime.trace_handler(str(wh), "j", spool=spool, grace_s=3600)
    take(profiler)
    take._process += 1
    take.close()


def test_many_ranks_of_a_node_have_one_sender(trace, wh, spool, rows_of):
    starts = []
    takes = []
    for rank in range(4):
        os.environ["RANK"] = str(rank)
        try:
            takes.append(retime.trace_handler(str(wh), "j", spool=spool, for_s=30))
            takes[-1](Profiler(trace(rank).read_text()))
        finally:
            del os.environ["RANK"]
        starts.append(takes[-1]._child)
    for child in starts:
        assert child.wait(timeout=60) == 0
    assert rows_of(wh, "j") == (36, [0, 1, 2, 3])
    senders = {line.split()[2] for line in (spool / "upload.log").read_text().splitlines()}
    assert len(senders) <= 4
    assert left(spool).sent == []
    assert len(list((wh / "job=j" / "_manifests").glob("derived-*"))) >= 1


def test_the_rank_is_torch_s_where_that_is_up(monkeypatch):
    class Distributed:
        is_available = is_initialized = staticmethod(lambda: True)
        get_rank = staticmethod(lambda: 5)

    monkeypatch.setitem(sys.modules, "torch", type("T", (), {"distributed": Distributed}))
    monkeypatch.setenv("RANK", "3")
    assert handler.rank_of_process() == 5
    monkeypatch.setitem(sys.modules, "torch", None)
    assert handler.rank_of_process() == 3
    monkeypatch.setenv("RANK", "x")
    monkeypatch.setenv("SLURM_PROCID", "7")
    assert handler.rank_of_process() == 7
    monkeypatch.delenv("SLURM_PROCID")
    assert handler.rank_of_process() == 0


def _sender_is_gone(spool: Path) -> bool:
    with Spool(spool).sending() as mine:
        return mine


def test_what_is_written_down_is_plain_json(profiler, wh, spool, no_sender):
    retime.trace_handler(str(wh), "j", spool=spool)(profiler)
    [path] = (spool / "entries").glob("*.json")
    assert json.loads(path.read_text())["state"] == "waiting"
    assert path.stat().st_mode & 0o077 == 0


def test_a_trace_waits_for_the_disk_twice(profiler, wh, spool, no_sender, monkeypatch):
    """For what is to be delivered; that it is being written is of no use after the machine died."""
    take = retime.trace_handler(str(wh), "j", spool=spool, grace_s=0)
    waits: list[int] = []
    sync = os.fsync
    monkeypatch.setattr(os, "fsync", lambda fd: (waits.append(fd), sync(fd)))
    take(profiler)
    assert len(left(spool).sent) == 1
    assert len(waits) == 2
