"""Links faster or slower: NICs, a host's own links, the leaves' way up."""

from __future__ import annotations

from dataclasses import replace

from ..pairs import Pair, Run
from ..shape import MBIT, Shape
from .jobs import data_parallel, gradients, with_loss

KIND = "link rates scaled"
SIZES = (500_000, 150_000, 40_000)


def pairs() -> list[Pair]:
    """NICs at half, one and a half and twice the rate; an oversubscribed spine widened."""
    out = []
    base = Shape(4, nic_bps=60 * MBIT)
    job = data_parallel(4, gradients(SIZES))
    runs = {f: Run(f"nic-rate-x{f:g}", replace(base, nic_bps=round(base.nic_bps * f)), job)
            for f in (0.5, 1, 1.5, 2)}  # fmt: skip
    for was, now in ((1, 0.5), (1, 1.5), (1, 2), (2, 1)):
        policy = f"scale-fabric:link=scale-out,factor={now / was:g}"
        out.append(Pair(KIND, f"nic-rate-{was:g}-to-{now:g}", runs[was], runs[now], (policy,)))
    racks = Shape(4, 2, nic_bps=60 * MBIT, up_bps=400 * MBIT, wiring="tor", hosts_per_leaf=2)
    for name, algo in (("ring", "ring"), ("direct", "direct")):
        wide = with_loss(data_parallel(8, gradients(SIZES, algo)))
        narrow, full = (
            Run(f"spine-{name}-{bps // MBIT}", replace(racks, uplink_bps=bps), wide)
            for bps in (60 * MBIT, 120 * MBIT)
        )
        policy = ("scale-fabric:link=leaf,factor=2",)
        out.append(Pair(KIND, f"spine-{name}", narrow, full, policy, fabric=True))
    return out
