"""NCCL's tuning model against worked latencies, and against tables and choices that NCCL printed.

Worked latencies: arithmetic on the constants of NVIDIA/nccl src/graph/tuning.cc. Printed ones: NCCL
2.29.2 on 2, 4 and 6 H100 (github.com/waynehacking8/nccl-collectives-bench).
"""

from __future__ import annotations

import re
from collections.abc import Iterator

import numpy as np
import polars as pl
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from retime.ingest.errors import UsageError
from retime.replay.models import NoModel, nccl
from retime.replay.models import nccl_machines as machines

BENCH = "nccl_logs/nccl-collectives-bench"
A = {name: i for i, name in enumerate(nccl.ALGORITHMS)}
MIB = 1 << 20


def latencies(comm, op="all_reduce"):
    return nccl.tuning(comm, op).latency_us


def test_one_node_of_eight():
    found = latencies(machines.comm("h100", 8))
    # Ring: 6.6 + 14*.6, 14 + 14*1.9, 8.4 + 14*3.4; tree: base + 14 hops of .6, 1.25, 4.0.
    assert found[A["ring"]] == pytest.approx([15.0, 40.6, 56.0])
    assert found[A["tree"]] == pytest.approx([15.2, 31.5, 64.4])
    assert found[A["nvls"], nccl.SIMPLE] == 25


def test_two_nodes_of_eight():
    found = latencies(machines.comm("a100", 16, 2))
    # Ring, Simple: 8.4 + 28 * 3.4 + 2 * 14; tree: 8.4 + 2 * (7 * 4 + 14).
    assert found[A["ring"], nccl.SIMPLE] == pytest.approx(131.6)
    assert found[A["tree"], nccl.SIMPLE] == pytest.approx(92.4)


def test_sixteen_nodes_of_eight():
    found = latencies(machines.comm("h100", 128, 16, collnet=True))
    # Intel hosts post in 1 us (3 us for Simple): 254 steps, 30 of them between nodes.
    assert found[A["ring"]] == pytest.approx([311.6, 559.6, 1190])
    assert found[A["tree"]] == pytest.approx([55.2, 99.5, 176.4])
    assert found[A["nvls"], nccl.SIMPLE] == 43
    assert found[A["nvls_tree"], nccl.SIMPLE] == pytest.approx(192.2)
    # Direct: 2 * (3.7 + 7 * .4) + 31; chain: 14 * 2.8 + 30.
    assert found[A["collnet_direct"], nccl.SIMPLE] == pytest.approx(44)
    assert found[A["collnet_chain"], nccl.SIMPLE] == pytest.approx(69.2)


def test_a_rank_a_node_pays_a_trees_hop():
    # 2 nodes of 1: 6.6 + 2*5, 14 + 2*8.5, 8.4 + 2*14; PAT of 16: 8 + 4 * 14 / 3.5 + 16 * 2.8.
    found = latencies(machines.comm("v100", 2, 2))
    assert found[A["ring"]] == pytest.approx([16.6, 31.0, 36.4])
    found = latencies(machines.comm("h100", 16, 16), "all_gather")
    assert found[A["pat"], nccl.SIMPLE] == pytest.approx(68.8)


def test_amd_hosts_post_later_and_nics_add_twice_for_simple():
    intel, amd = (latencies(machines.comm("a100", 16, 2, cpu=cpu)) for cpu in ("intel", "amd"))
    # 28 hops inside cost max(hop, overhead): LL .6 -> 1 and 2 us; Simple 3.4 -> 3.4 and 6.
    ring = amd[A["ring"]] - intel[A["ring"]]
    assert ring == pytest.approx([28, 28 * 0.1, 28 * 2.6])
    late = latencies(machines.comm("a100", 16, 2, nic_latency_us=1.0))
    assert (late - intel)[A["ring"]] == pytest.approx([2, 2, 4])


OPS = {
    "Broadcast": "broadcast",
    "Reduce": "reduce",
    "AllGather": "all_gather",
    "ReduceScatter": "reduce_scatter",
    "AllReduce": "all_reduce",
}
WORDS = {
    "Tree": "tree",
    "Ring": "ring",
    "CollNetDirect": "collnet_direct",
    "CollNetChain": "collnet_chain",
    "NVLS": "nvls",
    "NVLSTree": "nvls_tree",
    "PAT": "pat",
}


def printed(text: str) -> Iterator[tuple[str, str, int, float, float]]:
    """(op, algorithm, protocol, latency, bandwidth) of every cell of a printed tuning table."""
    algos: list[str] = []
    for line in text.splitlines():
        if found := re.search(r"INFO +Algorithm +\|(.*)", line):
            algos = found[1].replace("|", " ").split()
        found = re.search(r"INFO +(\w+) \|((?: +[\d.]+/ *[\d.]+ \|)+)$", line.rstrip())
        if found is None or found[1] not in OPS:
            continue
        cells = re.findall(r"([\d.]+)/ *([\d.]+)", found[2])
        for i, (latency, bandwidth) in enumerate(cells):
            yield OPS[found[1]], WORDS[algos[i // 3]], i % 3, float(latency), float(bandwidth)


@pytest.mark.parametrize("gpus", [2, 4, 6])
def test_the_table_that_nccl_printed(retime_traces, gpus):
    text = (retime_traces / BENCH / "scaling_attributed" / f"g{gpus}_auto.log").read_text()
    cells = list(printed(text))
    assert len(cells) == 5 * 7 * 3
    comm = machines.comm("h100", gpus)
    held = 0
    for op, algo, proto, latency, bandwidth in cells:
        table = nccl.tuning(comm, op)
        # To the tenth that is printed; the library reckons in single precision.
        assert table.bandwidth_gbps[A[algo], proto] == pytest.approx(bandwidth, abs=0.051)
        if bandwidth:
            assert table.latency_us[A[algo], proto] == pytest.approx(latency, abs=0.051)
            held += 1
    # 3 of ring for five operations, 3 of tree for one, NVLS for three.
    assert held == 21


@pytest.mark.parametrize("gpus", [2, 4, 6])
def test_the_choice_that_nccl_made(retime_traces, gpus):
    """Left to itself NCCL ran rings on 2 and 4 GPUs and NVLS on 6; so says the model: 18 of 18.

    The logs hold all-reduces of 256 MiB to 8 GiB only: nothing is said of smaller ones.
    """
    text = (retime_traces / BENCH / "scaling_attributed" / f"g{gpus}_auto.log").read_text()
    told = set(re.findall(r"AllReduce: (\d+) Bytes -> Algo (\w+) proto (\w+)", text))
    sizes = np.array([int(size) for size, _, _ in sorted(told)])
    assert sorted(sizes) == [256 * MIB << k for k in range(6)]
    chosen = nccl.choice(machines.comm("h100", gpus), "all_reduce", sizes).names()
    assert [(a, p.upper()) for a, p in chosen] == [(a.lower(), p) for _, a, p in sorted(told)]


def curve(path) -> pl.DataFrame:
    """(bytes, microseconds) of the out-of-place columns of an nccl-tests output."""
    rows = re.findall(r"^ +(\d+) +\d+ +float +sum +-1 +([\d.]+)", path.read_text(), re.MULTILINE)
    return pl.DataFrame(
        {"bytes": [int(b) for b, _ in rows], "us": [float(t) for _, t in rows]}
    ).filter(pl.col("bytes") > 0)


def test_how_the_model_holds_as_a_prediction(retime_traces):
    """4 H100, all-reduce left to NCCL: within 7 % from 2 MiB on, less than half of it below.

    What is measured up to 16 KiB is a floor of 23 us, 2.2 to 2.5 times the modelled 10.2.
    """
    found = curve(retime_traces / BENCH / "all_reduce.txt")
    assert len(found) == 31
    comm = machines.comm("h100", 4)
    size = found["bytes"].to_numpy()
    ratio = found["us"].to_numpy() * 1e3 / nccl.choice(comm, "all_reduce", size).time_ns
    assert ((ratio > 0.95) & (ratio < 1.07))[size >= 2 * MIB].all()
    assert ((ratio > 2.2) & (ratio < 2.5))[size <= 16 << 10].all()


@pytest.mark.parametrize(
    ("algo", "proto", "measured_us", "ratio"),
    [
        # Out of place, 256 MiB, 4 H100; the sweeps of algorithms and protocols.
        ("ring", "Simple", 1187.29, 1.03),
        ("ring", "LL", 2741.05, 0.96),
        ("ring", "LL128", 1288.51, 1.04),
        ("tree", "Simple", 1706.78, 0.93),
        ("nvls", "Simple", 1120.54, 0.66),
    ],
)
def test_forced_algorithms_and_protocols(retime_traces, algo, proto, measured_us, ratio):
    """Rings and trees hold within 8 %; NVLS does not: a third faster than the library thinks.

    So NCCL chooses rings on 4 GPUs although NVLS took 6 % less time there.
    """
    sweeps = "".join(
        (retime_traces / BENCH / f"{name}_sweep.txt").read_text() for name in ("algo", "proto")
    )
    assert f" {measured_us} " in sweeps
    times = nccl.times_ns(machines.comm("h100", 4), "all_reduce", 256 * MIB)
    took_us = times[A[algo], nccl.PROTOCOLS.index(proto)] / 1e3
    assert measured_us / took_us == pytest.approx(ratio, abs=0.006)


@pytest.mark.parametrize("machine", machines.machines())
@settings(max_examples=25, deadline=None)
@given(
    nodes=st.integers(1, 40), local=st.integers(1, 8), size=st.integers(0, 1 << 36),
    collnet=st.booleans(),
)  # fmt: skip
def test_every_communicator_has_a_choice(machine, nodes, local, size, collnet):
    if nodes * local < 2:
        return
    comm = machines.comm(machine, nodes * local, nodes, collnet=collnet)
    for op in nccl.operations():
        times = nccl.times_ns(comm, op, size)
        chosen = nccl.choice(comm, op, size)
        assert chosen.time_ns == np.nanmin(times)
        assert times[chosen.algo, chosen.proto] == chosen.time_ns
        table = nccl.tuning(comm, op)
        assert (table.bandwidth_gbps >= 0).all()
        # Nothing but Simple outside rings and trees; no NVLS tree on one node.
        assert not table.bandwidth_gbps[2:, : nccl.SIMPLE].any()
        if nodes == 1:
            assert not table.bandwidth_gbps[A["nvls_tree"]].any()


def test_trees_sag_at_medium_sizes():
    # 512 KiB: lg(8192) = 13, Simple x .5; 128 MiB: lg(2^21), x .9.
    comm = machines.comm("a100", 8)
    table = nccl.tuning(comm, "all_reduce")
    for size, factor in ((512 << 10, 0.5), (128 * MIB, 0.9), (1 << 40, 1.0), (1, 0.9)):
        took = nccl.times_ns(comm, "all_reduce", size)[A["tree"], nccl.SIMPLE]
        wire = size / (table.bandwidth_gbps[A["tree"], nccl.SIMPLE] * factor)
        assert took == pytest.approx(64_400 + wire)


SAGS = {
    "LL": "1 1 1 1 .9 .8 .7 .7 .7 .7 .6 .5 .4 .4 .5 .6 .7 .8 .9 1 1 1 1 1",
    "LL128": "1 1 1 1 1 .9 .8 .8 .8 .7 .6 .6 .6 .6 .6 .6 .8 .9 .9 .9 .9 1 1 1",
    "Simple": ".9 .9 .9 .9 .9 .9 .9 .8 .7 .6 .6 .5 .5 .5 .5 .6 .7 .8 .7 .7 .8 .9 .9 .9",
}
"""By floor(lg(bytes / 64)): 64 B to 512 MiB (tuning.cc of 2.30; versions before have one less)."""


@pytest.mark.parametrize("proto", SAGS)
def test_the_whole_row_of_what_trees_lose(proto):
    comm = machines.comm("a100", 8)
    at = A["tree"], nccl.PROTOCOLS.index(proto)
    table = nccl.tuning(comm, "all_reduce")
    factor = np.array([float(x) for x in SAGS[proto].split()])
    sizes = 64.0 * 2 ** np.arange(len(factor) + 1)
    took = nccl.times_ns(comm, "all_reduce", sizes)[at]
    wire = sizes / (table.bandwidth_gbps[at] * np.append(factor, 1.0))
    np.testing.assert_allclose(took, 1e3 * table.latency_us[at] + wire)


@pytest.mark.parametrize(
    ("machine", "tree", "ring_ll128", "ll_max"),
    [
        # GB/s: a channel of a tree on 1, 2 and 4 nodes, of a ring by LL128, LL in all on one node.
        ("a100", (24.0, 23.6, 17.8), 20.0, 87.7),
        ("h100", (38.7, 41.4, 36.0), 36.7, 141.0),
        ("b200", (70.0, 42.8, 24.0), 40.0, 282.0),
    ],
)
def test_caps_of_a_generation(machine, tree, ring_ll128, ll_max):
    # Four channels that carry more than any cap: trees move half of what their bus does, rings
    # n / steps of it. LL of one node has a cap for all channels together: eight reach it.
    for nodes, cap in zip((1, 2, 4), tree, strict=True):
        n = 8 * nodes
        comm = machines.comm(machine, n, nodes, channels=4, channel_gbps=1000.0)
        table = nccl.tuning(comm, "all_reduce").bandwidth_gbps
        assert table[A["tree"], nccl.SIMPLE] == pytest.approx(4 * cap / 2)
        assert table[A["ring"], 1] == pytest.approx(4 * ring_ll128 * n / (2 * (n - 1)))
    one = nccl.tuning(machines.comm(machine, 8, channels=8, channel_gbps=1000.0), "all_reduce")
    assert one.bandwidth_gbps[A["ring"], nccl.LL] == pytest.approx(ll_max * 8 / 14)


def test_what_protocols_and_switches_reach_of_a_bus():
    # 2 channels of 10 GB/s, under every cap: a tree .92 of it, LL a 3.8th, LL128 7/9 on one node
    # and 120/128 on two; a ring LL half, LL128 .92; halved by a tree, times n/steps by a ring.
    for nodes, ll128 in ((1, 7 / 9), (2, 120 / 128)):
        n = 8 * nodes
        comm = machines.comm("a100", n, nodes, channels=2, channel_gbps=10.0)
        table = nccl.tuning(comm, "all_reduce").bandwidth_gbps
        bus = np.array([0.92 / 3.8, 0.92 * ll128, 0.92]) * 20
        assert table[A["tree"]] == pytest.approx(bus / 2)
        assert table[A["ring"]] == pytest.approx(np.array([0.5, 0.92, 1]) * 20 * n / (2 * (n - 1)))


@pytest.mark.parametrize(("machine", "reduced", "gathered"), [("h100", 272.0, 208.25),
                                                              ("b200", 411.43, 362.6)])  # fmt: skip
def test_what_the_switch_reaches(machine, reduced, gathered):
    # 8 channels of 40 (H100) and 80 GB/s (B200: 721.8 / 9 allows it): .85 and .74 are reached and
    # one of eight is lost. Reduced: twice that, at most the 90 that a B200's channel goes out with,
    # times 8/14; gathered: 7/8 of it.
    comm = machines.comm(machine, 8)
    at = A["nvls"], nccl.SIMPLE
    assert nccl.tuning(comm, "all_reduce").bandwidth_gbps[at] == pytest.approx(reduced, abs=0.01)
    assert nccl.tuning(comm, "all_gather").bandwidth_gbps[at] == pytest.approx(gathered, abs=0.01)


def test_rings_over_nodes_reach_a_plateau():
    # 16 channels x 16 ranks x 64 B: from 16 KiB on the latency of 131.6 us counts 1.4 times.
    comm = machines.comm("a100", 16, 2)
    assert comm.channels == 16
    ring = nccl.times_ns(comm, "all_reduce", [16383, 16384])[A["ring"], nccl.SIMPLE]
    wire = 16384 / nccl.tuning(comm, "all_reduce").bandwidth_gbps[A["ring"], nccl.SIMPLE]
    assert ring[0] == pytest.approx(131_600 + wire, rel=1e-4)
    assert ring[1] == pytest.approx(1.4 * 131_600 + wire)


def test_before_ampere_the_plateau_is_higher():
    # 2 x 8 V100: 8.4 + 28 * 3.4 + 2 * 14 again; 1.9 times from 64 B a channel and rank on.
    comm = machines.comm("v100", 16, 2)
    at = A["ring"], nccl.SIMPLE
    size = 64 * 16 * comm.channels
    few, many = nccl.times_ns(comm, "all_reduce", [size - 1, size])[at]
    wire = size / nccl.tuning(comm, "all_reduce").bandwidth_gbps[at]
    assert few == pytest.approx(131_600 + wire, rel=1e-4)
    assert many == pytest.approx(1.9 * 131_600 + wire)


def test_operations_launched_together_share_latency_but_in_rings():
    comm = machines.comm("h100", 8)
    alone, together = (nccl.times_ns(comm, "all_reduce", 0, calls) for calls in (1, 8))
    assert together[A["ring"]] == pytest.approx(8 * alone[A["ring"]])
    assert together[A["tree"]] == pytest.approx(alone[A["tree"]])


def test_more_channels_carry_more():
    few, many = (
        nccl.tuning(machines.comm("h100", 8, channels=c, channel_gbps=15), "all_reduce")
        for c in (8, 16)
    )
    assert many.bandwidth_gbps[A["ring"], nccl.SIMPLE] == pytest.approx(
        2 * few.bandwidth_gbps[A["ring"], nccl.SIMPLE]
    )


def test_what_the_model_refuses():
    with pytest.raises(UsageError, match="v100, a100, h100"):
        machines.comm("tpu", 8)
    with pytest.raises(UsageError, match="do not divide over 3 nodes"):
        machines.comm("h100", 8, 3)
    with pytest.raises(UsageError, match="has 8 GPUs; give more nodes"):
        machines.comm("h100", 16)
    with pytest.raises(UsageError, match="CPU 'riscv'; there are intel, amd, arm"):
        machines.comm("h100", 8, cpu="riscv")
    with pytest.raises(UsageError, match="1000 channels: NCCL has 1 to 128"):
        machines.comm("h100", 8, channels=1000)
    with pytest.raises(NoModel, match="NCCL tunes no 'all_to_all'"):
        nccl.tuning(machines.comm("h100", 8), "all_to_all")


@pytest.mark.parametrize(
    ("device", "machine"),
    [
        ("NVIDIA H100 80GB HBM3", "h100"),
        ("NVIDIA A100-SXM4-80GB", "a100"),
        ("Tesla V100-SXM2-16GB", "v100"),
        ("NVIDIA GB200", "b200"),
        ("AMD Instinct MI300X", None),
        (None, None),
    ],
)
def test_machine_of_a_device(device, machine):
    assert machines.of_device(device) == machine
