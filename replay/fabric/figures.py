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
    out, into = np.zeros(links.n), np.zeros(links.n)
    everyone = np.arange(f.gpus)
    for gpu in range(f.gpus_per_host):
        out += np.bincount(route(links, gpu, everyone).links, minlength=links.n)
        others = everyone[f.gpus_per_host :]
        into += np.bincount(route(links, others, gpu).links, minlength=links.n)
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
            rate = links.link_capacity_bytes_per_s[own][busy] / load[busy]
            bounds.append(Bound(float(rate.min()) * (f.gpus - 1), key))
    return min(bounds)


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
