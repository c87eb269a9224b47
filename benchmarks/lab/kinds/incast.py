"""All-to-alls all at once before, in waves of permutations after."""

from __future__ import annotations

from dataclasses import replace

from ..pairs import Pair, Run
from ..shape import EFFICIENCY, Shape
from ..workload import AllToAll, Comm, Work, Workload
from .jobs import with_loss

KIND = "waves instead of incast"
QUEUE_BYTES = 13_000
"""A switch port that eight senders overflow."""
MESSAGE_MS = 0.6
"""What a small message takes here: half a millisecond stated, and a tenth of its own (docs/lab.md).
"""
WAVE_MS = 3 * MESSAGE_MS * 6 / 7
"""One of seven waves beside its messages: a barrier of three rounds, but for the last."""


def _job(ranks: int, thing: AllToAll, pairs_too: bool) -> Workload:
    half = replace(thing, size=thing.size // 2)
    comms = {"world": Comm((tuple(range(ranks)),), "ep")}
    step = [Work("attention", 10.0), thing, Work("experts", 15.0), half, Work("head", 5.0)]
    if pairs_too:
        # Groups of two have no incast: they tell it from bandwidth.
        comms["two"] = Comm(tuple((r, r + 1) for r in range(0, ranks, 2)), "cp")
        step.append(AllToAll("two", 400_000))
    return with_loss(Workload(ranks, tuple(step), comms))


def pairs() -> list[Pair]:
    """Deep and shallow queues, even and uneven, small and large."""
    deep, shallow = Shape(8), Shape(8, queue_bytes=QUEUE_BYTES)
    skew = (3.0, 1, 1, 1, 1, 1, 1, 1)
    cases = (
        ("deep-even", deep, 400_000, ()),
        ("deep-small", deep, 250_000, ()),
        ("deep-uneven", deep, 500_000, skew),
        ("shallow-even", shallow, 400_000, ()),
        ("shallow-uneven", shallow, 400_000, skew),
    )
    out = []
    for name, shape, size, weights in cases:
        native = AllToAll("world", size, "direct", weights)
        before, after = (
            Run(
                f"incast-{name}-{algo}",
                shape,
                _job(8, replace(native, algo=algo), shape is shallow),
            )
            for algo in ("direct", "waves")
        )
        nic = shape.nic_bps / 8e6 * EFFICIENCY
        policy = (
            f"wave-schedule:native=all-at-once,alpha_w={WAVE_MS:.3g}ms,alpha={MESSAGE_MS:g}ms,nic={nic:.4g}MB/s"
            + (",gamma=fit,free=1" if shape is shallow else "")
        )
        out.append(Pair(KIND, f"waves-{name}", before, after, (policy,)))
    return out
