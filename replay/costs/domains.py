"""A fabric with other links: a class of them faster, or scale-up domains of another size."""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from ...ingest.errors import UsageError
from ..fabric import Fabric

SCALE_UP, SCALE_OUT = "scale-up", "scale-out"


def per_domain(domain: np.ndarray) -> int | None:
    """Ranks in each domain where that is the same in all; else None."""
    counts = np.unique(domain, return_counts=True)[1]
    return int(counts[0]) if len(counts) and (counts == counts[0]).all() else None


def scaled_links(fabric: Fabric, name: str, factor: float) -> Fabric:
    """The fabric with one class of links, or all (`all`), so many times as fast; alphas stay.

    `scale-up` and `scale-out` name the classes of its scale-up domain and its NICs (whose leaves
    and spines keep their oversubscription). Raises UsageError for a class that it has not.
    """
    parts = {
        part: getattr(fabric, part)
        for part in ("scale_up", "package", "nic", "optical")
        if getattr(fabric, part) is not None
    }
    alias = {"scale_up": SCALE_UP, "nic": SCALE_OUT}
    known: dict[str, list[tuple[str, str]]] = {}
    for part, value in parts.items():
        for key in filter(None, (value.link.name, alias.get(part))):
            known.setdefault(key, []).append((part, "link"))
    if fabric.pcie is not None:
        for field in ("link", "switch", "socket", "memory"):
            known.setdefault(getattr(fabric.pcie, field).name, []).append(("pcie", field))
    if fabric.network is not None:
        known.setdefault(fabric.network.leaf.name, []).append(("network", "oversubscription"))
        known.setdefault(fabric.network.core.name, []).append(("network", "core_oversubscription"))
    if name == "all":
        # Leaves and spines follow the NICs.
        wanted = {place for places in known.values() for place in places if place[0] != "network"}
    elif name in known:
        wanted = set(known[name])
    else:
        others = ", ".join(sorted(known))
        raise UsageError(f"fabric {fabric.name} has no links {name!r}: all, {others} would work")
    for part, field in sorted(wanted):
        old = getattr(fabric, part)
        value = getattr(old, field)
        if field.endswith("oversubscription"):
            new = value / factor
        else:
            new = replace(value, bandwidth_bytes_per_s=value.bandwidth_bytes_per_s * factor)
        fabric = replace(fabric, **{part: replace(old, **{field: new})})
    return fabric


def widened(fabric: Fabric, domain_gpus: int) -> Fabric:
    """The fabric with another size of scale-up domain. Raises UsageError and BadFabric."""
    if fabric.scale_up is None:
        raise UsageError(f"fabric {fabric.name} has no scale-up domain that could be wider")
    return replace(fabric, scale_up=replace(fabric.scale_up, domain_gpus=domain_gpus))
