"""Processes beside compile what is listed, last things first, and end with who started them."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest
from retime.ingest import ahead, compile_beside, workers
from retime.ingest.compile_beside import text_of, type_of
from retime.ingest.on_ray import tasks as on_ray_tasks

numba = pytest.importorskip("numba")


@pytest.mark.parametrize("text", ["i8", "i4", "b1", "f8", "i8:1", "u1:1r", "i8:2", "b1:1", "i2:1"])
def test_types_have_a_text_that_gives_them_back(text: str) -> None:
    assert text_of(type_of(text)) == text


def test_types_without_a_text_are_refused() -> None:
    for kind in (
        numba.types.Array(numba.int64, 1, "A"),
        numba.types.none,
        numba.types.unicode_type,
    ):
        with pytest.raises(ValueError, match="no text"):
            text_of(kind)


def test_each_line_names_a_compiled_function_and_its_arguments() -> None:
    import importlib
    import inspect

    rows = compile_beside.listed()
    assert len(set(rows)) == len(rows)
    for module, function, arguments in rows:
        made = getattr(importlib.import_module(module), function)
        types = tuple(map(type_of, arguments.split()))
        inspect.signature(getattr(made, "py_func", made)).bind(*types)


class Named:
    """As much of a dispatcher as is asked for: the first function listed, or another."""

    def __init__(self, module: str, name: str):
        def py_func() -> None: ...

        py_func.__module__, py_func.__qualname__ = module, name
        self.py_func = py_func


@pytest.fixture
def started(monkeypatch) -> list[list[str]]:
    found: list[list[str]] = []

    def popen(command, **_):
        found.append(command)
        raise OSError("no process here")

    monkeypatch.setattr(subprocess, "Popen", popen)
    monkeypatch.setattr(compile_beside, "_begun", False)
    monkeypatch.setattr(ahead, "cores", lambda: 2)
    return found


def test_it_starts_once_and_only_for_what_is_listed(started) -> None:
    module, function, _ = compile_beside.listed()[0]
    compile_beside.begin(Named(module, "unlisted"))
    assert started == []
    for _ in range(2):
        compile_beside.begin(Named(module, function))  # that nothing can be started is no error
    assert len(started) == 1


def test_one_starts_for_each_other_core_up_to_some(started, monkeypatch) -> None:
    class Process:
        def poll(self) -> int:
            return 0

    def popen(command, **_):
        started.append(command)
        return Process()

    monkeypatch.setattr(subprocess, "Popen", popen)
    monkeypatch.setattr(compile_beside.atexit, "register", lambda *_: None)
    row = compile_beside.listed()[0][:2]
    for cores, expected in ((2, 1), (3, 2), (64, compile_beside.MOST)):
        started.clear()
        monkeypatch.setattr(compile_beside, "_begun", False)
        monkeypatch.setattr(ahead, "cores", lambda n=cores: n)
        compile_beside.begin(Named(*row))
        assert len(started) == expected


def test_none_starts_on_one_core(started, monkeypatch) -> None:
    monkeypatch.setattr(ahead, "cores", lambda: 1)
    compile_beside.begin(Named(*compile_beside.listed()[0][:2]))
    assert started == []


def test_ahead_it_starts_unless_the_list_was_gone_through(started, monkeypatch, tmp_path) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    compile_beside.begin_ahead()
    assert len(started) == 1
    compile_beside._mark().touch()
    monkeypatch.setattr(compile_beside, "_begun", False)
    compile_beside.begin_ahead()
    assert len(started) == 1


def test_ahead_it_does_not_start_where_that_could_not_be_noted(
    started, monkeypatch, tmp_path
) -> None:
    (tmp_path / "file").write_text("")
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "file"))
    compile_beside.begin_ahead()
    assert started == []


def test_what_is_no_text_in_the_path_is_left_out(started, monkeypatch) -> None:
    monkeypatch.setattr(sys, "path", ["/a", Path("/b"), "/c"])
    compile_beside.begin(Named(*compile_beside.listed()[0][:2]))
    assert json.loads(started[0][-1]) == ["/a", "/c"]


def test_without_an_interpreter_none_starts(monkeypatch) -> None:
    monkeypatch.setattr(compile_beside, "_begun", False)
    monkeypatch.setattr(ahead, "cores", lambda: 2)
    monkeypatch.setattr(sys, "executable", None)
    compile_beside.begin(Named(*compile_beside.listed()[0][:2]))
    assert compile_beside._begun


ASKS = """
from retime.ingest import ahead, compile_beside

def starts(progress):
    found = []
    ahead.cores = lambda: 2
    compile_beside.subprocess.Popen = lambda *_, **__: found.append(1)
    compile_beside._begin()
    return len(found)
"""


def test_workers_start_none(tmp_path, monkeypatch) -> None:
    (tmp_path / "asks_for_more.py").write_text(ASKS)
    monkeypatch.syspath_prepend(tmp_path)
    found = workers.run("asks_for_more:starts", [()], 1, lambda *_: None)
    assert list(found) == [(0, 0)]


def test_tasks_of_a_cluster_start_none(started) -> None:
    on_ray_tasks._call(("builtins:print", (), []), 0, (), None)
    compile_beside.begin(Named(*compile_beside.listed()[0][:2]))
    assert started == []


def test_one_that_has_ended_is_no_process_any_more(monkeypatch) -> None:
    found: list[subprocess.Popen] = []
    real = subprocess.Popen

    def popen(*arguments, **options):
        found.append(real(*arguments, **options))
        return found[-1]

    monkeypatch.setattr(subprocess, "Popen", popen)
    monkeypatch.setattr(compile_beside, "_begun", False)
    monkeypatch.setattr(compile_beside, "_START", "pass")
    monkeypatch.setattr(ahead, "cores", lambda: 2)
    compile_beside.begin(Named(*compile_beside.listed()[0][:2]))
    (process,) = found
    for _ in range(1200):
        if process.returncode is not None:
            break
        time.sleep(0.05)
    assert process.returncode == 0


INTERRUPTED = """
import time
from retime.ingest import compile_beside
def listed():
    print("at it", flush=True)
    time.sleep(1)
    print("still at it", flush=True)
    return []
compile_beside.listed = listed
compile_beside.work()
"""


def test_an_interrupt_is_for_who_started_it(tmp_path) -> None:
    env = {**os.environ, "XDG_CACHE_HOME": str(tmp_path)}
    process = subprocess.Popen(
        [sys.executable, "-c", INTERRUPTED], env=env, text=True,
        stdin=subprocess.PIPE, stdout=subprocess.PIPE,
    )  # fmt: skip
    assert process.stdout is not None
    assert process.stdout.readline() == "at it\n"
    process.send_signal(signal.SIGINT)
    assert process.stdout.readline() == "still at it\n"
    process.communicate()


PROGRAM = """
import sys
from numba.core import event
from retime.ingest.compiled import compiled
from retime.ingest import compile_beside

@compiled
def twice(x):
    return 2 * x

@compiled
def thrice(x):
    return 3 * x

compile_beside.listed = lambda: [
    ("program", "twice", "i8"), ("program", "missing", "i8"), ("program", "thrice", "f8"),
]

class Compiling(event.Listener):
    def on_start(self, event):
        print(event.data["dispatcher"].__name__, flush=True)
    def on_end(self, event):
        pass

event.register("numba:compile", Compiling())
"""


def test_it_compiles_what_is_listed_from_the_end(tmp_path) -> None:
    (tmp_path / "program.py").write_text(PROGRAM)
    env = {**os.environ, "NUMBA_CACHE_DIR": str(tmp_path / "kept"), "XDG_CACHE_HOME": str(tmp_path)}

    def output(text: str) -> str:
        ran = subprocess.Popen(
            [sys.executable, "-c", f"import program\n{text}"], cwd=tmp_path, env=env, text=True,
            stdin=subprocess.PIPE, stdout=subprocess.PIPE,
        )  # fmt: skip
        with ran:
            assert ran.stdout is not None
            out = ran.stdout.read()
        assert ran.returncode == 0
        return out

    assert output("program.compile_beside.work()") == "thrice\ntwice\n"
    assert len(list((tmp_path / "retime").glob("compiled-*"))) == 1
    assert output("print(program.twice(4), program.thrice(1.5))") == "8 4.5\n"


STARTER = """
import sys
from retime.ingest import ahead, compile_beside
ahead.cores = lambda: 2
real = compile_beside.subprocess.Popen
def popen(*arguments, **options):
    process = real(*arguments, **options)
    print(process.pid, flush=True)
    return process
compile_beside.subprocess.Popen = popen
compile_beside._START = (
    "import time; from retime.ingest import compile_beside as beside; "
    "beside.listed = lambda: time.sleep(600); beside.work()"
)
class Named:
    class py_func:
        pass
Named.py_func.__module__, Named.py_func.__qualname__, _ = compile_beside.listed()[0]
compile_beside.begin(Named)
sys.stdin.readline()
"""


def gone(pid: int) -> bool:
    """Whether a process that is nobody's child here has ended, waiting for a minute."""
    for _ in range(1200):
        try:
            with open(f"/proc/{pid}/stat") as f:
                if f.read().rpartition(")")[2].split()[0] == "Z":
                    return True
        except (FileNotFoundError, ProcessLookupError):
            return True
        time.sleep(0.05)
    return False


@pytest.mark.skipif(not os.path.exists("/proc/self/stat"), reason="reads /proc")
@pytest.mark.parametrize("how", ["ends", "killed"])
def test_it_ends_with_who_started_it(how: str) -> None:
    starter = subprocess.Popen(
        [sys.executable, "-c", STARTER], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    )
    assert starter.stdin is not None
    assert starter.stdout is not None
    pid = int(starter.stdout.readline())
    os.kill(pid, 0)
    if how == "killed":
        starter.send_signal(signal.SIGKILL)
    starter.communicate("\n")
    assert gone(pid)
