"""What of a fabric can be exchanged for what: hosts of a segment, segments of a pod, and so on.

A fabric's hosts are alike, so exchanging two hosts under one leaf, or two leaves' worth of hosts,
with all their links, changes nothing. GPUs, and links, that such an exchange can bring to one
another's place are of one orbit. Places in a host, rails and planes are kept apart.
"""

from __future__ import annotations

from itertools import pairwise
from typing import NamedTuple

import numpy as np

from .links import LinkGraph

_UNITS = ("host", "domain", "segment", "pod")


class Tree(NamedTuple):
    """The units that hosts are grouped in, each level whole units of the level before."""

    names: tuple[str, ...]
    """`host` first, then what there is of `domain`, `segment` and `pod`, by size."""
    hosts: tuple[int, ...]
    """Hosts in a unit of each level; 1 first."""


class Orbits(NamedTuple):
    """Which orbit each is in, given which GPUs take part."""

    gpu: np.ndarray
    """int64 [GPUs]; -1 for those that take no part."""
    link: np.ndarray
    """int64 [links]."""


def tree(graph: LinkGraph) -> Tree | None:
    """The levels of a fabric; None where they do not nest, or links of a kind differ.

    They differ under ecmp `hash` (each pair has its own lane) and a background load on some links
    of a kind only.
    """
    f = graph.fabric
    if graph.ecmp == "hash":
        return None
    sizes = {"host": 1}
    if f.domain_gpus > f.gpus_per_host:
        if f.scale_up is not None and f.scale_up.shape == "full":
            return None
        sizes["domain"] = f.domain_gpus // f.gpus_per_host
    if f.network is not None:
        sizes["segment"] = f.network.hosts_per_leaf
        if f.network.hosts_per_pod:
            sizes["pod"] = f.network.hosts_per_pod
    names = tuple(sorted(sizes, key=lambda k: (sizes[k], _UNITS.index(k))))
    hosts = tuple(sizes[k] for k in names)
    if any(b % a for a, b in pairwise(hosts)):
        return None
    kinds = np.unique(_kinds(graph, None), return_inverse=True)[1].ravel()
    for values in (graph.link_capacity_bytes_per_s, graph.link_alpha_ns):
        low, high = np.full(kinds.max(initial=-1) + 1, np.inf), np.zeros(kinds.max(initial=-1) + 1)
        np.minimum.at(low, kinds, values)
        np.maximum.at(high, kinds, values)
        if (high > low).any():
            return None
    return Tree(names, hosts)


def placement(graph: LinkGraph, of: Tree | None, gpus: np.ndarray) -> bytes:
    """What is the same for GPUs (in their order) that an exchange brings to one another's place.

    Which of them share a host, a domain, a leaf and a pod, by first appearance, and where in their
    host they are. Without a tree: the GPUs themselves.
    """
    if of is None:
        return gpus.astype(np.int64).tobytes()
    host, local = np.divmod(gpus, graph.fabric.gpus_per_host)
    columns = [_by_appearance(host // size) for size in of.hosts]
    return np.stack([local, *columns]).astype(np.int32).tobytes()


def _by_appearance(codes: np.ndarray) -> np.ndarray:
    _, first, inverse = np.unique(codes, return_index=True, return_inverse=True)
    rank = np.empty(len(first), np.int64)
    rank[np.argsort(first)] = np.arange(len(first))
    return rank[inverse.ravel()]


def orbits(graph: LinkGraph, of: Tree, gpus: np.ndarray) -> Orbits:
    """The orbits of GPUs and links under exchanges that keep the set `gpus` as it is."""
    f = graph.fabric
    g = f.gpus_per_host
    part = np.zeros((f.hosts, g), bool)
    part[np.divmod(gpus, g)] = True
    signature = np.unique(part, axis=0, return_inverse=True)[1].ravel()
    taking = part.any(axis=1)
    # What is inside each unit, from hosts up: units with equal contents can be exchanged if
    # what they lie in is the same, or can be exchanged itself.
    inside = [np.where(taking, signature, -1)]
    for level in range(1, len(of.hosts)):
        per = of.hosts[level] // of.hosts[level - 1]
        below = inside[-1]
        padded = np.full(-(-len(below) // per) * per, -1)
        padded[: len(below)] = below
        rows = np.sort(padded.reshape(-1, per), axis=1)
        inside.append(np.unique(rows, axis=0, return_inverse=True)[1].ravel())
    orbit = [np.unique(inside[-1], return_inverse=True)[1].ravel()]
    for level in reversed(range(len(of.hosts) - 1)):
        per = of.hosts[level + 1] // of.hosts[level]
        above = orbit[0][np.arange(len(inside[level])) // per]
        both = np.stack([above, inside[level]])
        orbit.insert(0, np.unique(both, axis=1, return_inverse=True)[1].ravel())
    units = dict(zip(of.names, orbit, strict=True))
    gpu = np.full(f.gpus, -1)
    keys = units["host"][gpus // g] * g + gpus % g
    gpu[gpus] = np.unique(keys, return_inverse=True)[1].ravel()
    link = np.unique(_kinds(graph, units), return_inverse=True)[1].ravel()
    return Orbits(gpu, link)


def _kinds(graph: LinkGraph, units: dict[str, np.ndarray] | None) -> np.ndarray:
    """int64 [links]: a code for each block, orbit of the unit and place in it; without units: one
    orbit a level."""
    out, next_code = np.zeros(graph.n, np.int64), 0
    for block in graph.blocks.values():
        code, span = np.zeros(block.size, np.int64), 1
        for axis, n, at in zip(block.axes, block.shape, block.places(), strict=True):
            for values, count in _split(graph, axis, n, at, units):
                code = code * count + values
                span *= count
        out[block.first : block.last] = next_code + code
        next_code += span
    return out


def _split(graph, axis: str, n: int, at: np.ndarray, units) -> list[tuple[np.ndarray, int]]:
    """An axis as orbit of the unit and place inside it, each with how many there are."""
    f = graph.fabric
    inner = {"gpu": f.gpus_per_host, "package": _packages(graph), "domain": _domains(graph)}
    name = "host" if axis in ("gpu", "package") or (axis == "domain" and inner["domain"]) else axis
    per = inner.get(axis) or 1
    if name not in _UNITS:
        return [(at, n)]
    unit, place = at // per, at % per
    if units is None:
        return [(place, per)]
    orbit = units[name] if name in units else np.zeros(int(unit.max(initial=0)) + 1, np.int64)
    return [(orbit[unit], int(orbit.max(initial=0)) + 1), (place, per)]


def _packages(graph: LinkGraph) -> int:
    p = graph.fabric.package
    return 1 if p is None else graph.fabric.gpus_per_host // p.dies


def _domains(graph: LinkGraph) -> int:
    """Domains a host; 0 where a domain is more than a host."""
    return graph.fabric.gpus_per_host // graph.fabric.domain_gpus
