"""An assumed link against what a job's collectives took, and a fabric's ports."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import polars as pl
import pytest
from retime.replay import models, run
from retime.replay.calibration import calibrate, inside_hosts, link_sources, machines
from retime.replay.fabric.toml import parse
from retime.replay.graph import Kind
from retime.replay.policies import resolve
from retime.replay.traced import build as kineto

US, MS = 1e3, 1e6
N = 4
NIC_ONLY = """
name = "switched"
gpus_per_host = 1
hosts = 4
[nic]
count = 1
bandwidth = "100Mb/s"
efficiency = 0.98
[network]
wiring = "tor"
hosts_per_leaf = 4
"""
INSIDE = """
name = "pairs"
gpus_per_host = 2
hosts = 2
[scale_up]
domain = 2
bandwidth = "25MB/s"
alpha = "20us"
"""
NETWORK = NIC_ONLY[NIC_ONLY.index("[nic]") :].replace("count = 1", "count = 2")


def job_of(tables, times_ns, *, backend="gloo", seen=N, hosts=N, op="all_reduce"):
    """Rings of four ranks, (bytes, ns) each, of which `seen` ranks were recorded."""
    at = 0.0
    for i, (size, ns) in enumerate(times_ns):
        for rank in range(seen):
            tables.kernel(rank, "work", at, at + 50, step=0)
            tables.part(
                rank, op, at + 50, at + 50 + ns / 1e3, instance=i, stream=7, step=0,
                in_bytes=size, out_bytes=size, group_size=N,
            )  # fmt: skip
        at = round(at + 50 + ns / 1e3, 3)
    for rank in range(seen):
        tables.step(rank, 0, 0, at)
    frames = tables.frames()
    name = pl.lit(None if backend == "gloo" else "NVIDIA H100", dtype=pl.String)
    per = N // hosts
    frames["ranks"] = frames["ranks"].with_columns(
        device_name=name,
        host=pl.format("h{}", pl.col("rank") // per),
        local_rank=(pl.col("rank") % per).cast(frames["ranks"].schema["local_rank"]),
        host_source=pl.lit("recorded"),
    )
    frames["comms"] = pl.DataFrame(
        {"comm": ["0"], "dim": ["dp"], "backend": [backend], "ranks": [list(range(N))]}
    )
    return run.baseline(kineto.build(frames, "seen")).job


def applied(job, spec):
    policy, values = resolve(spec)
    return policy.apply(job, **values)


def rings(sizes, alpha_ns, rate):
    return [(s, float(models.time_ns("all_reduce", "ring", N, s, alpha_ns, rate))) for s in sizes]


GLOO = [(100_000, 12.24 * MS), (400_000, 49.35 * MS), (1_200_000, 156.3 * MS)] * 3
"""Medians of gloo's all-reduces over four hosts joined at 100 Mbit/s, as measured."""


def test_alpha_a_little_below_zero_is_zero(tables):
    job = job_of(tables, GLOO)
    found = calibrate.link(job, "0", "all_reduce")
    assert (found.source, found.alpha_ns, found.doubt) == ("fitted", 0, "")
    # 100 Mbit/s carry 12.2 MB/s of payload.
    assert found.bandwidth_bytes_per_s == pytest.approx(12.2e6, rel=0.03)
    # The line's alpha is 12.2 ms for 100 kB less what 1.5 x 100 kB take: about -50 us a message.
    (row,) = calibrate.table(job)
    assert 20 * US < row["alpha_error_ns"] < 200 * US
    assert row["error_pct"] < 5
    half = applied(job, "scale-fabric:link=scale-out,factor=0.5").graph
    at = half.kind == Kind.TRANSFER
    np.testing.assert_allclose(half.dur_ns[at], 2 * job.graph.dur_ns[at], rtol=1e-6)


QUADRATIC = [(s, s**2 / 100) for s in (10_000, 100_000, 1_000_000)] * 5
"""10 times the bytes take 100 times as long: 1 ms, 100 ms, 10 s."""


def test_what_was_seen_stands_for_an_assumed_link_that_it_contradicts(tables):
    job = job_of(tables, QUADRATIC)
    found = calibrate.link(job, "0", "all_reduce")
    assert found.source == "seen"
    # 1.5 x 1 MB in 10 s, less 6 messages of 50 us.
    assert found.bandwidth_bytes_per_s == pytest.approx(1.5e6 / (10 - 300e-6), rel=1e-3)
    assert found.alpha_ns == machines.SOCKET_ALPHA_NS
    assert "15 all_reduce on 0 took" in found.doubt
    assert "1.1 GB/s" in found.doubt
    for spec in ("scale-fabric:link=scale-out,factor=0.5", "hierarchical:local=2"):
        assert found.doubt in applied(job, spec).warnings


def test_larger_ones_that_took_no_longer_are_messages(tables):
    job = job_of(tables, [(s, 6 * MS) for s in (1_000, 10_000, 100_000)])
    found = calibrate.link(job, "0", "all_reduce")
    # 6 messages; their bytes at 1.1 GB/s are nothing beside them.
    assert found.source == "seen"
    assert found.alpha_ns == pytest.approx(1 * MS, rel=0.01)
    assert found.bandwidth_bytes_per_s == machines.HOST.nic_bytes_per_s
    after = applied(job, "algorithm:algo=tree")
    # 2 lg 4 messages instead of 2 x 3.
    at = job.graph.kind == Kind.TRANSFER
    np.testing.assert_allclose(after.graph.dur_ns[at], 4 / 6 * job.graph.dur_ns[at], rtol=1e-6)
    assert any("by its messages alone, 0.667 times as many" in a for a in after.assumptions)
    assert not any("no fit" in w for w in after.warnings)
    same = applied(job, "algorithm:algo=ring")
    np.testing.assert_array_equal(same.graph.dur_ns, job.graph.dur_ns)


@pytest.mark.parametrize(
    ("factor", "source"), [(0.3, "seen"), (0.4, "assumed"), (2.5, "assumed"), (4, "seen")]
)
def test_a_link_that_is_near_enough_stays_assumed(tables, factor, source):
    # 6 messages of 4 us between H100 hosts; their bytes are nothing beside them.
    job = job_of(tables, [(s, factor * 24 * US) for s in (100, 1_000, 10_000)], backend="nccl")
    found = calibrate.link(job, "0", "all_reduce")
    assert found.source == source
    assert bool(found.doubt) == (source == "seen")
    alpha = machines.INTER_ALPHA_NS * (factor if source == "seen" else 1)
    assert found.alpha_ns == pytest.approx(alpha, rel=0.02)
    assert found.bandwidth_bytes_per_s == 48.5e9


def test_collectives_of_some_ranks_only_make_it_doubtful(tables):
    job = job_of(tables, GLOO, seen=2)
    found = calibrate.link(job, "0", "all_reduce")
    assert (found.source, found.bandwidth_bytes_per_s) == ("assumed", 1.1e9)
    assert "record all 4 ranks" in found.doubt
    fast = calibrate.link(job_of(tables, rings((10**6,), 60 * US, 1e9), seen=2), "0", "all_gather")
    assert fast.doubt == ""


def with_fabric(job, text):
    return replace(job, facts={**job.facts, "fabric": parse(text)})


def test_ports_are_the_fabrics_where_hosts_have_one_gpu(tables):
    job = with_fabric(job_of(tables, GLOO), NIC_ONLY)
    assert link_sources.ports(job) == (0.98 * 12.5e6, 0.98 * 12.5e6, "fabric switched")
    assert link_sources.nic_bytes_per_s(job) == 0.98 * 12.5e6


def test_ports_that_a_fabric_lacks_are_the_machines(tables):
    one_domain = INSIDE.replace("domain = 2", "domain = 4")
    job = with_fabric(job_of(tables, rings((10**5, 10**6, 10**7), 60 * US, 0.6e9)), one_domain)
    nic, inside, words = link_sources.ports(job)
    assert (nic, inside) == (machines.HOST.nic_bytes_per_s, 25e6)
    assert "fabric pairs; machine: hosts" in words


def test_ports_are_no_faster_than_what_was_reached(tables):
    nic, inside, words = link_sources.ports(job_of(tables, GLOO))
    assert nic == pytest.approx(12.2e6, rel=0.03)
    assert inside == machines.HOST.intra_bytes_per_s
    assert "reach 0.012" in words


def test_links_inside_hosts_are_the_fabrics(tables):
    job = job_of(tables, GLOO, hosts=2)
    assumed = inside_hosts.link(job, "all_reduce")
    assert assumed[1] == machines.HOST.intra_bytes_per_s
    alpha, rate, words = inside_hosts.link(with_fabric(job, INSIDE + NETWORK), "all_reduce")
    assert (alpha, rate) == (20 * US + machines.INTRA_SOFTWARE_NS, 25e6)
    assert "fabric pairs" in words
