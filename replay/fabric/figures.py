"""What a fabric amounts to: switches, bisection, and the most that an all-to-all can get."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from .description import Fabric
from .links import LinkGraph
from .package_links import tree_levels
from .paths import route


class Bound(NamedTuple):
    """Bytes a second, and the block of links that sets them (`nic_tx`, `leaf_up`, ...)."""

    bytes_per_s: float
    block: str


def switches(fabric: Fabric) -> dict[str, int]:
    """How many leaves and spines the hosts there are need: {} without a network.

    A leaf of each rail (where wired so), segment and plane; a spine for each uplink of a leaf, in
    each pod, plane and, where rails are apart, rail.
    """
    net, nic = fabric.network, fabric.nic
    if net is None or nic is None:
        return {}
    rails = nic.rails if net.wiring == "rail" else 1
    leaves = fabric.segments * rails * nic.planes
    if fabric.optical is not None:
        return {"leaves": leaves, "optical": fabric.optical.switches}
    apart = rails if net.isolated_rails else 1
    return {"leaves": leaves, "spines": fabric.pods * apart * nic.planes * net.uplinks}


def bisection(links: LinkGraph) -> Bound:
    """The narrowest tier that joins the first half of the GPUs to the other, in one direction.

    What the tier's links of one half carry up, or down, over the tiers that the halves need:
    arithmetic, exact where both halves are whole segments, pods, hosts or domains.
    """
    f = links.fabric

    def half(block: str) -> Bound:
        b = links.blocks[block]
        other = links.blocks[block.replace("_up", "_down").replace("_tx", "_rx")]
        rates = [links.link_capacity_bytes_per_s[x.first : x.last] for x in (b, other)]
        n = b.shape[0]
        if n % 2:
            return Bound(min(float(r.sum()) for r in rates) / 2, block)
        halves = [r.reshape(2, -1).sum(axis=1).min() for r in rates]
        return Bound(float(min(halves)), block)

    if f.gpus <= f.domain_gpus and f.scale_up is not None:
        return _of_domain(links)
    if f.hosts > 1:
        tiers = ["nic_tx"]
        if f.segments > 1:
            tiers.append("leaf_up")
        if f.pods > 1:
            tiers.append("core_up")
        return _narrowest([half(t) for t in tiers])
    if f.package is not None and f.package.dies == f.gpus:
        return _of_package(f)
    if f.scale_up is not None and f.pcie is None:
        return _of_domain(links)
    if f.pcie is None:
        return Bound(np.inf, "none")
    tiers = [half("pcie_tx")]
    if f.pcie.sockets > 1:
        across = links.blocks["socket"]
        rate = links.link_capacity_bytes_per_s[across.first : across.last]
        sockets = f.pcie.sockets
        one, other = (sockets + 1) // 2, sockets // 2
        tiers.append(Bound(float(rate.mean()) * one * other, "socket"))
    if not f.pcie.p2p:
        tiers.append(half("memory_write"))
    return _narrowest(tiers)


def _narrowest(tiers: list[Bound]) -> Bound:
    """The outermost of those that are alike to rounding."""
    least = min(t.bytes_per_s for t in tiers) * (1 + 1e-9)
    return [t for t in tiers if t.bytes_per_s <= least][-1]


def _of_domain(links: LinkGraph) -> Bound:
    f = links.fabric
    assert f.scale_up is not None
    half = f.gpus // 2
    rate = f.scale_up.link.usable_bytes_per_s
    if f.scale_up.shape == "switch":
        return Bound(rate * half, "scale_up_tx")
    return Bound(rate / (f.scale_up.domain_gpus - 1) * half * (f.gpus - half), "scale_up")


def _of_package(f: Fabric) -> Bound:
    p = f.package
    assert p is not None
    rate, half = p.link.usable_bytes_per_s, p.dies // 2
    if p.shape == "full":
        return Bound(rate * half * (p.dies - half), "die")
    if p.shape == "tree":
        return Bound(rate * (p.fanout // 2 or 1), "tree")
    return Bound(rate * min(p.rows, p.columns), "die_east")


def all_to_all(links: LinkGraph) -> Bound:
    """The most that each GPU can send, bytes/s, while all send evenly to all others.

    The busiest link decides: its capacity over what crosses it when each GPU sends one byte, over
    the routes that `paths.route` takes. Only those from and to the first host are walked: its own
    links carry no others, and what its leaves send up is what it sends up times the hosts that
    share them. Exact where hosts are alike and fill their segments and pods; inf with one GPU.
    """
    f = links.fabric
    if f.gpus < 2:
        return Bound(np.inf, "none")
    if f.package is not None and f.package.dies == f.gpus:
        return _package_all_to_all(f)
    out, into, capacity = _loads(links)
    net = f.network
    shared = {"leaf_down": 0, "core_down": 0}
    if net is not None:
        shared["leaf_up"] = min(net.hosts_per_leaf, f.hosts)
        shared["core_up"] = min(net.hosts_per_pod or f.hosts, f.hosts)
    bounds = []
    for key, block in links.blocks.items():
        own = slice(block.first, block.last)
        load = out[own] * shared[key] if key in shared else out[own] + into[own]
        busy = load > 0
        if busy.any():
            rate = capacity[own][busy] / load[busy]
            bounds.append(Bound(float(rate.min()) * (f.gpus - 1), key))
    return min(bounds)


def _loads(links: LinkGraph) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Routes from and to the first host over each link, float64 [L], and the links' capacity.

    Units of hosts (`_unit`) but the first are alike to the first host: only the second is walked,
    counted as often as there are others, and each of its links is as narrow as the narrowest of
    those in its place in them.
    """
    f, g = links.fabric, links.fabric.gpus_per_host
    unit = _unit(links)
    capacity = links.link_capacity_bytes_per_s
    if not unit:
        return (*_routed(links, np.arange(f.gpus)), capacity)
    capacity, second = capacity.copy(), np.zeros(links.n, bool)
    of_unit = {"gpu": unit * g, "host": unit, "domain": unit * g // f.domain_gpus, "pod": 1}
    if f.network is not None:
        of_unit["segment"] = max(unit // f.network.hosts_per_leaf, 1)
    for block in links.blocks.values():
        rows = of_unit.get(block.axes[0], 0)
        if not rows:
            continue
        each = rows * (block.size // block.shape[0])
        here = slice(block.first + each, block.first + 2 * each)
        others = capacity[block.first + each : block.last]
        whole = np.full(-(-len(others) // each) * each, np.inf)
        whole[: len(others)] = others
        capacity[here] = whole.reshape(-1, each).min(axis=0)
        second[here] = True
    near = _routed(links, np.arange(unit * g))
    far = _routed(links, np.arange(unit * g, 2 * unit * g))
    times = np.where(second, 1.0, (f.hosts - unit) / unit)
    return near[0] + times * far[0], near[1] + times * far[1], capacity


def _unit(links: LinkGraph) -> int:
    """Hosts of a pod, or of a segment where there is one pod; 0: everybody is to be walked."""
    f, net = links.fabric, links.fabric.network
    if net is None or f.package is not None or links.ecmp != "spray":
        return 0
    unit = net.hosts_per_pod if f.pods > 1 else net.hosts_per_leaf
    nested = f.domain_gpus <= f.gpus_per_host or unit * f.gpus_per_host % f.domain_gpus == 0
    return unit if nested and f.hosts > 2 * unit else 0


def _routed(links: LinkGraph, others: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """How many routes from the first host to others cross each link, and from them to it."""
    first = np.arange(links.fabric.gpus_per_host)
    back = others[others >= len(first)]
    out = np.concatenate([route(links, gpu, others).links for gpu in first])
    into = np.concatenate([route(links, back, gpu).links for gpu in first])
    return (
        np.bincount(out, minlength=links.n).astype(np.float64),
        np.bincount(into, minlength=links.n).astype(np.float64),
    )


def _package_all_to_all(f: Fabric) -> Bound:
    p = f.package
    assert p is not None
    rate, n = p.link.usable_bytes_per_s, p.dies
    if p.shape == "full":
        return Bound(rate * (n - 1), "die")
    if p.shape == "tree":
        # The link above a node with m dies below it carries m * (n - m) pairs.
        below = [min(p.fanout**level, n) for level in range(len(tree_levels(p)) - 1)]
        return Bound(rate * (n - 1) / max(m * (n - m) for m in below), "tree")
    across, down = p.columns // 2 * -(-p.columns // 2), p.rows // 2 * -(-p.rows // 2)
    middle = [across * p.rows, down * p.columns]
    return Bound(
        rate * (n - 1) / max(middle), "die_east" if middle[0] >= middle[1] else "die_south"
    )
