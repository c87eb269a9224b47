"""What is said while code is compiled for the first time, with or without a terminal."""

from __future__ import annotations

import os
import subprocess
import sys

from retime.analysis.commands.first_run import TEXT, FirstRun

PROGRAM = """
import sys
from retime.analysis.commands import first_run
first_run.AFTER_S = 0
sys.meta_path.insert(0, first_run.FirstRun())
import numba
@numba.njit(cache=True)
def twice(n):
    return 2 * n
print(twice(21))
"""


def test_it_is_said_once_and_only_where_it_takes_long(capsys) -> None:
    clock = iter([5.0, 5.9, 6.0, 20.0])
    run = FirstRun(lambda: next(clock))
    run.compiles()
    run.compiles()
    assert capsys.readouterr() == ("", "")
    run.compiles()
    run.compiles()
    assert capsys.readouterr() == ("", f"{TEXT}\n")


def test_numba_tells_of_what_it_compiles_and_not_of_what_it_has(tmp_path) -> None:
    (tmp_path / "program.py").write_text(PROGRAM)
    env = {**os.environ, "NUMBA_CACHE_DIR": str(tmp_path / "cache")}
    ran = [
        subprocess.run(
            [sys.executable, "program.py"], cwd=tmp_path, env=env, capture_output=True, text=True,
            check=True,
        )
        for _ in range(2)
    ]  # fmt: skip
    assert [r.stdout for r in ran] == ["42\n"] * 2
    assert [r.stderr for r in ran] == [f"{TEXT}\n", ""]
