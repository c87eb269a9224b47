"""Transfers of chosen collectives: what is left out, and times that cannot be."""

from __future__ import annotations

import numpy as np
import pytest
from retime.replay import run
from retime.replay.graph import Kind
from retime.replay.policies import resolve
from retime.replay.policy import BadParam
from retime.replay.retiming import transfers
from retime.replay.traced import build as kineto


@pytest.fixture
def job(tables):
    for rank in (0, 1):
        tables.kernel(rank, "work", 0, 50, step=0)
        tables.part(rank, "all_reduce", 50, 150, instance=0, stream=7, step=0)
        tables.part(rank, "all_gather", 150, 250, instance=1, stream=7, step=0)
        tables.step(rank, 0, 0, 250)
    return run.baseline(kineto.build(tables.frames(), "two")).job


def test_a_ratio_that_is_no_number_leaves_the_collective_as_measured(job):
    was, rows = transfers.chosen(job)
    now = transfers.scaled(was, rows, np.array([np.nan, 0.5]))
    assert sorted(now.graph.dur_ns - was.graph.dur_ns)[:3] == [-50_000, -50_000, 0]
    (said,) = now.warnings
    assert said.startswith("1 collectives: the model gives no time")


@pytest.mark.parametrize("ratio", [np.inf, 1e15, 1e300])
def test_centuries_are_refused(job, ratio):
    was, rows = transfers.chosen(job)
    with pytest.raises(BadParam, match="years, all of them more than a century"):
        transfers.scaled(was, rows, np.full(2, ratio))


def test_centuries_are_refused_from_a_policy(job):
    policy, values = resolve("datapath:alpha=1e18")
    with pytest.raises(BadParam, match="are the units"):
        policy.apply(job, **values)


def test_names_that_the_job_has_not_are_said_short_and_printable(job):
    (said,) = transfers.chosen(job, comm=("\x1b[31m" + "x" * 10**6,))[0].warnings
    assert said.isprintable()
    assert len(said) < 300
    (said,) = transfers.chosen(job, op=[f"op{i}" for i in range(1000)])[0].warnings
    assert "980 more" in said


def test_a_bucket_is_scaled_as_the_collective_that_it_is_of(tables):
    for rank in (0, 1):
        for k in (0, 1):
            tables.kernel(rank, "gemm", 1_000 * k, 1_000 * (k + 1), step=0)
        tables.part(rank, "all_reduce", 2_000, 6_000, instance=0, step=0, in_bytes=8 << 20)
        tables.step(rank, 0, 0, 6_000)
    job = run.baseline(kineto.build(tables.frames(), "two")).job
    policy, values = resolve("overlap:until=recorded,backward=1,chunk=4MiB")
    parted = policy.apply(job, **values)
    moved = parted.graph.kind == Kind.TRANSFER
    assert moved.sum() == 4
    _, rows = transfers.chosen(parted)
    half = transfers.scaled(parted, rows, np.array([0.5]))
    np.testing.assert_allclose(half.graph.dur_ns[moved] / parted.graph.dur_ns[moved], 0.5)
    np.testing.assert_allclose(parted.graph.dur_ns[moved], 2_000_000, rtol=2e-3)
