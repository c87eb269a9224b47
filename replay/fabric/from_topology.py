"""A fabric out of a job's own `topology`: what it says, and in words what had to be assumed.

A topology tells the inside of a host: GPUs, NICs, PCI bridges, NUMA nodes, links between GPUs. No
log tells the switches between hosts: they are assumed to be one leaf a rail, or one for all.
"""

from __future__ import annotations

from collections import Counter
from typing import Any

import polars as pl

from ..calibration.machines import GENERAL, Machine, named
from .description import BadFabric, Fabric, LinkClass, Network, Nic, Pcie
from .gpu_links import EFFICIENCY, scale_up
from .host_tree import Place, Tree, tree
from .transports import Transports, transports, with_nics

NIC_ALPHA_NS = 1_300.0
"""TE-CCL's figure for InfiniBand."""

LEAF_ALPHA_NS = 900.0
"""Leaf-spine-leaf over one leaf, as in preset h100."""

PCIE_BYTES_PER_S = 32e9
"""PCIe 4 x16, where no PCI link is told."""

SOCKET_BYTES_PER_S = 20e9
"""Between NUMA nodes: NCCL's topo.h has 10 to 40 GB/s by the make of the processor."""

MEMORY_BYTES_PER_S = 100e9
"""Host memory of a NUMA node, reads and writes together: six channels of DDR4, as reached."""

NIC_EFFICIENCY = 0.97
"""48.5 of 50 GB/s (SimAI)."""


def build(topology: pl.DataFrame, ranks: pl.DataFrame) -> Fabric | None:
    """The fabric of a job; None where its topology says too little.

    `topology` and `ranks` are tables of the warehouse. From NCCL's XML all of a host is taken;
    from its log (or a profiler's list of devices) the NICs and the transports, and the rest from
    the devices' name: with neither XML nor a known device there is no fabric. `assumptions` say
    what was not told. Hosts are taken to be alike: the one that most is told of stands for all.
    """
    if not len(topology):
        return None
    said: list[str] = []
    device, machine = _device(ranks, said)
    told = transports(topology)
    rows, name = _richest(with_nics(topology), said)
    host = tree(rows)
    hosts, per_host = _size(ranks)
    gpus = len(host.gpus)
    if not gpus and (not host.nics or machine is None):
        return None
    if not gpus:
        gpus = per_host
        said.append(f"GPUs of a host: {gpus}, as the job has ranks on one (no topology lists them)")
    elif per_host > gpus:
        said.append(f"a host has {per_host} ranks, but its topology {gpus} GPUs: as the ranks say")
        gpus, host = per_host, host._replace(gpus=())
    elif len(ranks) > hosts * gpus:
        hosts = -(-len(ranks) // gpus)
    joined = scale_up(host, gpus, machine, said)
    pcie, under = _pcie(host, gpus, told, said)
    nic = _nic(host, gpus, pcie, under, machine, said)
    try:
        return Fabric(
            name=f"topology of {name}",
            device=device,
            hosts=hosts,
            gpus_per_host=gpus,
            scale_up=joined,
            pcie=pcie,
            nic=nic,
            network=_network(hosts, nic, said),
            assumptions=tuple(said),
        )
    except BadFabric as e:
        raise BadFabric(f"the job's topology makes no fabric: {e}; give one by --fabric") from e


def _device(ranks: pl.DataFrame, said: list[str]) -> tuple[str, Machine | None]:
    names = Counter(_column(ranks, "device_name"))
    if not names:
        said.append("no rank names its device: figures of links that are not told are general ones")
        return "", None
    name = min(names, key=lambda n: (-names[n], n))
    return name, named(name)


def _column(frame: pl.DataFrame, column: str) -> list[Any]:
    if column not in frame.columns:
        return []
    return [v for v in frame[column].to_list() if v is not None]


def _size(ranks: pl.DataFrame) -> tuple[int, int]:
    """Hosts of the job, and the most ranks that one of them has."""
    hosts = Counter(_column(ranks, "host"))
    if not hosts:
        return 1, max(len(ranks), 1)
    return len(hosts), max(hosts.values())


def _richest(topology: pl.DataFrame, said: list[str]) -> tuple[pl.DataFrame, str]:
    """The rows of the host that most is told of; NCCL's XML before other sources."""
    rows = topology
    if "source" in rows.columns:
        xml = rows.filter(pl.col("source").cast(pl.String) == "nccl-topology")
        devices = xml.filter(pl.col("kind").cast(pl.String).is_in(["gpu", "pci"]))
        rows = xml if len(devices) else rows
    hosts = rows.select(pl.col("host").cast(pl.String).fill_null(""), "kind")
    devices = hosts.filter(pl.col("kind").cast(pl.String).is_in(["gpu", "nic"]))
    if not len(devices):
        return rows.clear(), "nothing"
    count = devices.group_by("host").len().sort("len", "host", descending=[True, False])
    best = count["host"][0]
    if len(set(count["len"])) > 1:
        said.append(f"hosts list different numbers of devices: {best or 'one'} stands for all")
    return rows.filter(hosts["host"] == best), best or "a host"


def _even(keys: list[Any], gpus: int) -> list[Any] | None:
    """The different keys in order, where they part the GPUs into equal runs; else None."""
    order = list(dict.fromkeys(keys))
    if len(keys) != gpus or gpus % len(order):
        return None
    run = gpus // len(order)
    return order if all(keys[i] == order[i // run] for i in range(gpus)) else None


def _pcie(
    host: Tree, gpus: int, told: Transports, said: list[str]
) -> tuple[Pcie, list[Any]]:  # fmt: skip
    """PCIe as the bridges and NUMA nodes say; and the names of what NICs can hang under."""
    rates = [g.pci_bytes_per_s for g in host.gpus if g.pci_bytes_per_s]
    rate = min(rates, default=PCIE_BYTES_PER_S)
    if not rates:
        said.append(f"PCI links are not told: {PCIE_BYTES_PER_S / 1e9:g} GB/s, PCIe 4 x16")
    link = LinkClass("pcie", rate, EFFICIENCY)
    numas = _even([g.numa for g in host.gpus], gpus) if host.gpus else [0]
    if numas is None:
        said.append("NUMA nodes do not part the GPUs evenly: taken for one")
        numas = [0]
    bridges = _even([(g.numa, g.bridge) for g in host.gpus], gpus) if host.gpus else None
    if bridges is not None and (any(not b for _, b in bridges) or len(bridges) % len(numas)):
        bridges = None
    socket = LinkClass("socket", SOCKET_BYTES_PER_S) if len(numas) > 1 else LinkClass("socket")
    if len(numas) > 1:
        said.append(f"between NUMA nodes {SOCKET_BYTES_PER_S / 1e9:g} GB/s are taken for granted")
    up = host.bridge_bytes_per_s
    if bridges is not None and 0 < up < rate:
        said.append(
            f"bridges say {up / 1e9:.3g} GB/s up, less than a GPU's own link: taken to be as the "
            "GPU's (links at rest say low speeds)"
        )
        up = 0.0
    elif bridges is None and host.gpus and len({g.bridge for g in host.gpus}) > 1:
        said.append("PCI bridges do not part the GPUs evenly: left out")
    staged = [w for w, no in (("GPU to GPU", told.p2p is False),
                              ("GPU to NIC", told.gpu_direct is False)) if no]  # fmt: skip
    if staged:
        said.append(
            f"{' and '.join(staged)} goes over host memory, as the log's channels say; "
            f"{MEMORY_BYTES_PER_S / 1e9:g} GB/s of it are taken for granted"
        )
    pcie = Pcie(
        link,
        sockets=len(numas),
        switches=len(bridges) if bridges else 0,
        switch=LinkClass("pcie_switch", up, EFFICIENCY),
        socket=socket,
        memory=LinkClass("memory", MEMORY_BYTES_PER_S if staged else 0.0),
        p2p=told.p2p is not False,
        gpu_direct=told.gpu_direct is not False,
    )
    return pcie, list(bridges) if bridges else list(numas)


def _nic(
    host: Tree, gpus: int, pcie: Pcie, under: list[Any], machine: Machine | None, said: list[str]
) -> Nic | None:
    """NICs as they hang: each GPU has those that are nearest to it."""
    nics = host.nics
    if not nics:
        said.append("no NIC is told: one a GPU")
        nics = tuple(Place("", -1, "", 0, 0) for _ in range(gpus))
    rate = _nic_rate(nics, machine, said)
    link = LinkClass("nic", rate, NIC_EFFICIENCY, NIC_ALPHA_NS)
    where = [_under(n, under, pcie) for n in nics]
    rails = len(nics) if len(nics) < gpus else gpus
    each = len(nics) // rails
    # One or more of a GPU's own, or one that a run of GPUs share: by where they hang, if that fits.
    serves = tuple(g * rails // gpus for g in range(gpus))
    of_rail = [serves.index(r) * len(under) // gpus for r in range(rails)]
    told = sorted(w for w in where if w is not None)
    if len(nics) % rails:
        said.append(
            f"{len(nics)} NICs do not divide over {gpus} GPUs: {each} a GPU are taken to be used"
        )
    elif None in where:
        if host.nics and host.gpus:
            said.append("where NICs hang is not told: evenly over the host")
    elif told != sorted(a for a in of_rail for _ in range(each)):
        return _off_centre(link, nics, told, gpus, len(under), said)
    return Nic(link, each * rails, serves, tuple(of_rail))


def _off_centre(
    link: LinkClass, nics: tuple[Place, ...], told: list[int], gpus: int, under: int,
    said: list[str],
) -> Nic:  # fmt: skip
    """NICs that do not hang as the GPUs do: in the order of their places, shared in runs."""
    rails = len(nics) if len(nics) <= gpus else gpus
    each = len(nics) // rails
    serves = tuple(g * rails // gpus for g in range(gpus))
    said.append("NICs do not hang evenly by the GPUs: GPUs have them in the order of their places")
    return Nic(link, each * rails, serves, tuple(told[r * each] for r in range(rails)))


def _under(nic: Place, under: list[Any], pcie: Pcie) -> int | None:
    """The place of a NIC among bridges (or NUMA nodes); None where it hangs under none of them."""
    key = (nic.numa, nic.bridge) if pcie.switches else nic.numa
    if key in under:
        return under.index(key)
    if pcie.switches:
        near = [i for i, (numa, _) in enumerate(under) if numa == nic.numa]
        return near[0] if near else None
    return 0 if len(under) == 1 else None


def _nic_rate(nics: tuple[Place, ...], machine: Machine | None, said: list[str]) -> float:
    rates = Counter(n.bytes_per_s for n in nics if n.bytes_per_s)
    if rates:
        rate = max(rates, key=lambda r: (rates[r], r))
        if len(rates) > 1:
            said.append(f"NICs differ: {rate / 1e9:g} GB/s, as most have, is taken for all")
        return rate
    known = machine or GENERAL
    rate = known.nic_bytes_per_s / NIC_EFFICIENCY
    limits = [n.pci_bytes_per_s for n in nics if n.pci_bytes_per_s]
    words = f"as {known.name} hosts have" if machine else f"as {known.name} hosts have (a guess)"
    if limits and min(limits) * EFFICIENCY < rate:
        rate, words = min(limits) * EFFICIENCY, "what their PCI link can carry"
    said.append(f"the speed of NICs is not told: {rate / 1e9:.3g} GB/s, {words}")
    return rate


def _network(hosts: int, nic: Nic | None, said: list[str]) -> Network | None:
    if nic is None or hosts < 2:
        return None
    wiring = "rail" if nic.rails > 1 else "tor"
    said.append(
        "switches between hosts are not told: "
        + ("one leaf a rail" if wiring == "rail" else "one for all hosts")
        + ", not oversubscribed"
    )
    return Network(
        wiring,
        hosts,
        min(hosts, 4096),
        leaf=LinkClass("leaf", 0.0, NIC_EFFICIENCY, LEAF_ALPHA_NS),
        core=LinkClass("core", 0.0, NIC_EFFICIENCY, LEAF_ALPHA_NS),
    )
