"""A rail that becomes slow, and NICs that are added or lost."""

from __future__ import annotations

from ..pairs import Pair, Run
from ..shape import MBIT, Shape
from ..workload import AllReduce, Thing, Work, Workload
from .jobs import a_rail_each, data_parallel, gradients

KIND = "rail slowed or added"
SIZE = 500_000


def _slow(factor: float, shape: Shape) -> Shape:
    """The network with rail 1 slower on all hosts."""
    slow = {(s, "rail0"): round(shape.nic_bps * factor)
            for s in range(shape.seats) if s % shape.per_host == 1}  # fmt: skip
    return Shape(shape.hosts, shape.per_host, wiring="rail", slow=slow)


def _on_rails(shape: Shape) -> Workload:
    step: list[Thing] = [Work("forward", 15.0)]
    comms = a_rail_each(shape.hosts, shape.per_host)
    for size in (SIZE, SIZE // 4):
        step.append(Work("backward", 15.0))
        step += [AllReduce(name, size) for name in comms]
    return Workload(shape.seats, (*step, Work("optimizer", 4.0)), comms)


def pairs() -> list[Pair]:
    """Rail 1 to 70 % and to 40 %, and mended; one NIC a rank to two, three, and back."""
    rail = Shape(4, 2, wiring="rail")
    job = _on_rails(rail)
    even = Run("rails-even", rail, job)
    out = []
    for share in (0.7, 0.4):
        slow = Run(f"rail1-at-{share:g}", _slow(share, rail), job)
        for name, before, after, factor in (
            (f"slowed-to-{share:g}", even, slow, share),
            (f"mended-from-{share:g}", slow, even, 1 / share),
        ):
            policy = f"scale-fabric:link=scale-out,factor={factor:.6g},comm=dp1"
            out.append(Pair(KIND, f"rail-{name}", before, after, (policy,)))
    runs = {}
    for nics in (1, 2, 3):
        step = gradients((900_000, 300_000, 90_000), paths=tuple(range(nics)))
        shape = Shape(4, nics=nics, nic_bps=60 * MBIT)
        runs[nics] = Run(f"nics-{nics}", shape, data_parallel(4, step))
    for was, now in ((1, 2), (1, 3), (2, 1)):
        policy = f"scale-fabric:link=scale-out,factor={now / was:g}"
        out.append(Pair(KIND, f"nics-{was}-to-{now}", runs[was], runs[now], (policy,)))
    return out
