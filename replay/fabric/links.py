"""The link graph of a fabric: one capacity and one latency a link, found by arithmetic.

Links lie in blocks (`nic_tx` is one block, of hosts x rails x planes), so that a link's number
follows from where it is; no graph is searched. Nodes are numbered likewise, GPUs first: node g is
GPU g. Under `spray` the planes of a NIC and the uplinks of a leaf are one link of their summed
bandwidth: a flow that is spread evenly over all of them has that, as a fluid. Under `hash` each
plane and each uplink is a link of its own.
"""

from __future__ import annotations

import difflib
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np

from .description import BadFabric, Fabric, LinkClass


class Block(NamedTuple):
    """Links (or nodes) of one kind, numbered from `first` in the order of `shape`."""

    key: str
    axes: tuple[str, ...]
    shape: tuple[int, ...]
    first: int

    @property
    def size(self) -> int:
        """How many there are."""
        return int(np.prod(self.shape, dtype=np.int64))

    @property
    def last(self) -> int:
        """One past the last number."""
        return self.first + self.size

    def ids(self, *index) -> np.ndarray:
        """int64: the numbers at these places; one array (or number) an axis, broadcast."""
        out = np.asarray(index[0], dtype=np.int64)
        for n, i in zip(self.shape[1:], index[1:], strict=True):
            out = out * n + i
        return self.first + out

    def places(self) -> tuple[np.ndarray, ...]:
        """One int64 [size] an axis: where each of the block is, in order."""
        return tuple(a.ravel() for a in np.indices(self.shape, dtype=np.int64, sparse=False))

    def name(self, link: int) -> str:
        """`nic_tx host 3 rail 2`; an axis of one place is left out."""
        where = np.unravel_index(link - self.first, self.shape)
        told = (
            f"{axis} {i}" for axis, i, n in zip(self.axes, where, self.shape, strict=True) if n > 1
        )
        return " ".join((self.key, *told))


@dataclass(frozen=True)
class LinkGraph:
    """Arrays over the L links of a fabric, one direction each; every link goes from tail to head.

    `link_capacity_bytes_per_s` float64 [L] is usable: nominal x efficiency x (1 - background).
    `link_class` int16 [L] indexes `classes`. `link_into_port` bool [L]: the link ends in a
    receiver's port, where incast of its class is felt.
    """

    fabric: Fabric
    ecmp: str
    link_capacity_bytes_per_s: np.ndarray
    link_alpha_ns: np.ndarray
    link_class: np.ndarray
    link_into_port: np.ndarray
    tail: np.ndarray
    head: np.ndarray
    classes: tuple[LinkClass, ...]
    blocks: dict[str, Block]
    nodes: dict[str, Block]

    @property
    def n(self) -> int:
        """Links."""
        return len(self.link_capacity_bytes_per_s)

    def name(self, link: int) -> str:
        """One link's name. Raises IndexError."""
        for block in self.blocks.values():
            if block.first <= link < block.last:
                return block.name(link)
        raise IndexError(f"link {link} of {self.n}")

    def select(self, name: str) -> np.ndarray:
        """int64: the links of a class, of a block, or of one name. Raises BadFabric."""
        for code, cls in enumerate(self.classes):
            if cls.name == name:
                return np.flatnonzero(self.link_class == code)
        if name in self.blocks:
            block = self.blocks[name]
            return np.arange(block.first, block.last)
        block = self.blocks.get(name.split(" ")[0])
        if block is not None:
            named = [i for i in range(block.first, block.last) if block.name(i) == name]
            if named:
                return np.array(named, dtype=np.int64)
        known = [*dict.fromkeys((*(c.name for c in self.classes), *self.blocks))]
        close = difflib.get_close_matches(name, known, 3, 0.6)
        if block is not None and block.size:
            close = [f"{block.name(block.first)} to {block.name(block.last - 1)}"]
        hint = " or ".join(close) if close else ", ".join(known)
        raise BadFabric(f"no link or class of links is called {name[:80]!r}: {hint} would work")


def graph(fabric: Fabric, *, ecmp: str | None = None) -> LinkGraph:
    """The link graph of a fabric, for `spray` or `hash` (default: as the fabric says).

    Raises BadFabric for a background load of a link that there is not.
    """
    mode = ecmp or (fabric.network.ecmp if fabric.network else "spray")
    if mode not in ("spray", "hash"):
        raise BadFabric(f"ecmp is {mode!r}: spray or hash")
    draft = _Draft(fabric, mode == "hash")
    for part in (_inside, _pcie, _network, _storage):
        part(draft)
    made = draft.finish(mode)
    for load in fabric.background:
        made.link_capacity_bytes_per_s[made.select(load.of)] *= 1.0 - load.share
    return made


class _Draft:
    """The blocks of a graph while they are being laid out, one after another."""

    def __init__(self, fabric: Fabric, hashed: bool) -> None:
        self.fabric = fabric
        self.hashed = hashed
        self.blocks: dict[str, Block] = {}
        self.nodes: dict[str, Block] = {}
        self.classes: list[LinkClass] = []
        self.columns: dict[str, list[np.ndarray]] = {
            k: [] for k in ("capacity", "alpha", "class", "into", "tail", "head")
        }
        self.node("gpu", ("gpu",), (fabric.gpus,))

    def node(self, key: str, axes: tuple[str, ...], shape: tuple[int, ...]) -> Block:
        first = max((b.last for b in self.nodes.values()), default=0)
        self.nodes[key] = Block(key, axes, shape, first)
        return self.nodes[key]

    def links(self, key, axes, shape, cls: LinkClass, tail, head, *,
              capacity=None, share=0.5, into=False) -> None:  # fmt: skip
        """Adds a block; `share` is the part of the class's alpha that each link carries."""
        first = max((b.last for b in self.blocks.values()), default=0)
        block = self.blocks[key] = Block(key, axes, shape, first)
        if cls not in self.classes:
            self.classes.append(cls)
        rate = cls.usable_bytes_per_s if capacity is None else capacity
        columns = {
            "capacity": (rate, np.float64),
            "alpha": (cls.alpha_ns * share, np.float64),
            "class": (self.classes.index(cls), np.int16),
            "into": (into, np.bool_),
            "tail": (tail, np.int64),
            "head": (head, np.int64),
        }
        for name, (value, kind) in columns.items():
            filled = np.broadcast_to(np.asarray(value, dtype=kind), (block.size,))
            self.columns[name].append(filled)

    def pair(self, keys, axes, shape, cls, low, high, *, into=(False, False), **more) -> None:
        """Two blocks: from `low` up to `high`, and back down."""
        self.links(keys[0], axes, shape, cls, low, high, into=into[0], **more)
        self.links(keys[1], axes, shape, cls, high, low, into=into[1], **more)

    def finish(self, mode: str) -> LinkGraph:
        empty = {"capacity": np.float64, "alpha": np.float64, "class": np.int16, "into": np.bool_}
        arrays = {
            k: np.concatenate(v) if v else np.empty(0, empty.get(k, np.int64))
            for k, v in self.columns.items()
        }
        return LinkGraph(
            fabric=self.fabric,
            ecmp=mode,
            link_capacity_bytes_per_s=arrays["capacity"],
            link_alpha_ns=arrays["alpha"],
            link_class=arrays["class"],
            link_into_port=arrays["into"],
            tail=arrays["tail"],
            head=arrays["head"],
            classes=tuple(self.classes),
            blocks=self.blocks,
            nodes=self.nodes,
        )


def _inside(d: _Draft) -> None:
    """Package and scale-up domain."""
    f = d.fabric
    gpu = np.arange(f.gpus)
    if f.package is not None:
        from .package_links import package_links

        package_links(d, f.package)
    up = f.scale_up
    if up is None:
        return
    size = up.domain_gpus
    domains = -(-f.gpus // size)
    if up.shape == "switch":
        switch = d.node("domain", ("domain",), (domains,)).ids(gpu // size)
        d.pair(("scale_up_tx", "scale_up_rx"), ("gpu",), (f.gpus,), up.link, gpu, switch,
               into=(False, True))  # fmt: skip
        return
    domain, a, b = Block("", ("", "", ""), (domains, size, size), 0).places()
    tail, head = domain * size + a, domain * size + b
    rate = up.link.usable_bytes_per_s / (size - 1)
    d.links("scale_up", ("domain", "from", "to"), (domains, size, size), up.link, tail, head,
            capacity=rate, share=1.0, into=True)  # fmt: skip


def _pcie(d: _Draft) -> None:
    """GPUs, PCIe switches, sockets and host memory."""
    f, p = d.fabric, d.fabric.pcie
    if p is None:
        return
    h, g = f.hosts, f.gpus_per_host
    gpu = np.arange(f.gpus)
    host, local = gpu // g, gpu % g
    sockets = d.node("socket", ("host", "socket"), (h, p.sockets))
    if p.switches:
        switches = d.node("pcie_switch", ("host", "switch"), (h, p.switches))
        d.pair(("pcie_tx", "pcie_rx"), ("gpu",), (f.gpus,), p.link, gpu,
               switches.ids(host, local * p.switches // g))  # fmt: skip
        at_host, at = switches.places()
        rate = p.switch.usable_bytes_per_s or p.link.usable_bytes_per_s
        d.pair(("pcie_switch_up", "pcie_switch_down"), ("host", "switch"), (h, p.switches),
               p.switch, switches.ids(at_host, at),
               sockets.ids(at_host, at * p.sockets // p.switches), capacity=rate)  # fmt: skip
    else:
        d.pair(("pcie_tx", "pcie_rx"), ("gpu",), (f.gpus,), p.link, gpu,
               sockets.ids(host, local * p.sockets // g))  # fmt: skip
    k = p.sockets
    if k > 1:
        shape = (h, k, k - 1)
        of, a, other = Block("", ("", "", ""), shape, 0).places()
        b = other + (other >= a)
        d.links("socket", ("host", "socket", "other"), shape, p.socket, sockets.ids(of, a),
                sockets.ids(of, b), share=1.0)  # fmt: skip
    if p.memory.bandwidth_bytes_per_s:
        memory = d.node("memory", ("host", "socket"), (h, k))
        of, a = memory.places()
        d.pair(("memory_write", "memory_read"), ("host", "socket"), (h, k), p.memory,
               sockets.ids(of, a), memory.ids(of, a),
               capacity=p.memory.usable_bytes_per_s / 2)  # fmt: skip


def _network(d: _Draft) -> None:
    """NIC ports, leaves, spines and core."""
    f, nic, net = d.fabric, d.fabric.nic, d.fabric.network
    if nic is None:
        return
    planes = nic.planes if d.hashed else 1
    h, rails, rate = f.hosts, nic.rails, f.rail_bytes_per_s
    host, rail, plane = Block("", ("",) * 3, (h, rails, planes), 0).places()
    inside = _nic_parents(d)[host * rails + rail]
    per_leaf = net.hosts_per_leaf if net else h
    wired = rails if net is None or net.wiring == "rail" else 1
    segments = max(f.segments, 1)
    leaves = d.node("leaf", ("segment", "rail", "plane"), (segments, wired, planes))
    leaf = leaves.ids(host // per_leaf, rail if wired > 1 else 0 * rail, plane)
    d.pair(("nic_tx", "nic_rx"), ("host", "rail", "plane"), (h, rails, planes), nic.link,
           inside, leaf, capacity=rate / planes * nic.link.efficiency,
           into=(False, True))  # fmt: skip
    if net is None:
        return
    optical = f.optical
    lanes = (optical.switches if optical else net.uplinks) if d.hashed else 1
    pods, apart = f.pods, wired if net.isolated_rails else 1
    pod_hosts = net.hosts_per_pod or h
    below = per_leaf * rate * rails / wired
    axes = ("segment", "rail", "plane", "uplink")
    shape = (segments, wired, planes, lanes)
    spines = d.node("spine", ("pod", *axes[1:]), (pods, apart, planes, lanes))
    segment, r, p, u = Block("", ("",) * 4, shape, 0).places()
    up_to = spines.ids(segment * per_leaf // pod_hosts, r if apart > 1 else 0 * r, p, u)
    if optical:
        cls, total = optical.link, optical.switches * optical.link.usable_bytes_per_s * optical.duty
        total *= nic.planes
    else:
        cls, total = net.leaf, below / net.oversubscription * net.leaf.efficiency
    d.pair(("leaf_up", "leaf_down"), axes, shape, cls, leaves.ids(segment, r, p), up_to,
           capacity=total / planes / lanes)  # fmt: skip
    if pods > 1:
        shape = (pods, apart, planes, lanes)
        core = d.node("core", axes[1:], shape[1:])
        pod, r, p, u = Block("", ("",) * 4, shape, 0).places()
        total = pod_hosts * rate * rails / apart / net.oversubscription
        total *= net.core.efficiency / net.core_oversubscription
        d.pair(("core_up", "core_down"), ("pod", *axes[1:]), shape, net.core,
               spines.ids(pod, r, p, u), core.ids(r, p, u),
               capacity=total / planes / lanes)  # fmt: skip


def _nic_parents(d: _Draft) -> np.ndarray:
    """int64 [hosts * rails]: the node that each rail's NICs hang under."""
    f, nic = d.fabric, d.fabric.nic
    assert nic is not None
    host = np.repeat(np.arange(f.hosts), nic.rails)
    if f.pcie is None:
        first = np.array([nic.serves.index(r) for r in range(nic.rails)])
        return host * f.gpus_per_host + np.tile(first, f.hosts)
    under = d.nodes["pcie_switch" if f.pcie.switches else "socket"]
    return under.ids(host, np.tile(np.array(nic.at), f.hosts))


def _storage(d: _Draft) -> None:
    """Storage servers, hosts' own storage ports and local drives."""
    f, s = d.fabric, d.fabric.storage
    if s is None:
        return
    server = d.node("storage_server", ("server",), (1,)).first
    front = d.node("storage_network", ("network",), (1,)).first
    host = np.arange(f.hosts)
    inside = d.node("host_storage", ("host",), (f.hosts,)).ids(host)
    if s.server.bandwidth_bytes_per_s:
        d.pair(("server_read", "server_write"), ("server",), (1,), s.server, server, front)
    if s.attach == "own":
        d.pair(("storage_tx", "storage_rx"), ("host",), (f.hosts,), s.link, inside, front,
               into=(False, True))  # fmt: skip
    if s.staging.bandwidth_bytes_per_s:
        drives = d.node("drives", ("host",), (f.hosts,)).ids(host)
        d.pair(("nvme_write", "nvme_read"), ("host",), (f.hosts,), s.staging, inside, drives)
