"""The shape of the made-up job, and what is wrong with it: the truth that analysis has to find."""

from __future__ import annotations

from dataclasses import asdict, dataclass
from typing import Any

import numpy as np

HOST_RANKS = 8
"""GPUs of a host: one tensor-parallel group, a NIC each."""
NIC_BYTES_PER_S = 40_000_000_000
NVLINK_BYTES_PER_S = 300_000_000_000
LATENCY_NS = {"world": 30_000, "dp": 25_000, "ep": 20_000, "tp": 8_000}
TOKENS = 2048
"""Tokens of a rank in a microbatch."""
TOP_K = 2
TOKEN_BYTES = 4096
EXPERTS_A_RANK = 8
GRADIENT_BYTES = 32 << 20
"""Gradients of a layer on a rank; its activations between tensor-parallel ranks are half of it."""
ACTIVATION_BYTES = 16 << 20
FIRST_STEP = 1000
BASE_NS = 1_759_300_074_000_000_000
"""What a trace's relative times count from."""
BEGIN_NS = 6_322_354_300_000_000
"""Where the job begins, counted from there."""

DIMS = ("world", "tp", "dp", "ep")
DESCRIPTIONS = {
    "world": "default_pg",
    "tp": "TENSOR_MODEL_PARALLEL_GROUP",
    "dp": "DATA_PARALLEL_GROUP",
    "ep": "EXPERT_MODEL_PARALLEL_GROUP",
}
CAUSES = ("slow-kernels", "gc")


@dataclass(frozen=True)
class Shape:
    """How large the job is, its seed, and what is wrong with it; see `shaped`."""

    ranks: int
    steps: int
    layers: int
    microbatches: int
    seed: int
    late_rank: int
    late_cause: str
    late_factor: float
    """`slow-kernels`: that many times the kernels' durations"""
    gc_ns: int
    """`gc`: how long the late rank collects garbage at the start of each step"""
    slow_host: int
    slow_rail: int
    rail_factor: float
    """that many times the time that other rails take"""
    hot_layer: int
    hot_expert: int
    hot_factor: float
    """that many times the tokens that it would get"""

    @property
    def hosts(self) -> int:
        return self.ranks // HOST_RANKS

    @property
    def ep(self) -> int:
        """Hosts over which the experts are spread: members of an expert-parallel group."""
        return min(4, self.hosts)

    @property
    def experts(self) -> int:
        return self.ep * EXPERTS_A_RANK

    def group_of(self, dim: str) -> np.ndarray:
        """int64[ranks]: for each rank the number of its group of a dimension."""
        rank = np.arange(self.ranks)
        host, local = rank // HOST_RANKS, rank % HOST_RANKS
        if dim == "world":
            return np.zeros(self.ranks, np.int64)
        if dim == "tp":
            return host
        if dim == "dp":
            return local
        return host // self.ep * HOST_RANKS + local

    def members(self, dim: str, rank: int) -> list[int]:
        """The group of the rank, its members in order."""
        group = self.group_of(dim)
        return np.flatnonzero(group == group[rank]).tolist()

    def host_name(self, host: int) -> str:
        return f"node{host:04d}"

    def clocks(self) -> tuple[np.ndarray, np.ndarray]:
        """What each host's clock is ahead at the job's start (int64 ns), and its drift (ppm)."""
        rng = np.random.default_rng([self.seed, 2])
        ahead = rng.integers(-5_000_000, 5_000_000, self.hosts)
        drift = rng.uniform(-2, 2, self.hosts)
        ahead[0], drift[0] = 0, 0.0
        return ahead, drift

    def truth(self) -> dict[str, Any]:
        """What `truth.json` begins with."""
        ahead, drift = self.clocks()
        name = self.host_name
        late = {"rank": self.late_rank, "host": name(self.late_rank // HOST_RANKS)}
        late["cause"] = {"slow-kernels": "slower_kernels", "gc": "garbage_collection"}[
            self.late_cause
        ]
        late |= (
            {"factor": self.late_factor}
            if self.late_cause == "slow-kernels"
            else {"pause_ns": self.gc_ns}
        )
        return {
            "shape": {**asdict(self), "hosts": self.hosts, "tp": HOST_RANKS, "dp": self.hosts,
                      "ep": self.ep, "experts": self.experts},
            "late_rank": late,
            "slow_rail": {
                "host": name(self.slow_host), "rail": self.slow_rail,
                "rank": self.slow_host * HOST_RANKS + self.slow_rail, "factor": self.rail_factor,
                "nic_bytes_per_s": round(NIC_BYTES_PER_S / self.rail_factor),
            },
            "hot_expert": {
                "layer": self.hot_layer, "expert": self.hot_expert, "factor": self.hot_factor,
            },
            "clocks": {
                name(h): {"ahead_ns": int(a), "drift_ppm": float(d)}
                for h, (a, d) in enumerate(zip(ahead, drift, strict=True))
            },
        }  # fmt: skip


def shaped(
    ranks: int,
    *,
    steps: int = 4,
    layers: int = 8,
    microbatches: int = 2,
    seed: int = 1,
    late_cause: str = "slow-kernels",
    late_factor: float = 1.4,
    gc_ns: int = 25_000_000,
    rail_factor: float = 1.5,
    hot_factor: float = 4.0,
) -> Shape:
    """A shape with its culprits chosen by the seed: on three hosts, where there are as many.

    Raises ValueError for a number of ranks that is no whole number of expert-parallel groups of
    hosts (16, 24, or a multiple of 32).
    """
    hosts = ranks // HOST_RANKS
    if ranks % HOST_RANKS or hosts < 2 or hosts % min(4, hosts):
        raise ValueError(f"{ranks} ranks: give 16, 24 or a multiple of 32")
    if late_cause not in CAUSES:
        raise ValueError(f"no cause {late_cause!r}: {', '.join(CAUSES)}")
    rng = np.random.default_rng([seed, 1])
    late_host, slow_host = rng.permutation(hosts)[:2]
    late_local, slow_rail = rng.permutation(HOST_RANKS)[:2]
    return Shape(
        ranks=ranks, steps=steps, layers=layers, microbatches=microbatches, seed=seed,
        late_rank=int(late_host * HOST_RANKS + late_local), late_cause=late_cause,
        late_factor=late_factor, gc_ns=gc_ns,
        slow_host=int(slow_host), slow_rail=int(slow_rail), rail_factor=rail_factor,
        hot_layer=int(rng.integers(layers)),
        hot_expert=int(rng.integers(min(4, hosts) * EXPERTS_A_RANK)), hot_factor=hot_factor,
    )  # fmt: skip
