"""Checkpoint intervals: Young's and Daly's published figures, and the overhead on top of steps."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st
from retime.ingest.errors import UsageError
from retime.replay import run
from retime.replay.costs.checkpointing import best_interval, overhead
from retime.replay.policies import resolve
from retime.replay.policy import BadParam


def test_young():
    best = best_interval(60, 300, 10_800)
    assert best == pytest.approx(1138.4, abs=0.05)
    assert overhead(best, 60, 300, 10_800) == pytest.approx(0.1332, abs=5e-5)


@pytest.mark.parametrize(
    ("mtbf", "minutes", "published"), [(1440, 116.7, 117), (360, 56.7, 57), (15, 9.14, 9.1)]
)
def test_daly(mtbf, minutes, published):
    """Daly 2006, a dump of 5 minutes: his figures' captions are these, rounded."""
    found = best_interval(5, 0, mtbf, "daly")
    assert found == pytest.approx(minutes, abs=0.05)
    assert found == pytest.approx(published, rel=0.006)


def test_a_save_longer_than_failures_allow():
    assert best_interval(100, 0, 50, "daly") == 50


def test_availability():
    """A job of 15 s steps, MTBF 6,000 s, restart 600 s, save 10 s: about 24 steps."""
    # 24.2 steps of sqrt(2 C (M + R)) alone, 363.3 s; from save to save 10 s more, and C^2: 24.9.
    found = best_interval(10, 600, 6000, "availability")
    assert pytest.approx(24.2, abs=0.03) == (2 * 10 * 6600) ** 0.5 / 15
    assert found == pytest.approx(373.5, abs=0.05)
    assert round((found - 10) / 15) == 24


@given(
    st.floats(1, 1e3), st.floats(0, 1e4), st.floats(1e3, 1e7), st.floats(0.1, 10)
)  # fmt: skip
def test_no_interval_is_better_than_the_best(save, restart, mtbf, factor):
    best = best_interval(save, restart, mtbf)
    at_best = overhead(best, save, restart, mtbf)
    assert overhead(best * factor, save, restart, mtbf) >= at_best * (1 - 1e-12)


def test_an_interval_of_nothing():
    with pytest.raises(UsageError, match="not above 0"):
        overhead(0, 1, 1, 1)


def test_steps_carry_their_share(rings):
    job = rings.job()
    after = rings.under(job, "checkpoint")
    assert after.facts["time_factor"] == pytest.approx(1.1332, abs=5e-5)
    same = rings.under(job, "checkpoint:now=600s,every=600s")
    assert same.facts["time_factor"] == 1
    gain = rings.under(job, "checkpoint:now=600s")
    assert gain.facts["time_factor"] < 1


def test_an_estimate_carries_it(rings):
    job = rings.job()
    base = run.baseline(job)
    made, same = (
        run.estimate(base, (resolve(s),)) for s in ("checkpoint", "checkpoint:now=600s,every=600s")
    )
    assert made["step_ns"] == pytest.approx(1.1332 * base.measured_ns.mean(), rel=1e-4)
    assert made["gain_pct"] == pytest.approx(-13.32, abs=0.01)
    assert same["step_ns"] == round(base.measured_ns.mean())


@pytest.mark.parametrize(
    "spec", ["save=0s", "mtbf=0s", "now=0s", "every=0s", "mtbf=1e-20ns", "every=1e-20ns"]
)
def test_out_of_range(rings, spec):
    with pytest.raises(BadParam, match=r"above 0|are the units"):
        rings.under(rings.job(), f"checkpoint:{spec}")


def test_failures_too_often_for_the_formula(rings):
    after = rings.under(rings.job(), "checkpoint:mtbf=100s")
    assert any("order of magnitude" in w for w in after.warnings)
