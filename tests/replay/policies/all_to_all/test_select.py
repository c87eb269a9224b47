"""The calibrated choice between native, balanced and waves."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from retime.replay.moe import choice
from retime.replay.policies import select
from retime.replay.policy import BadParam


def test_another_way_must_be_better_by_more_than_the_error():
    # Native 10, waves 9.5, epsilon 0.1: native. Waves 8.9: waves.
    assert choice.choose({"native": 10, "waves": 9.5}, 0.1) == "native"
    assert choice.choose({"native": 10, "waves": 8.9}, 0.1) == "waves"
    assert choice.choose({"native": 10, "waves": 10}, 0.0) == "native"


@given(
    st.dictionaries(
        st.sampled_from(["native", "waves", "balanced"]), st.floats(1, 100), min_size=1
    ),
    st.dictionaries(st.sampled_from(["native", "waves", "balanced"]), st.floats(-1, 1)),
    st.floats(0, 0.5),
)
def test_what_is_chosen_is_never_slower_than_native_beyond_the_error(models, wrong, error):
    # Each way really takes its model, but for less than half of the error up or down.
    models.setdefault("native", 50.0)
    half = np.sqrt(1 + error)
    real = {way: t * half ** wrong.get(way, 0.0) for way, t in models.items()}
    way = choice.choose(models, error)
    assert real[way] <= real["native"] * (1 + error) * (1 + 1e-12)


def test_calibration_is_by_class():
    keys = [(1, 0)] * 4 + [(2, 0)] * 4
    model = np.full(8, 10.0)
    measured = np.array([20, 20, 22, 18, 30, 30, 30, 30.0])
    found = choice.calibrate(keys, measured, model)
    assert found.of((1, 0)) == 2
    assert found.of((2, 0)) == 3
    assert found.of((7, 7)) == 2.5
    assert found.error == pytest.approx(0.1)
    assert choice.calibrate([], np.array([]), np.array([])).of((0, 0)) == 1


def skewed(scale=1.0):
    matrix = np.full((8, 8), 1e6)
    matrix[0, 4:] = 200e6
    return matrix * scale


PORTS = "nic=50GB/s,nvlink=450GB/s,alpha=0"


def test_skewed_ones_are_balanced_even_ones_are_left(a2a_job, under, moved_ns):
    def took(matrix):
        return matrix.sum(axis=1).max() / 50e9 * 1e6

    steps = [[skewed(), np.full((8, 8), 1e6), skewed(0.9), np.full((8, 8), 2e6)]] * 4
    job = a2a_job(steps, took_us=took)
    after = under(job, f"select:{PORTS}")
    ratio = np.array(moved_ns(after)) / np.array(moved_ns(job))
    assert (ratio.reshape(-1, 2)[:, 0] < 0.6).all()
    assert (ratio.reshape(-1, 2)[:, 1] == 1).all()
    assert any("of 16 all-to-alls: 8 balanced, 8 native" in a for a in after.assumptions)
    assert any("calibrated on the other half" in a for a in after.assumptions)


def test_calibration_never_uses_the_step_itself(a2a_job, under):
    # The second half of the steps measured three times as long: the first half is calibrated by
    # it, with its errors (none), and the other way round.
    def even(matrix):
        return 100.0

    job = a2a_job([[skewed()] * 4] * 4, took_us=even)
    after = under(job, f"select:{PORTS}")
    (said,) = [a for a in after.assumptions if "calibrated on the other half" in a]
    assert said.count("90 % within 0 %") == 2


def test_errors_of_the_calibration_hold_choices_back(a2a_job, under, unchanged):
    rng = np.random.default_rng(3)
    spread = iter(np.exp(rng.normal(0, 1.5, 64)))
    noisy = a2a_job([[skewed()] * 8] * 4, took_us=lambda matrix: 100 * float(next(spread)))
    assert unchanged(noisy, under(noisy, f"select:{PORTS}"))


def test_one_step_calibrates_nothing(a2a_job, under):
    job = a2a_job([[skewed()] * 10])
    after = under(job, f"select:{PORTS}")
    assert any("too few all-to-alls" in w for w in after.warnings)
    assert any("by more than 10 %" in a for a in after.assumptions)


def test_ways_that_are_known_to_be_slow_are_not_taken(a2a_job, under, unchanged):
    job = a2a_job([[skewed()]] * 2)
    assert not unchanged(job, under(job, f"select:{PORTS}"))
    assert unchanged(job, under(job, f"select:{PORTS},r_balanced=5"))


def test_neutral_changes_nothing(a2a_job, under, unchanged):
    job = a2a_job([[skewed()]] * 2)
    assert unchanged(job, under(job, ("select", select.NEUTRAL)))


@pytest.mark.parametrize(
    "given", [{"ways": ("fast",)}, {"ways": ()}, {"epsilon": -1.0}, {"r_waves": 0.0}]
)
def test_what_is_out_of_range(a2a_job, under, given):
    with pytest.raises(BadParam):
        under(a2a_job([[skewed()]]), ("select", given))
