"""Weights from trainers to rollout GPUs as an M x N resharding with one copy a domain.

What crosses between domains falls from one copy a GPU, N W/t, to one a domain, (N/d) W min(1, d/t),
and is then spread over the fast links inside: T = max(busiest source, busiest target) / B, beside
(pipelined) or before the spreading.
"""

from __future__ import annotations

import math

import numpy as np

from ..calibration import link_sources
from ..costs.resharding import WAYS, Layout, messages, time_ns, volumes
from ..policy import BadParam, Param, Policy, ReplayJob, Stage, words
from ..quantities import bandwidth_bytes_per_s
from ..retiming import by_group, transfers

NEUTRAL = {"way": "gpu", "recorded": "gpu"}

ASSUMPTIONS = (
    "the collectives chosen are the weight movement, all bandwidth of it",
    "links stay as they are: fewer bytes cross them, and the floor counts those (of broadcasts "
    "none, as switches may copy them)",
    "gathering, casting and barriers around it stay as measured",
)

WHO_HOLDS = (
    "reshard: a trace does not say who holds which part of the weights: one source, or a whole "
    "model on each target, is taken where sources or width is not given; give both"
)


def apply(
    job: ReplayJob,
    *,
    op: tuple[str, ...],
    way: str,
    recorded: str,
    sources: int,
    targets: int,
    width: int,
    domain: int,
    bandwidth: float | None,
    inside: float | None,
    pipelined: bool,
    dim: tuple[str, ...] = (),
    comm: tuple[str, ...] = (),
) -> ReplayJob:
    """The job with its weight movement resharded."""
    for name, value in (
        ("sources", sources),
        ("targets", targets),
        ("width", width),
        ("domain", domain),
    ):
        if value < 0:
            raise BadParam(f"policy reshard: {name}={value}: 1 or more, or 0 for what is recorded")
    job, rows = transfers.chosen(job, op=op, dim=dim, comm=comm)
    if not len(rows) or way == recorded:
        return job
    said: dict[str, None] = {}
    moved = np.ones(len(rows))

    def price(group: by_group.Group) -> np.ndarray | None:
        m = sources or 1
        n = targets or group.n - m
        if n < 1:
            return None
        t, d = width or 1, domain or math.gcd(8, n)
        layout = Layout(m, n, t, d)
        rate = bandwidth or group.link.bandwidth_bytes_per_s
        _, fast, words_of = link_sources.machine(job, "intra host")
        fast = inside or fast
        new, old = (volumes(layout, 1.0, w) for w in (way, recorded))
        said[
            f"{m} sources, {n} targets, the model once in {t}, domains of {d}: "
            f"{old.crossing_bytes:.4g} models cross between domains ({recorded}), then "
            f"{new.crossing_bytes:.4g} ({way}), in {messages(m, n)} messages at least"
        ] = None
        moved[group.rows["at"].to_numpy()] = new.crossing_bytes / old.crossing_bytes
        if not inside:
            said[f"inside domains: {words_of}"] = None
        ratio = time_ns(new, rate, fast, pipelined=pipelined) / time_ns(
            old, rate, fast, pipelined=pipelined
        )
        return np.full(len(group.rows), ratio)

    job, ratio = by_group.ratios(job, rows, price)
    if said and not (sources and width):
        job = job.note(warnings=(WHO_HOLDS,))
    return transfers.scaled(job, rows, ratio, bytes_ratio=moved).note(
        assumptions=(*ASSUMPTIONS, *said)
    )


POLICY = Policy(
    name="reshard",
    summary="train-to-rollout weight movement as M x N resharding, one copy a domain",
    source="NCCL M2N; M2N Communication",
    params=(
        Param("op", words, ("broadcast",), "", "operations that move the weights, joined by +"),
        Param(
            "way",
            str,
            "domain",
            "",
            "what is sent: from one source, a copy a GPU or a domain",
            WAYS,
        ),
        Param("recorded", str, "gpu", "", "what was sent when recorded", WAYS),
        Param("sources", int, 0, "ranks", "that hold the trained weights; 0: one"),
        Param("targets", int, 0, "ranks", "that need them; 0: the communicator's others"),
        Param(
            "width", int, 0, "ranks", "that hold the model once together (tensor parallel); 0: 1"
        ),
        Param("domain", int, 0, "ranks", "joined by fast links; 0: 8"),
        Param(
            "bandwidth",
            bandwidth_bytes_per_s,
            None,
            "bytes/s",
            "of a GPU between domains (default: fitted from the trace)",
        ),
        Param(
            "inside",
            bandwidth_bytes_per_s,
            None,
            "bytes/s",
            "of a GPU inside its domain (default: by the device's name)",
        ),
        Param("pipelined", bool, True, "", "spreading inside runs beside the crossing, by buckets"),
        *transfers.WHERE,
    ),
    assumptions=ASSUMPTIONS,
    apply=apply,
    stage=Stage.PLACEMENT,
    needs=("the collectives that move weights, with sizes, and who holds what (sources, width)",),
    valid="contiguous shards; gathers, casts and barriers come on top (1.3 s for 1 T weights)",
    checked=(
        "671 GB to 128 GPUs, width 32, domains of 64: 2,684 and 1,342 GB, 0.42 and 0.21 s at 50 "
        "GB/s; 5.78 s to 2.77 s is reported, the order of domain over width 2 (assumed input)"
    ),
)
