"""One all-to-all over all ranks before, several over fewer ranks each at once after."""

from __future__ import annotations

from ..pairs import Pair, Run
from ..shape import MBIT, Shape
from ..workload import AllToAll, Comm, Work, Workload

KIND = "all-to-all split"


def _job(batches: int, size: int) -> Workload:
    k = 8 // batches
    groups = tuple(tuple(range(b * k, (b + 1) * k)) for b in range(batches))
    exchange = AllToAll("cp", size, "pairwise")
    small = AllToAll("cp", size // 4, "pairwise")
    step = (Work("qkv", 10.0), exchange, Work("attention", 20.0), small, Work("mlp", 10.0))
    return Workload(8, step, {"cp": Comm(groups, "cp")})


def pairs() -> list[Pair]:
    """On hosts of one seat, where nothing but the count of messages changes, and of four."""
    flat = Shape(8, nic_bps=80 * MBIT)
    wide = Shape(2, 4, nic_bps=50 * MBIT, up_bps=200 * MBIT)
    cases = (
        ("flat-2", flat, 2, 400_000),
        ("flat-4", flat, 4, 400_000),
        ("flat-small-4", flat, 4, 80_000),
        ("hosts-2", wide, 2, 300_000),
        ("hosts-4", wide, 4, 300_000),
    )
    out = []
    for name, shape, batches, size in cases:
        label = f"{'flat' if shape.per_host == 1 else 'hosts'}-{size}"
        before, after = (
            Run(f"exchange-{label}-by-{b}", shape, _job(b, size)) for b in (1, batches)
        )
        inside = f",within={shape.up_bps / 8e6:g}MB/s" if shape.per_host > 1 else ""
        policy = f"batch-a2a:batches={batches}{inside}"
        out.append(Pair(KIND, f"split-{name}", before, after, (policy,), fabric=shape.per_host > 1))
    return out
