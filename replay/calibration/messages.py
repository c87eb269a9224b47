"""What a message costs end to end on a described fabric: its crossings, and software beside them.

A fabric's `alpha` is a crossing of a link by hardware, a machine's (`machines`) is end to end. This
is where the first becomes the second, so that a message costs the same by either. A fabric without
alphas is ideal, and stays so.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from . import machines

if TYPE_CHECKING:
    from ..fabric import Fabric, LinkGraph, Routes


def alphas_ns(wires: LinkGraph, routes: Routes) -> np.ndarray:
    """float64 [k]: each route's message, end to end."""
    crossings = routes.alpha_ns(wires)
    outward = np.zeros(routes.n, bool)
    block = wires.blocks.get("nic_tx")
    if block is not None:
        over = (routes.links >= block.first) & (routes.links < block.last)
        np.logical_or.at(outward, np.repeat(np.arange(routes.n), np.diff(routes.offsets)), over)
    software = np.where(outward, machines.INTER_SOFTWARE_NS, _inside_ns(wires.fabric))
    return np.where(crossings > 0, crossings + software, 0.0)


def software_ns(fabric: Fabric, gpus) -> float:
    """What each message of a collective on these GPUs costs beyond its crossings.

    That of NICs where they are in several domains, else of the links inside.
    """
    domain = max(fabric.domain_gpus, fabric.gpus_per_host)
    if fabric.nic is not None and len(np.unique(np.asarray(gpus) // domain)) > 1:
        return machines.INTER_SOFTWARE_NS if fabric.nic.link.alpha_ns else 0.0
    inside = fabric.scale_up or fabric.package or fabric.pcie
    return _inside_ns(fabric) if inside is not None and inside.link.alpha_ns else 0.0


def inside_ns(fabric: Fabric) -> float:
    """A message between GPUs of a domain (of a package, of a host), end to end; 0: not said."""
    inside = fabric.scale_up or fabric.package or fabric.pcie
    crossing = 0.0 if inside is None else inside.link.alpha_ns
    return crossing + _inside_ns(fabric) if crossing else 0.0


def outside_ns(fabric: Fabric, hosts: int) -> float:
    """A message over NICs of one rail among so many hosts, end to end; 0: not said.

    Under one leaf it crosses the NICs, beyond it a spine too.
    """
    if fabric.nic is None:
        return 0.0
    crossing, net = fabric.nic.link.alpha_ns, fabric.network
    if net is not None and hosts > net.hosts_per_leaf:
        crossing += net.leaf.alpha_ns
    return crossing + machines.INTER_SOFTWARE_NS if crossing else 0.0


def _inside_ns(fabric: Fabric) -> float:
    """Dies of a package write to each other by hardware alone."""
    return 0.0 if fabric.package is not None else machines.INTRA_SOFTWARE_NS
