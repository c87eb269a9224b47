"""Presets against published sizes and bandwidths: the figure and its source beside each."""

import math

import pytest
from retime.replay.calibration import machines
from retime.replay.fabric import BadFabric, Fabric, figures, graph, preset, presets


def test_multi_plane_is_eight_two_tier_fat_trees_of_2048():
    # Two tiers of radix R, 1:1: R leaves of R/2 endpoints, R/2 spines, R^2/2 = 2048 endpoints at
    # R = 64; one tree for each of a host's eight NICs: 16,384 GPUs, DeepSeek-V3's figure
    # (arXiv 2505.09343).
    fabric = preset("multi-plane")
    radix = fabric.network.radix
    assert radix == 64
    assert fabric.gpus == 8 * radix**2 // 2 == 16_384
    assert figures.switches(fabric) == {"leaves": 8 * radix, "spines": 8 * radix // 2}


def test_multi_plane_ends_where_its_spines_have_no_port_left():
    with pytest.raises(BadFabric, match="pods of up to 2048 hosts"):
        preset("multi-plane", 16_384 + 8 * 32)


def test_hpn_has_fifteen_segments_of_1024_gpus_a_pod():
    # Alibaba HPN (SIGCOMM 2024, second-hand): 15 segments of 1,024 GPUs, 15,360 a pod; eight NICs
    # of two 200 Gb/s ports, 16 leaves a segment (8 rails, 2 planes).
    fabric = preset("hpn", 15_360)
    assert (fabric.segments, fabric.pods) == (15, 1)
    assert fabric.nic.count * fabric.nic.planes == 16
    assert figures.switches(fabric)["leaves"] == 15 * 16
    # A spine: 15 segments x 8 rails = 120 of its 128 ports to leaves, 8 to the core, 15:1.
    net = fabric.network
    assert 15 * 8 == 120
    assert net.radix - 120 == 120 / net.core_oversubscription
    # A leaf: 128 ports of 200 Gb/s down, 60 of 400 Gb/s up.
    split = graph(fabric, ecmp="hash")
    up = split.blocks["leaf_up"]
    assert up.shape == (15, 8, 2, 60)
    assert split.link_capacity_bytes_per_s[up.first] == pytest.approx(50e9 * 0.97)
    port = split.blocks["nic_tx"]
    assert split.link_capacity_bytes_per_s[port.first] == pytest.approx(25e9 * 0.97)


def test_hpns_other_account_fits_the_same_keys():
    # Another account: 64 uplinks of 400 Gb/s a leaf, 1:1; 8 segments, 8,192 GPUs a pod.
    from importlib import resources

    from retime.replay.fabric import load

    text = (resources.files("retime.replay.fabric") / "presets/hpn.toml").read_text()
    for old, new in (
        ("uplinks = 60 ", "uplinks = 64 "),
        ("hosts_per_pod = 1920", "hosts_per_pod = 1024"),
        ("oversubscription = 1.0666666666666667", "oversubscription = 1"),
    ):
        assert old in text
        text = text.replace(old, new)
    fabric = load(text, gpus=8192)
    assert (fabric.segments, fabric.pods) == (8, 1)
    links = graph(fabric, ecmp="hash")
    leaf = links.blocks["leaf_up"]
    assert leaf.shape == (8, 8, 2, 64)
    assert links.link_capacity_bytes_per_s[leaf.first] == pytest.approx(50e9 * 0.97)


def test_nvl72_carries_129_6_tb_s():
    # 72 x 1.8 TB/s both ways (vendor); 18 links of 50 GB/s each way.
    fabric = preset("gb200-nvl72")
    assert (fabric.gpus, fabric.hosts) == (72, 18)
    rate = fabric.scale_up.link.bandwidth_bytes_per_s
    assert rate == 18 * 50e9
    assert 72 * 2 * rate == pytest.approx(129.6e12)


@pytest.mark.parametrize(
    ("name", "nvlink", "nic"),
    [
        # NCCL's topo.h (links x what one carries): 18 x 20.6, 18 x 40.1, 12 x 20; SimAI's
        # calbusbw.h: 48.5 of 50 and 23.5 of 25 GB/s. H800: DeepEP's dispatch, 153 GB/s.
        ("h100", 370.8e9, 48.5e9),
        ("h20", 370.8e9, 48.5e9),
        ("b200", 721.8e9, 48.5e9),
        ("gb200-nvl72", 721.8e9, 48.5e9),
        ("a100", 240e9, 23.5e9),
        ("h800", 153e9, 48.5e9),
    ],
)
def test_bandwidths_that_are_reached(name, nvlink, nic):
    fabric = preset(name)
    assert fabric.scale_up.link.usable_bytes_per_s == pytest.approx(nvlink, rel=2e-4)
    assert fabric.nic.link.usable_bytes_per_s == pytest.approx(nic, rel=2e-4)
    known = machines.named(fabric.device)
    assert fabric.scale_up.link.usable_bytes_per_s == pytest.approx(known.intra_bytes_per_s, 2e-4)
    assert fabric.nic.link.usable_bytes_per_s == pytest.approx(known.nic_bytes_per_s, 2e-4)


@pytest.mark.parametrize(
    ("name", "pcie", "socket"),
    [
        # PCIe 4 and 5 x16 at 0.8: aiconfigurator, SimAI. Sockets: NCCL's topo.h, AMD 16, ERP 40.
        ("a100", 25.6e9, 16e9),
        ("h100", 51.2e9, 40e9),
        ("b200", 51.2e9, 40e9),
        ("pcie-consumer", 25.6e9, 16e9),
    ],
)
def test_pcie_and_what_joins_sockets(name, pcie, socket):
    found = preset(name).pcie
    assert found is not None
    assert found.link.usable_bytes_per_s == pytest.approx(pcie)
    assert found.socket.usable_bytes_per_s == pytest.approx(socket)


def test_nics_of_the_next_generation():
    # ConnectX-8: 97 of 100 GB/s (aiconfigurator); ConnectX-6 23.5 of 25 (SimAI).
    assert machines.named("NVIDIA B300").nic_bytes_per_s == 97e9
    assert machines.named("NVIDIA A100-SXM4-80GB").nic_bytes_per_s == 23.5e9


def test_hgx_hosts_have_eight_rails():
    for name in ("h100", "h800", "h20", "b200", "roce-rail", "hpn"):
        fabric = preset(name, 64)
        assert (fabric.hosts, fabric.rails, fabric.nic.serves) == (8, 8, tuple(range(8)))
        assert fabric.network.wiring == "rail"


def test_connections_cost_message_rate():
    # "GPU-Initiated Communication Dissected": about 3,000 connections lose 59 % of the rate.
    link = preset("h100").nic.link
    assert link.message_rate_per_s(3000) == pytest.approx(0.41 * link.messages_per_s)
    assert link.message_rate_per_s(500) == link.messages_per_s == 200e6
    rates = [link.message_rate_per_s(q) for q in range(0, 4000, 50)]
    assert rates == sorted(rates, reverse=True)
    assert link.message_rate_per_s(math.inf) == pytest.approx(0.41 * link.messages_per_s)


def test_gpus_scale_hosts():
    assert preset("h100", 1024).hosts == 128
    assert preset("h100", 4).gpus == 8  # less than a host is one host
    with pytest.raises(BadFabric, match="96 or 104 would"):
        preset("h100", 100)
    with pytest.raises(BadFabric, match="72 or 144 would"):
        preset("gb200-nvl72", 100)
    with pytest.raises(BadFabric, match="1 or more"):
        preset("h100", 0)
    with pytest.raises(BadFabric, match="at most"):
        preset("h100", 8 << 20)


def test_a_rack_can_be_partly_filled():
    fabric = preset("gb200-nvl72", 16)
    assert isinstance(fabric, Fabric)
    assert (fabric.gpus, fabric.domain_gpus) == (16, 72)
    assert figures.bisection(graph(fabric)).bytes_per_s == pytest.approx(8 * 721.8e9)


def test_there_is_a_preset_for_every_kind_of_machine():
    assert set(presets()) >= {
        "h100", "h800", "h20", "b200", "gb200-nvl72", "multi-plane", "hpn", "roce-rail",
        "pcie-consumer", "wafer",
    }  # fmt: skip
