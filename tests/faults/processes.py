"""Processes that work on warehouses and are killed, refused or misled about the time.

`Processes()` is one warm process that forks another for each act. As a script it is that process:
a line of JSON `{"start": act, ...}` answers a number, `{"wait": number}` what came of it.
"""

import contextlib
import datetime
import json
import os
import resource
import signal
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import NamedTuple

HERE = Path(__file__).resolve().parent

MOMENTS = ("replace", "link", "unlink", "rename")
"""Calls of `os` by which what others see of a folder changes."""

MORE_MOMENTS = (*MOMENTS, "mkdir", "rmdir", "fsync")

NOBODY = 65534


class Came(NamedTuple):
    """What came of an act: its result, or its error and that one's kind; `killed` has neither."""

    killed: bool
    result: object
    error: str
    kind: str


class Processes:
    """The warm process. `start` says what the act is to meet; `wait` gives what came of it."""

    def __init__(self):
        self._folder = tempfile.TemporaryDirectory()
        self._process = subprocess.Popen(
            [sys.executable, __file__, self._folder.name],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
        )

    def _ask(self, question):
        self._process.stdin.write(json.dumps(question, default=str) + "\n")
        self._process.stdin.flush()
        return json.loads(self._process.stdout.readline())

    def start(self, act, *args, **meets):
        """Starts `act(*args)` of `acts.py`; gives its process's number.

        `kill_at` kills it before the n-th call of `moments`, `clock_s` puts its clock forward,
        `uid` is the user that it is, `host` its machine's name, `env` its environment; after
        `limit_s` it ends, and it has no more than 2 GiB more memory.
        """
        return self._ask({"start": act, "args": args, **meets})

    def wait(self, pid):
        return Came(*self._ask({"wait": pid}))

    def run(self, act, *args, **meets):
        return self.wait(self.start(act, *args, **meets))

    def kill(self, pid):
        with contextlib.suppress(ProcessLookupError):
            os.kill(pid, signal.SIGKILL)
        return self.wait(pid)

    def close(self):
        self._process.stdin.close()
        self._process.wait()
        self._process.stdout.close()
        self._folder.cleanup()


def _kill_at(n, moments):
    """This process dies before the n-th of these calls, as by kill -9."""
    left = [n]

    def counted(call):
        def one(*args, **named):
            left[0] -= 1
            if left[0] < 0:
                os.kill(os.getpid(), signal.SIGKILL)
            return call(*args, **named)

        return one

    for name in moments:
        setattr(os, name, counted(getattr(os, name)))
    from retime.ingest.store import objects

    for name in ("put", "remove"):
        setattr(objects.ObjectFolder, name, counted(getattr(objects.ObjectFolder, name)))


def _clock_is_off(seconds):
    """This process's clock is off by so much; that of the file system is not."""
    now, now_ns = time.time, time.time_ns
    time.time = lambda: now() + seconds
    time.time_ns = lambda: now_ns() + int(seconds * 1e9)
    from retime.analysis import keeping

    class Off(datetime.datetime):
        @classmethod
        def now(cls, tz=None):
            return cls.fromtimestamp(time.time(), tz)

    keeping.datetime = Off


def _limit(seconds):
    used = int(Path("/proc/self/statm").read_text().split()[0]) * os.sysconf("SC_PAGE_SIZE")
    resource.setrlimit(resource.RLIMIT_AS, (used + (2 << 30),) * 2)
    signal.alarm(seconds)


def _be(uid):
    os.setgroups([])
    os.setgid(uid)
    os.setuid(uid)


def _act(question):
    import acts

    os.environ.update(question.get("env") or {})
    if question.get("host"):
        import socket

        socket.gethostname = lambda: question["host"]
    if question.get("limit_s"):
        _limit(question["limit_s"])
    if question.get("clock_s"):
        _clock_is_off(question["clock_s"])
    if question.get("uid"):
        _be(question["uid"])
    if question.get("kill_at") is not None:
        _kill_at(question["kill_at"], question.get("moments") or MOMENTS)
    return getattr(acts, question["start"])(*question["args"])


def _serve(folder):
    sys.path.insert(0, str(HERE))
    import acts

    # Where other users find what is prepared once for every connection.
    os.environ["XDG_CACHE_HOME"] = folder
    acts.warm_up()
    for path in (folder, f"{folder}/retime"):
        os.chmod(path, 0o755)
    for line in sys.stdin:
        question = json.loads(line)
        if "wait" in question:
            print(json.dumps(_came(Path(folder), question["wait"])), flush=True)
            continue
        pid = os.fork()
        if not pid:
            # Opened before it becomes another user.
            with open(Path(folder) / str(os.getpid()), "w") as out:
                try:
                    answer = [_act(question), "", ""]
                except BaseException as e:
                    answer = [None, str(e), type(e).__name__]
                json.dump(answer, out, default=str)
            os._exit(0)
        print(pid, flush=True)


def _came(folder, pid):
    code = os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1])
    said = folder / str(pid)
    text = said.read_text()
    said.unlink()
    if code == -signal.SIGKILL:
        return [True, None, "", ""]
    return [False, *json.loads(text)] if text else [False, None, f"exit code {code}", ""]


if __name__ == "__main__":
    _serve(sys.argv[1])
