"""The incast term: as stated, or fitted to all-to-alls that ran."""

from __future__ import annotations

import numpy as np

from ..policy import ReplayJob
from .exchange import Exchange, Found
from .schedules import Native
from .waves import Incast

SPREAD = 2.0
"""Most senders must differ by this factor between all-to-alls for incast to be told apart."""


def senders(one: Exchange) -> int:
    """The most members that send to one, between hosts if any do."""
    cross, inside = one.parts()
    part = cross if cross.any() else inside
    off = part > 0
    np.fill_diagonal(off, False)
    return int(off.sum(axis=0).max(initial=0))


FIT = "fit"
"""In place of gamma: fit it to the trace."""


def stated(found: Found, gamma: float | str, free: int) -> tuple[ReplayJob, Incast]:
    """The incast term: as given (0: as the job's fabric has it), or fitted where gamma is FIT."""
    fabric = found.job.facts.get("fabric")
    port = fabric.nic.link if fabric is not None and fabric.nic is not None else None
    if fabric is not None and port is not None and not gamma and port.incast_gamma > 0:
        said = f"incast gamma {port.incast_gamma:.4g}, as fabric {fabric.name} has it"
        job = found.job.note(assumptions=(said,))
        return job, Incast(port.incast_gamma, int(port.incast_free))
    if gamma != FIT:
        return found.job, Incast(float(gamma), free)
    fitted = fit(found, free)
    if fitted is None:
        said = (
            "gamma cannot be fitted: its all-to-alls have too much the same number of senders to "
            "tell incast from bandwidth; none is taken (record groups of different size, or state "
            "gamma)"
        )
        return found.job.note(warnings=(said,)), Incast(0.0, free)
    said = f"gamma {fitted:.4g}: fitted to {len(found.exchanges)} all-to-alls that ran"
    return found.job.note(assumptions=(said,)), Incast(fitted, free)


def fit(found: Found, free: int) -> float | None:
    """gamma >= 0 from measured over port time against senders; None where they do not differ.

    measured = c (1 + gamma max(0, k - free)) times what the busiest port needs: c takes up an
    error of the bandwidth, least squares over all-to-alls the rest.
    """
    x, y = [], []
    for one in found.exchanges:
        bare = Native("all-at-once", 0, Incast()).time_ns(one, found.speeds) - one.latency_ns
        moved = one.demand.transfer_ns - one.latency_ns
        if bare > 0 and moved > 0:
            x.append(max(0, senders(one) - free))
            y.append(moved / bare)
    if len(x) < 2 or max(x) < SPREAD * max(min(x), 1):
        return None
    slope, level = np.polyfit(np.array(x, float), np.array(y), 1)
    if level <= 0:
        return None
    return max(0.0, float(slope / level))


def words(term: Incast) -> str:
    """The incast term in one clause."""
    if term.gamma == 0:
        return "no incast term"
    return f"incast gamma {term.gamma:.4g} beyond {term.free} senders"
