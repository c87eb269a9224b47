"""What each all-to-all takes natively, balanced and in waves, and how far models are from it."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from . import rails
from .choice import NATIVE, Calibration, calibrate, size_class, skew_class
from .exchange import Exchange, busiest, sides
from .rails import Speeds
from .schedules import Native, scheduled_ns, waves_cost_ns
from .waves import Incast


def models(
    one: Exchange,
    speeds: Speeds,
    wanted: Sequence[str],
    ran: Native,
    width: int,
    alpha_w: float,
    term: Incast,
) -> dict[str, tuple[float, float]]:
    """Each way that the exchange could take, in ns: as modelled, and stated costs beside it."""
    out = {NATIVE: (ran.time_ns(one, speeds), 0.0)}
    if len(one.demand.members) < 2:
        return out
    if "balanced" in wanted and one.where is not None and min(one.where.hosts, one.where.rails) > 1:
        now = rails.balanced(one.demand.matrix, one.where)
        slowed = now._replace(recv=now.recv * term.factor(one.where.hosts - 1))
        took = one.latency_ns + rails.time_ns(slowed, speeds)
        out["balanced"] = took, now.hops * one.inside_ns
    for way, order in (("waves", "cyclic"), ("bvn", "bvn")):
        if way in wanted:
            took, waves = scheduled_ns(one, speeds, order, width, term)
            out[way] = took, waves_cost_ns(one, waves, alpha_w)
    return out


def folds(exchanges: Sequence[Exchange]) -> list[int]:
    """0 for the first half of the steps, 1 for the second; of one step all are 0."""
    steps = sorted({one.demand.step for one in exchanges})
    half = set(steps[(len(steps) + 1) // 2 :])
    return [int(one.demand.step in half) for one in exchanges]


def class_of(one: Exchange) -> tuple[int, int]:
    out, into = sides(one.demand.matrix)
    skew = max(busiest([(out, into)]))
    return size_class(float(out.mean())), skew_class(skew)


def calibrated(ran: Sequence[tuple[Exchange, float]]) -> Calibration:
    """From exchanges that ran, and what native is modelled to take of each."""
    ran = [(one, native) for one, native in ran if one.aligned_ns > 0 and native > 0]
    return calibrate(
        [class_of(one) for one, _ in ran],
        np.array([one.aligned_ns for one, _ in ran]),
        np.array([native for _, native in ran]),
    )
