"""What ranks do in a step: a list of things done one after another, as plain data."""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from typing import Any


@dataclass(frozen=True)
class Work:
    """A sleep that stands for computation; `ms` of one rank may differ (`late`: rank -> more)."""

    name: str
    ms: float
    late: dict[int, float] = field(default_factory=dict)
    jitter: float = 0.02
    """Standard deviation, as a share: drawn a rank and step, from a fixed seed."""


@dataclass(frozen=True)
class AllReduce:
    """A sum over a communicator; `behind` lets what follows go on until a `Wait`."""

    comm: str
    size: int
    algo: str = "ring"
    paths: tuple[int, ...] = (0,)
    behind: bool = False

    op = "all_reduce"


@dataclass(frozen=True)
class AllToAll:
    """An exchange over a communicator: `size` is what a rank sends, its own part counted.

    `skew` is the weight of each destination (by member); uneven ones are drawn a step from it.
    """

    comm: str
    size: int
    algo: str = "direct"
    skew: tuple[float, ...] = ()
    sources: tuple[float, ...] = ()
    """Weight of each source: how much it sends, against the mean."""
    logged: bool = False
    """Weights of destinations are those of a real routing log (`demand.ROUTING`), step by step."""
    width: int = 1

    op = "all_to_all"


@dataclass(frozen=True)
class Wait:
    """Waits for everything that goes on behind."""


Thing = Work | AllReduce | AllToAll | Wait


@dataclass(frozen=True)
class Comm:
    """Groups that do the same at the same time, each a communicator of its own."""

    groups: tuple[tuple[int, ...], ...]
    dim: str = "dp"


@dataclass(frozen=True)
class Storage:
    """A stream of reads into seats: `on_ms` at a time, `off_ms` apart, over `port`."""

    seats: tuple[int, ...]
    on_ms: float
    off_ms: float
    port: str = "rail0"


@dataclass(frozen=True)
class Workload:
    """Steps of a job of `ranks` ranks."""

    ranks: int
    step: tuple[Thing, ...]
    comms: dict[str, Comm]
    steps: int = 8
    warmup: int = 1
    storage: Storage | None = None
    alpha_us: float = 500.0
    """What a round of messages costs before its bytes move."""
    engine: str = "sockets"
    """sockets: collectives of our own; gloo: PyTorch's, under its profiler."""
    seed: int = 1
    skew_ms: float = 40.0
    """Host clocks are off by up to so much, each way."""
    drift_ppm: float = 0.0

    def but(self, **changes: Any) -> Workload:
        """The same with something else."""
        return replace(self, **changes)


def world(ranks: int, dim: str = "dp") -> dict[str, Comm]:
    """One communicator of all ranks."""
    return {"world": Comm((tuple(range(ranks)),), dim)}
