"""Processes that are started apart run nothing that lies in the current folder."""

from __future__ import annotations

import contextlib
import importlib
import json
import subprocess
from collections.abc import Callable
from pathlib import Path

import pytest
from retime.ingest import ahead, compile_beside, machine_code, workers
from retime.ingest.kineto.bytescan_code import CODE

sender = importlib.import_module("retime.ingest.upload.sender")


def beside(folder: Path) -> None:
    compile_beside._begin()


def worker(folder: Path) -> None:
    workers._Worker()


def code(folder: Path) -> None:
    assert not machine_code.start(CODE)


def sends(folder: Path) -> None:
    sender.start(folder, 1.0)


@pytest.mark.parametrize("start", [beside, worker, code, sends])
def test_a_module_in_the_current_folder_is_not_run(
    start: Callable[[Path], None], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    commands: list[list[str]] = []

    def popen(command, **_):
        commands.append(command)
        raise OSError("not this time")

    with monkeypatch.context() as patch:
        patch.setenv("XDG_CACHE_HOME", str(tmp_path / "caches"))
        patch.setattr(subprocess, "Popen", popen)
        patch.setattr(machine_code, "_makers", {})
        patch.setattr(compile_beside, "_begun", False)
        patch.setattr(ahead, "cores", lambda: 2)
        with contextlib.suppress(OSError):
            start(tmp_path)
    (command,) = commands
    at = command.index("-c")
    text, path = command[at + 1 : at + 3]
    for name in ("json.py", "retime.py"):
        (tmp_path / name).write_text("open('run', 'w').close()")
    begins = text.rpartition(";")[0]  # all but the call
    assert "import" in begins
    subprocess.run([*command[: at + 1], begins, path], cwd=tmp_path, check=True)
    assert not (tmp_path / "run").exists()
    assert all(json.loads(path))
