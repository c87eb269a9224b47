"""Weights from M trainers to N rollout GPUs: how many bytes cross between domains, in what time.

One copy a GPU moves N W/t (each holds W/t); one copy a domain of d GPUs moves (N/d) W min(1, d/t)
and is spread inside over the fast links: the ratio is max(1, d/t) (counting).
"""

from __future__ import annotations

import math
from typing import NamedTuple

from ...ingest.errors import UsageError

WAYS = ("funnel", "gpu", "domain")


class Layout(NamedTuple):
    """Who holds what, before and after."""

    sources: int
    targets: int
    width: int
    """Targets that together hold the model once (tensor-parallel width)."""
    domain: int
    """Targets that fast links join."""


class Volumes(NamedTuple):
    """Bytes that cross between domains, in all and through the busiest port of each side."""

    crossing_bytes: float
    source_bytes: float
    target_bytes: float
    inside_bytes: float
    """Into a target over the fast links of its domain."""


def check(layout: Layout) -> None:
    """Raises UsageError for counts that are not of each other."""
    for name, value in layout._asdict().items():
        if value < 1:
            raise UsageError(f"reshard: {name}={value}: 1 or more")
    if layout.targets % layout.width:
        raise UsageError(
            f"reshard: {layout.targets} targets do not divide into copies of {layout.width}"
        )
    if layout.targets % layout.domain:
        raise UsageError(
            f"reshard: {layout.targets} targets do not divide into domains of {layout.domain}"
        )


def volumes(layout: Layout, model_bytes: float, way: str) -> Volumes:
    """What moves: `funnel` (one source sends all), a copy a `gpu`, or a copy a `domain`."""
    check(layout)
    m, n, t, d = layout
    if way == "domain":
        held = min(1.0, d / t)
        crossing = n / d * model_bytes * held
        received = model_bytes * held / d
        inside = model_bytes / t - received
        return Volumes(crossing, crossing / m, received, max(inside, 0.0))
    crossing = n * model_bytes / t
    sources = 1 if way == "funnel" else m
    return Volumes(crossing, crossing / sources, model_bytes / t, 0.0)


def messages(sources: int, targets: int) -> int:
    """Messages between contiguous shards of M and of N: M + N - gcd(M, N)."""
    return sources + targets - math.gcd(sources, targets)


def time_ns(
    moved: Volumes, bandwidth: float, inside_bandwidth: float, *, pipelined: bool = True
) -> float:
    """max(busiest source, busiest target) / B, and the spreading inside: beside it, or after."""
    across = max(moved.source_bytes, moved.target_bytes) / bandwidth
    inside = moved.inside_bytes / inside_bandwidth
    return 1e9 * (max(across, inside) if pipelined else across + inside)
