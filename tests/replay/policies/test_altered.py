"""Policies one after another: the second prices what the first left, not what was recorded."""

from __future__ import annotations

import numpy as np
import pytest
from retime.replay import models

SIZE = 80 << 20


def test_bytes_that_compression_took_no_faster_link_saves_again(rings):
    # 0.822 us a message and 450 GB/s; half the bytes by a codec that costs nothing.
    job = rings.job(op="all_gather")
    half = rings.under(job, "compress:ratio=0.5,encode=1e15,decode=1e15")
    both = rings.under(half, "datapath:alpha=1,beta=2")
    expected = models.time_ns("all_gather", "ring", 8, SIZE / 2, 822, 900e9) / 1e3
    assert rings.took_us(both, SIZE, job) == pytest.approx(float(expected), rel=1e-3)


def test_messages_are_those_of_the_algorithm_that_now_runs(rings):
    # Recursive doubling sends 3 messages where the ring sent 14.
    job = rings.job()
    other = rings.under(job, "algorithm:algo=recursive-doubling")
    both = rings.under(other, "datapath:alpha=0,beta=1")
    expected = models.time_ns("all_reduce", "recursive-doubling", 8, SIZE, 0, 450e9) / 1e3
    assert rings.took_us(both, SIZE) == pytest.approx(float(expected), rel=1e-3)


def test_levels_still_gain_by_faster_links(rings):
    job = rings.job()
    levels = rings.under(job, "hierarchical:inner_bandwidth=400GB/s,inner_alpha=1us")
    both = rings.under(levels, "datapath:alpha=0.5,beta=2")
    assert rings.took_us(both, SIZE) == pytest.approx(rings.took_us(levels, SIZE) / 2, rel=1e-3)
    assert any("run hierarchical by now" in w for w in both.warnings)


@pytest.mark.parametrize(
    ("first", "second"),
    [
        ("algorithm:algo=tree", "hierarchical:inner_bandwidth=400GB/s,inner_alpha=1us"),
        ("algorithm:algo=tree", "algorithm:algo=halving-doubling"),
        ("hierarchical:inner_bandwidth=400GB/s,inner_alpha=1us", "algorithm:algo=tree"),
        ("algorithm:algo=tree", "optical:reconfigure=20us"),
        ("optical:reconfigure=20us", "on-package:topology=ring"),
    ],
)
def test_a_collective_runs_one_algorithm(rings, first, second):
    job = rings.job()
    once = rings.under(job, first)
    twice = rings.under(once, second)
    assert not np.array_equal(once.graph.dur_ns, job.graph.dur_ns)
    assert np.array_equal(twice.graph.dur_ns, once.graph.dur_ns)
    assert any("they stay so" in w for w in twice.warnings)
