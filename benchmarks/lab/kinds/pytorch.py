"""Changes to a job of PyTorch's own collectives, traced by its own profiler: late ranks, rates."""

from __future__ import annotations

from dataclasses import replace

from ..pairs import Pair, Run
from ..shape import MBIT, Shape
from .jobs import data_parallel, gradients

SIZES = (1_200_000, 400_000, 100_000)


def pairs() -> list[Pair]:
    """A straggler removed; NICs at half and at twice the rate."""
    shape = Shape(4, nic_bps=100 * MBIT)
    job = data_parallel(4, gradients(SIZES), engine="gloo")
    even = Run("gloo-even", shape, job)
    late = data_parallel(4, gradients(SIZES, late={2: 50.0}), engine="gloo")
    half, double = (
        Run(f"gloo-x{f:g}", replace(shape, nic_bps=round(shape.nic_bps * f)), job) for f in (0.5, 2)
    )
    rate = "scale-fabric:link=scale-out,factor={:g}"
    return [
        Pair("straggler removed", "straggler-gloo", Run("gloo-late", shape, late), even,
             ("align-arrivals",)),
        Pair("link rates scaled", "gloo-1-to-0.5", even, half, (rate.format(0.5),)),
        Pair("link rates scaled", "gloo-1-to-2", even, double, (rate.format(2),)),
    ]  # fmt: skip
