"""Processes that compile the same functions take turns, and none of them spoils what is kept."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest
from retime.ingest.compile_turns import Turn

pytest.importorskip("numba")

FUNCTIONS = """
import sys
import numpy as np
from numba.core import event
from retime.ingest.compiled import compiled

@compiled
def total(a):
    found = a[0] - a[0]
    for x in a:
        found += x
    return found

@compiled
def halves(a):
    return total(a) / 2

class Compiling(event.Listener):
    names = []
    def on_start(self, event):
        self.names.append(event.data["dispatcher"].__name__)
    def on_end(self, event):
        pass

event.register("numba:compile", Compiling())
"""

CALLS = """
for kind in sys.argv[1:]:
    print(kind, halves(np.arange(1, 5).astype(kind)), total(np.arange(3).astype(kind)))
print("compiled", len(Compiling.names))
"""

ONE_BY_ONE = "i8 5.0 3\ni4 5.0 3\nu1 5.0 3\nf8 5.0 3.0\nf4 5.0 3.0\n"
KINDS = ("i8", "i4", "u1", "f8", "f4")


@pytest.fixture
def program(tmp_path):
    """Starts a program with the functions, and a body, in a process that keeps what it compiles."""
    (tmp_path / "functions.py").write_text(FUNCTIONS)

    def start(body: str, *arguments: str) -> subprocess.Popen:
        env = {**os.environ, "NUMBA_CACHE_DIR": str(tmp_path / "kept")}
        text = f"from functions import *\n{body}"
        return subprocess.Popen(
            [sys.executable, "-c", text, *arguments], cwd=tmp_path, env=env, text=True,
            stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.PIPE,
        )  # fmt: skip

    return start


def ended(process: subprocess.Popen) -> tuple[str, str, int]:
    out, err = process.communicate(timeout=300)
    return out, err, process.returncode


def test_two_processes_at_once_keep_each_its_versions(program) -> None:
    first, second = program(CALLS, *KINDS), program(CALLS, *reversed(KINDS))
    for process in (first, second):
        out, err, code = ended(process)
        assert (err, code) == ("", 0)
        assert sorted(out.splitlines()[:-1]) == sorted(ONE_BY_ONE.splitlines())
    assert ended(program(CALLS, *KINDS)) == (ONE_BY_ONE + "compiled 0\n", "", 0)


def test_who_is_killed_while_it_has_the_turn_holds_up_nobody(program) -> None:
    holds = """
class Waits(event.Listener):
    def on_start(self, event):
        print("compiling", flush=True)
        sys.stdin.read()
    def on_end(self, event):
        pass
event.register("numba:compile", Waits())
"""
    killed = program(holds + CALLS, "i8")
    assert killed.stdout.readline() == "compiling\n"
    waits = program(CALLS, "i8")
    with pytest.raises(subprocess.TimeoutExpired):
        waits.wait(3)
    killed.kill()
    ended(killed)
    assert ended(waits) == ("i8 5.0 3\ncompiled 2\n", "", 0)
    assert ended(program(CALLS, "i8")) == ("i8 5.0 3\ncompiled 0\n", "", 0)


def test_without_space_the_code_is_used_and_nothing_half_written_stays(program, tmp_path) -> None:
    full = "import resource\nresource.setrlimit(resource.RLIMIT_FSIZE, (1000, 1000))\n"
    assert ended(program(full + CALLS, "i8")) == ("i8 5.0 3\ncompiled 2\n", "", 0)
    left = [p.name for p in (tmp_path / "kept").rglob("*") if p.is_file()]
    assert not [name for name in left if ".nbc" in name or ".tmp" in name]
    assert ended(program(CALLS, "i8")) == ("i8 5.0 3\ncompiled 2\n", "", 0)
    assert ended(program(CALLS, "i8")) == ("i8 5.0 3\ncompiled 0\n", "", 0)


def test_a_folder_that_nobody_can_write_to_any_more_keeps_nothing(program) -> None:
    gone = """
import numba, pathlib, shutil
folder = pathlib.Path(total._cache.cache_path)
shutil.rmtree(folder)
folder.write_text("")
"""
    assert ended(program(gone + CALLS, "i8", "i4")) == ("i8 5.0 3\ni4 5.0 3\ncompiled 4\n", "", 0)


def test_code_of_an_older_version_is_never_taken_for_what_is_only_named(program, tmp_path) -> None:
    assert ended(program(CALLS, "i8")) == ("i8 5.0 3\ncompiled 2\n", "", 0)
    (tmp_path / "functions.py").write_text(FUNCTIONS.replace("a[0] - a[0]", "a[0] - a[1]"))
    killed = """
import os
total._cache._cache_file._save_data = lambda name, data: os._exit(9)
"""
    assert ended(program(killed + CALLS, "i8")) == ("", "", 9)
    assert ended(program(CALLS, "i8")) == ("i8 4.5 2\ncompiled 2\n", "", 0)
    assert ended(program(CALLS, "i8")) == ("i8 4.5 2\ncompiled 0\n", "", 0)


def test_what_is_damaged_is_made_anew(program, tmp_path) -> None:
    for suffix in ("nbi", "nbc"):
        ended(program(CALLS, "i8"))
        for path in (tmp_path / "kept").rglob(f"*.{suffix}"):
            path.write_bytes(b"")
        assert ended(program(CALLS, "i8")) == ("i8 5.0 3\ncompiled 2\n", "", 0)
        assert ended(program(CALLS, "i8")) == ("i8 5.0 3\ncompiled 0\n", "", 0)


def test_a_turn_is_of_one_function_and_goes_on(tmp_path: Path) -> None:
    program = f"""
import sys
from retime.ingest.compile_turns import Turn
turn = Turn({str(tmp_path)!r}, "mine")
print(turn.take(), flush=True)
sys.stdin.readline()
turn.leave()
print("left", flush=True)
sys.stdin.read()
"""
    other = subprocess.Popen(
        [sys.executable, "-c", program], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    )
    assert other.stdout is not None
    assert other.stdin is not None
    assert other.stdout.readline() == "True\n"
    mine, another = Turn(str(tmp_path), "mine"), Turn(str(tmp_path), "another")
    assert another.take()
    assert not mine.take(0.0)
    other.stdin.write("\n")
    other.stdin.flush()
    assert other.stdout.readline() == "left\n"
    assert mine.take(0.0)
    mine.leave()
    another.leave()
    other.communicate()


def test_where_there_are_no_locks_code_is_kept_as_before(tmp_path: Path) -> None:
    assert Turn(str(tmp_path / "missing"), "mine").take()
