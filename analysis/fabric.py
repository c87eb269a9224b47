"""A fabric in figures: its links by class, what joins its halves, what an all-to-all can get."""

from __future__ import annotations

import os
from typing import Any

import numpy as np

from ..replay import fabric as fabrics
from ..replay.fabric import Fabric, LinkGraph, Package, figures


def presets() -> list[dict[str, Any]]:
    """One row a preset: name, device, GPUs of a host and of a scale-up domain, links, planes.

    Bandwidths are of one GPU and one direction, nominal; a NIC that GPUs share is divided.
    """
    out = []
    for name in fabrics.presets():
        f = fabrics.preset(name)
        out.append(
            {
                "preset": name,
                "device": f.device,
                "gpus_per_host": f.gpus_per_host,
                "domain_gpus": f.domain_gpus if f.package is None else f.package.dies,
                "scale_up_bytes_per_s": _scale_up(f),
                "nic_bytes_per_s": f.rail_bytes_per_s * f.rails / f.gpus_per_host or None,
                "rails": f.rails,
                "planes": 1 if f.nic is None else f.nic.planes,
                "wiring": None if f.network is None else _wiring(f),
            }
        )
    return out


def _scale_up(f: Fabric) -> float | None:
    inner = f.scale_up or f.package or f.pcie
    return None if inner is None else inner.link.bandwidth_bytes_per_s


def _wiring(f: Fabric) -> str:
    assert f.network is not None
    return f"{f.network.wiring}, apart" if f.network.isolated_rails else f.network.wiring


def _package(p: Package) -> dict[str, Any]:
    return {"rows": p.rows, "columns": p.columns, "shape": p.shape}


def facts(what: str | os.PathLike[str] | Fabric, gpus: int | None = None) -> dict[str, Any]:
    """What a fabric is and amounts to: sizes, switches, `links` (a row a class) and bounds.

    Bandwidths are bytes/s in one direction. `bisection_bytes_per_s` joins one half of the GPUs to
    the other; `all_to_all_bytes_per_s` is the most that each GPU can send while all send evenly to
    all, and `..._limit` the links that decide. Raises UsageError for a fabric that cannot be.
    """
    f = what if isinstance(what, Fabric) else fabrics.load(what, gpus)
    links = fabrics.graph(f)
    half, all_to_all = figures.bisection(links), figures.all_to_all(links)
    net = f.network
    return {
        "fabric": f.name,
        "device": f.device,
        "gpus": f.gpus,
        "hosts": f.hosts,
        "gpus_per_host": f.gpus_per_host,
        "domain_gpus": f.domain_gpus,
        "package": None if f.package is None else _package(f.package),
        "rails": f.rails,
        "planes": 1 if f.nic is None else f.nic.planes,
        "segments": f.segments,
        "pods": f.pods,
        "wiring": None if net is None else _wiring(f),
        "rail": fabrics.auto_rail(f),
        "ecmp": links.ecmp,
        "oversubscription": None if net is None else net.oversubscription,
        "core_oversubscription": None if f.pods < 2 or net is None else net.core_oversubscription,
        "switches": figures.switches(f),
        "links": _classes(links),
        "bisection_bytes_per_s": half.bytes_per_s,
        "bisection_limit": half.block,
        "all_to_all_bytes_per_s": all_to_all.bytes_per_s,
        "all_to_all_limit": all_to_all.block,
        "assumptions": list(f.assumptions),
    }


def _classes(links: LinkGraph) -> list[dict[str, Any]]:
    rows = []
    for code, cls in enumerate(links.classes):
        of = links.link_class == code
        if not of.any():
            continue
        blocks = [
            k for k, b in links.blocks.items() if b.size and links.link_class[b.first] == code
        ]
        rate = links.link_capacity_bytes_per_s[of]
        rows.append(
            {
                "class": cls.name,
                "blocks": blocks,
                "links": int(of.sum()),
                "bandwidth_bytes_per_s": cls.bandwidth_bytes_per_s or None,
                "efficiency": cls.efficiency,
                "least_bytes_per_s": float(np.min(rate)),
                "total_bytes_per_s": float(np.sum(rate)),
                "alpha_ns": cls.alpha_ns,
            }
        )
    return rows
