"""Messages and bytes that cost less, apart: rings of 8 at 0.822 us and 450 GB/s (arithmetic)."""

from __future__ import annotations

import numpy as np
import pytest
from retime.replay.policies.datapath import half_size_bytes
from retime.replay.policy import BadParam

SMALL, LARGE = 10 << 10, 80 << 20


def test_small_ones_move_with_alpha_and_large_ones_with_beta(rings):
    job = rings.job()
    assert rings.took_us(job, SMALL) == pytest.approx(11.548, abs=0.001)
    halved = rings.under(job, "datapath:alpha=0.5")
    assert rings.took_us(halved, SMALL) == pytest.approx(5.794, abs=0.01)
    assert rings.took_us(halved, LARGE) == pytest.approx(332.0, abs=0.1)
    doubled = rings.under(job, "datapath:alpha=1,beta=2")
    assert rings.took_us(doubled, SMALL) == pytest.approx(14 * 0.822 + 0.0199, abs=0.01)
    assert rings.took_us(doubled, LARGE) == pytest.approx(14 * 0.822 + 163.1, abs=0.1)


def test_half_size():
    assert half_size_bytes(14, 14 / 8, 822, 450e9) == pytest.approx(2.96e6, rel=1e-3)


def test_ones_change_nothing(rings):
    job = rings.job()
    after = rings.under(job, "datapath:alpha=1,beta=1")
    assert np.array_equal(after.graph.dur_ns, job.graph.dur_ns)


@pytest.mark.parametrize("spec", ["alpha=-1", "alpha=nan", "beta=0", "beta=inf"])
def test_factors_out_of_range(rings, spec):
    with pytest.raises(BadParam, match=r"factor|finite"):
        rings.under(rings.job(), f"datapath:{spec}")


def test_an_operation_that_the_job_has_not(rings):
    job = rings.job()
    after = rings.under(job, "datapath:op=all_to_all")
    assert np.array_equal(after.graph.dur_ns, job.graph.dur_ns)
    assert "the job has no all_to_all" in after.warnings[-1]
