"""The sender: a process of the lowest priority that delivers what a spool holds, then ends."""

from __future__ import annotations

import contextlib
import json
import os
import subprocess
import sys
from pathlib import Path

_START = (
    "import json, sys; sys.path[:] = json.loads(sys.argv[1]); "
    "from retime.ingest.upload.sender import main; main(sys.argv[2], float(sys.argv[3]))"
)
_IOPRIO_SET = {"x86_64": 251, "aarch64": 30, "riscv64": 30, "ppc64le": 273}
_IDLE_CLASS = 3 << 13
ERRORS = "sender.err"
"""Where a sender's own failure to start is written, in the spool."""


def start(folder: Path, for_s: float) -> subprocess.Popen[bytes]:
    """Starts a sender of a spool, in a session of its own; it ends where one is at work.

    It holds none of this process's pipes, so that nobody waits for it. Raises OSError.
    """
    paths = [os.path.abspath(p) if p else os.getcwd() for p in sys.path]
    env = os.environ | {
        "CUDA_VISIBLE_DEVICES": "", "OMP_NUM_THREADS": "1", "NUMBA_NUM_THREADS": "1",
        "POLARS_MAX_THREADS": "1",
    }  # fmt: skip
    errors = os.open(folder / ERRORS, os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_NOFOLLOW, 0o600)
    try:
        return subprocess.Popen(
            [sys.executable, "-P", "-c", _START, json.dumps(paths), str(folder), repr(for_s)],
            stdin=subprocess.DEVNULL,
            stdout=subprocess.DEVNULL,
            stderr=errors,
            cwd=folder,
            env=env,
            start_new_session=True,
        )
    finally:
        os.close(errors)


def main(folder: str, for_s: float) -> None:
    """Delivers what is due in a spool until nothing is, trying each for `for_s` seconds."""
    be_gentle()
    sys.meta_path.insert(0, _WithoutPandas)
    from .spool import Spool

    spool = Spool(folder)
    while True:
        with spool.sending() as mine:
            if not mine:
                return  # who is at it looks again before it ends
            if spool.due():
                from .run import upload

                upload(spool=folder, for_s=for_s, workers=1)
        if not _claimable(spool):
            return


class _WithoutPandas:
    """pyarrow imports pandas where it is installed, for seconds of a processor and for nothing."""

    @staticmethod
    def find_spec(name: str, path: object = None, target: object = None) -> None:
        if name == "pandas":
            raise ModuleNotFoundError("a sender does without it", name=name)


def _claimable(spool) -> bool:
    """Whether anything that is due waits for a sender: what another upload is at does not."""
    for entry in spool.due():
        claim = spool.claim(entry.id)
        if claim is not None:
            claim.release(False)
            return True
    return False


def be_gentle() -> None:
    """Takes only what is left over of processor and disk, and is the first to go for memory."""
    with contextlib.suppress(OSError):
        os.nice(19)
    with contextlib.suppress(OSError), open("/proc/self/oom_score_adj", "w") as f:
        f.write("1000")
    number = _IOPRIO_SET.get(os.uname().machine)
    if sys.platform == "linux" and number is not None:
        import ctypes

        with contextlib.suppress(OSError, AttributeError):
            ctypes.CDLL(None).syscall(number, 1, 0, _IDLE_CLASS)
