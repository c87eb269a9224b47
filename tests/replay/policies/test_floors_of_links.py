"""The floor of the busiest link under policies that put collectives on other links: by hand."""

from __future__ import annotations

import pytest
from retime.replay import run

MB = 1_000_000
NIC, NVLINK = 97e9, 721.8e9
"""The fastest of any device: these jobs name none."""


def floor_us(job, name, **params):
    """The busiest link's floor under a policy, us a step."""
    base = run.baseline(job)
    (tries,) = run.plan([(name, params)])
    entry = run.estimate(base, tries)
    assert entry["step_ns"] >= entry["floors"]["busiest_link_ns"]
    return entry["floors"]["busiest_link_ns"] / 1e3


def test_nics_of_another_bandwidth(rings):
    # 8 ranks on two hosts, 80 MB: a host sends 2 x 1/2 x 80 MB, 20 MB a rank, over its NIC.
    job = rings.job(sizes=(80 * MB,), alpha_ns=10e3, bandwidth=40e9)
    alone = 20e6 / NIC * 1e6
    for factor in (0.5, 2.0, 8.0):
        found = floor_us(job, "scale-fabric", link="scale-out", factor=factor)
        assert found == pytest.approx(alone / factor, rel=1e-4)


def test_a_wider_domain_carries_it_over_its_own_links(rings):
    job = rings.job(sizes=(80 * MB,), alpha_ns=10e3, bandwidth=40e9)
    # All in one domain: the same 20 MB over NVLink.
    found = floor_us(job, "scale-fabric", factor=1.0, domain=8)
    assert found == pytest.approx(20e6 / NVLINK * 1e6, rel=1e-4)
    # Four hosts of two in domains of four: half of it leaves a domain, 2 x 1/2 x 80 / 4 MB a rank,
    # where a host had to send 2 x 3/4 x 80 / 2 MB a rank.
    rings.tables.rows.clear()
    job = rings.job(sizes=(80 * MB,), hosts=4, alpha_ns=10e3, bandwidth=40e9)
    found = floor_us(job, "scale-fabric", factor=1.0, domain=4)
    assert found == pytest.approx(20e6 / NIC * 1e6, rel=1e-4)


def test_circuits_of_a_given_bandwidth(rings):
    job = rings.job(sizes=(80 * MB,), hosts=8, alpha_ns=10e3, bandwidth=20e9)
    # Each of 8 hosts sends 2 x 7/8 x 80 MB over its circuits.
    assert floor_us(job, "optical", bandwidth=100e9) == pytest.approx(1400, rel=1e-4)
    assert floor_us(job, "optical") == pytest.approx(140e6 / NIC * 1e6, rel=1e-4)


def test_host_memory(rings):
    # 8 ranks send 70 MB each and take as much: 25.6 GB/s of PCIe, or 1,120 MB over the memory.
    job = rings.job(op="all_to_all", algo="pairwise", hosts=1, sizes=(80 * MB,), alpha_ns=1e3)
    pcie = floor_us(job, "host-staged", dram=1e15)
    assert pcie == pytest.approx(70e6 / 25.6e9 * 1e6, rel=1e-4)
    assert floor_us(job, "host-staged", dram=204e9) == pytest.approx(1120e6 / 204e9 * 1e6, rel=1e-4)


def test_fewer_bytes_of_a_resharding(rings):
    # All-gathers of 80 MB that move weights: half as many copies cross, so half the bytes count.
    job = rings.job(op="all_gather", hosts=9, n=9, sizes=(80 * MB,), bandwidth=20e9)
    every, one = (
        floor_us(job, "reshard", op=("all_gather",), way=way, width=2, domain=4)
        for way in ("gpu", "domain")
    )
    assert every == pytest.approx(80e6 * 8 / 9 / NIC * 1e6, rel=1e-4)
    assert one == pytest.approx(every / 2, rel=1e-4)
