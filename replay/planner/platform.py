"""The machine a plan is for: GPUs a host, their peaks and memory, links inside and between."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, NamedTuple

from ...ingest.errors import UsageError
from ..calibration import machines, messages
from ..policy import ReplayJob

if TYPE_CHECKING:
    from ..fabric.description import Fabric


class Platform(NamedTuple):
    """GPUs and links; bandwidths of one direction a GPU, reached in practice."""

    name: str
    gpus_per_host: int
    memory_bytes: float
    flops_per_s: float
    hbm_bytes_per_s: float
    intra_bytes_per_s: float
    intra_alpha_ns: float
    inter_bytes_per_s: float
    inter_alpha_ns: float


GB = 1e9
_MEMORY_GB = {
    "GB300": 288, "GB200": 192, "B300": 288, "B200": 192, "H200": 141, "H100": 80, "H800": 80,
    "H20": 96, "A800": 80, "A100": 80, "V100": 32, "RTX": 24, "L40": 48, "A10": 24,
}  # fmt: skip
"""Of the vendors' data sheets, the larger variant; RTX: 4090."""

_DOMAIN = {"GB200": 72, "GB300": 72}
"""GPUs of an NVLink domain, where it is not a host's 8."""


def named(name: str) -> Platform:
    """The platform of a GPU's name (`H100`, `a100`). Raises UsageError."""
    machine = machines.named(name)
    if machine is None:
        raise UsageError(f"no machine {name!r}: there are {', '.join(_MEMORY_GB)}")
    return of_machine(machine)


def of_machine(machine: machines.Machine) -> Platform:
    """The platform of a row of the table of machines, eight GPUs a host."""
    return Platform(
        machine.name,
        _DOMAIN.get(machine.name, 8),
        _MEMORY_GB.get(machine.name, 80) * GB,
        machine.flops_per_s,
        machine.hbm_bytes_per_s,
        machine.intra_bytes_per_s,
        machines.INTRA_ALPHA_NS,
        machine.nic_bytes_per_s,
        machines.INTER_ALPHA_NS,
    )


def of_job(job: ReplayJob) -> tuple[Platform, str]:
    """The platform of a job's devices, and one sentence that says what it was taken from.

    GPUs a host as the job's ranks lie on hosts, where all hosts have as many.
    """
    machine, words = machines.of(job)
    found = of_machine(machine)
    ranks = job.facts.get("ranks")
    if ranks is not None and "host" in ranks.columns:
        each = ranks["host"].drop_nulls().value_counts()["count"].unique().to_list()
        if len(each) == 1:
            found = found._replace(gpus_per_host=each[0])
    return found, words


def of_fabric(fabric: Fabric, base: Platform) -> Platform:
    """`base` with the links of a described fabric: a scale-up domain is a host, a GPU's share of
    its host's NICs its way out. Leaf and spine are taken to carry what the NICs send."""
    inside = fabric.scale_up or fabric.package or fabric.pcie
    found = base._replace(
        name=fabric.name, gpus_per_host=max(fabric.gpus_per_host, fabric.domain_gpus)
    )
    if inside is not None:
        found = found._replace(
            intra_bytes_per_s=inside.link.usable_bytes_per_s,
            intra_alpha_ns=messages.inside_ns(fabric) or base.intra_alpha_ns,
        )
    if fabric.nic is not None:
        share = fabric.nic.count / fabric.gpus_per_host
        found = found._replace(
            inter_bytes_per_s=fabric.nic.link.usable_bytes_per_s * share,
            inter_alpha_ns=messages.outside_ns(fabric, fabric.hosts) or base.inter_alpha_ns,
        )
    return found


class Group(NamedTuple):
    """Ranks that communicate: how many, how many share a host, and what joins them."""

    size: int
    per_host: int
    bytes_per_s: float
    """What one rank sends in an ordered (ring) collective."""
    latency_ns: float
    """Of one pass of an ordered collective (all-gather or reduce-scatter)."""


def group(platform: Platform, size: int, stride: int) -> Group:
    """A group of `size` ranks, `stride` apart, GPUs being numbered host by host.

    Across hosts a ring enters and leaves a host by as many NICs as it has members there (a rail
    each), so its members send at the lesser of NVLink and per_host x NIC. One pass costs an alpha
    a member inside and log2 of the hosts between (NCCL takes a tree there where latency counts):
    deduced, textbook forms.
    """
    per_host = max(1, min(size, platform.gpus_per_host // stride))
    hosts = math.ceil(size / per_host)
    latency = (per_host - 1) * platform.intra_alpha_ns
    if hosts == 1:
        return Group(size, per_host, platform.intra_bytes_per_s, latency)
    rate = min(platform.intra_bytes_per_s, per_host * platform.inter_bytes_per_s)
    return Group(size, per_host, rate, latency + math.log2(hosts) * platform.inter_alpha_ns)


def pass_ns(of: Group, size_bytes: float) -> float:
    """An all-gather to (or reduce-scatter of) `size_bytes` in all, ns."""
    if of.size < 2:
        return 0.0
    return of.latency_ns + (of.size - 1) / of.size * size_bytes / of.bytes_per_s * 1e9


def all_to_all_ns(platform: Platform, of: Group, size_bytes: float) -> float:
    """An even all-to-all of `size_bytes` a rank: what stays in the host and what leaves it go at
    the same time, each over its own links."""
    if of.size < 2:
        return 0.0
    inside = (of.per_host - 1) / of.size * size_bytes / platform.intra_bytes_per_s
    outside = (of.size - of.per_host) / of.size * size_bytes / platform.inter_bytes_per_s
    return of.latency_ns + max(inside, outside) * 1e9
