"""What each all-to-all takes natively, balanced and in waves, and how far models are from it."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from . import rails
from .choice import NATIVE, Calibration, calibrate, size_class, skew_class
from .exchange import Exchange, busiest, sides
from .rails import Speeds
from .schedules import Native, scheduled_ns
from .waves import Incast


def models(
    one: Exchange,
    speeds: Speeds,
    wanted: Sequence[str],
    ran: Native,
    width: int,
    alpha_w: float,
    term: Incast,
) -> dict[str, float]:
    """Modelled time of each way that the exchange could take, in ns."""
    out = {NATIVE: ran.time_ns(one, speeds)}
    if len(one.demand.members) < 2:
        return out
    if "balanced" in wanted and one.where is not None and min(one.where.hosts, one.where.rails) > 1:
        now = rails.balanced(one.demand.matrix, one.where)
        slowed = now._replace(recv=now.recv * term.factor(one.where.hosts - 1))
        out["balanced"] = one.latency_ns + rails.time_ns(slowed, speeds)
    for way, order in (("waves", "cyclic"), ("bvn", "bvn")):
        if way in wanted:
            out[way] = scheduled_ns(one, speeds, order, width, alpha_w, term)
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


def calibrated(ran: Sequence[tuple[Exchange, dict[str, float]]]) -> Calibration:
    ran = [(one, m) for one, m in ran if one.demand.transfer_ns > 0 and m[NATIVE] > 0]
    return calibrate(
        [class_of(one) for one, _ in ran],
        np.array([one.demand.transfer_ns for one, _ in ran]),
        np.array([m[NATIVE] for _, m in ran]),
    )
