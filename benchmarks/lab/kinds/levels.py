"""One flat ring before, hosts first and then between hosts after."""

from __future__ import annotations

from ..pairs import Pair, Run
from ..shape import MBIT, Shape
from ..wire import UP
from ..workload import AllReduce, Comm, Work, Workload

KIND = "hierarchical instead of flat"


def _job(shape: Shape, sizes: tuple[int, ...], algo: str) -> Workload:
    """The reductions, after a small one within each host that tells what its links carry."""
    n, per = shape.seats, shape.per_host
    hosts = tuple(tuple(range(h * per, (h + 1) * per)) for h in range(shape.hosts))
    comms = {"world": Comm((tuple(range(n)),), "dp"), "tp": Comm(hosts, "tp")}
    step = [Work("forward", 12.0), AllReduce("tp", 400_000, paths=(UP,)),
            AllReduce("tp", 100_000, paths=(UP,))]  # fmt: skip
    for size in sizes:
        step += [Work("backward", 12.0), AllReduce("world", size, algo)]
    return Workload(n, (*step, Work("optimizer", 4.0)), comms)


def pairs() -> list[Pair]:
    """Two hosts of four and four of two, more and fewer bytes."""
    wide = Shape(2, 4, nic_bps=40 * MBIT, up_bps=200 * MBIT)
    four = Shape(4, 2, nic_bps=50 * MBIT, up_bps=200 * MBIT)
    cases = (
        ("2x4-large", wide, (600_000, 200_000)),
        ("2x4-small", wide, (48_000, 16_000)),
        ("4x2-large", four, (600_000, 200_000)),
        ("4x2-small", four, (48_000, 16_000)),
    )
    out = []
    for name, shape, sizes in cases:
        before, after = (
            Run(f"levels-{name}-{algo}", shape, _job(shape, sizes, algo))
            for algo in ("ring", "hierarchical")
        )
        policy = (f"hierarchical:comm=world,local={shape.per_host}",)
        out.append(Pair(KIND, f"levels-{name}", before, after, policy))
    return out
