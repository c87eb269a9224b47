"""How routes cross rails where nobody says."""

from __future__ import annotations

from .description import Fabric

RAILS = ("spine", "pxn", "receive")


def auto_rail(fabric: Fabric) -> str:
    """`pxn` or `spine`: NVLink first where it saves a spine, as NCCL does by default."""
    net = fabric.network
    if net is None:
        return "spine"
    if net.isolated_rails:
        return "pxn"
    joined = fabric.scale_up is not None and fabric.domain_gpus >= fabric.gpus_per_host
    return "pxn" if joined and net.wiring == "rail" and fabric.rails > 1 else "spine"
