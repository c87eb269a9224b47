"""Who starts network operations: the figures of GPU-Initiated Communication Dissected."""

from __future__ import annotations

import numpy as np
import pytest
from retime.replay.costs.launching import overhead_ns, rate_share
from retime.replay.policy import BadParam

SMALL = 10 << 10


def test_a_message_behind_bulk(rings):
    # 0.7 us to initiate and 4.0 to complete: one message of 64 bytes, alone and behind 8 MiB of
    # bulk at 50 GB/s (167.8 us): 37 times as long; behind 400 MB 1,700 times.
    assert overhead_ns("gpu", 700, 4000, 3000) == 4700
    job = rings.job(op="all_gather", n=2, hosts=2, alpha_ns=4_700.0, bandwidth=50e9,
                    sizes=(64, 1 << 20, 80 << 20))  # fmt: skip
    alone = rings.took_us(job, 64)
    assert alone == pytest.approx(4.7, abs=0.01)
    for bulk, times in (("8MiB", 36.7), ("400MB", 1703)):
        behind = rings.under(job, f"launch-path:path=proxy,bulk={bulk}")
        assert rings.took_us(behind, 64) / alone == pytest.approx(times, rel=2e-3)


def test_connections_cost_message_rate():
    assert rate_share(1) == rate_share(1024) == 1
    assert rate_share(3000) == pytest.approx(0.41, abs=0.001)
    shares = [rate_share(c) for c in range(1, 20_000, 50)]
    assert shares == sorted(shares, reverse=True)


def test_the_gpu_saves_the_proxy_of_every_message(rings):
    job = rings.job(alpha_ns=8_000.0, bandwidth=48.5e9)
    before = rings.took_us(job, SMALL)
    after = rings.under(job, "launch-path")
    # 14 messages, 3 us each.
    assert before - rings.took_us(after, SMALL) == pytest.approx(42, abs=0.1)


def test_no_change_of_path_changes_nothing(rings):
    job = rings.job(alpha_ns=8_000.0, bandwidth=48.5e9)
    after = rings.under(job, "launch-path:path=proxy")
    assert np.array_equal(after.graph.dur_ns, job.graph.dur_ns)


def test_bulk_ahead_is_waited_for(rings):
    job = rings.job(alpha_ns=8_000.0, bandwidth=50e9)
    after = rings.under(job, "launch-path:path=proxy,bulk=8MiB")
    more = rings.took_us(after, SMALL) - rings.took_us(job, SMALL)
    assert more == pytest.approx(167.8, rel=1e-3)


def test_a_message_rate_bounds_small_ones(rings):
    job = rings.job(alpha_ns=8_000.0, bandwidth=50e9)
    after = rings.under(job, "launch-path:path=proxy,connections=3000,rate=1e4")
    assert rings.took_us(after, SMALL) == pytest.approx(14 / 1e4 / rate_share(3000) * 1e6, rel=1e-3)
    assert any("message rate" in w for w in after.warnings)


def test_small_messages_are_bound_by_their_rate(rings):
    # 70 MiB in messages of 64 bytes, 41 % of 200 M a second with 3,000 connections: 14 ms, where
    # the bytes need 1.5 ms at 50 GB/s; with few connections 5.7 ms.
    size = 80 << 20
    job = rings.job(op="all_to_all", algo="pairwise", alpha_ns=8_000.0, bandwidth=50e9)
    sent = 7 / 8 * size / 64
    for connections, share in ((3000, rate_share(3000)), (0, 1.0)):
        spec = f"launch-path:path=proxy,message=64,connections={connections}"
        after = rings.under(job, spec)
        assert rings.took_us(after, size) == pytest.approx(sent / (200 * share), rel=1e-3)
    large = rings.under(job, "launch-path:path=proxy,message=1MiB,connections=3000")
    assert rings.took_us(large, size) == rings.took_us(job, size)


def test_a_path_saves_no_more_than_was_there(rings):
    job = rings.job(alpha_ns=1_000.0, bandwidth=48.5e9)
    after = rings.under(job, "launch-path")
    assert any("taken to cost nothing" in w for w in after.warnings)


def test_inside_a_host_there_is_no_nic(rings):
    job = rings.job(hosts=1)
    after = rings.under(job, "launch-path")
    assert np.array_equal(after.graph.dur_ns, job.graph.dur_ns)
    assert any("inside a host" in w for w in after.warnings)


@pytest.mark.parametrize("spec", ["rate=0", "bulk=-1", "connections=-1", "message=-1"])
def test_out_of_range(rings, spec):
    with pytest.raises(BadParam):
        rings.under(rings.job(), f"launch-path:{spec}")
