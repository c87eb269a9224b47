"""What a fabric says of NICs, circuits, hosts and drives is what policies take, if not told."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from retime.replay.fabric import load
from retime.replay.fabric.description import LinkClass, Optical, Storage
from retime.replay.policy import BadParam
from retime.replay.retiming import fabric_says


def on(job, **parts):
    """The job on two H100 hosts with some parts of their fabric changed."""
    fabric = replace(load("h100", gpus=16), **parts)
    return replace(job, facts={**job.facts, "fabric": fabric})


def same(a, b):
    return np.array_equal(a.graph.dur_ns, b.graph.dur_ns)


def test_given_before_fabric_before_usual(rings):
    bare = rings.job(n=16)
    job = on(bare)
    assert fabric_says.value(job, "x", 3.0, lambda f: 5.0, 7.0) == (3.0, ())
    assert fabric_says.value(job, "x", None, lambda f: 5.0, 7.0)[0] == 5.0
    assert "as fabric" in fabric_says.value(job, "x", None, lambda f: 5.0, 7.0)[1][0]
    for nothing in (None, 0.0, np.inf):
        assert fabric_says.value(job, "x", None, lambda f, n=nothing: n, 7.0) == (7.0, ())
    assert fabric_says.value(bare, "x", None, lambda f: 5.0, 7.0) == (7.0, ())


def test_circuits(rings):
    job = rings.job(n=16, alpha_ns=5e3, bandwidth=50e9)
    slow = on(job, optical=Optical(LinkClass("circuit", 50e9), 2, 5e6, hold_ns=50e6))
    assert same(
        rings.under(slow, "optical"), rings.under(job, "optical:switches=2,reconfigure=5ms")
    )
    assert not same(rings.under(slow, "optical"), rings.under(job, "optical"))
    told = rings.under(slow, "optical:reconfigure=20us,switches=1,hold=180us")
    assert same(told, rings.under(job, "optical"))


def test_a_nics_message_rate(rings):
    job = rings.job(n=16, alpha_ns=8e3, bandwidth=50e9)
    nic = load("h100", gpus=16).nic
    assert nic is not None
    port = replace(nic, link=replace(nic.link, messages_per_s=1e4))
    spec = "launch-path:path=proxy,connections=10"
    assert same(rings.under(on(job, nic=port), spec), rings.under(job, f"{spec},rate=1e4"))


def test_a_hosts_links(rings):
    job = rings.job(op="all_to_all", algo="pairwise", hosts=1)
    pcie = load("h100", gpus=16).pcie
    assert pcie is not None
    slow = replace(pcie, link=LinkClass("pcie", 10e9), socket=LinkClass("socket", 3e9))
    given = "host-staged:pcie=10GB/s,dram=204GB/s,numa=3GB/s"
    found = rings.under(on(job, pcie=slow), "host-staged:dram=204GB/s")
    assert same(found, rings.under(job, given))
    assert not same(found, rings.under(job, "host-staged"))


def test_incast_of_ports(rings):
    job = rings.job(op="all_to_all", algo="pairwise", n=16, alpha_ns=5e3, bandwidth=48e9)
    nic = load("h100", gpus=16).nic
    assert nic is not None
    port = replace(nic, link=replace(nic.link, incast_gamma=0.05, incast_free=2.0))
    spec = "wave-schedule:native=all-at-once"
    fabric = rings.under(on(job, nic=port), spec)
    assert any("incast gamma 0.05" in a for a in fabric.assumptions)
    assert not any("no incast term" in w for w in fabric.warnings)
    assert same(fabric, rings.under(on(job), f"{spec},gamma=0.05,free=2"))


def test_drives_of_a_host(rings):
    job = rings.job(n=16)
    disks = on(job, storage=Storage(staging=LinkClass("nvme", 6e9)))
    after = rings.under(disks, "isolate-storage:what=stage,read=6MB")
    assert any("drives" in a or "no data loading" in w
               for a in after.assumptions for w in (*after.warnings, ""))  # fmt: skip
    with pytest.raises(BadParam, match="needs the drives"):
        rings.under(job, "isolate-storage:what=stage")
