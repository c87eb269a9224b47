"""What holds on every fabric: ideal ones are the closed forms, rates are max-min fair."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from retime.replay import models
from retime.replay.fabric import Fabric, LinkClass, Network, Nic, ScaleUp, cost
from retime.replay.fabric import flows as f

from .test_symmetry import fabrics, laid_out

QUIET = settings(deadline=None, max_examples=40, suppress_health_check=[HealthCheck.too_slow])


def ideal(n, bandwidth, alpha_ns):
    """n GPUs on one switch that does not block."""
    return Fabric("ideal", 1, n, scale_up=ScaleUp(LinkClass("port", bandwidth, 1.0, alpha_ns), n))


@QUIET
@given(
    st.integers(2, 24), st.floats(1.0, 1e10), st.floats(0, 1e5), st.floats(1e8, 1e12),
    st.sampled_from([("all_reduce", "ring"), ("all_reduce", "tree"), ("broadcast", "tree"),
                     ("all_gather", "ring"), ("reduce_scatter", "ring"),
                     ("all_reduce", "halving-doubling"), ("all_reduce", "recursive-doubling"),
                     ("all_to_all", "pairwise"), ("all_to_all", "bruck")]),
)  # fmt: skip
def test_an_ideal_fabric_of_any_size_gives_the_closed_form(n, size, alpha, bandwidth, call):
    took = cost.collective_time_ns(ideal(n, bandwidth, alpha), *call, range(n), size)
    assert took == pytest.approx(float(models.time_ns(*call, n, size, alpha, bandwidth)), rel=1e-6)


CALLS = [("all_reduce", "ring"), ("all_to_all", "direct"), ("all_reduce", "tree"),
         ("all_gather", "direct"), ("all_to_all", "windowed")]  # fmt: skip


@QUIET
@given(fabrics(), st.sampled_from(CALLS), st.integers(0, 999))
def test_rates_of_a_collective_are_max_min_fair_on_any_fabric(fabric, call, seed):
    """No link is overfull, and each flow has a full link on which no other is faster."""
    random = np.random.default_rng(seed)
    count = int(random.integers(2, min(fabric.gpus, 12) + 1))
    gpus = random.permutation(fabric.gpus)[:count]
    links, paths, moved = laid_out(fabric, *call, gpus, 1e7)
    links = links._replace(incast_gamma=0.0 * np.asarray(links.incast_gamma))
    some = np.flatnonzero((np.diff(paths.ptr)[moved.path] > 0) & (moved.size_bytes > 0))
    some = some[random.random(len(some)) < 0.7]
    of = moved.path[some]
    rate = f.max_min(links, paths, of)
    crossed = [(paths.link[paths.ptr[p] : paths.ptr[p + 1]],
                paths.coef[paths.ptr[p] : paths.ptr[p + 1]]) for p in of]  # fmt: skip
    used, fastest = np.zeros(len(links[0])), np.zeros(len(links[0]))
    for r, (link, coef) in zip(rate, crossed, strict=True):
        np.add.at(used, link, r * coef)
        np.maximum.at(fastest, link, r)
    room = links.capacity_bytes_per_s
    assert (used <= room * (1 + 1e-9)).all()
    full = used >= room * (1 - 1e-9)
    for r, (link, _) in zip(rate, crossed, strict=True):
        assert (full[link] & (r >= fastest[link] * (1 - 1e-7))).any()


def rails(nvlink, nic, alpha, inter_alpha):
    """Two hosts of four on four rails: every flow of a ring, or of a tree's level, is alone."""
    return Fabric(
        "rails", 2, 4, scale_up=ScaleUp(LinkClass("nvlink", nvlink, alpha_ns=alpha), 4),
        nic=Nic(LinkClass("nic", nic, alpha_ns=inter_alpha), 4, (0, 1, 2, 3), (0,) * 4),
        network=Network("rail", 2, 4),
    )  # fmt: skip


better = st.floats(1.0, 10.0)


@QUIET
@given(
    st.sampled_from([("all_reduce", "ring"), ("all_gather", "ring"), ("all_reduce", "tree"),
                     ("all_reduce", "halving-doubling"), ("broadcast", "tree")]),
    better, better, better, better, better,
)  # fmt: skip
def test_faster_links_or_fewer_bytes_never_take_longer(call, nvlink, nic, alpha, far, less):
    def took(*parts, size=1e7):
        return cost.collective_time_ns(rails(*parts), *call, range(8), size)

    base = (100e9, 20e9, 3e3, 9e3)
    better_by = (nvlink, nic, 1 / alpha, 1 / far)
    whole = took(*base)
    for k in range(4):
        one = list(base)
        one[k] *= better_by[k]
        assert took(*one) <= whole * (1 + 1e-12)
    assert took(*base, size=1e7 / less) <= whole * (1 + 1e-12)


@QUIET
@given(fabrics(), st.sampled_from(CALLS), better)
def test_without_latency_everything_twice_as_fast_takes_half(fabric, call, by):
    """Also where links are shared: times are bytes over bytes a second, and nothing else."""

    def free(link, factor):
        return replace(
            link, bandwidth_bytes_per_s=link.bandwidth_bytes_per_s * factor, alpha_ns=0.0
        )

    def scaled(factor):
        up, nic, pcie, net = fabric.scale_up, fabric.nic, fabric.pcie, fabric.network
        return replace(
            fabric,
            scale_up=replace(up, link=free(up.link, factor)),
            nic=replace(nic, link=free(nic.link, factor)),
            pcie=pcie and replace(pcie, link=free(pcie.link, factor)),
            network=replace(net, leaf=free(net.leaf, factor)),
        )  # fmt: skip

    gpus = range(min(fabric.gpus, 12))
    one, faster = (cost.collective_time_ns(scaled(x), *call, gpus, 1e7) for x in (1.0, by))
    assert faster == pytest.approx(one / by, rel=1e-6)
    half = cost.collective_time_ns(scaled(1.0), *call, gpus, 1e7 / by)
    assert half == pytest.approx(faster, rel=1e-6)
