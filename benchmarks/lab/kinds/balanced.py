"""All-to-alls of experts that load some rails more, and the same spread over all rails first."""

from __future__ import annotations

from dataclasses import replace

from ..pairs import Pair, Run
from ..shape import MBIT, Shape
from ..workload import AllToAll, Work, Workload, world
from .jobs import with_loss

KIND = "rails balanced"


def _job(ranks: int, thing: AllToAll) -> Workload:
    half = replace(thing, size=thing.size // 2)
    step = (Work("attention", 12.0), thing, Work("experts", 15.0), half, Work("head", 5.0))
    return with_loss(Workload(ranks, step, world(ranks, "ep")))


def pairs() -> list[Pair]:
    """Hot experts, busy sources, both, hardly any; hosts of two; and what a real router chose."""
    wide = Shape(2, 4, nic_bps=40 * MBIT, up_bps=200 * MBIT)
    four = Shape(4, 2, nic_bps=50 * MBIT, up_bps=200 * MBIT)
    cases = (
        ("hot-experts", wide, (4, 1, 1, 1, 4, 1, 1, 1), ()),
        ("busy-sources", wide, (), (3, 1, 1, 1, 3, 1, 1, 1)),
        ("both", wide, (3, 1, 1, 1, 3, 1, 1, 1), (1, 1, 1, 3, 1, 1, 1, 3)),
        ("hardly-uneven", wide, (1.2, 1, 1, 1, 1.2, 1, 1, 1), ()),
        ("four-hosts", four, (3, 1, 3, 1, 3, 1, 3, 1), ()),
    )
    natives = [
        (name, shape, AllToAll("world", 300_000, "direct", skew, sources))
        for name, shape, skew, sources in cases
    ]
    natives.append(("routing-log", wide, AllToAll("world", 300_000, "direct", logged=True)))
    out = []
    for name, shape, native in natives:
        before, after = (
            Run(f"rails-{name}-{algo}", shape, _job(8, replace(native, algo=algo)))
            for algo in ("direct", "balanced")
        )
        policies = ("rail-balance:granularity=0",)
        out.append(Pair(KIND, f"balance-{name}", before, after, policies, fabric=True))
    return out
