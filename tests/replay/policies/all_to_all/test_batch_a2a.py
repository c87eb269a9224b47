"""Sequence-parallel all-to-alls in batches."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from retime.replay import run
from retime.replay.fabric import load
from retime.replay.graph import Kind
from retime.replay.moe import sequence
from retime.replay.policies import batch_a2a
from retime.replay.policy import BadParam


def test_messages_and_bytes_by_arithmetic():
    # N = 8, B = 4: 7 messages to 1, 0.875 M to 0.5 M, a message four times as large.
    was, now = sequence.cost(8, 1.0), sequence.cost(2, 1.0)
    assert (was.messages, now.messages) == (7, 1)
    assert (was.sent_bytes, now.sent_bytes) == (0.875, 0.5)
    assert now.message_bytes / was.message_bytes == 4
    assert sequence.cost(1, 1.0).sent_bytes == 0
    # The same link: 7 times in latency, 1.75 times in bytes; BASP's 85 times is out of reach
    # even where the other side starts one all-to-all for each sequence (28 times).
    assert was.time_ns(1.0, 1e30) / now.time_ns(1.0, 1e30) == pytest.approx(7)
    assert was.time_ns(0.0, 1.0) / now.time_ns(0.0, 1.0) == pytest.approx(1.75)
    assert 4 * was.time_ns(1.0, 1e30) / now.time_ns(1.0, 1e30) == pytest.approx(28)


@pytest.mark.parametrize(("share", "gain"), [(0.145, 1.17), (0.242, 1.32)])
def test_a_step_gains_no_more_than_the_share(share, gain):
    # The ends of BASP's 1.17 to 1.32 need at least this share of all-to-alls (Amdahl).
    assert sequence.most_gain(share) == pytest.approx(gain, abs=0.005)


def even(n, size):
    return np.full((n, n), size / n)


def test_four_pairs_instead_of_eight_ranks(a2a_job, under, moved_ns):
    job = a2a_job([[even(8, 8e6)]], took_us=1_000.0, hosts=1, places=8, dim="cp")
    latency = under(job, "batch-a2a:batches=4,alpha=1ms,bandwidth=1e30B/s")
    assert moved_ns(latency) == [pytest.approx(1e6 / 7, abs=1)]
    volume = under(job, "batch-a2a:batches=4,alpha=0,bandwidth=50GB/s")
    assert moved_ns(volume) == [pytest.approx(1e6 / 1.75, abs=1)]
    task = volume.graph.kind == Kind.TRANSFER
    assert set(volume.graph.bytes[task]) == {round(8e6 * 0.5 / 0.875)}
    assert any(
        "7 messages of 1e+06 bytes before, 1 of 4e+06 after" in a for a in volume.assumptions
    )
    assert moved_ns(under(job, "batch-a2a:batches=8,alpha=1us,bandwidth=50GB/s")) == [0]


def test_groups_within_hosts_use_their_links(a2a_job, under, moved_ns):
    job = a2a_job([[even(8, 8e6)]], took_us=1_000.0, dim="cp")
    after = under(job, "batch-a2a:batches=2,alpha=0,bandwidth=50GB/s,within=400GB/s")
    # 0.875 M at 50 GB/s becomes 0.75 M at 400.
    assert moved_ns(after) == [pytest.approx(1e6 * 0.75 / 0.875 / 8, abs=1)]
    assert any("lie within hosts" in a for a in after.assumptions)


TWO = """
name = "two"
gpus_per_host = 4
hosts = 2
[scale_up]
bandwidth = "400GB/s"
[nic]
bandwidth = "400Gb/s"
[network]
wiring = "rail"
hosts_per_leaf = 2
uplinks = 2
"""


def with_fabric(job):
    return replace(job, facts={**job.facts, "fabric": load(TWO)})


def test_on_a_fabric_groups_are_simulated_at_once(a2a_job, under, moved_ns):
    job = with_fabric(a2a_job([[even(8, 8e6)]], took_us=1_000.0, dim="cp"))
    # Four of seven parts leave the host over a NIC of 50 GB/s; three quarters of M at 400 within.
    after = under(job, "batch-a2a:batches=2")
    assert moved_ns(after) == [pytest.approx(1e6 * (6e6 / 400) / (4e6 / 50), abs=2)]
    assert any("2 exchanges of 4 ranks of e at once are simulated" in a for a in after.assumptions)
    # Eight pairs of neighbours share nothing: half of M at 400.
    after = under(job, "batch-a2a:batches=4")
    assert moved_ns(after) == [pytest.approx(1e6 * (4e6 / 400) / (4e6 / 50), abs=2)]


@pytest.mark.parametrize(("batches", "us"), [(1, 80), (2, 15)])
def test_the_floor_is_of_the_links_of_the_groups(a2a_job, batches, us):
    job = with_fabric(a2a_job([[even(8, 8e6)]], took_us=1_000.0, dim="cp"))
    base = run.baseline(job)
    entry = run.estimate(base, run.plan([("batch-a2a", {"batches": batches})])[0])
    assert entry["floors"]["busiest_link_ns"] == pytest.approx(us * 1e3, rel=1e-6)


def test_bound_is_said(a2a_job, under):
    job = a2a_job([[even(8, 8e6)]], took_us=50.0, dim="cp")
    after = under(job, "batch-a2a")
    assert any(
        "at most 50 % of the steps" in a and "2 times as fast" in a for a in after.assumptions
    )


def test_experts_are_not_batches(a2a_job, under, unchanged):
    job = a2a_job([[even(8, 8e6)]], dim="ep")
    assert unchanged(job, under(job, "batch-a2a:dim=cp"))


def test_neutral_changes_nothing(a2a_job, under, unchanged):
    job = a2a_job([[even(8, 8e6)]] * 2, dim="cp")
    assert unchanged(job, under(job, ("batch-a2a", batch_a2a.NEUTRAL)))


@pytest.mark.parametrize(("batches", "says"), [(3, "take one of 1, 2, 4, 8"), (0, "more than 0")])
def test_what_does_not_divide(a2a_job, under, batches, says):
    with pytest.raises(BadParam, match=says):
        under(a2a_job([[even(8, 8e6)]], dim="cp"), ("batch-a2a", {"batches": batches}))
