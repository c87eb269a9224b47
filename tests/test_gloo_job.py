"""A real four-rank job, run here: its late rank, the waits it causes, and the run without it."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path
from statistics import median

import polars as pl
import pytest
import retime

pytest.importorskip("torch", reason="the job runs on PyTorch: install the extra `torch`")

LATE_RANK = 2
LATE_NS = 50_000_000
STEPS = 8


def run_job(out: Path, *late: str) -> Path:
    """The traces of one run of `gloo_job.py`, one file a rank."""
    script = Path(__file__).with_name("gloo_job.py")
    subprocess.run(
        [sys.executable, str(script), str(out), "--steps", str(STEPS), *late],
        check=True,
        capture_output=True,
        timeout=240,
    )
    return out


@pytest.fixture(scope="module")
def jobs(tmp_path_factory: pytest.TempPathFactory) -> retime.Warehouse:
    """A warehouse with the run that has a late rank, and the same run without."""
    folder = tmp_path_factory.mktemp("gloo")
    wh = retime.open(folder / "warehouse")
    late = ("--late-rank", str(LATE_RANK), "--late-ms", str(LATE_NS // 10**6))
    for job, args in (("late", late), ("even", ())):
        report = wh.ingest([str(run_job(folder / job, *args))], job=job)
        assert report.exit_code == 0
    return wh


def test_every_collective_is_matched_on_all_ranks(jobs: retime.Warehouse):
    seen = jobs.job("late").collective_instances()
    assert set(seen["n_seen"]) == {4}
    assert seen.group_by("op").len().sort("op").rows() == [
        ("all_gather", STEPS),
        ("all_reduce", STEPS),
    ]


def test_the_others_wait_for_the_sleep(jobs: retime.Warehouse):
    waits = jobs.job("late").waits().filter(pl.col("op") == "all_reduce")
    for rank in range(4):
        wait_ns = median(waits.filter(pl.col("rank") == rank)["wait_ns"].to_list())
        expected = 0 if rank == LATE_RANK else LATE_NS
        assert wait_ns == pytest.approx(expected, abs=2_000_000), f"rank {rank}"


def test_wait_plus_transfer_is_the_duration(jobs: retime.Warehouse):
    waits = jobs.job("late").waits()
    total = waits["wait_ns"] + waits["transfer_ns"]
    assert total.to_list() == (waits["end_ns"] - waits["start_ns"]).to_list()


def test_the_straggler_is_named(jobs: retime.Warehouse):
    late = jobs.job("late").late_ranks().sort("wait_caused_ns", descending=True)
    assert late["rank"][0] == LATE_RANK
    assert late["wait_caused_ns"][0] > 10 * late["wait_caused_ns"][1]


def test_aligning_arrivals_predicts_the_even_run(jobs: retime.Warehouse):
    answer = retime.replay(jobs.job("late"), policies=["align-arrivals"])
    even = retime.replay(jobs.job("even"))
    assert answer["fidelity_pct"] < 1
    predicted_ns = answer["policies"][0]["step_ns"]
    assert predicted_ns == pytest.approx(even["measured_ns"], rel=0.1)
    assert predicted_ns < answer["measured_ns"] - 0.8 * LATE_NS
