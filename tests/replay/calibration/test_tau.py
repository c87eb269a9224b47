"""Tau and lateness of known arrivals, with the errors that go with them."""

from __future__ import annotations

import numpy as np
import pytest
from retime.replay.calibration import calibrate, tau
from retime.replay.traced import build


def job_of(tables, late_us):
    """Collectives of len(late_us[i]) ranks; rank r comes late_us[i][r] after the first."""
    at = 0.0
    for i, lates in enumerate(late_us):
        end = at + max(lates) + 20
        for rank, late in enumerate(lates):
            tables.part(
                rank, "all_reduce", at + late, end, instance=i, in_bytes=1000, out_bytes=1000,
                step=0, group_size=len(lates),
            )  # fmt: skip
        at = end + 10
    for rank in range(len(late_us[0])):
        tables.step(rank, 0, 0, at)
    return build.build(tables.frames(), "late")


def test_the_waits_of_ranks_by_hand(tables):
    # Rank 2 comes 9 us after rank 0, 5 after rank 1: waits of 9, 5 and 0; then of 0, 1 and 3.
    job = job_of(tables, [[0, 4, 9], [3, 2, 0]])
    assert tau.waits(job.graph).rows() == [(0, 5_000, 9_000), (1, 1_000, 3_000)]
    (row,) = calibrate.table(job)
    assert (row["tau_ns"], row["early_ns"]) == (3_000, 6_000)
    assert row["tau_p90_ns"] == pytest.approx(4_600)
    assert row["tau_error_ns"] is None  # of two collectives
    rows = calibrate.lateness(job)
    assert [(r["rank"], r["late_ns"], r["last_pct"]) for r in rows] == [
        (2, 4_500, 50), (1, 3_000, 0), (0, 1_500, 50),
    ]  # fmt: skip


def test_a_rank_that_is_always_late(tables):
    random = np.random.default_rng(3)
    late = random.exponential(5, (200, 4))
    late[:, 3] += 50
    late -= late.min(axis=1, keepdims=True)
    rows = calibrate.lateness(job_of(tables, late))
    assert rows[0]["rank"] == 3
    assert rows[0]["last_pct"] == 100
    assert all(r["last_pct"] == 0 for r in rows[1:])
    # 50 us, its own median of 5 ln 2, less the mean of the first of three: 5/3.
    expected = np.median(late[:, 3]) * 1e3
    assert rows[0]["late_ns"] == pytest.approx(expected, rel=1e-3)
    assert 0 < rows[0]["late_error_ns"] < 1_000
    assert {r["collectives"] for r in rows} == {200}


def test_those_that_come_at_once_are_not_last(tables):
    rows = calibrate.lateness(job_of(tables, [[0, 0], [0, 0]]))
    assert {r["last_pct"] for r in rows} == {0}
    rows = calibrate.lateness(job_of(type(tables)(), [[0, 5, 5]]))
    assert sorted(r["last_pct"] for r in rows) == [0, 50, 50]


def test_the_error_of_a_median_is_that_of_medians():
    # Of exponential times: the median's standard error is 1 / sqrt(n) of their mean (David).
    random = np.random.default_rng(1)
    n = 400
    medians = [np.median(random.exponential(1, n)) for _ in range(400)]
    said = [tau.median_error(random.exponential(1, n)) for _ in range(100)]
    assert np.median(said) == pytest.approx(np.std(medians), rel=0.25)
    assert np.std(medians) == pytest.approx(1 / np.sqrt(n), rel=0.15)
    assert tau.median_error(np.arange(5.0)) is None
    assert tau.median_error(np.full(50, 3.0)) == 0


def test_clock_errors_go_with_it(tables):
    job = job_of(tables, [[0, 4], [0, 4]])
    ranks = job.facts["ranks"].with_columns(clock_error_ns=700 * (1 - job.facts["ranks"]["rank"]))
    job.facts["ranks"] = ranks
    assert [(r["rank"], r["clock_error_ns"]) for r in calibrate.lateness(job)] == [(1, 0), (0, 700)]
