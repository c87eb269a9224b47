"""Fabrics built from real topologies, against what is known of those machines."""

from pathlib import Path

import numpy as np
import polars as pl
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from retime.ingest.nccl import topology
from retime.ingest.schema import TOPOLOGY
from retime.ingest.source import LocalFile, Source
from retime.replay import graph as task_graph
from retime.replay import load
from retime.replay.fabric import BadFabric, from_topology, graph, route
from retime.replay.policy import ReplayJob


def rows_of(path: Path) -> pl.DataFrame:
    source = Source(str(path), path.stat().st_size, LocalFile(str(path)), path)
    return pl.concat(
        [pl.from_arrow(b) for table, b in topology.parse(source) if table == "topology"]
    )


def ranks_of(device: str | None, hosts: int = 2, each: int = 8) -> pl.DataFrame:
    n = hosts * each
    return pl.DataFrame(
        {
            "rank": list(range(n)),
            "host": [f"host{r // each}" for r in range(n)],
            "device_name": pl.Series([device] * n, dtype=pl.String),
        }
    )


def built(traces: Path, name: str, device: str | None, hosts: int = 2, each: int = 8):
    (path,) = (traces / "topo").rglob(name)
    fabric = from_topology.build(rows_of(path), ranks_of(device, hosts, each))
    assert fabric is not None
    links = graph(fabric)
    everyone = list(range(fabric.gpus))
    assert (route(links, 0, everyone[1:]).capacity_bytes_per_s(links) > 1e9).all()
    return fabric, " | ".join(fabric.assumptions)


A100, H100 = "NVIDIA A100-SXM4-40GB", "NVIDIA H100 80GB HBM3"


@pytest.mark.parametrize(
    ("name", "device", "gpus", "sockets", "switches", "nics", "rails", "nic_gb"),
    [
        # AWS p4d.24xlarge and p4de: 8 A100, two under each of 4 switches, 4 EFA NICs of 100 Gb/s,
        # one a switch (the template's own comment). The NIC's speed is not in the file: what its
        # PCI link carries, 12.6 GB/s, is 1 % over the 12.5 that is known.
        ("p4d-24xl-topo.xml", A100, 8, 2, 4, 4, 4, 12.5),
        ("p4de-24xl-topo.xml", A100, 8, 2, 4, 4, 4, 12.5),
        # AWS p5.48xlarge: 8 H100, 32 EFA NICs of 100 Gb/s, four and a GPU under each bridge; the
        # file has one processor.
        ("p5.48xl-topo.xml", H100, 8, 1, 8, 32, 8, 12.5),
        # Azure ND H100 v5: 8 H100, a 400 Gb/s InfiniBand NIC each.
        ("ndv5-topo.xml", H100, 8, 2, 8, 8, 8, 50.0),
        # Oracle BM.GPU.H100.8: 8 NICs of two ports, which the file says are of 180 Gb/s.
        ("H100-topology.xml", H100, 8, 2, 8, 16, 8, 22.5),
        # Oracle's A100 shape, by class only: four NUMA nodes of 2 GPUs and 2 NICs. No speed: as
        # A100 hosts reach, 23.5 GB/s, over the 0.97 that is taken to be reached.
        ("topo-flattened.xml", A100, 8, 4, 4, 8, 8, 23.5 / 0.97),
        # MI300X: a 400 Gb/s NIC a GPU. MI100 and MI250X hosts of RCCL's models: 200 Gb/s.
        ("topo_8p_940.xml", "AMD Instinct MI300X", 8, 2, 8, 8, 8, 50.0),
        ("topo_8p_rome_4n_1.xml", None, 8, 4, 4, 4, 4, 25.0),
        ("topo_4p4h.xml", None, 16, 1, 2, 16, 16, 25.0),
        ("topo_16p1h.xml", None, 16, 4, 4, 8, 8, 25.0),
    ],
)
def test_inside_of_real_hosts(
    retime_traces, name, device, gpus, sockets, switches, nics, rails, nic_gb
):
    fabric, _ = built(retime_traces, name, device, each=gpus)
    assert (fabric.hosts, fabric.gpus_per_host) == (2, gpus)
    assert (fabric.pcie.sockets, fabric.pcie.switches) == (sockets, switches)
    assert (fabric.nic.count, fabric.nic.rails) == (nics, rails)
    assert fabric.nic.link.bandwidth_bytes_per_s / 1e9 == pytest.approx(nic_gb, rel=0.011)
    # Every GPU's NIC is under its own bridge.
    under = [g * (switches or sockets) // gpus for g in range(gpus)]
    assert [fabric.nic.at[r] for r in fabric.nic.serves] == under


@pytest.mark.parametrize(
    ("name", "device", "shape", "domain", "reached_gb"),
    [
        # 18 NVLinks into switches: 450 GB/s, of which 18 x 20.6 (NCCL's topo.h).
        ("H100-topology.xml", H100, "switch", 8, 370.8),
        # No link in the file: as the device's name says.
        ("ndv5-topo.xml", H100, "switch", 8, 370.8),
        ("p4d-24xl-topo.xml", A100, "switch", 8, 240.0),
        # Seven xGMI links of 64 GB/s, one to each other GPU; 0.8 of them.
        ("topo_8p_940.xml", "AMD Instinct MI300X", "full", 8, 358.4),
        # Two groups of four MI100 with three xGMI links of 46 GB/s each (AMD's data sheet).
        ("topo_8p_rome_4n_1.xml", None, "full", 4, 3 * 46 * 0.8),
        ("topo_4p4h.xml", None, "full", 4, 3 * 46 * 0.8),
    ],
)
def test_links_between_gpus(retime_traces, name, device, shape, domain, reached_gb):
    fabric, _ = built(retime_traces, name, device)
    up = fabric.scale_up
    assert (up.shape, up.domain_gpus) == (shape, domain)
    assert up.link.usable_bytes_per_s / 1e9 == pytest.approx(reached_gb, rel=2e-3)


def test_what_was_assumed_is_said(retime_traces):
    _, said = built(retime_traces, "p4d-24xl-topo.xml", A100)
    assert "links between GPUs are not told: a switch of 240 GB/s a GPU, as A100 has" in said
    assert "the speed of NICs is not told: 12.6 GB/s, what their PCI link can carry" in said
    assert "switches between hosts are not told: one leaf a rail, not oversubscribed" in said
    _, said = built(retime_traces, "H100-topology.xml", H100)
    assert "bridges say 8 GB/s up, less than a GPU's own link" in said
    assert "NICs is not told" not in said
    _, said = built(retime_traces, "topo_4p4h.xml", None, each=16)
    assert "groups of 4 GPUs whose numbers are mixed" in said
    assert "no rank names its device" in said
    _, said = built(retime_traces, "topo_16p1h.xml", None, each=16)
    assert "joins only some pairs of a group of 16" in said


def test_one_host_needs_no_network(retime_traces):
    fabric, said = built(retime_traces, "H100-topology.xml", H100, hosts=1)
    assert fabric.network is None
    assert "switches between hosts" not in said


def test_ranks_that_the_topology_has_no_gpus_for(retime_traces):
    fabric, said = built(retime_traces, "H100-topology.xml", H100, hosts=2, each=16)
    assert fabric.gpus_per_host == 16
    assert "a host has 16 ranks, but its topology 8 GPUs" in said


def log_rows(*rows: dict) -> pl.DataFrame:
    columns = {c: [r.get(c) for r in rows] for c in ("host", "device", "kind", "via")}
    columns["source"] = ["nccl-log"] * len(rows)
    return pl.from_arrow(TOPOLOGY.batch(columns))


def test_a_log_tells_nics_and_transports():
    rows = [
        {"host": "host0", "kind": "link", "via": "P2P/IPC"},
        *(
            {"host": "host0", "kind": "link", "device": f"mlx5_{i}", "via": f"NET/IB/{i}/GDRDMA"}
            for i in range(4)
        ),
    ]
    fabric = from_topology.build(log_rows(*rows), ranks_of(A100))
    assert (fabric.gpus_per_host, fabric.nic.count, fabric.rails) == (8, 4, 4)
    assert fabric.nic.serves == (0, 0, 1, 1, 2, 2, 3, 3)
    assert fabric.pcie.p2p
    assert fabric.pcie.gpu_direct
    assert fabric.scale_up.link.usable_bytes_per_s == 240e9


def test_a_log_without_peer_to_peer_or_gpu_direct():
    rows = [
        {"host": "host0", "kind": "link", "via": "SHM/direct/direct"},
        {"host": "host0", "kind": "link", "device": "mlx5_0", "via": "NET/IB/0"},
    ]
    fabric = from_topology.build(log_rows(*rows), ranks_of("NVIDIA RTX 4090"))
    assert not fabric.pcie.p2p
    assert not fabric.pcie.gpu_direct
    assert fabric.scale_up is None
    keys = [graph(fabric).name(i).split(" ")[0] for i in route(graph(fabric), 0, 1).of(0)]
    assert keys == ["pcie_tx", "memory_write", "memory_read", "pcie_rx"]
    assert "GPU to GPU and GPU to NIC goes over host memory" in " ".join(fabric.assumptions)


def test_too_little_makes_no_fabric():
    none = log_rows()
    assert from_topology.build(none, ranks_of(A100)) is None
    ring = log_rows({"host": "host0", "kind": "ring"})
    assert from_topology.build(ring, ranks_of(A100)) is None
    nic = log_rows({"host": "host0", "kind": "nic", "device": "mlx5_0"})
    assert from_topology.build(nic, ranks_of(None)) is None
    assert from_topology.build(nic, ranks_of(A100)).nic.count == 1


def test_a_loop_of_bridges_ends(tmp_path):
    rows = pl.DataFrame(
        {
            "kind": ["pci", "pci", "pci", "gpu", "gpu"],
            "device": ["a", "b", "c", "gpu0", "gpu1"],
            "peer": ["b", "a", "a", "c", "c"],
            "bandwidth_bytes_per_s": [32 * 10**9] * 3 + [None] * 2,
            "numa": [0] * 5,
            "host": [None] * 5,
            "source": ["nccl-topology"] * 5,
        },
        schema_overrides={"host": pl.String},
    )
    fabric = from_topology.build(rows, ranks_of(A100, 1, 2))
    assert fabric.gpus == 2


NAMES = st.sampled_from(["gpu0", "gpu1", "gpu2", "a", "b", "c", "mlx5_0", "mlx5_1", "", None])
ROWS = st.fixed_dictionaries(
    {
        "host": st.sampled_from([None, "x", "y"]),
        "kind": st.sampled_from(
            ["gpu", "gpu", "nic", "pci", "cpu", "nvlink", "xgmi", "link", "ring", None]
        ),
        "device": NAMES,
        "peer": NAMES,
        "via": st.sampled_from([None, "P2P/IPC", "SHM", "NET/IB", "NET/IB/0/GDRDMA", "PCIe"]),
        "bandwidth_bytes_per_s": st.sampled_from([None, 0, -1, 1, 10**9, 25 * 10**9, 2**62]),
        "numa": st.sampled_from([None, -1, 0, 1, 2]),
        "source": st.sampled_from(["nccl-topology", "nccl-log", None]),
    }
)


@settings(max_examples=100, deadline=None)
@given(
    st.lists(ROWS, max_size=14),
    st.sampled_from([None, A100, "NVIDIA RTX 4090", "abacus"]),
    st.integers(1, 3),
    st.integers(1, 9),
)
def test_any_topology_makes_a_whole_fabric_or_none_or_says_why(rows, device, hosts, each):
    columns = {c: [r[c] for r in rows] for c in rows[0]} if rows else {}
    table = pl.from_arrow(TOPOLOGY.batch(columns)) if rows else log_rows()
    said = "no"
    try:
        fabric = from_topology.build(table, ranks_of(device, hosts, each))
    except BadFabric as e:
        said, fabric = str(e), None
    assert "\n" not in said
    if fabric is not None:
        assert fabric.gpus >= hosts * each
        links = graph(fabric)
        found = route(links, [0] * fabric.gpus, list(range(fabric.gpus)))
        assert (found.capacity_bytes_per_s(links) > 0).all()


def job_of(topology: pl.DataFrame, ranks: pl.DataFrame) -> ReplayJob:
    empty, _ = task_graph.build(0, np.empty(0), np.empty(0))
    return ReplayJob(
        empty, "wired", {"ranks": ranks, "tables": lambda name: topology, "measured": empty}
    )


def test_a_replay_says_what_its_fabric_assumes_and_does_without_one_that_cannot_be():
    nics = [{"host": "host0", "kind": "nic", "device": f"mlx5_{i}"} for i in range(8)]
    job = load.with_fabric(job_of(log_rows(*nics), ranks_of(A100)))
    assert job.facts["fabric"].rails == 8
    assert "fabric: switches between hosts are not told: one leaf a rail, not oversubscribed" in (
        job.assumptions
    )
    broken = log_rows(*nics).with_columns(bandwidth_bytes_per_s=pl.lit(-5, pl.Int64))
    job = load.with_fabric(job_of(broken, ranks_of(A100)))
    assert "fabric" not in job.facts
    assert len(job.warnings) == 1
    assert "the job's topology makes no fabric: nic.bandwidth is -5" in job.warnings[0]
