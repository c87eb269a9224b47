"""Memory stays bounded: three times the trace is not three times the memory."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest
from retime.ingest import memory

ROOT = Path(__file__).resolve().parents[2]
MAKE = "from benchmarks.tiled import write_tiled; from pathlib import Path; import sys; "

RUN = """
import re
from retime.cli import run
code = run()
print(re.search(r"VmHWM:\\s*(\\d+) kB", open("/proc/self/status").read())[1])
raise SystemExit(code)
"""


def peak_mb(size_mb: int, folder: Path) -> float:
    """Peak memory of a process that ingests a plain trace of that size, in MB."""
    trace = folder / f"rank0-{size_mb}.json"
    subprocess.run(
        [sys.executable, "-c", MAKE + "write_tiled(Path(sys.argv[1]), int(sys.argv[2]))", trace,
         str(size_mb * 10**6)],
        cwd=ROOT, check=True,
    )  # fmt: skip
    ingest = ["ingest", trace, "--job", f"j{size_mb}", "--warehouse", folder / "warehouse"]
    ran = subprocess.run(
        [sys.executable, "-c", RUN, *map(str, ingest)], check=True, capture_output=True, text=True
    )
    trace.unlink()
    return int(ran.stdout.split()[-1]) / 1e3


@pytest.mark.skipif(not Path("/proc/self/status").exists(), reason="peak memory is read in /proc")
def test_memory_does_not_grow_with_the_trace(tmp_path: Path):
    small, large = peak_mb(80, tmp_path), peak_mb(240, tmp_path)
    assert large < 450
    assert large - small < 120


def test_memory_that_nobody_has_touched_is_zeros():
    for shape in ((3,), (2, 5), (0, 4)):
        numbers = memory.untouched(*shape)
        assert (numbers.shape, numbers.dtype.name, numbers.any()) == (shape, "int64", False)
        numbers[...] = 7
        assert numbers.all()
