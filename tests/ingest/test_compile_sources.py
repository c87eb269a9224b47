"""Kept code is taken from the same sources only: of helpers, of their helpers, of named values."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest
from retime.ingest import compile_sources

pytest.importorskip("numba")

MODULES = {
    "__init__": "",
    "values": "SHIFT = 100\n",
    "options": """
from retime.ingest.compiled import compiled
jit = compiled(error_model="python")
""",
    "words": """
from numba import types
from numba.extending import intrinsic
def adds(amount):
    @intrinsic
    def added(typingctx, x):
        def codegen(context, builder, signature, arguments):
            return builder.add(arguments[0], arguments[0].type(amount))
        return types.int64(x), codegen
    return added
""",
    "declared": "from .words import adds\nplus = adds(1)\n",
    "deep": """
from .options import jit
@jit
def deep(x):
    return x + 10
""",
    "helper": """
from . import values as of
from .declared import plus
from .deep import deep
from .options import jit
@jit
def helped(x):
    return deep(plus(x)) + of.SHIFT
""",
    "apart": "UNUSED = 1\n",
    "caller": """
from . import apart, helper
from .options import jit
@jit
def called(x):
    return helper.helped(x) * 2
""",
}

PROGRAM = """
from numba.core import event
from package.caller import called
names = []
class Compiling(event.Listener):
    def on_start(self, event):
        names.append(event.data["dispatcher"].__name__)
    def on_end(self, event):
        pass
event.register("numba:compile", Compiling())
print(called(0), *names)
"""


@pytest.fixture
def package(tmp_path: Path) -> Path:
    folder = tmp_path / "package"
    folder.mkdir()
    for name, text in MODULES.items():
        (folder / f"{name}.py").write_text(text)
    return folder


def output(package: Path, seed: int = 0) -> str:
    kept = str(package.parent / "kept")
    env = {
        **os.environ, "NUMBA_CACHE_DIR": kept, "PYTHONHASHSEED": str(seed),
        "PYTHONDONTWRITEBYTECODE": "1",
    }  # fmt: skip
    command = [sys.executable, "-c", PROGRAM]
    return subprocess.run(
        command, cwd=package.parent, env=env, text=True, check=True, stdout=subprocess.PIPE
    ).stdout


def test_what_is_called_or_named_makes_the_caller_anew(package: Path) -> None:
    assert output(package) == "222 called helped deep\n"
    assert output(package, 1) == "222\n"
    for module, old, new, expected in (
        ("apart", "1", "2", "222\n"),
        ("deep", "10", "20", "242 called helped deep\n"),
        ("values", "100", "200", "442 called helped\n"),
        ("declared", "(1)", "(2)", "444 called helped\n"),
        ("words", "builder.add", "builder.sub", "436 called helped\n"),
        ("options", '"python"', '"numpy"', "436 called helped deep\n"),
    ):
        path = package / f"{module}.py"
        path.write_text(path.read_text().replace(old, new))
        assert output(package) == expected, module
        assert output(package, 2) == expected.split()[0] + "\n", module


def test_another_numba_keeps_its_own_stamp() -> None:
    class Cache:
        _cache_file = None

    class Made:
        _cache = Cache()

    compile_sources.stamp(Made())
    assert Cache._cache_file is None
