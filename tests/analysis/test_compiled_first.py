"""What is compiled beside a first run is what the first run calls."""

from __future__ import annotations

import subprocess
import sys
from importlib.resources import files
from pathlib import Path

import pytest
from retime.ingest.compile_beside import LIST

pytest.importorskip("numba")
BENCHMARK = Path(__file__).parents[2] / "benchmarks" / "compiled_first.py"


def test_the_list_is_what_the_demo_calls() -> None:
    ran = subprocess.run(
        [sys.executable, str(BENCHMARK)], capture_output=True, text=True, check=True
    )
    listed = files("retime.ingest").joinpath(LIST).read_text("utf-8")
    assert set(ran.stdout.splitlines()) == set(listed.splitlines()), (
        f"python benchmarks/compiled_first.py ingest/{LIST}"
    )
