"""What a GPU, its links and its NIC can do, by the name of the device: where nothing is measured.

One row a model: what its links carry in one direction and reach in practice, and its peaks. Sources
by column, under the table.
"""

from __future__ import annotations

from typing import NamedTuple

import polars as pl

from ..policy import ReplayJob


class Machine(NamedTuple):
    """A GPU and its host's usual NIC; bandwidths are of one direction."""

    name: str
    """As in device names: the first row whose name is found in them counts."""
    intra_bytes_per_s: float
    """To another GPU of the host, reached in practice (NVLink, else PCIe)."""
    nic_bytes_per_s: float
    """Of the NIC that a GPU has to itself, reached in practice."""
    n_sms: int
    hbm_bytes_per_s: float
    flops_per_s: float
    """Dense bf16 (fp16 where there is no bf16)."""

    @property
    def wide(self) -> bool:
        """NVLink joins GPUs of several hosts (a rack of Grace hosts)."""
        return self.name.startswith("GB")


GB = 1e9
MACHINES: tuple[Machine, ...] = (
    Machine("GB300", 721.8 * GB, 97.0 * GB, 148, 8.00e12, 2.25e15),
    Machine("GB200", 721.8 * GB, 48.5 * GB, 148, 8.00e12, 2.25e15),
    Machine("B300", 721.8 * GB, 97.0 * GB, 148, 8.00e12, 2.25e15),
    Machine("B200", 721.8 * GB, 48.5 * GB, 148, 8.00e12, 2.25e15),
    Machine("H200", 370.8 * GB, 48.5 * GB, 132, 4.80e12, 0.989e15),
    Machine("H100", 370.8 * GB, 48.5 * GB, 132, 3.35e12, 0.989e15),
    Machine("H800", 153.0 * GB, 48.5 * GB, 132, 3.35e12, 0.989e15),
    Machine("H20", 370.8 * GB, 48.5 * GB, 78, 4.00e12, 0.148e15),
    Machine("A800", 160.0 * GB, 23.5 * GB, 108, 2.00e12, 0.312e15),
    Machine("A100", 240.0 * GB, 23.5 * GB, 108, 2.00e12, 0.312e15),
    Machine("V100", 120.0 * GB, 11.7 * GB, 80, 0.90e12, 0.125e15),
    Machine("MI300X", 358.0 * GB, 48.5 * GB, 304, 5.30e12, 1.307e15),
    Machine("RTX", 25.6 * GB, 11.7 * GB, 128, 1.01e12, 0.165e15),
    Machine("L40", 25.6 * GB, 23.5 * GB, 142, 0.86e12, 0.181e15),
    Machine("A10", 25.6 * GB, 11.7 * GB, 72, 0.60e12, 0.125e15),
)
"""NVLink: links times what one carries in NCCL's topology code (`topo.h`: 20 GB/s on Volta and
Ampere, 20.6 on Hopper, 40.1 on Blackwell); H800 as DeepEP measured its dispatch; xGMI and PCIe 4
x16 at 0.8 of what they are sold for. NIC: 23.5 of 25 and 48.5 of 50 GB/s as SimAI has them
(`calbusbw.h`), 97 of 100 as aiconfigurator has it. The rest: vendors' data sheets."""

GENERAL = Machine("H100", *next(m for m in MACHINES if m.name == "H100")[1:])
"""What a device that the table does not know is taken for."""

HOST = Machine("host", 5 * GB, 1.1 * GB, 0, 0.05e12, 0.001e15)
"""Ranks without a device that talk by sockets (gloo): loopback, and 10 Gb Ethernet."""

NVLINK_CROSSING_NS, NIC_CROSSING_NS = 700.0, 1_300.0
"""A message over a link, both ends' hardware together: TE-CCL's figures for NVLink and InfiniBand.
Fabrics give their links' crossings, and switches' beside them."""

INTRA_SOFTWARE_NS, INTER_SOFTWARE_NS = 300.0, 2_700.0
"""What a message costs beyond its crossings: to post it, to see that it came. So that end to end a
message takes 1 us in a host (0.8 to 2 in use), and 4 us by RDMA (3 to 6)."""

INTRA_ALPHA_NS = NVLINK_CROSSING_NS + INTRA_SOFTWARE_NS
INTER_ALPHA_NS = NIC_CROSSING_NS + INTER_SOFTWARE_NS
"""A message end to end, to another GPU of the host, and to another host's under the same leaf."""

SOCKET_ALPHA_NS = 50_000.0
"""A message through the kernel's sockets."""


def named(device_name: str | None) -> Machine | None:
    """The row of a device's name, as a trace gives it; None where the table has none."""
    text = (device_name or "").upper()
    return next((m for m in MACHINES if m.name in text), None)


def device(job: ReplayJob) -> Machine | None:
    """The row of what most of a job's ranks run on; None where that is not known."""
    return named(_device_name(job))


def _device_name(job: ReplayJob) -> str | None:
    ranks = job.facts.get("ranks")
    if ranks is None or "device_name" not in ranks.columns:
        return None
    names = ranks["device_name"].cast(pl.String).drop_nulls()
    said = names.value_counts().sort("count", "device_name", descending=[True, False])
    return said["device_name"][0] if len(said) else None


def of(job: ReplayJob) -> tuple[Machine, str]:
    """The machine of a job's ranks, and one sentence that says what it was taken from.

    The name of most devices decides. Ranks without one are taken for hosts where every
    communicator speaks gloo, else for the general machine.
    """
    name = _device_name(job)
    found = named(name)
    if found is not None:
        return found, f"machine: {found.name}, by the device's name ({name})"
    if name is not None:
        return GENERAL, f"machine: unknown device {name!r}, taken for an {GENERAL.name}"
    comms = job.facts.get("comms")
    if comms is not None and "backend" in comms.columns and len(comms):
        backends = set(comms["backend"].cast(pl.String).drop_nulls())
        if backends == {"gloo"}:
            return HOST, "machine: hosts that speak by sockets (gloo)"
    return GENERAL, f"machine: no device is named, taken for an {GENERAL.name}"
