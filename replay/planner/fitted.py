"""Efficiencies of measured machines, fitted once: what a plan takes where none are given.

From 109 measured configurations on 64 to 512 A100 (vTrain's `ground_truth_multi.csv`, MICRO 2024);
`python benchmarks/planner.py` fits them again and prints how far they are off.
"""

from __future__ import annotations

from .platform import Platform, named
from .step import Efficiencies

VOCAB = 51200
"""GPT-2's 50,257 as Megatron pads it for eight tensor ranks."""


def a100_cluster() -> Platform:
    """The measured machine: A100 hosts with 800 Gb/s of network for eight GPUs, 0.94 of it used."""
    return named("A100")._replace(inter_bytes_per_s=0.94 * 12.5e9)


A100 = Efficiencies(
    gemm=0.855,
    memory=0.425,
    unaligned=0.5,  # not told by these configurations: their vocabulary is padded
    small_ns=421_000.0,
    launch_ns=800_000.0,  # not told either: none of them waits for its host
    collective_ns=20_100.0,
    link=1.0,
)

INTERVAL = (0.91, 1.25)
"""Measured over estimated, where the middle nine tenths lie when each tenth of the configurations
is predicted from the other nine. Of other machines less is known."""
