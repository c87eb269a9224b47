"""A real four-rank job, run here: its late rank, the waits it causes, and the run without it."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path
from statistics import median, quantiles

import polars as pl
import pytest
import retime

pytest.importorskip("torch", reason="the job runs on PyTorch: install the extra `torch`")

LATE_RANK = 2
LATE_NS = 50_000_000
STEPS = 8
COMPUTE_MS = 200
QUIET = 0.05
"""On a machine with room, the middle half of a run's steps lies within this share of the median."""
RUNS = 3
"""A run on a machine too busy to repeat its own steps is made again, this often at most."""


def run_job(out: Path, *late: str) -> Path:
    """The traces of one run of `gloo_job.py`, one file a rank."""
    script = Path(__file__).with_name("gloo_job.py")
    subprocess.run(
        [
            sys.executable, str(script), str(out), "--steps", str(STEPS),
            "--compute-ms", str(COMPUTE_MS), *late,
        ],
        check=True,
        capture_output=True,
        timeout=240,
    )  # fmt: skip
    return out


def spread(job: retime.Job) -> float:
    """How far apart the middle half of the job's steps is, as a share of their median."""
    low, middle, high = quantiles(step_times(job), n=4)
    return (high - low) / middle


def step_times(job: retime.Job) -> list[float]:
    """What each step of a job took, ns."""
    each = (retime.replay(job, step=s)["measured_ns"] for s in retime.replay(job)["steps"])
    return list(each)


@pytest.fixture(scope="module")
def jobs(tmp_path_factory: pytest.TempPathFactory) -> retime.Warehouse:
    """A warehouse with the run that has a late rank, and the same run without.

    Whether a run is made again is judged by its own steps alone, never by what is predicted.
    """
    folder = tmp_path_factory.mktemp("gloo")
    late = ("--late-rank", str(LATE_RANK), "--late-ms", str(LATE_NS // 10**6))
    kept = retime.open(folder / "warehouse")
    for job, args in (("late", late), ("even", ())):
        runs = []
        for k in range(RUNS):
            traces = run_job(folder / f"{job}-{k}", *args)
            tried = retime.open(folder / f"warehouse-{job}-{k}")
            assert tried.ingest([str(traces)], job=job).exit_code == 0
            runs.append((spread(tried.job(job)), str(traces)))
            if runs[-1][0] <= QUIET:
                break
        assert kept.ingest([min(runs)[1]], job=job).exit_code == 0
    return kept


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
        # Other tests run beside this job of four ranks: a sleep may end some ms late.
        assert wait_ns == pytest.approx(expected, abs=LATE_NS / 5), f"rank {rank}"


def test_wait_plus_transfer_is_the_duration(jobs: retime.Warehouse):
    waits = jobs.job("late").waits()
    total = waits["wait_ns"] + waits["transfer_ns"]
    assert total.to_list() == (waits["end_ns"] - waits["start_ns"]).to_list()


def test_the_straggler_is_named(jobs: retime.Warehouse):
    late = jobs.job("late").late_ranks().sort("wait_caused_ns", descending=True)
    assert late["rank"][0] == LATE_RANK
    assert late["wait_caused_ns"][0] > 10 * late["wait_caused_ns"][1]


def test_aligning_arrivals_predicts_the_even_run(jobs: retime.Warehouse):
    late, even = jobs.job("late"), jobs.job("even")
    whole = retime.replay(late, policies=["align-arrivals"])
    assert whole["fidelity_pct"] < 1
    each = [retime.replay(late, ["align-arrivals"], step=s) for s in whole["steps"]]
    # Medians over steps: one step that the machine held up says nothing about the job.
    predicted_ns = median(answer["policies"][0]["step_ns"] for answer in each)
    assert predicted_ns == pytest.approx(median(step_times(even)), rel=0.1)
    assert predicted_ns < median(step_times(late)) - 0.8 * LATE_NS
