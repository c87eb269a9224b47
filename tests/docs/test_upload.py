"""The page of uploads: its commands run, one after the other, as a reader would."""

from __future__ import annotations

import os
import re
import shlex
import shutil
from pathlib import Path

import pytest
import retime
from retime import cli
from retime.ingest.upload import backoff, handler, sending, spool

PAGE = (Path(__file__).resolve().parents[2] / "docs" / "upload.md").read_text(encoding="utf-8")


@pytest.fixture
def here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, demo_job: Path) -> Path:
    """A folder with the traces of two ranks, and an environment that says nothing."""
    for name in list(os.environ):
        if name.startswith(("RETIME_", "SLURM_", "TORCHELASTIC_")):
            monkeypatch.delenv(name)
    monkeypatch.setenv("HOME", str(tmp_path))
    monkeypatch.chdir(tmp_path)
    (tmp_path / "traces").mkdir()
    for rank in (0, 1):
        shutil.copyfile(demo_job / f"rank{rank}.json.gz", tmp_path / f"traces/rank{rank}.json.gz")
        os.utime(tmp_path / f"traces/rank{rank}.json.gz", (1e9, 1e9))
    return tmp_path


def commands() -> list[str]:
    blocks = re.findall(r"^```sh\n(.*?)^```$", PAGE, re.M | re.S)
    lines = "".join(blocks).replace("\\\n", " ").splitlines()
    return [line.partition("  #")[0].strip() for line in lines]


def test_its_commands_run(here: Path, capsys: pytest.CaptureFixture[str]) -> None:
    ran = 0
    for line in commands():
        if "torchrun" in line or line.startswith("retime show try"):
            continue  # tests/ingest/upload runs that job
        if line.startswith("env -i"):
            continue  # and the epilog, as slurmd does
        line = line.replace('/var/tmp/retime-spool-"$USER"', str(here / "spool"))
        words, _, target = line.partition(" > ")
        first, *args = shlex.split(words)
        if first == "mkdir":
            Path(args[-1]).mkdir(parents=True, exist_ok=True)
            continue
        assert first == "retime", line
        capsys.readouterr()
        assert cli.run(args) == 0, line
        out = capsys.readouterr().out
        if target:
            Path(target).write_text(out)
        ran += 1
    assert ran == 14
    assert retime.open("warehouse").job("run-7").show()["ranks_seen"] == 2
    assert {"retime-upload.sh", "upload.conf", "job.yaml", "train.py", "retime-upload.cron"} <= {
        p.name for p in here.iterdir()
    }


def test_its_numbers_are_those_of_the_code() -> None:
    assert f"{handler.MOST_FILES} traces and {spool.MOST_BYTES >> 30} GiB" in PAGE
    assert f"{spool.FREE_BYTES >> 30} GiB free" in PAGE
    assert f"{spool.MOST_ENTRIES:,} entries" in PAGE
    assert f"waits {handler.GRACE_S:.0f} seconds at most (`grace_s`)" in PAGE
    assert (backoff.MOST_S, backoff.LATER_FIRST_S, backoff.LATER_MOST_S) == (60, 60, 3600)
    assert sending.MOST_CLAIMS >= sending.MOST_AT_ONCE


def test_every_option_is_there(capsys: pytest.CaptureFixture[str]) -> None:
    cli.run(["upload", "--help"])
    options = set(re.findall(r"--[a-z][a-z-]+", capsys.readouterr().out))
    said = set(re.findall(r"--[a-z][a-z-]+", PAGE))
    assert said - options == {"--ntasks-per-node", "--nproc-per-node", "--rdzv-backend",
                              "--rdzv-endpoint"}  # fmt: skip
