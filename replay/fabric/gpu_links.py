"""What joins the GPUs of a host, as its topology's links say or, without any, the device's name."""

from __future__ import annotations

from ..calibration.machines import Machine
from .description import LinkClass, ScaleUp
from .host_tree import Tree

NVLINK_ALPHA_NS = 700.0
"""TE-CCL's figure for NVLink."""

EFFICIENCY = 0.8
"""Of NVLink, xGMI and PCIe where the device's name does not tell better (aiconfigurator)."""


def scale_up(
    host: Tree, gpus: int, machine: Machine | None, said: list[str]
) -> ScaleUp | None:  # fmt: skip
    """NVLink or xGMI: as the links say, else as the device's name does."""
    per_gpu = [sum(p.values()) for p in host.peers]
    if host.links and len(per_gpu) == gpus and min(per_gpu) > 0:
        return _told_links(host, gpus, machine, said)
    if machine is None or gpus < 2 or machine.intra_bytes_per_s < 50e9:
        if not host.links:
            said.append("links between GPUs are not told: taken to be PCIe only")
        else:
            said.append("the bandwidth of links between GPUs is not known: taken to be PCIe only")
        return None
    said.append(
        f"links between GPUs are not told: a switch of {machine.intra_bytes_per_s / 1e9:g} GB/s a "
        f"GPU, as {machine.name} has"
    )
    return ScaleUp(LinkClass("nvlink", machine.intra_bytes_per_s, 1.0, NVLINK_ALPHA_NS), gpus)


def _told_links(
    host: Tree, gpus: int, machine: Machine | None, said: list[str]
) -> ScaleUp | None:  # fmt: skip
    rate = min(sum(p.values()) for p in host.peers)
    efficiency = EFFICIENCY
    if machine is not None and 0.5 <= machine.intra_bytes_per_s / rate <= 1:
        efficiency = machine.intra_bytes_per_s / rate
    else:
        said.append(f"of {host.links} {EFFICIENCY:g} is taken to be reached")
    link = LinkClass(host.links, rate, efficiency, NVLINK_ALPHA_NS)
    if all(set(p) == {-1} for p in host.peers):
        return ScaleUp(link, gpus)
    groups = _groups(host)
    sizes = {len(g) for g in groups}
    if len(sizes) > 1 or sizes == {1}:
        said.append(f"GPUs are not joined by {host.links} in equal groups: taken to be PCIe only")
        return None
    size = sizes.pop()
    if any(g != list(range(g[0], g[0] + size)) for g in groups):
        said.append(f"{host.links} joins groups of {size} GPUs whose numbers are mixed: taken for "
                    f"runs of {size} numbers")  # fmt: skip
    whole = all(len(p) == size - 1 and len(set(p.values())) == 1 for p in host.peers)
    if not whole:
        said.append(
            f"{host.links} joins only some pairs of a group of {size}, or some better than others: "
            f"taken for a switch of {rate / 1e9:g} GB/s a GPU"
        )
    return ScaleUp(link, size, "full" if whole else "switch")


def _groups(host: Tree) -> list[list[int]]:
    """GPUs that links join, directly or over others; a switch joins all that hang on it."""
    left, out = set(range(len(host.gpus))), []
    on_switch = [i for i, p in enumerate(host.peers) if -1 in p]
    while left:
        group, new = set(), {min(left)}
        while new:
            group |= new
            reached = {o for i in new for o in host.peers[i] if o >= 0}
            if any(i in on_switch for i in new):
                reached |= set(on_switch)
            new = reached - group
        out.append(sorted(group))
        left -= group
    return out
