"""A real job of four processes under torchrun: its traces come by themselves, straggler and all."""

from __future__ import annotations

import os
import subprocess
import sys

import pytest
import retime
from retime.ingest.upload.examples import example
from retime.ingest.upload.run import left, upload

pytest.importorskip("torch", reason="the job runs on PyTorch: install the extra `torch`")

LATE_RANK = 2


def test_the_shipped_example_s_straggler_is_found(wh, spool, tmp_path, cli):
    (tmp_path / "train.py").write_text(example("torch"))
    ran = subprocess.run(
        [sys.executable, "-m", "torch.distributed.run", "--nproc-per-node=4",
         "--rdzv-backend=c10d", "--rdzv-endpoint=localhost:0", "train.py"],
        env=os.environ | {"RETIME_WAREHOUSE": str(wh), "RETIME_JOB": "gloo",
                          "RETIME_SPOOL": str(spool), "OMP_NUM_THREADS": "1"},
        cwd=tmp_path, capture_output=True, text=True, timeout=240,
    )  # fmt: skip
    assert ran.returncode == 0, ran.stderr
    assert len(ran.stdout.splitlines()) == 4
    # What the handler's sender has not delivered yet when the job ends, an epilogue would.
    report = upload(spool=spool, retry=True, for_s=60)
    assert report.exit_code == 0
    assert report.failed == []
    for _ in range(600):
        if not left(spool).sent:
            break
        upload(spool=spool, retry=True, for_s=5)
    job = retime.open(str(wh)).job("gloo")
    assert job.show()["ranks_seen"] == 4
    late = job.late_ranks().sort("wait_caused_ns", descending=True)
    assert late["rank"][0] == LATE_RANK
    code, out, _ = cli("show", "gloo", "--warehouse", wh)
    assert (code, "The others wait for rank 2" in out) == (0, True)
