"""The cost of a message and of a byte changed apart: orchestration latency, datapath bandwidth.

T' = f_a p a + q S / (f_b B) + tau, with p messages in a row and q S bytes of the algorithm that
ran: small collectives move with f_a only, large ones with f_b only; the two halves are even at
S_1/2 = p a B / q. Waits (tau) are of the graph, and do not move.
"""

from __future__ import annotations

import numpy as np

from ..calibration.hockney import coefficients
from ..policy import BadParam, Param, Policy, ReplayJob, Stage
from ..retiming import by_group, transfers

NEUTRAL = {"alpha": 1.0, "beta": 1.0}

ASSUMPTIONS = (
    "the collectives keep their algorithms: only what a message and what a byte costs changes",
)


def half_size_bytes(messages: float, volume: float, alpha_ns: float, bandwidth: float) -> float:
    """The size at which messages and bytes cost the same: p a B / q, bandwidth in bytes/s."""
    return messages * alpha_ns * 1e-9 * bandwidth / volume


def apply(
    job: ReplayJob,
    *,
    alpha: float,
    beta: float,
    op: tuple[str, ...] = (),
    dim: tuple[str, ...] = (),
    comm: tuple[str, ...] = (),
) -> ReplayJob:
    """The job with alpha times one factor and bandwidth times another."""
    if not (np.isfinite(alpha) and alpha >= 0):
        raise BadParam(f"policy datapath: alpha={alpha:g}: a factor of 0 or more (0.5 halves it)")
    if not (np.isfinite(beta) and beta > 0):
        raise BadParam(f"policy datapath: beta={beta:g}: a factor above 0 (2 doubles bandwidth)")
    job, rows = transfers.chosen(job, op=op, dim=dim, comm=comm)
    if not len(rows) or alpha == beta == 1:
        return job
    halves: dict[str, float] = {}

    def price(group: by_group.Group) -> np.ndarray:
        link = group.link
        p, q = coefficients(group.op, group.algo, group.n)
        rate = link.bandwidth_bytes_per_s
        if q > 0:
            halves[group.label] = half_size_bytes(p, q, link.alpha_ns, rate)
        return group.time_ns(alpha * link.alpha_ns, beta * rate) / group.time_ns()

    job, ratio = by_group.ratios(job, rows, price)
    said = tuple(
        f"{label}: messages and bytes cost the same at {half / 1e6:.3g} MB"
        for label, half in halves.items()
    )
    return transfers.scaled(
        job, rows, ratio, bandwidth_ratio=np.full(len(rows), max(beta, 1.0))
    ).note(assumptions=(*ASSUMPTIONS, *said))


POLICY = Policy(
    name="datapath",
    summary="orchestration latency and datapath bandwidth changed apart",
    source="Purlin (a faster datapath for collectives); alpha-beta (Hockney) model",
    params=(
        Param("alpha", float, 0.5, "x", "factor on what a message costs (5.14x less: 0.195)"),
        Param("beta", float, 1.0, "x", "factor on bandwidth (4.5x more: 4.5)"),
        *transfers.WHICH,
    ),
    assumptions=ASSUMPTIONS,
    apply=apply,
    stage=Stage.LINKS,
    needs=("collectives with sizes, seen on all their ranks",),
    valid="sizes within the calibrated range of each communicator",
    checked=(
        "ring of 8, 0.822 us, 450 GB/s: halving alpha takes 10 KiB from 11.548 to 5.794 us and "
        "80 MiB from 337.7 to 332.0 us, halves even at 2.96 MB (arithmetic)"
    ),
)
