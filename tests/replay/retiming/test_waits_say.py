"""What policies say of recorded waits: B*, and whether lateness is one rank's or everybody's."""

from __future__ import annotations

import re
from dataclasses import replace

import numpy as np
import polars as pl
import pytest
from retime.replay import run
from retime.replay.policies import resolve
from retime.replay.traced import build as kineto

SIZE = 100_000_000


def job_of(tables, arrivals_us, took_us=4_000):
    """All-reduces of 100 MB, one a step, that ranks on hosts of 8 come to at these times."""
    at = 0.0
    for step, came in enumerate(arrivals_us):
        end = at + max(came) + took_us
        for rank, late in enumerate(came):
            tables.kernel(rank, "work", at, at + late, step=step)
            tables.part(rank, "all_reduce", at + late, end, instance=step, stream=7, step=step,
                        in_bytes=SIZE, out_bytes=SIZE, group_size=len(came))  # fmt: skip
            tables.step(rank, step, at, end)
        at = round(end, 3)
    job = kineto.build(tables.frames(), "late")
    n = len(arrivals_us[0])
    ranks = pl.DataFrame(
        {
            "rank": range(n),
            "host": [f"h{r // 8}" for r in range(n)],
            "local_rank": [r % 8 for r in range(n)],
        }
    )
    return run.baseline(replace(job, facts={**job.facts, "ranks": ranks})).job


def says(job, spec, start):
    policy, values = resolve(spec)
    return [a for a in policy.apply(job, **values).assumptions if start in a]


def normal(n, steps):
    return np.random.default_rng(7).normal(2_000, 100, (steps, n)).round(3).tolist()


def useful_gb_per_s(job):
    (said,) = says(job, "scale-fabric", "beyond B* =")
    return float(re.findall(r"B\* = ([0-9.e+]+) GB/s", said)[0])


def test_useful_bandwidth_by_hand(tables):
    # A ring of 8 sends 2 x 7/8 x 100 MB = 175 MB. Of four ranks the others wait 1 ms for each half:
    # (0, 0, 0, 0, 1, 1, 1, 1) ms late is 0.5 ms of waiting on the mean, and 14 messages of 1 us are
    # assumed (one size tells no alpha): B* = 175 MB x 0.45 / (0.05 x 0.514 ms) = 3,064 GB/s.
    job = job_of(tables, [[1_000.0] * 4 + [2_000.0] * 4] * 4)
    assert useful_gb_per_s(job) == pytest.approx(3_064, rel=2e-3)
    (said,) = says(job, "scale-fabric", "beyond B* =")
    assert "saves less than 5 % of it" in said
    assert "ranks wait 0.5 ms" in said


def test_useful_bandwidth_falls_as_the_domain_grows(tables):
    # sigma = 100 us: 8 ranks wait 142 us on the mean, 72 wait 239 (sigma E_n, integrated); messages
    # take 14 and 142 us.
    few = useful_gb_per_s(job_of(tables, normal(8, 60)))
    many = useful_gb_per_s(job_of(type(tables)(), normal(72, 12)))
    assert few == pytest.approx(175e6 * 9 / (142 + 14) * 1e6 / 1e9, rel=0.06)
    assert many == pytest.approx(2 * 71 / 72 * 100e6 * 9 / (239 + 142) * 1e6 / 1e9, rel=0.06)
    assert many < few / 2


def test_waits_do_not_move_with_bandwidth(tables):
    job = job_of(tables, normal(8, 60))
    slow = job_of(type(tables)(), normal(8, 60), took_us=8_000)
    assert useful_gb_per_s(job) == pytest.approx(useful_gb_per_s(slow), rel=1e-3)


@pytest.mark.parametrize(("n", "steps", "wait_us"), [(8, 60, 142), (72, 12, 239)])
def test_random_arrivals_wait_as_random_ones_do(tables, n, steps, wait_us):
    (said,) = says(job_of(tables, normal(n, steps)), "align-arrivals", "on the mean for the last")
    wait, random = (1e3 * float(x) for x in re.findall(r"wait ([0-9.]+) ms", said))
    # The standard error of the largest of n, under 0.6 sigma, over that many times.
    assert wait == pytest.approx(wait_us, abs=3 * 60 / steps**0.5)
    assert random == pytest.approx(wait, rel=0.1)
    assert "no rank stands out" in said


def test_a_rank_that_is_always_last_stands_out(tables):
    # Seven at 1 ms and one at 3: 1.75 ms of waiting; a spread of 0.707 ms times E_8 is 1.007.
    job = job_of(tables, [[1_000.0] * 7 + [3_000.0]] * 3)
    (said,) = says(job, "align-arrivals", "on the mean for the last")
    assert "ranks wait 1.75 ms" in said
    assert "would wait 1.01 ms" in said
    assert "often the last by far" in said


def test_arrivals_of_two_or_at_once_say_nothing(tables):
    assert not says(job_of(tables, [[1_000.0, 2_000.0]] * 3), "align-arrivals", "for the last")
    even = job_of(type(tables)(), [[1_000.0] * 4] * 3)
    assert not says(even, "align-arrivals", "for the last")
