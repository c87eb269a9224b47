"""The whole way: a real job, an epilog on each of its nodes, a bucket, and who was late, told."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

pytest.importorskip("torch", reason="the job runs on PyTorch: install the extra `torch`")
pytest.importorskip("s3fs", reason="no client for S3: install the extra `s3`")
pytest.importorskip("moto", reason="no server of S3's protocol: install the extra `s3-server`")

LATE_RANK = 2
NODES = {"node0": (0, 1), "node1": (2, 3)}
HERE = Path(__file__).resolve()


def test_a_job_s_straggler_is_found_in_the_bucket_that_its_epilogs_filled(
    s3_server, s3_url, tmp_path, epilog, cli, monkeypatch
):
    bucket, credentials = s3_server.BUCKET, s3_server.credentials(s3_url)
    warehouse = f"s3://{bucket}/team/warehouse"
    job = [sys.executable, HERE.parents[2] / "gloo_job.py", tmp_path / "out", "--late-rank",
           LATE_RANK, "--late-ms", 40, "--compute-ms", 20]  # fmt: skip
    ran = subprocess.run(
        [str(word) for word in job], capture_output=True, text=True, timeout=240,
        env=os.environ | {"OMP_NUM_THREADS": "1"},
    )  # fmt: skip
    assert ran.returncode == 0, ran.stderr
    for node, ranks in NODES.items():
        left = tmp_path / "scratch" / node / "4711"
        left.mkdir(parents=True)
        for rank in ranks:
            os.replace(tmp_path / "out" / f"rank{rank}.json", left / f"rank{rank}.json")
    (tmp_path / "upload.conf").write_text(
        f"RETIME_WAREHOUSE={warehouse}\nRETIME_TRACES={tmp_path}/scratch/%n/%j\n"
        f"RETIME_SPOOL_PATTERN={tmp_path}/spool-%n\nRETIME_COMMAND=$RETIME_COMMAND\n"
        "RETIME_EPILOG_S=100\n"
    )
    with ThreadPoolExecutor(2) as pool:
        ended = list(pool.map(lambda n: epilog(SLURMD_NODENAME=n, **credentials), NODES))
    assert [e.returncode for e in ended] == [0, 0]
    said = tmp_path / "syslog"  # where all went well nothing is said
    log = said.read_text() if said.exists() else ""
    assert credentials["AWS_SECRET_ACCESS_KEY"] not in log

    for name, value in credentials.items():
        monkeypatch.setenv(name, value)
    monkeypatch.setenv("RETIME_WAREHOUSE", warehouse)
    code, out, err = cli("jobs", "--json")
    assert code == 0, (err, log)
    assert [(j["job"], j["ranks_seen"]) for j in json.loads(out)] == [("slurm-4711", 4)]
    code, out, _ = cli("show", "slurm-4711")
    assert (code, f"The others wait for rank {LATE_RANK}" in out) == (0, True)
    code, out, _ = cli("sql", "FROM late_ranks ORDER BY wait_caused_ns DESC", "--json")
    assert json.loads(out)[0]["rank"] == LATE_RANK
    code, out, _ = cli("verify", "--deep", "--json")
    assert (code, json.loads(out)) == (0, [])
