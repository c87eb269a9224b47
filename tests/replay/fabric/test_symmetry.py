"""Ranks that fare alike, simulated as one: equal to the whole simulation on random fabrics."""

import numpy as np
import pytest
from hypothesis import HealthCheck, assume, given, settings
from hypothesis import strategies as st
from retime.replay.fabric import (
    Background,
    Fabric,
    LinkClass,
    Network,
    Nic,
    Pcie,
    ScaleUp,
    TrafficClass,
    cost,
    graph,
    named,
    orbits,
    uniform,
)
from retime.replay.fabric import symmetry as y
from retime.replay.fabric.long_rings import long_ring_ns
from retime.replay.fabric.placed import Part, Setting, links_of, place
from retime.replay.fabric.rounds import decompose
from retime.replay.fabric.simulate import simulate

CALLS = [
    ("all_to_all", "direct", {}),
    ("all_to_all", "pairwise", {}),
    ("all_to_all", "windowed", {}),
    ("all_reduce", "ring", {}),
    ("all_reduce", "halving-doubling", {}),
    ("all_reduce", "double-tree", {}),
    ("all_gather", "direct", {}),
    ("reduce_scatter", "bruck", {}),
    ("broadcast", "tree", {}),
    ("gather", "direct", {}),
]


@st.composite
def fabrics(draw, symmetric=False):
    """Random fabrics of 8 to 64 GPUs: NVLink, PCIe or both, rails, oversubscription, incast."""
    per = draw(st.sampled_from([2, 4, 8]))
    hosts = draw(st.integers(max(1, 8 // per), 64 // per))
    gamma = draw(st.sampled_from([0.0, 0.0, 0.05]))
    nvlink = LinkClass("nvlink", 450e9, alpha_ns=700.0)
    pcie = draw(st.booleans())
    rails = draw(st.sampled_from([1, 2, per])) if pcie else per
    serves = tuple(i * rails // per for i in range(per))
    switches = draw(st.sampled_from([0, 2])) if pcie else 0
    under = (switches or 1) if pcie else 1
    background = ()
    if not symmetric and hosts > 1 and draw(st.booleans()):
        background = (Background("nic_tx host 1" + (" rail 0" if rails > 1 else ""), 0.4),)
    return Fabric(
        "random", hosts, per,
        scale_up=ScaleUp(nvlink, per, draw(st.sampled_from(["switch", "full"]))),
        pcie=Pcie(LinkClass("pcie", 64e9, 0.8, alpha_ns=300.0), switches=switches)
        if pcie else None,
        nic=Nic(LinkClass("nic", 50e9, alpha_ns=1300.0, incast_gamma=gamma), rails, serves,
                tuple(r * under // rails for r in range(rails))),
        network=Network(
            draw(st.sampled_from(["rail", "tor"])), draw(st.sampled_from([1, 2, 4])), 4,
            draw(st.sampled_from([1.0, 3.0])), leaf=LinkClass("leaf", alpha_ns=900.0),
        ),
        background=background,
    )  # fmt: skip


def laid_out(fabric, op, algo, gpus, size, **options):
    made = decompose(op, algo, len(gpus), size, **options)
    net = graph(fabric)
    return place(net, links_of(net), [Part(made, gpus)], Setting())[:3]


@settings(deadline=None, max_examples=40, suppress_health_check=[HealthCheck.too_slow])
@given(fabrics(), st.sampled_from(CALLS), st.integers(0, 999))
def test_classes_end_when_their_flows_do(fabric, call, seed):
    op, algo, options = call
    random = np.random.default_rng(seed)
    gpus = random.permutation(fabric.gpus)[: random.integers(2, min(fabric.gpus, 16) + 1)]
    if seed % 2:
        gpus = np.arange(min(fabric.gpus, 16))
    links, paths, moved = laid_out(fabric, op, algo, gpus, 1e7, **options)
    found = y.quotient(links, paths, moved)
    assert found is not None
    whole, by_class = simulate(links, paths, moved), y.simulate_classes(found)
    assert by_class.start_ns[found.flow_class] == pytest.approx(whole.start_ns, rel=1e-9)
    assert by_class.end_ns[found.flow_class] == pytest.approx(whole.end_ns, rel=1e-9)
    busy = np.append(by_class.link_busy_ns, 0.0)[found.link_class]
    assert busy == pytest.approx(whole.link_busy_ns, rel=1e-9, abs=1e-6)


@settings(deadline=None, max_examples=40, suppress_health_check=[HealthCheck.too_slow])
@given(fabrics(symmetric=True), st.booleans(), st.integers(0, 999))
def test_everybody_to_everybody_by_orbits_is_the_whole_simulation(fabric, everyone, seed):
    random = np.random.default_rng(seed)
    count = fabric.gpus if everyone else random.integers(2, fabric.gpus + 1)
    gpus = np.sort(random.permutation(fabric.gpus)[:count])
    net = graph(fabric)
    of = orbits.tree(net)
    assume(of is not None)
    assert of is not None
    found = uniform.kinds(net, links_of(net), of, gpus, 1e6)
    assert found is not None
    assert found.count.sum() == count * (count - 1)
    whole = simulate(*laid_out(fabric, "all_to_all", "direct", gpus, 1e6 * len(gpus)))
    by_kind = uniform.simulate_kinds(found)
    assert by_kind.time_ns == pytest.approx(whole.time_ns, rel=1e-9)
    assert by_kind.bound_ns == pytest.approx(whole.bound_ns, rel=1e-9)
    ends = np.repeat(by_kind.end_ns, found.count)
    assert np.sort(ends) == pytest.approx(np.sort(whole.end_ns), rel=1e-9)


@settings(deadline=None, max_examples=25, suppress_health_check=[HealthCheck.too_slow])
@given(fabrics(symmetric=True), st.integers(0, 999))
def test_groups_that_lie_alike_take_equally_long(fabric, seed):
    # What placement says is alike: exchange whole hosts of a leaf, and compare.
    random = np.random.default_rng(seed)
    net = graph(fabric)
    of = orbits.tree(net)
    assume(of is not None)
    hosts = np.arange(fabric.hosts)
    leaf = fabric.network.hosts_per_leaf if fabric.network else 1
    for first in range(0, fabric.hosts, leaf):
        hosts[first : first + leaf] = random.permutation(hosts[first : first + leaf])
    one = random.permutation(fabric.gpus)[: min(8, fabric.gpus)]
    per = fabric.gpus_per_host
    other = hosts[one // per] * per + one % per
    assert orbits.placement(net, of, one) == orbits.placement(net, of, other)
    times = [simulate(*laid_out(fabric, "all_reduce", "ring", g, 1e7)).time_ns
             for g in (one, other)]  # fmt: skip
    assert times[0] == pytest.approx(times[1], rel=1e-9)


def test_a_uniform_exchange_needs_a_handful_of_flows():
    fabric = named.preset("multi-plane", 16384)
    net = graph(fabric)
    of = orbits.tree(net)
    assert of is not None
    found = uniform.kinds(net, links_of(net), of, np.arange(fabric.gpus), 61035.0)
    assert found is not None
    assert found.count.sum() == 16384 * 16383
    assert found.quotient.flows.n < 1000


def test_a_load_on_one_link_of_a_kind_is_no_symmetry():
    plain = named.preset("h100", 64)
    assert orbits.tree(graph(plain)) is not None
    loaded = Fabric(**{**plain.__dict__, "background": (Background("nic_tx host 1 rail 0", 0.5),)})
    assert orbits.tree(graph(loaded)) is None
    hashed = graph(plain, ecmp="hash")
    assert orbits.tree(hashed) is None


def test_a_host_more_is_another_orbit():
    # 3 hosts over leaves of 2: the two that share a leaf are one orbit, the third another.
    fabric = Fabric(
        "three", 3, 2, scale_up=ScaleUp(LinkClass("nvlink", 450e9), 2),
        nic=Nic(LinkClass("nic", 50e9), 2, (0, 1), (0, 0)), network=Network("rail", 2, 4),
    )  # fmt: skip
    net = graph(fabric)
    of = orbits.tree(net)
    assert of is not None
    found = orbits.orbits(net, of, np.arange(6))
    assert len(set(found.gpu.tolist())) == 4
    assert found.gpu[0] == found.gpu[2] != found.gpu[4]


@pytest.mark.parametrize("op", ["all_reduce", "all_gather"])
@pytest.mark.parametrize("name", ["h100", "pcie-consumer", "roce-rail"])
def test_long_rings_are_told_from_their_first_rounds(op, name, monkeypatch):
    monkeypatch.setattr("retime.replay.fabric.long_rings.LONG_FLOWS", 1000)
    fabric = named.preset(name, 64)
    net = graph(fabric)
    gpus = np.arange(64)
    told = long_ring_ns(net, links_of(net), op, gpus, 1e9, Setting())
    whole = simulate(*laid_out(fabric, op, "ring", gpus, 1e9)).time_ns
    assert told == pytest.approx(whole, rel=1e-9)


def test_a_traffic_class_survives_in_the_quotient():
    fabric = named.preset("h100", 16)
    fabric = Fabric(**{**fabric.__dict__, "traffic": (TrafficClass("bulk", 0.25),)})
    ring = np.arange(16)
    both = [cost.Collective("all_reduce", "ring", ring, 1e8),
            cost.Collective("all_reduce", "ring", ring, 1e8, traffic="bulk")]  # fmt: skip
    times = cost.concurrent_times(fabric, both)
    # A share of 1/4 is less than the fair half: nothing changes.
    assert times[0] == pytest.approx(times[1], rel=1e-6)
