"""Memory stays bounded: three times the trace is not three times the memory."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
MAKE = "from benchmarks.tiled import write_tiled; from pathlib import Path; import sys; "


def peak_mb(size_mb: int, folder: Path) -> float:
    """Peak memory of a process that ingests a plain trace of that size, in MB."""
    trace = folder / f"rank0-{size_mb}.json"
    subprocess.run(
        [sys.executable, "-c", MAKE + "write_tiled(Path(sys.argv[1]), int(sys.argv[2]))", trace,
         str(size_mb * 10**6)],
        cwd=ROOT, check=True,
    )  # fmt: skip
    retime = Path(sys.executable).with_name("retime")
    process = subprocess.Popen(
        [retime, "ingest", trace, "--job", f"j{size_mb}", "--warehouse", folder / "warehouse"],
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
    )
    _, status, usage = os.wait4(process.pid, 0)
    process.returncode = os.waitstatus_to_exitcode(status)
    assert process.returncode == 0
    trace.unlink()
    return usage.ru_maxrss / 1e3


@pytest.mark.skipif(not hasattr(os, "wait4"), reason="needs wait4 to see a child's peak memory")
def test_memory_does_not_grow_with_the_trace(tmp_path: Path):
    small, large = peak_mb(80, tmp_path), peak_mb(240, tmp_path)
    assert large < 600
    assert large - small < 160
