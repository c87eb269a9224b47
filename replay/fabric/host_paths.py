"""Hops inside a host, a scale-up domain or a package, and between a GPU and its NIC."""

from __future__ import annotations

import numpy as np

from .links import LinkGraph
from .package_paths import package_columns


def where(take: np.ndarray, ids: np.ndarray) -> np.ndarray:
    """int64 [k]: ids for the pairs that take the hop, -1 for others."""
    return np.where(take, ids, -1)


def joined(graph: LinkGraph, a: np.ndarray, b: np.ndarray) -> np.ndarray:
    """bool [k]: whether a scale-up domain or a package joins the two."""
    f = graph.fabric
    out = a // f.domain_gpus == b // f.domain_gpus
    if f.package is not None:
        out = out | (a // f.package.dies == b // f.package.dies)
    return out


def local(graph: LinkGraph, a: np.ndarray, b: np.ndarray, take: np.ndarray) -> list[np.ndarray]:
    """Hops inside a package, a scale-up domain or a host, for the pairs in `take`."""
    f, out = graph.fabric, []
    take = take & (a != b)
    if f.package is not None:
        within = take & (a // f.package.dies == b // f.package.dies)
        out += package_columns(graph, a, b, within)
        take = take & ~within
    if f.scale_up is not None:
        size = f.scale_up.domain_gpus
        within = take & (a // size == b // size)
        if f.scale_up.shape == "switch":
            out.append(where(within, graph.blocks["scale_up_tx"].ids(a)))
            out.append(where(within, graph.blocks["scale_up_rx"].ids(b)))
        else:
            out.append(where(within, graph.blocks["scale_up"].ids(a // size, a % size, b % size)))
        take = take & ~within
    if f.pcie is not None:
        out += _over_pcie(graph, a, b, take)
    return out or [np.full(len(a), -1)]


def _over_pcie(graph: LinkGraph, a: np.ndarray, b: np.ndarray, take: np.ndarray):
    """From GPU to GPU of one host through switches and sockets."""
    f, p = graph.fabric, graph.fabric.pcie
    assert p is not None
    g = f.gpus_per_host
    host = a // g
    one, other = _under(graph, a % g), _under(graph, b % g)
    return [
        where(take, graph.blocks["pcie_tx"].ids(a)),
        *_across(graph, host, one, other, take, staged_at=None if p.p2p else "from"),
        where(take, graph.blocks["pcie_rx"].ids(b)),
    ]


def to_nic(graph: LinkGraph, gpu, rail, take, *, out: bool) -> list[np.ndarray]:
    """Hops between a GPU and a NIC of its host, the NIC's own port not among them."""
    f, p = graph.fabric, graph.fabric.pcie
    if p is None:
        return []
    assert f.nic is not None
    g = f.gpus_per_host
    under, at = _under(graph, gpu % g), np.array(f.nic.at)[rail]
    staged = None if p.gpu_direct else ("from" if out else "to")
    if out:
        inside = _across(graph, gpu // g, under, at, take, staged_at=staged)
        return [where(take, graph.blocks["pcie_tx"].ids(gpu)), *inside]
    inside = _across(graph, gpu // g, at, under, take, staged_at=staged)
    return [*inside, where(take, graph.blocks["pcie_rx"].ids(gpu))]


def _under(graph: LinkGraph, index: np.ndarray) -> np.ndarray:
    """int64 [k]: the switch (or, without switches, the socket) of GPUs of a host."""
    p = graph.fabric.pcie
    assert p is not None
    return index * (p.switches or p.sockets) // graph.fabric.gpus_per_host


def _across(graph: LinkGraph, host, one, other, take, *, staged_at) -> list[np.ndarray]:
    """From under one switch (or socket) to under another of the same host.

    `staged_at`: `from` or `to`, the side in whose socket's memory bytes are put down and picked
    up; None: they are not.
    """
    p, blocks = graph.fabric.pcie, graph.blocks
    assert p is not None
    per = (p.switches // p.sockets) if p.switches else 1
    from_socket, to_socket = one // per, other // per
    staged = staged_at is not None
    climb = take & (staged | (one != other))
    out = []
    if p.switches:
        out.append(where(climb, blocks["pcie_switch_up"].ids(host, one)))
    if staged_at == "from":
        out += [where(take, blocks[k].ids(host, from_socket)) for k in _MEMORY]
    if p.sockets > 1:
        cross = take & (from_socket != to_socket)
        step = to_socket - (to_socket > from_socket)
        out.append(where(cross, blocks["socket"].ids(host, from_socket, step)))
    if staged_at == "to":
        out += [where(take, blocks[k].ids(host, to_socket)) for k in _MEMORY]
    if p.switches:
        out.append(where(climb, blocks["pcie_switch_down"].ids(host, other)))
    return out


_MEMORY = ("memory_write", "memory_read")
