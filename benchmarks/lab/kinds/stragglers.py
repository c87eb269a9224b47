"""A rank that is late by work of its own, and the same job without."""

from __future__ import annotations

from ..pairs import Pair, Run
from ..shape import Shape
from .jobs import data_parallel, gradients, with_loss

KIND = "straggler removed"
SIZES = (600_000, 200_000, 50_000)


def pairs() -> list[Pair]:
    """One rank late by little or much, two late ranks, under other algorithms, of more ranks."""
    four, eight = Shape(4), Shape(8)
    cases = (
        ("one-20ms", four, "ring", {1: 20.0}),
        ("one-50ms", four, "ring", {2: 50.0}),
        ("two", four, "ring", {0: 30.0, 3: 15.0}),
        ("tree", four, "tree", {2: 40.0}),
        ("eight-ranks", eight, "ring", {5: 40.0}),
    )
    out = []
    for name, shape, algo, late in cases:
        jobs = [data_parallel(shape.seats, gradients(SIZES, algo, late=who)) for who in ({}, late)]
        if algo == "tree":
            jobs = [with_loss(job) for job in jobs]
        even = Run(f"even-{algo}-{shape.seats}", shape, jobs[0])
        late_run = Run(f"late-{name}", shape, jobs[1])
        policy = "align-arrivals"
        if 2 * len(late) >= shape.seats:
            # Half of them late: who is usual, somebody has to say.
            policy += f":ranks={'+'.join(map(str, late))}"
        out.append(Pair(KIND, f"straggler-{name}", late_run, even, (policy,)))
    return out
