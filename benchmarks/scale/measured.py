"""A command as a process of its own: what it took, and the most memory that it held."""

from __future__ import annotations

import os
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import NamedTuple

ROOT = Path(__file__).resolve().parents[2]
_MAIN = "from retime.cli import main; main()"


class Took(NamedTuple):
    """Wall time, seconds of CPU with those of its own children, peak memory, and what it printed.

    `peak_bytes` is of the largest single process.
    """

    seconds: float
    cpu_s: float
    peak_bytes: int
    printed: str


class Running:
    """A process under way; `done` waits for it."""

    def __init__(self, command: list[str]):
        self._out = tempfile.TemporaryFile()  # noqa: SIM115
        self._err = tempfile.TemporaryFile()  # noqa: SIM115
        self._command = command
        self._began = time.perf_counter()
        self.process = subprocess.Popen(
            command, stdout=self._out, stderr=self._err, env=_environment()
        )

    def done(self) -> Took:
        """What it took. Raises RuntimeError with the end of its errors where it failed."""
        _, status, usage = os.wait4(self.process.pid, 0)
        seconds = time.perf_counter() - self._began
        self.process.returncode = os.waitstatus_to_exitcode(status)
        printed, errors = (_text(f) for f in (self._out, self._err))
        if self.process.returncode:
            what = " ".join(self._command)
            raise RuntimeError(
                f"{what}: ended with {self.process.returncode}\n{errors[-2000:].strip()}"
            )
        return Took(
            seconds, usage.ru_utime + usage.ru_stime, usage.ru_maxrss * 1024, printed
        )  # fmt: skip


def measured(command: list[str]) -> Took:
    """Runs a command to its end; see `Running`."""
    return Running(command).done()


def cli(*words: str) -> list[str]:
    """The command line of the `retime` that is imported here."""
    return [sys.executable, "-c", _MAIN, *words]


def _environment() -> dict[str, str]:
    # Both `benchmarks` and `retime` are of this checkout, wherever it lies.
    paths = [str(ROOT), os.environ.get("PYTHONPATH", "")]
    found = {**os.environ, "PYTHONPATH": os.pathsep.join(p for p in paths if p)}
    # Python keeps what it compiled of a module, as it does where packages are installed.
    found.pop("PYTHONDONTWRITEBYTECODE", None)
    return found


def _text(file) -> str:
    file.seek(0)
    with file:
        return file.read().decode("utf-8", "replace")
