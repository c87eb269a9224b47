"""Fabric simulation: one all-to-all of all GPUs, against looking at every flow once."""

from __future__ import annotations

from collections.abc import Iterator

from benchmarks.suite.case import LIMIT, OURS, PEER, Bound, Case, Ratio, Way, stage, way
from benchmarks.suite.inputs import Inputs

PRESET = "multi-plane"
OURS_RUN, FILLING, LOOKED = "retime", "progressive filling in NumPy", "each flow looked at once"
MOST_FILLED = 256
"""GPUs that the peer is given at most: it holds every flow's links."""


@stage("fabric")
def exchanges(inputs: Inputs) -> Iterator[Case]:
    """256, 2,048 and 16,384 GPUs; 1, 4 and 16 times for growth, which is told by flows."""
    sizes = (64, 128) if inputs.tiny else (256, 2048) if inputs.quick else (256, 2048, 4096, 8192,
                                                                            16384)  # fmt: skip
    for gpus in sizes:
        peers = (
            (Way(FILLING, PEER, way("fabric.filling", gpus, PRESET), 1, "inside_s", rounds=1),)
            if gpus <= MOST_FILLED else ()
        )  # fmt: skip
        goal = Bound(OURS_RUN, "seconds", 10, "16,384 GPUs' all-to-all under 10 s")
        yield Case(
            f"fabric, all-to-all of {gpus:,} GPUs", "fabric", gpus * (gpus - 1), "flows",
            (Way(OURS_RUN, OURS, way("fabric.exchange", gpus, PRESET), 2, "inside_s"), *peers,
             Way(LOOKED, LIMIT, way("limits.passes.pairs", gpus), 1, "inside_s")),
            tuple(Ratio(OURS_RUN, w) for w in (*(p.name for p in peers), LOOKED)),
            bounds=(goal,) if gpus == 16384 else (),
            growth="fabric, all-to-all" if gpus >= 4096 or inputs.quick else "", grows=(OURS_RUN,),
            same=((OURS_RUN, FILLING),) if peers else (),
        )  # fmt: skip
