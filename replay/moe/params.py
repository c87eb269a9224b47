"""Parameters that policies of all-to-alls share."""

from __future__ import annotations

from ..policy import BadParam, Param, words
from ..quantities import bandwidth_bytes_per_s, time_ns
from .expert_kernels import KERNELS as NAMES

COMM = Param("comm", words, (), "", "communicators to change, joined by + (default: all)")

PORTS = (
    COMM,
    Param("local", int, None, "GPUs", "GPUs a host, where the job does not know its hosts"),
    Param(
        "nic",
        bandwidth_bytes_per_s,
        None,
        "bytes/s",
        "of a GPU's NIC, one direction (default: by the device's name)",
    ),
    Param(
        "nvlink",
        bandwidth_bytes_per_s,
        None,
        "bytes/s",
        "of a GPU within its host, one direction (default: by the device's name)",
    ),
    Param(
        "alpha",
        time_ns,
        None,
        "ns",
        "latency of a message (default: fitted from the trace, else by the device's name)",
    ),
)

KERNELS = Param("kernels", words, NAMES, "", "parts of expert kernels' names, joined by +")

NO_ROUTING = (
    "no routing log: which experts are hot is not known, nothing is changed; record the router's "
    "choices (Megatron's router trace, SGLang's or vLLM's expert counts, or the plain form)"
)

RECORD = "record all-to-alls with their splits (execution traces), or the router's choices"
"""What to record for a matrix that is not guessed."""


def checked(policy: str, **more) -> None:
    """Raises BadParam for a bandwidth, size or count that is not positive, where it is given."""
    for name, value in more.items():
        if value is not None and not value > 0:
            raise BadParam(f"policy {policy}: {name}={value}: it is more than 0")
