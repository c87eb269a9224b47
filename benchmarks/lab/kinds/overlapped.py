"""Reductions that the backward pass waits for before, that run behind it after."""

from __future__ import annotations

from ..pairs import Pair, Run
from ..shape import Shape
from ..workload import AllReduce, Thing, Wait, Work
from .jobs import data_parallel

KIND = "overlap switched on"


def _step(buckets: int, size: int, ms: float, behind: bool) -> tuple[Thing, ...]:
    step: list[Thing] = [Work("forward", 20.0)]
    for _ in range(buckets):
        step += [Work("backward", ms), AllReduce("world", size, behind=behind)]
    return (*step, *([Wait()] if behind else []), Work("optimizer", 5.0))


def pairs() -> list[Pair]:
    """Bound by computation, by the network, by both; few and many buckets."""
    shape = Shape(4)
    cases = (
        ("compute-bound", 4, 200_000, 45.0),
        ("network-bound", 4, 400_000, 20.0),
        ("both", 5, 250_000, 32.0),
        ("two-buckets", 2, 500_000, 60.0),
    )
    out = []
    for name, buckets, size, ms in cases:
        before, after = (
            Run(f"overlap-{name}-{'on' if behind else 'off'}", shape,
                data_parallel(4, _step(buckets, size, ms, behind)))
            for behind in (False, True)
        )  # fmt: skip
        policy = ("overlap:chunk=0,slowdown=1",)
        out.append(Pair(KIND, f"overlap-{name}", before, after, policy, fabric=True))
    return out
