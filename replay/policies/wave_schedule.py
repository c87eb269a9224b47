"""An all-to-all in waves, each a permutation of its members, instead of as the library ran it.

Ports that share without loss make any order of one demand take at least the busiest port's time, so
barriers between waves can only cost: what waves save is incast, and that term is stated or fitted.
Schedules and their times are in `replay.moe.waves`.
"""

from __future__ import annotations

import math

import numpy as np

from ..moe import exchange, incast, params, schedules
from ..policy import BadParam, Param, Policy, ReplayJob
from ..quantities import time_ns

NEUTRAL = {"order": "native"}
"""The library's own order again, through its own window."""

ASSUMPTIONS = (
    "each member has one port between hosts and one within, and fabric above them does not limit",
    "a port of k senders carries B / (1 + gamma max(0, k - free)): no published figure stands "
    "behind the shape",
)


def apply(
    job: ReplayJob,
    *,
    order: str,
    width: int,
    alpha_w: float,
    native: str,
    window: int,
    gamma: float | str,
    free: int,
    **ports,
) -> ReplayJob:
    """The job with its all-to-alls in waves."""
    params.checked("wave-schedule", width=width, window=window)
    if free < 0 or alpha_w < 0:
        raise BadParam("policy wave-schedule: free and alpha_w are 0 or more")
    found = exchange.find(job, **ports)
    if not found.exchanges:
        return found.job
    job, term, fitted = incast.stated(job, found, gamma, free, ports)
    ran = schedules.Native(native, window, term)
    old, new = np.ones(len(found.exchanges)), np.ones(len(found.exchanges))
    added = np.zeros(len(old))
    known: dict[bytes, tuple[float, float, float]] = {}
    for i, one in enumerate(found.exchanges):
        if len(one.demand.members) < 2 or order == "native":
            continue
        key = schedules.key(one)
        if key not in known:
            now, waves = schedules.scheduled_ns(one, found.speeds, order, width, term)
            cost = schedules.waves_cost_ns(one, waves, alpha_w)
            known[key] = (ran.time_ns(one, found.speeds), now, cost)
        old[i], new[i], added[i] = known[key]
    # Barriers between waves: nobody is done long before the others.
    done = [np.ones(len(one.demand.members)) for one in found.exchanges]
    longer = 100 * ((new + added).sum() / old.sum() - 1) if old.sum() else 0.0
    if fitted is not None and order != "native":
        # Losses come by chance: a fit tells what they cost on the mean, not each one's.
        new *= fitted.level
        old = np.array([one.aligned_ns for one in found.exchanges])
    said = (
        f"waves of {width} ({order}), {alpha_w / 1e3:.3g} us a wave, against {ran.words()}: the "
        f"model's all-to-alls take {longer:+.1f} % of time in sum; {incast.words(term)}"
    )
    job = exchange.retimed(found._replace(job=job), old, new, added_ns=added, done=done)
    job = job.note(assumptions=(said, *ASSUMPTIONS))
    if order != "native":
        job = job.note(warnings=exchange.lacking(found))
    if term.gamma == 0 and order != "native":
        job = job.note(
            warnings=(
                "no incast term: sharing a port costs nothing, so waves cannot win and what they "
                "cost is shown; state gamma, or gamma=fit where all-to-alls of different size of "
                "group were recorded",
            )
        )
    return job


def _gamma(text: str) -> float | str:
    if text == incast.FIT:
        return text
    value = float(text)
    if not 0 <= value < math.inf:
        raise ValueError("expected a number from 0 on, or fit")
    return value


POLICY = Policy(
    name="wave-schedule",
    summary="all-to-alls in waves of permutations instead of all at once",
    source="NCCL's order of peers (src/init.cc); Birkhoff 1946; FAST (arXiv 2505.09764); RailWave",
    params=(
        Param(
            "order",
            str,
            "cyclic",
            "",
            "shifts of the members; matchings of the demand (Birkhoff-von Neumann); or as it ran",
            ("cyclic", "bvn", "native"),
        ),
        Param("width", int, 1, "waves", "shifts under way at once"),
        Param("alpha_w", time_ns, 5_000.0, "ns", "of a wave beside its messages: its barrier"),
        Param(
            "native",
            str,
            "windowed",
            "",
            "what ran: permutations through a window (NCCL), or all at once (DeepEP)",
            ("windowed", "all-at-once"),
        ),
        Param("window", int, 8, "messages", "under way at once in a windowed native all-to-all"),
        Param(
            "gamma",
            _gamma,
            0.0,
            "",
            "of the incast term; 0: the fabric's; fit: to all of the trace",
        ),
        Param("free", int, 2, "senders", "that share a port without loss"),
        *params.PORTS,
    ),
    assumptions=ASSUMPTIONS,
    apply=apply,
    needs=("all_to_all with splits, transfers or routing", "hosts of ranks"),
    valid="up to 32 ranks an all-to-all; of more, a windowed native one is its lower bound",
    checked="three ranks by hand: 5 and 8 in waves where the busiest port is 5; +67.1 % (RailWave) "
    "with gamma 0.0224 assumed",
)
