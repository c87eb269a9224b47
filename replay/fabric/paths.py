"""Which links the bytes from one GPU to another cross, for many pairs at once.

Every hop is a number computed from where the two GPUs are, so the cost is a few array operations
a hop, whatever the fabric's size. How rails are crossed (`rail`):

- `spine`: out of the source's own NIC, up to the spine, down to the destination's rail;
- `pxn`: first over NVLink to the GPU of the source host that sits on the destination's rail, then
  on that rail (NCCL 2.12's PXN);
- `receive`: on the source's rail to the GPU of the destination host that sits on it, then over
  NVLink there (DeepEP's two hops);
- `auto`: `pxn` where rails share no spine, or leaves are wired by rail and a scale-up domain joins
  each host; else `spine`.

Where no NVLink joins the two GPUs, `pxn` and `receive` use the other rail's NIC itself, over PCIe.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from ...ingest.errors import UsageError
from .host_paths import joined, local, to_nic, where
from .links import LinkGraph
from .rails import RAILS, auto_rail

CHUNK_CELLS = 1 << 22
"""Pairs x hops laid out at once: 32 MB a copy."""


class Routes(NamedTuple):
    """Links of k pairs: those of pair i are `links[offsets[i]:offsets[i + 1]]`, in order."""

    offsets: np.ndarray
    """int64 [k + 1]."""
    links: np.ndarray
    """int64; a route never holds a link twice."""

    @property
    def n(self) -> int:
        """Pairs."""
        return len(self.offsets) - 1

    def of(self, pair: int) -> np.ndarray:
        """int64: the links of one pair; empty where a GPU sends to itself."""
        return self.links[self.offsets[pair] : self.offsets[pair + 1]]

    def alpha_ns(self, graph: LinkGraph) -> np.ndarray:
        """float64 [k]: the latency of each route, all its links together."""
        total = np.concatenate([[0.0], np.cumsum(graph.link_alpha_ns[self.links])])
        return total[self.offsets[1:]] - total[self.offsets[:-1]]

    def capacity_bytes_per_s(self, graph: LinkGraph) -> np.ndarray:
        """float64 [k]: the narrowest link of each route; inf where there is none."""
        out = np.full(self.n, np.inf)
        pair = np.repeat(np.arange(self.n), np.diff(self.offsets))
        np.minimum.at(out, pair, graph.link_capacity_bytes_per_s[self.links])
        return out


def route(
    graph: LinkGraph, src, dst, *, rail: str = "auto", seed: int = 0, flow=None
) -> Routes:  # fmt: skip
    """The routes of GPUs `src` to GPUs `dst` (int [k] each, or one of them a number).

    `seed` and `flow` (int [k], e.g. a queue pair's number) choose planes and uplinks under ecmp
    `hash`; under `spray` they change nothing. Raises UsageError for a GPU that there is not and
    for rails that `spine` cannot cross.
    """
    src, dst = np.broadcast_arrays(np.atleast_1d(src), np.atleast_1d(dst))
    src, dst = src.astype(np.int64).ravel(), dst.astype(np.int64).ravel()
    salt = np.broadcast_to(np.asarray(0 if flow is None else flow, dtype=np.int64), src.shape)
    _known(graph, src, dst)
    way = auto_rail(graph.fabric) if rail == "auto" else rail
    if way not in RAILS:
        raise UsageError(f"rail is {rail!r}: one of auto, {', '.join(RAILS)}")
    hops = 24 + _package_hops(graph)
    size = max(1, CHUNK_CELLS // hops)
    counts, links = [np.zeros(1, np.int64)], [np.empty(0, np.int64)]
    for at in range(0, len(src), size):
        part = slice(at, at + size)
        table = np.stack(_columns(graph, src[part], dst[part], way, seed, salt[part]), axis=1)
        there = table >= 0
        counts.append(there.sum(axis=1))
        links.append(table[there])
    return Routes(np.cumsum(np.concatenate(counts)), np.concatenate(links))


def _known(graph: LinkGraph, src: np.ndarray, dst: np.ndarray) -> None:
    gpus = graph.fabric.gpus
    for ends in (src, dst):
        if len(ends) and (ends.min() < 0 or ends.max() >= gpus):
            wrong = int(ends.min()) if ends.min() < 0 else int(ends.max())
            raise UsageError(
                f"GPU {wrong} is not in fabric {graph.fabric.name}: it has 0 to {gpus - 1}"
            )


def _package_hops(graph: LinkGraph) -> int:
    p = graph.fabric.package
    return 0 if p is None else 3 * (p.rows + p.columns + 2 * p.dies.bit_length())


def _columns(graph, src, dst, way, seed, salt) -> list[np.ndarray]:
    """int64 [k] a hop, -1 where a pair does not take it."""
    f = graph.fabric
    g = f.gpus_per_host
    here = (src // f.domain_gpus == dst // f.domain_gpus) | (src // g == dst // g)
    if f.nic is None or here.all():
        return local(graph, src, dst, src != dst)
    serves = np.array(f.nic.serves)
    first, second = serves[src % g], serves[dst % g]
    leave, arrive = src, dst
    if way == "pxn":
        relay = src // g * g + _on_rail(serves, second, src % g)
        leave = np.where((first != second) & joined(graph, src, relay), relay, src)
        first = second
    elif way == "receive":
        relay = dst // g * g + _on_rail(serves, first, dst % g)
        arrive = np.where((first != second) & joined(graph, dst, relay), relay, dst)
        second = first
    elif f.network and f.network.isolated_rails and (~here & (first != second)).any():
        raise UsageError(
            f"rails of fabric {f.name} have no spine in common: rail pxn or receive would work"
        )
    away = ~here
    return [
        *local(graph, src, np.where(here, dst, leave), np.where(here, src != dst, leave != src)),
        *to_nic(graph, leave, first, away, out=True),
        *_network(graph, leave // g, first, arrive // g, second, away, seed, salt, src, dst),
        *to_nic(graph, arrive, second, away, out=False),
        *local(graph, arrive, dst, away & (arrive != dst)),
    ]


def _on_rail(serves: np.ndarray, rail: np.ndarray, local: np.ndarray) -> np.ndarray:
    """int64 [k]: a GPU (of its host) on each rail; where several are, they take turns."""
    of = [np.flatnonzero(serves == r) for r in range(int(serves.max()) + 1)]
    width = max(map(len, of))
    table = np.stack([np.resize(gpus, width) for gpus in of])
    count = np.array([len(gpus) for gpus in of])
    return table[rail, local % count[rail]]


def _network(graph, a, rail_a, b, rail_b, take, seed, salt, src, dst) -> list[np.ndarray]:
    """From a NIC of host `a` to a NIC of host `b`."""
    f, blocks = graph.fabric, graph.blocks
    net = f.network
    assert net is not None
    tx = blocks["nic_tx"]
    plane, lane = chosen(graph, seed, src, dst, salt)
    wired = net.wiring == "rail"
    leaf_a, leaf_b = (rail_a, rail_b) if wired else (0 * rail_a, 0 * rail_b)
    segment_a, segment_b = a // net.hosts_per_leaf, b // net.hosts_per_leaf
    climb = take & ((segment_a != segment_b) | (leaf_a != leaf_b))
    out = [
        where(take, tx.ids(a, rail_a, plane)),
        where(climb, blocks["leaf_up"].ids(segment_a, leaf_a, plane, lane)),
    ]
    if "core_up" in blocks:
        pod_a, pod_b = a // net.hosts_per_pod, b // net.hosts_per_pod
        apart = climb & (pod_a != pod_b)
        group = leaf_a if net.isolated_rails else 0 * leaf_a
        for key, pod in (("core_up", pod_a), ("core_down", pod_b)):
            out.append(where(apart, blocks[key].ids(pod, group, plane, lane)))
    out.append(where(climb, blocks["leaf_down"].ids(segment_b, leaf_b, plane, lane)))
    out.append(where(take, blocks["nic_rx"].ids(b, rail_b, plane)))
    return out


def chosen(graph: LinkGraph, seed: int, src, dst, salt) -> tuple[np.ndarray, np.ndarray]:
    """int64 [k] each: the plane and the uplink that flows hash to; 0 where there is but one."""
    planes = graph.blocks["nic_tx"].shape[2]
    lanes = graph.blocks["leaf_up"].shape[3] if "leaf_up" in graph.blocks else 1
    if planes * lanes == 1:
        return np.zeros_like(src), np.zeros_like(src)
    picked = _hash(seed, src, dst, salt)
    lane = picked // np.uint64(planes) % np.uint64(lanes)
    return (picked % np.uint64(planes)).astype(np.int64), lane.astype(np.int64)


def _hash(seed: int, *values: np.ndarray) -> np.ndarray:
    """uint64 [k], the same for the same values and seed (SplitMix64, Steele et al. 2014)."""
    x = np.full(len(values[0]), seed & (2**64 - 1), dtype=np.uint64)
    for value in values:
        x = (x ^ value.astype(np.uint64)) + np.uint64(0x9E3779B97F4A7C15)
        x = (x ^ (x >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
        x = (x ^ (x >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
        x = x ^ (x >> np.uint64(31))
    return x
