"""Communicators on known machines, as NCCL's search of their topology finds them.

The search itself is not modelled: channels and GB/s a channel are data (`nccl.toml`), from tables
that NCCL printed where there are any, else deduced from link speeds. Both can be given instead.
"""

from __future__ import annotations

import re

from ...ingest.errors import UsageError
from .nccl import Comm, Graph, constants


def machines() -> tuple[str, ...]:
    """The machines with data."""
    return tuple(constants()["machines"])


MOST_CHANNELS = 128
"""Twice NCCL's own MAXCHANNELS."""

CPUS = ("intel", "amd", "arm")
"""NCCL corrects for the first two; any other is as arm."""

ALIKE = {"h200": "h100", "h20": "h100", "gb200": "b200", "a800": "a100"}
"""Devices that NCCL's model tells apart by nothing but their links."""


def of_device(device: str | None) -> str | None:
    """The machine of a device's name (`NVIDIA H100 80GB HBM3` -> `h100`), or None."""
    for word in re.findall(r"[a-z]+\d+", (device or "").lower()):
        if word in machines():
            return word
        if word in ALIKE:
            return ALIKE[word]
    return None


def comm(
    machine: str,
    n_ranks: int,
    n_nodes: int = 1,
    *,
    channels: int | None = None,
    channel_gbps: float | None = None,
    cpu: str = "intel",
    nvls: bool = True,
    collnet: bool = False,
    nic_latency_us: float = 0.0,
) -> Comm:
    """A communicator of `n_ranks` on `n_nodes` nodes of a machine, each as full as the others.

    `channels` and `channel_gbps` (GB/s that one carries) replace the ring's and tree's. `collnet`:
    the network reduces. Raises UsageError for a machine without data, for ranks that do not divide
    and for more ranks a node than the machine has GPUs.
    """
    known = constants()["machines"]
    if machine not in known:
        raise UsageError(f"no NCCL data of machine {machine!r}; there are {', '.join(known)}")
    if n_ranks < 1 or n_nodes < 1 or n_ranks % n_nodes:
        raise UsageError(f"{n_ranks} ranks do not divide over {n_nodes} nodes")
    if channels is not None and not 1 <= channels <= MOST_CHANNELS:
        raise UsageError(f"{channels} channels: NCCL has 1 to {MOST_CHANNELS}")
    if cpu not in CPUS:
        raise UsageError(f"no NCCL data of CPU {cpu!r}; there are {', '.join(CPUS)}")
    data = known[machine]
    local = n_ranks // n_nodes
    if local > data["gpus"]:
        raise UsageError(
            f"{local} ranks a node: a {machine} host has {data['gpus']} GPUs; give more nodes"
        )
    count, each = data["ring"]
    nics = min(local, data["nics"])
    if n_nodes > 1:
        step = _step(data["inter"], min(data["nic_gbps"], data["nvlink_gbps"] / nics))
        count, each = 2 * nics, step / 2
    given = channels is not None or channel_gbps is not None
    if given:
        together = count * each
        count = channels or count
        each = channel_gbps or together / count
    ring = Graph(count, each, each, nic_latency_us)
    graphs = {"ring": ring, "tree": ring}
    if local == n_ranks == 2 and not given and "tree_of_two" in data:
        of_two, at = data["tree_of_two"]
        graphs["tree"] = Graph(of_two, at, at, nic_latency_us)
    if n_ranks == n_nodes:
        graphs["pat"] = ring
    if collnet:
        graphs |= {"collnet_direct": ring, "collnet_chain": ring}
    if nvls and "nvls" in data and local > 1:
        inside = _step(data["nvls"], data["nvlink_gbps"] / (local + 1))
        outside = 2 * each if n_nodes > 1 else data["nvls"][0]
        heads = Graph(local, inside, outside, nic_latency_us)
        graphs |= {"nvls": heads, "nvls_tree": heads}
    return Comm(
        n_ranks,
        n_nodes,
        data["caps"],
        graphs,
        link=data["link"],
        cpu=cpu,
        channels=count,
        collnet=collnet,
        same_channels=n_nodes == 1,
    )


def _step(steps: list[float], most: float) -> float:
    """The largest step of a search that is no more than `most`; its last where none is."""
    return float(next((s for s in steps if s <= most), steps[-1]))
