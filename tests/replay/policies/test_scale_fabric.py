"""Faster links and wider domains: the step of 1024 GPUs by arithmetic, and jobs by hand."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import polars as pl
import pytest
from retime.replay import models, run
from retime.replay.costs import domains
from retime.replay.fabric import Fabric, LinkClass, Network, Nic, ScaleUp, named
from retime.replay.fabric.cost import collective_time_ns
from retime.replay.models import hierarchical
from retime.replay.models.hierarchical import Level
from retime.replay.policy import BadParam
from retime.replay.traced import build as kineto

from ..conftest import Tables

SMALL, LARGE = 10 << 10, 80 << 20


# A step of 1024 GPUs, TP8 x DP128: 8 GB of gradients a GPU, 50 GB/s out, 450 GB/s inside, compute
# 680 ms, of which the last 58.6 run beside the reduction of gradients. 2 x 127/128 x 8 GB at
# 50 GB/s is 317.5 ms, so that the step takes 680 - 58.6 + 317.5 = 938.9 ms, and the optimizer 10 us
# more. With no such window 621 ms of computation before the reduction give the same.
GRADIENTS = 8_000_000_000
REDUCED_US = 317_500.0


@pytest.fixture(scope="module")
def wide_steps():
    """`step_s(domain, window_us, compute_us)` through the policy, on a fabric of 1024 GPUs."""
    fabric = Fabric(
        "hosts", 128, 8, scale_up=ScaleUp(LinkClass("nvlink", 450e9), 8),
        nic=Nic(LinkClass("nic", 50e9), 8, tuple(range(8)), (0,) * 8),
        network=Network("rail", 128, 128),
    )  # fmt: skip
    bases = {}

    def base(window_us, compute_us):
        tables = Tables()
        begins = compute_us - window_us
        end = max(compute_us, begins + REDUCED_US)
        for rank in range(0, 1024, 8):
            tables.kernel(rank, "backward", 0, begins, step=0)
            if window_us:
                tables.kernel(rank, "rest", begins, compute_us, step=0)
            tables.part(rank, "all_reduce", begins, begins + REDUCED_US, instance=1, step=0,
                        in_bytes=GRADIENTS, out_bytes=GRADIENTS, group_size=128)  # fmt: skip
            tables.kernel(rank, "adam", end, end + 10, step=0)
            tables.step(rank, 0, 0, end + 10)
        job = kineto.build(tables.frames(), "wide")
        every = np.arange(1024)
        ranks = pl.DataFrame(
            {"rank": every, "host": [f"h{r // 8}" for r in every], "local_rank": every % 8}
        )
        return run.baseline(replace(job, facts={**job.facts, "ranks": ranks, "fabric": fabric}))

    def step_s(domain, window_us=58_600.0, compute_us=680_000.0):
        key = window_us, compute_us
        if key not in bases:
            bases[key] = base(*key)
        (tries,) = run.plan([f"scale-fabric:factor=1,domain={domain}"])
        return run.estimate(bases[key], tries)["step_ns"] / 1e9

    return step_s


def test_wider_domains_of_1024_gpus(wide_steps):
    # Published: 0.939 s with domains of 8, 0.690 s with 64, less than 2 % more beyond. The inputs
    # are ours (a plausible set): the window that the backward hides is what bounds the rest.
    assert wide_steps(8) == pytest.approx(0.939, abs=5e-4)
    assert wide_steps(64) == pytest.approx(0.690, abs=1e-3)
    beyond = [wide_steps(d) for d in (128, 256, 512, 1024)]
    # What ran beside the reduction is a little faster once that is over.
    assert beyond == pytest.approx([0.680] * 4, abs=5e-3)
    assert 0 < 1 - min(beyond) / wide_steps(64) < 0.02


def test_without_a_window_wider_domains_would_gain_more(wide_steps):
    # Purely additive (C = 0.621, W = 0) gives both figures too, but 2.6 % and 4.8 % beyond.
    def added(domain):
        return wide_steps(domain, window_us=0.0, compute_us=621_000.0)

    assert added(8) == pytest.approx(0.939, abs=1e-3)
    assert added(64) == pytest.approx(0.690, abs=1e-3)
    assert 1 - added(128) / added(64) == pytest.approx(0.026, abs=2e-3)
    assert 1 - added(1024) / added(64) == pytest.approx(0.048, abs=2e-3)


def test_the_closed_form_is_the_simulated_one():
    # 8 hosts of 2: TP2 x DP8, hosts in domains of 1 (2 GPUs), 2, 4 and 8 hosts; alphas 0.
    gradient, inside, out = 1e9, 450e9, 50e9
    for domain in (2, 4, 8, 16):
        fabric = Fabric(
            "hosts", 8, 2, scale_up=ScaleUp(LinkClass("nvlink", inside), domain),
            nic=Nic(LinkClass("nic", out), 2, (0, 1), (0, 0)), network=Network("rail", 8, 8),
        )  # fmt: skip
        d = domain // 2
        took = collective_time_ns(fabric, "all_reduce", "hierarchical", range(0, 16, 2), gradient,
                                  levels=(d, 8 // d))  # fmt: skip
        nest = (Level(d, 0.0, inside), Level(8 // d, 0.0, out))
        assert took == pytest.approx(hierarchical.time_ns("all_reduce", nest, gradient))


def test_a_factor_scales_bytes_and_not_messages(rings):
    # 8 ranks on 2 hosts: the communicator crosses hosts, so its link is scale-out.
    job = rings.job()
    twice = rings.under(job, "scale-fabric:factor=2")
    for size in (SMALL, LARGE):
        want = float(models.time_ns("all_reduce", "ring", 8, size, 822.0, 900e9)) / 1e3
        assert rings.took_us(twice, size) == pytest.approx(want, rel=1e-3)


def test_scale_up_links_are_of_communicators_inside_a_host(rings):
    job = rings.job(hosts=1)
    same = rings.under(job, "scale-fabric:factor=2")
    assert_same(same, job)
    assert any("no collective's time depends on link=scale-out" in w for w in same.warnings)
    half = rings.under(job, "scale-fabric:link=scale-up,factor=0.5")
    want = float(models.time_ns("all_reduce", "ring", 8, LARGE, 822.0, 225e9)) / 1e3
    assert rings.took_us(half, LARGE) == pytest.approx(want, rel=1e-3)


def test_a_wider_domain_without_a_fabric(rings):
    # 8 hosts of one rank: a domain of all of them turns the NIC's 50 GB/s into NVLink's (assumed
    # 370.8 for an H100), with the 14 messages of 1 us that its ring takes there.
    job = rings.job(hosts=8, bandwidth=50e9, alpha_ns=0.0)
    after = rings.under(job, "scale-fabric:factor=1,domain=8")
    assert rings.took_us(after, LARGE) == pytest.approx(
        14 + rings.took_us(job, LARGE) * 50 / 370.8, rel=1e-3
    )
    half = rings.under(job, "scale-fabric:factor=1,domain=2")
    assert rings.took_us(after, LARGE) < rings.took_us(half, LARGE) < rings.took_us(job, LARGE)


def with_fabric(job, gpus, per_host, *, domain=None, nic=50e9):
    fabric = Fabric(
        "hosts", gpus // per_host, per_host,
        scale_up=ScaleUp(LinkClass("nvlink", 450e9), domain or per_host)
        if (domain or per_host) > 1 else None,
        nic=Nic(LinkClass("nic", nic), per_host, tuple(range(per_host)), (0,) * per_host),
        network=Network("rail", 4, 4),
    )  # fmt: skip
    return replace(job, facts={**job.facts, "fabric": fabric})


def test_with_a_fabric_the_ratio_is_simulated(rings):
    job = with_fabric(rings.job(hosts=4), 8, 2)
    twice = rings.under(job, "scale-fabric:link=nic,factor=2")
    # A ring over hosts is as slow as its NICs: twice as fast, whatever was measured.
    assert rings.took_us(twice, LARGE) == pytest.approx(rings.took_us(job, LARGE) / 2, rel=1e-3)
    assert_same(rings.under(job, "scale-fabric:link=nvlink,factor=2"), job)
    # A wider domain: hierarchical on both sides; 4 hosts of 2 in domains of 8.
    wide = rings.under(job, "scale-fabric:factor=1,domain=8")
    sides = [collective_time_ns(f, "all_reduce", "hierarchical", range(8), LARGE, levels=levels)
             for f, levels in ((job.facts["fabric"], (2, 4)),
                               (domains.widened(job.facts["fabric"], 8), (8, 1)))]  # fmt: skip
    ratio = sides[1] / sides[0]
    assert rings.took_us(wide, LARGE) == pytest.approx(rings.took_us(job, LARGE) * ratio, rel=1e-3)
    assert ratio < 0.5


def test_a_fabric_without_limit_of_the_class_is_left(rings):
    job = with_fabric(rings.job(hosts=4), 8, 2)
    for spec in ("factor=1", "factor=1,domain=2", "link=all,factor=1"):
        assert_same(rings.under(job, f"scale-fabric:{spec}"), job)


def test_more_bandwidth_never_lengthens(rings):
    job = with_fabric(rings.job(hosts=4), 8, 2)
    for link in ("all", "scale-up", "scale-out", "leaf"):
        after = rings.under(job, f"scale-fabric:link={link},factor=4")
        assert (after.graph.dur_ns <= job.graph.dur_ns).all()


def test_every_class_of_presets_can_be_scaled():
    for name in named.presets():
        fabric = named.preset(name)
        for link in ("all", "scale-out") if fabric.nic else ("all",):
            faster = domains.scaled_links(fabric, link, 2.0)
            assert faster != fabric
            assert domains.scaled_links(faster, link, 0.5) == fabric


def test_hosts_that_nobody_knows(rings):
    job = rings.job()
    job = replace(job, facts={**job.facts, "ranks": None})
    after = rings.under(job, "scale-fabric")
    assert_same(after, job)
    assert "record the hosts" in after.warnings[-1]


@pytest.mark.parametrize(
    ("spec", "said"),
    [
        ("factor=0", "above 0"),
        ("factor=inf", "finite number"),
        ("domain=-1", "0 for as it is"),
        ("link=leaf", "--fabric names others"),
        ("domain=6", "hosts have 4 GPUs"),
    ],
)
def test_parameters_out_of_range(rings, spec, said):
    with pytest.raises(BadParam, match=said):
        rings.under(rings.job(), f"scale-fabric:{spec}")


@pytest.mark.parametrize(
    ("spec", "said"),
    [("link=gold", "scale-out, scale-up would work"), ("domain=3", "domain is 3 GPUs")],
)
def test_what_a_fabric_does_not_have(rings, spec, said):
    job = with_fabric(rings.job(hosts=4), 8, 2)
    with pytest.raises(BadParam, match=said):
        rings.under(job, f"scale-fabric:{spec}")


def assert_same(after, job):
    assert np.array_equal(after.graph.dur_ns, job.graph.dur_ns)
