"""Links by arithmetic and routes over them: every route is a walk, every cut is what it should be.

The oracles are a walk over tails and heads, and a maximum flow by shortest augmenting paths
(Edmonds and Karp 1972) on the same links, which knows nothing of hosts, rails or leaves.
"""

from collections import defaultdict, deque
from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from retime.ingest.errors import UsageError
from retime.replay.fabric import (
    Background,
    BadFabric,
    Fabric,
    LinkClass,
    Network,
    Nic,
    Package,
    Pcie,
    ScaleUp,
    auto_rail,
    figures,
    graph,
    preset,
    presets,
    route,
)

NVLINK = LinkClass("nvlink", 450e9, 0.8, 700)
PCIE = LinkClass("pcie", 64e9, 0.8)
SOCKET = LinkClass("socket", 40e9)
MEMORY = LinkClass("memory", 100e9)
NIC = LinkClass("nic", 50e9, 0.97, 1300)
LEAF = LinkClass("leaf", 0.0, 0.97, 900)


@st.composite
def fabrics(draw) -> Fabric:
    """Whole machines of up to 24 hosts of 1 to 8 GPUs, wired in every way."""
    gpus = draw(st.sampled_from([1, 2, 4, 8]))
    divisors = [d for d in (1, 2, 4, 8) if gpus % d == 0]
    sockets = draw(st.sampled_from([d for d in divisors if d <= 2]))
    switches = draw(st.sampled_from([0, *(d for d in divisors if d % sockets == 0)]))
    p2p, direct = draw(st.booleans()), draw(st.booleans())
    pcie = Pcie(PCIE, sockets, switches, socket=SOCKET, memory=MEMORY, p2p=p2p, gpu_direct=direct)
    rails = draw(st.sampled_from(divisors))
    serves = tuple(draw(st.permutations([g * rails // gpus for g in range(gpus)])))
    at = tuple(draw(st.integers(0, (switches or sockets) - 1)) for _ in range(rails))
    nic = Nic(NIC, rails * draw(st.sampled_from([1, 2])), serves, at, draw(st.sampled_from([1, 2])))
    wiring = draw(st.sampled_from(["rail", "tor"]))
    per_leaf = draw(st.integers(1, 4))
    hosts = draw(st.integers(1, 24))
    pod = per_leaf * draw(st.sampled_from([0, 1, 2]))
    network = Network(
        wiring,
        per_leaf,
        draw(st.integers(1, 3)),
        draw(st.sampled_from([1.0, 2.0])),
        wiring == "rail" and draw(st.booleans()),
        pod,
        draw(st.sampled_from([1.0, 4.0])),
        LEAF,
        LinkClass("core", 0.0, 0.97, 500),
    )
    domains = [d for d in divisors if d > 1]
    domains += [gpus * k for k in (2, 3) if hosts % k == 0 and gpus * k > 1]
    shape = draw(st.sampled_from(["switch", "full"]))
    up = ScaleUp(NVLINK, draw(st.sampled_from(domains)), shape) if domains else None
    package = None
    if draw(st.booleans()):
        rows, columns = draw(st.sampled_from([d for d in divisors if d <= 2])), 1
        columns = draw(st.sampled_from([d for d in divisors if gpus % (d * rows) == 0]))
        kind = draw(st.sampled_from(["mesh", "tree", "full"]))
        if rows * columns > 1:
            package = Package(LinkClass("die", 1e12, 1.0, 10), rows, columns, kind)
    up = draw(st.sampled_from([up, None]))
    return Fabric("random", hosts, gpus, up, package, pcie, nic, network)


@settings(max_examples=80, deadline=None)
@given(
    fabrics(), st.sampled_from(["spray", "hash"]), st.sampled_from(["auto", "pxn", "receive"]),
    st.integers(0, 2**32),
)  # fmt: skip
def test_every_route_is_a_walk_from_source_to_destination(fabric, ecmp, rail, seed):
    links = graph(fabric, ecmp=ecmp)
    rng = np.random.default_rng(seed)
    src, dst = rng.integers(0, fabric.gpus, (2, 40))
    found = route(links, src, dst, rail=rail, seed=seed)
    assert found.n == 40
    for i, (a, b) in enumerate(zip(src, dst, strict=True)):
        ids = found.of(i)
        passed = [int(a), *links.head[ids].tolist()]
        assert passed[:-1] == links.tail[ids].tolist()
        assert passed[-1] == b
        assert len(set(ids.tolist())) == len(ids)
        assert len(ids) == 0 or a != b
    alpha = [links.link_alpha_ns[found.of(i)].sum() for i in range(40)]
    assert found.alpha_ns(links) == pytest.approx(alpha, rel=1e-9, abs=1e-6)


@settings(max_examples=40, deadline=None)
@given(fabrics(), st.integers(0, 2**32))
def test_many_pairs_at_once_are_each_pair_alone(fabric, seed):
    links = graph(fabric, ecmp="hash")
    src, dst = np.random.default_rng(seed).integers(0, fabric.gpus, (2, 12))
    together = route(links, src, dst, seed=seed)
    for i in range(12):
        alone = route(links, src[i], dst[i], seed=seed)
        assert alone.of(0).tolist() == together.of(i).tolist()


@settings(max_examples=40, deadline=None)
@given(fabrics())
def test_every_link_has_a_name_of_its_own_that_finds_it(fabric):
    links = graph(fabric, ecmp="hash")
    names = [links.name(link) for link in range(links.n)]
    assert len(set(names)) == links.n
    for link in range(0, links.n, max(1, links.n // 7)):
        if links.blocks[names[link].split(" ")[0]].size > 1:
            assert links.select(names[link]).tolist() == [link]
    with pytest.raises(IndexError):
        links.name(links.n)


@settings(max_examples=40, deadline=None)
@given(fabrics())
def test_planes_and_uplinks_add_up_to_what_spraying_has(fabric):
    spray, split = graph(fabric, ecmp="spray"), graph(fabric, ecmp="hash")
    for key, block in spray.blocks.items():
        rates = [
            g.link_capacity_bytes_per_s[g.blocks[key].first : g.blocks[key].last].sum()
            for g in (spray, split)
        ]
        assert rates[0] == pytest.approx(rates[1], rel=1e-9), key
        assert block.size <= split.blocks[key].size


def most_flow(links, sources, sinks) -> float:
    """Bytes a second from a set of GPUs to another, by shortest augmenting paths."""
    left: dict[int, dict[int, float]] = defaultdict(lambda: defaultdict(float))
    for a, b, rate in zip(links.tail, links.head, links.link_capacity_bytes_per_s, strict=True):
        left[int(a)][int(b)] += float(rate)
        left[int(b)][int(a)] += 0.0
    for g in sources:
        left[-1][int(g)] = 1e18
    for g in sinks:
        left[int(g)][-2] = 1e18
    total = 0.0
    while True:
        before = {-1: -1}
        queue = deque([-1])
        while queue and -2 not in before:
            at = queue.popleft()
            for to, rate in left[at].items():
                if rate > 1.0 and to not in before:
                    before[to] = at
                    queue.append(to)
        if -2 not in before:
            return total
        path, at = [], -2
        while at != -1:
            path.append((before[at], at))
            at = before[at]
        pushed = min(left[a][b] for a, b in path)
        for a, b in path:
            left[a][b] -= pushed
            left[b][a] += pushed
        total += pushed


@pytest.mark.parametrize(
    ("name", "gpus"),
    [
        ("h100", 8 * 64), ("a100", 8 * 40), ("gb200-nvl72", 72), ("hpn", 8 * 4), ("mi300x", 8),
        ("roce-rail", 8 * 64), ("pcie-consumer", 8 * 32), ("multi-plane", 512), ("h100", 8),
    ],
)  # fmt: skip
def test_bisection_is_the_maximum_flow_between_halves(name, gpus):
    fabric = preset(name, gpus)
    links = graph(fabric, ecmp="spray")
    middle = fabric.gpus // 2
    oracle = most_flow(links, range(middle), range(middle, fabric.gpus))
    found = figures.bisection(links)
    if fabric.domain_gpus < fabric.gpus:
        assert found.bytes_per_s == pytest.approx(oracle, rel=1e-6)
        return
    # NICs and PCIe beside NVLink would add to the flow; the bound is NVLink's alone.
    spare = middle * fabric.pcie.link.usable_bytes_per_s
    assert found.bytes_per_s == pytest.approx(middle * _scale_up_bytes_per_s(fabric))
    assert found.bytes_per_s <= oracle * (1 + 1e-9)
    assert oracle <= (found.bytes_per_s + spare) * (1 + 1e-9)


def _scale_up_bytes_per_s(fabric) -> float:
    """Of one GPU to the other half: a switch's port, or a link to each of them."""
    rate = fabric.scale_up.link.usable_bytes_per_s
    if fabric.scale_up.shape == "switch":
        return rate
    return rate / (fabric.gpus - 1) * (fabric.gpus // 2)


def test_bisection_of_a_mesh_is_its_shorter_side():
    # 6 x 4 dies: the cut between rows 3 and 4 crosses the 4 columns.
    package = Package(LinkClass("die", 10e9), 6, 4)
    fabric = Fabric("wafer", 1, 24, package=package)
    links = graph(fabric)
    assert figures.bisection(links).bytes_per_s == 40e9
    assert most_flow(links, range(12), range(12, 24)) == pytest.approx(40e9)


def busiest(fabric) -> float:
    """Bytes a second a GPU of an even all-to-all, by routing every pair."""
    links = graph(fabric, ecmp="spray")
    src, dst = (a.ravel() for a in np.indices((fabric.gpus, fabric.gpus)))
    load = np.bincount(route(links, src, dst).links, minlength=links.n)
    used = load > 0
    rate = (links.link_capacity_bytes_per_s[used] / load[used]).min()
    return float(rate) * (fabric.gpus - 1)


@pytest.mark.parametrize(
    ("name", "gpus"),
    [
        ("h100", 512), ("a100", 320), ("gb200-nvl72", 216), ("hpn", 64), ("mi300x", 8),
        ("mi300x", 64), ("roce-rail", 64), ("multi-plane", 512),
        ("pcie-consumer", 8), ("pcie-consumer", 256),
    ],
)  # fmt: skip
def test_all_to_all_bound_is_that_of_every_pair_routed(name, gpus):
    fabric = preset(name, gpus)
    found = figures.all_to_all(graph(fabric, ecmp="spray"))
    assert found.bytes_per_s == pytest.approx(busiest(fabric), rel=1e-9)


@pytest.mark.parametrize("slow", ["", "nic_tx host 9 rail 1", "leaf_down segment 4 rail 0"])
@pytest.mark.parametrize("pod_hosts", [0, 4])
@pytest.mark.parametrize("wiring", ["rail", "tor"])
@pytest.mark.parametrize("domain", [2, 8])
def test_all_to_all_bound_of_alike_pods_is_that_of_every_pair_routed(
    domain, wiring, pod_hosts, slow
):
    # 12 hosts of 2 GPUs, 2 a segment: six segments, or three pods of two; 4 GPUs a pod's domain.
    if wiring == "tor":
        slow = slow.removesuffix(" rail 0")
    fabric = Fabric(
        "pods", 12, 2, scale_up=ScaleUp(LinkClass("nvlink", 400e9), domain),
        pcie=Pcie(LinkClass("pcie", 60e9)), nic=Nic(LinkClass("nic", 50e9), 2, (0, 1), (0, 0)),
        network=Network(wiring, 2, 4, 2.0, hosts_per_pod=pod_hosts, core_oversubscription=3.0),
        background=(Background(slow, 0.9),) if slow else (),
    )  # fmt: skip
    links = graph(fabric)
    found = figures.all_to_all(links)
    whole = every_route_of_the_first_host(links)
    assert found.bytes_per_s == pytest.approx(whole, rel=1e-9)
    if not slow:
        assert found.bytes_per_s == pytest.approx(busiest(fabric), rel=1e-9)


def every_route_of_the_first_host(links):
    """The bound with nobody taken for alike."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(figures, "_unit", lambda links: 0)
        return figures.all_to_all(links).bytes_per_s


@pytest.mark.parametrize("shape", ["mesh", "tree", "full"])
@pytest.mark.parametrize(("rows", "columns"), [(4, 4), (3, 5), (1, 8), (2, 3)])
def test_all_to_all_bound_of_a_package_is_that_of_every_pair_routed(shape, rows, columns):
    package = Package(LinkClass("die", 10e9), rows, columns, shape, 2)
    fabric = Fabric("wafer", 1, rows * columns, package=package)
    assert figures.all_to_all(graph(fabric)).bytes_per_s == pytest.approx(busiest(fabric))


def test_an_all_to_all_never_exceeds_a_gpus_own_nic():
    # nccl-tests issue 267: at most 48 to 49 GB/s a GPU with one 400 Gb/s NIC each.
    found = figures.all_to_all(graph(preset("h100", 1024)))
    off_host = 1016 / 1023
    assert found.bytes_per_s == pytest.approx(48.5e9 / off_host)
    assert found.block in ("nic_tx", "nic_rx")


@pytest.mark.parametrize(
    ("rail", "hops"),
    [
        ("spine", "pcie_tx nic_tx leaf_up leaf_down nic_rx pcie_rx"),
        ("pxn", "scale_up_tx scale_up_rx pcie_tx nic_tx nic_rx pcie_rx"),
        ("receive", "pcie_tx nic_tx nic_rx pcie_rx scale_up_tx scale_up_rx"),
    ],
)
def test_how_rails_are_crossed(rail, hops):
    # Hosts 0 and 1 share leaves: from GPU 3 of one to GPU 5 of the other.
    links = graph(preset("h100", 16))
    found = [links.name(i) for i in route(links, 3, 13, rail=rail).of(0)]
    assert [n.split(" ")[0] for n in found] == hops.split(" ")
    rails = {"spine": (3, 5), "pxn": (5, 5), "receive": (3, 3)}[rail]
    assert f"nic_tx host 0 rail {rails[0]}" in found
    assert f"nic_rx host 1 rail {rails[1]}" in found


def test_same_rail_is_one_leaf_and_other_segments_cross_the_spine():
    links = graph(preset("h100", 1024))
    same = [links.name(i).split(" ")[0] for i in route(links, 0, 8).of(0)]
    assert same == ["pcie_tx", "nic_tx", "nic_rx", "pcie_rx"]
    far = [links.name(i) for i in route(links, 0, 8 * 32).of(0)]
    assert far[2:4] == ["leaf_up segment 0 rail 0", "leaf_down segment 1 rail 0"]
    # One NIC crossing and one of the spine.
    assert route(links, 0, 8 * 32).alpha_ns(links)[0] == pytest.approx(1300 + 900)


def test_pods_are_joined_by_the_core():
    links = graph(preset("h100", 2048))
    keys = [links.name(i).split(" ")[0] for i in route(links, 0, 1024).of(0)]
    assert keys[2:6] == ["leaf_up", "core_up", "core_down", "leaf_down"]


def test_auto_takes_nvlink_first_where_it_saves_a_spine():
    assert auto_rail(preset("h100", 16)) == "pxn"
    assert auto_rail(preset("multi-plane", 16)) == "pxn"
    assert auto_rail(preset("pcie-consumer", 16)) == "spine"


def test_rails_apart_have_no_way_over_the_spine():
    links = graph(preset("multi-plane", 16))
    assert route(links, 0, 8, rail="spine").of(0).size
    with pytest.raises(UsageError, match="pxn or receive"):
        route(links, 0, 9, rail="spine")


def test_a_rack_of_nvlink_needs_no_nic():
    links = graph(preset("gb200-nvl72", 144))
    inside = [links.name(i) for i in route(links, 0, 71).of(0)]
    assert inside == ["scale_up_tx gpu 0", "scale_up_rx gpu 71"]
    assert any(links.name(i).startswith("nic_tx") for i in route(links, 0, 72).of(0))


def test_without_peer_to_peer_bytes_go_through_host_memory():
    links = graph(preset("pcie-consumer", 8))
    near = [links.name(i) for i in route(links, 0, 1).of(0)]
    assert near == ["pcie_tx gpu 0", "memory_write socket 0", "memory_read socket 0",
                    "pcie_rx gpu 1"]  # fmt: skip
    far = [links.name(i).split(" ")[0] for i in route(links, 0, 7).of(0)]
    assert far == ["pcie_tx", "memory_write", "memory_read", "socket", "pcie_rx"]
    # The narrowest is the link between sockets: 16 GB/s (NCCL topo.h, AMD).
    assert route(links, 0, 7).capacity_bytes_per_s(links)[0] == 16e9


def test_a_mesh_goes_along_the_row_first():
    fabric = Fabric("wafer", 1, 12, package=Package(LinkClass("die", 1e9, 1.0, 2.0), 3, 4))
    links = graph(fabric)
    # From row 0, column 3 to row 2, column 1: two west, two south.
    found = route(links, 3, 9)
    assert [links.name(i) for i in found.of(0)] == [
        "die_west row 0 column 2", "die_west row 0 column 1",
        "die_south row 0 column 1", "die_south row 1 column 1",
    ]  # fmt: skip
    assert found.alpha_ns(links)[0] == 8.0


def test_hash_is_repeatable_and_spreads_over_uplinks():
    fabric = preset("h100", 1024)
    links = graph(fabric, ecmp="hash")
    src = np.arange(4096) % 256
    dst = 256 + np.arange(4096) % 256
    flow = np.arange(4096)
    one, again = (route(links, src, dst, seed=7, flow=flow) for _ in range(2))
    other = route(links, src, dst, seed=8, flow=flow)
    assert one.links.tolist() == again.links.tolist()
    assert one.links.tolist() != other.links.tolist()
    up = links.blocks["leaf_up"]
    lane = (one.links[(one.links >= up.first) & (one.links < up.last)] - up.first) % 32
    counts = np.bincount(lane, minlength=32)
    # 4096 balls in 32 bins: 128 each, standard deviation 11; six of them is out of reach.
    assert counts.sum() == 4096
    assert abs(counts - 128).max() < 66


def test_a_port_that_failed_halves_a_dual_plane_nic():
    from retime.replay.fabric import Background

    whole = preset("hpn", 16)
    hurt = replace(whole, background=(Background("nic_tx host 0 rail 2", 0.5),))
    rates = [route(graph(f), 2, 10).capacity_bytes_per_s(graph(f))[0] for f in (whole, hurt)]
    assert rates == pytest.approx([48.5e9, 24.25e9])


def test_background_of_a_link_that_there_is_not():
    from retime.replay.fabric import Background

    fabric = replace(preset("h100", 16), background=(Background("nvlnk", 0.5),))
    with pytest.raises(BadFabric, match="nvlink"):
        graph(fabric)


def test_gpus_that_there_are_not():
    links = graph(preset("h100", 16))
    for bad in (16, -1):
        with pytest.raises(UsageError, match="0 to 15"):
            route(links, bad, 0)
    with pytest.raises(UsageError, match="one of auto"):
        route(links, 0, 1, rail="nvlink")
    assert route(links, [], []).n == 0


@pytest.mark.parametrize("name", presets())
def test_every_preset_joins_all_of_its_gpus(name):
    fabric = preset(name)
    links = graph(fabric)
    rng = np.random.default_rng(0)
    src, dst = rng.integers(0, fabric.gpus, (2, 200))
    found = route(links, src, dst)
    assert (found.capacity_bytes_per_s(links)[src != dst] < np.inf).all()
    assert (np.diff(found.offsets) > 0).tolist() == (src != dst).tolist()
