"""Computation beside communication: the slow-down is measured, and follows what overlaps."""

from __future__ import annotations

import numpy as np
import pytest
from retime.replay import run
from retime.replay.contention import sm_contention
from retime.replay.graph import Kind
from retime.replay.policy import Policy
from retime.replay.traced import build as kineto

US = 1_000
SLOW = 1.25


def job_of(tables, *, under_us=100 * SLOW, n=4, grid=(64, 64)):
    """One step: n GEMMs of 100 alone, then n GEMMs beside a collective, on two ranks."""
    for rank in (0, 1):
        at = 0.0
        for i in range(2 * n):
            took = 100 if i < n else under_us
            tables.kernel(rank, "gemm", at, at + took, step=0, grid_blocks=grid[i >= n])
            at += took
        tables.part(rank, "all_reduce", n * 100, at, instance=0, stream=20, step=0)
        tables.step(rank, 0, 0, at)
    return kineto.build(tables.frames(), "small")


def slowdown(job):
    found = run.baseline(job).contention.beside
    return found.slowdown, found.words


def test_the_slowdown_is_that_of_kernels_alike(tables):
    by, words = slowdown(job_of(tables))
    assert by == pytest.approx(SLOW)
    assert "1.25 times as long (of 8 kernels that ran beside it" in words


def test_kernels_of_other_shapes_are_not_alike(tables):
    by, words = slowdown(job_of(tables, under_us=300, grid=(64, 128)))
    assert by == sm_contention.ASSUMED
    assert "assumed: no kernel of the job ran both" in words


def test_too_few_kernels_compare_nothing(tables):
    assert slowdown(job_of(tables, n=2))[0] == sm_contention.ASSUMED


def test_faster_beside_communication_is_no_slowdown(tables):
    assert slowdown(job_of(tables, under_us=90))[0] == 1.0


def without_communication(job, **_):
    """Collectives that take nothing."""
    none = np.where(job.graph.kind == Kind.TRANSFER, 0, job.graph.dur_ns)
    return job.with_graph(dur_ns=none)


def test_computation_that_nothing_runs_beside_gets_its_own_time(tables):
    free = Policy("free", "", "a test", (), ("none",), without_communication)
    base = run.baseline(job_of(tables))
    lines = run.timelines(base, ((free, {}),))
    work = lines.after.graph.kind == Kind.COMPUTE
    took = (lines.after_end_ns - lines.after_start_ns)[work]
    np.testing.assert_array_equal(took, 100 * US)
    assert any("1.25 times as long" in a for a in lines.after.assumptions)


def test_half_as_long_a_collective_slows_half_as_much_work(tables):
    def halved(job, **_):
        half = np.where(job.graph.kind == Kind.TRANSFER, job.graph.dur_ns // 2, job.graph.dur_ns)
        return job.with_graph(dur_ns=half)

    base = run.baseline(job_of(tables))
    lines = run.timelines(base, ((Policy("half", "", "", (), ("none",), halved), {}),))
    work = lines.after.graph.kind == Kind.COMPUTE
    spent = (lines.after_end_ns - lines.after_start_ns)[work & (lines.after.graph.rank == 0)]
    # 800 of work; beside 250 of communication a fifth of the time is lost: 800 + 50.
    assert spent.sum() == pytest.approx(850 * US, abs=10)


def test_a_given_slowdown_takes_the_place_of_the_fitted(tables):
    def given(job, **_):
        from dataclasses import replace

        return replace(job, facts={**job.facts, "compute_slowdown": 1.0})

    base = run.baseline(job_of(tables))
    lines = run.timelines(base, ((Policy("given", "", "", (), ("none",), given), {}),))
    work = lines.after.graph.kind == Kind.COMPUTE
    np.testing.assert_array_equal((lines.after_end_ns - lines.after_start_ns)[work], 100 * US)


def test_recorded_operations_have_no_kernels_beside_communication(tables):
    job = job_of(tables)
    bare = {k: v for k, v in job.graph.extra.items() if k != "begins"}
    graph = job.graph.with_(extra=bare)
    assert sm_contention.recorded(graph, graph.start_ns, graph.end_ns) is None
