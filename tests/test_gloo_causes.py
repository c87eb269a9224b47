"""A real job run here, whose ranks are late for three reasons: the view names each."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest
import retime

pytest.importorskip("torch", reason="the job runs on PyTorch: install the extra `torch`")


@pytest.fixture(scope="module")
def job(tmp_path_factory: pytest.TempPathFactory) -> retime.Job:
    """The traces of one run of `gloo_causes.py`, in a warehouse."""
    folder = tmp_path_factory.mktemp("causes")
    script = Path(__file__).with_name("gloo_causes.py")
    subprocess.run(
        [sys.executable, str(script), str(folder / "traces")],
        check=True, capture_output=True, timeout=240,
    )  # fmt: skip
    kept = retime.open(folder / "warehouse")
    assert kept.ingest([str(p) for p in (folder / "traces").glob("*.json")], job="j").exit_code == 0
    return kept.job("j")


def test_each_rank_is_late_for_its_own_reason(job: retime.Job):
    found = job.sql("SELECT rank, cause, kernel, excess_ns FROM _explained ORDER BY rank").rows()
    by_rank = {rank: (cause, kernel) for rank, cause, kernel, _ in found}
    assert by_rank[1] == ("data_loading", None)
    assert by_rank[2] == ("garbage_collection", None)
    assert by_rank[3] == ("slower_kernels", "aten::mm")
    ns = {rank: cause_ns for rank, *_, cause_ns in found}
    assert ns[1] > 150_000_000
