"""What a made-up rank has beside its events: communicators, links, counters and routing."""

from __future__ import annotations

import hashlib
from typing import Any

import numpy as np

DEMO_RANKS = 8
"""Ranks of a host."""
DIMS = ("world", "tp", "dp", "ep")
NIC_GBPS = 50
LAYERS = 4

Columns = dict[str, Any]


def comm(dim: str, rank: int, hosts: int) -> tuple[str, list[int]]:
    """Identity and members of the communicator of a dimension that the rank is in."""
    host, local = divmod(rank, DEMO_RANKS)
    if dim == "tp":
        members = [host * DEMO_RANKS + i for i in range(DEMO_RANKS)]
    elif dim == "dp":
        members = [h * DEMO_RANKS + local for h in range(hosts)]
    elif dim == "ep":
        pair = host // 2 * 2
        members = [
            h * DEMO_RANKS + i for h in range(pair, min(pair + 2, hosts)) for i in range(DEMO_RANKS)
        ]
    else:
        members = list(range(hosts * DEMO_RANKS))
    digest = hashlib.sha256(repr((dim, members)).encode()).hexdigest()[:8]
    return f"{DIMS.index(dim)}@{digest}", members


def comms(rank: int, hosts: int) -> Columns:
    mine = [comm(d, rank, hosts) for d in DIMS]
    return {
        "comm": [c for c, _ in mine],
        "name": [str(i) for i in range(len(DIMS))],
        "description": ["default_pg", "TENSOR_MODEL_PARALLEL_GROUP", "DATA_PARALLEL_GROUP",
                        "EXPERT_MODEL_PARALLEL_GROUP"],
        "ranks": [m for _, m in mine],
        "size": [len(m) for _, m in mine],
        "dim": list(DIMS),
        "dim_source": ["description"] * len(DIMS),
        "backend": ["nccl"] * len(DIMS),
    }  # fmt: skip


def transfers(parts: Columns, rank: int, steps: Columns, rng: np.random.Generator) -> Columns:
    """What the rank's NIC sent for each collective across hosts, and storage reads by step."""
    host, local = divmod(rank, DEMO_RANKS)
    out = np.flatnonzero(np.char.find(parts["comm"].astype(str), "1@") != 0)
    begun = steps["start_ns"].to_numpy()
    reads = len(begun)
    size = (parts["in_bytes"][out] * rng.uniform(0.8, 1.2, len(out))).astype(np.int64)
    n = len(out) + reads
    return {
        "rank": [rank] * n,
        "host": [f"node{host}"] * n,
        "nic": [f"mlx5_{local}"] * n,
        "rail": [local] * n,
        "plane": [0] * n,
        "channel": [0] * len(out) + [None] * reads,
        "bytes": [*size, *rng.integers(1 << 20, 1 << 26, reads)],
        "start_ns": [*parts["start_ns"][out], *(begun + 500_000)],
        "end_ns": [*parts["end_ns"][out], *(begun + rng.integers(10**6, 20 * 10**6, reads))],
        "event_id": [*parts["event_id"][out], *[None] * reads],
        "direction": ["send"] * len(out) + ["recv"] * reads,
        "traffic_class": ["collective"] * len(out) + ["storage"] * reads,
        "measured": [True] * n,
        "via": ["NET/IB/0"] * n,
        "source": ["profiler"] * n,
    }


def routing(rank: int, world: int, n_steps: int, rng: np.random.Generator) -> Columns:
    """Tokens of the rank by step, layer and expert: one expert a rank, popularity uneven."""
    weight = 1 / (1 + np.arange(world))
    n = n_steps * LAYERS
    tokens = np.concatenate(
        [rng.multinomial(8192, np.roll(weight / weight.sum(), i // LAYERS)) for i in range(n)]
    )
    return {
        "step": np.repeat(10 + np.arange(n_steps), LAYERS * world),
        "layer": np.tile(np.repeat(np.arange(LAYERS), world), n_steps).astype(np.int32),
        "rank": np.full(n * world, rank, np.int32),
        "expert": np.tile(np.arange(world), n).astype(np.int32),
        "expert_rank": np.tile(np.arange(world), n).astype(np.int32),
        "tokens": tokens.astype(np.int64),
        "token_class": ["real"] * (n * world),
        "source": ["plain"] * (n * world),
    }


def counters(rank: int, start_ns: int, end_ns: int, rng: np.random.Generator) -> Columns:
    """Bytes that the rank's NIC has sent and received so far, every 10 ms."""
    host, local = divmod(rank, DEMO_RANKS)
    times = np.arange(start_ns, end_ns, 10_000_000)
    n = len(times)
    sent = np.cumsum(rng.integers(0, NIC_GBPS * 10_000_000, (2, n)), axis=1)
    return {
        "rank": [rank] * (2 * n),
        "host": [f"node{host}"] * (2 * n),
        "device": [f"mlx5_{local}"] * (2 * n),
        "name": ["tx_bytes"] * n + ["rx_bytes"] * n,
        "time_ns": np.tile(times, 2),
        "value": sent.ravel().astype(float),
    }


def topology(rank: int) -> Columns:
    host, local = divmod(rank, DEMO_RANKS)
    return {
        "host": [f"node{host}"] * 2,
        "device": [f"gpu{local}", f"mlx5_{local}"],
        "kind": ["gpu", "nic"],
        "peer": ["nvswitch0", None],
        "bandwidth_bytes_per_s": [450 * 10**9, NIC_GBPS * 10**9],
        "rail": [local, local],
        "plane": [None, 0],
        "numa": [local // 4, local // 4],
        "rank": [rank, rank],
        "via": ["NVLink", "NET/IB"],
        "source": ["nccl-topology"] * 2,
    }
