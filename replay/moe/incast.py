"""The incast term: as stated, or fitted to all-to-alls that ran."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from ..policy import ReplayJob
from . import exchange
from .exchange import Exchange, Found
from .schedules import Native
from .waves import Incast

SPREAD = 2.0
"""Most senders must differ by this factor between all-to-alls for incast to be told apart."""

SCATTERED = 2.0
"""All-to-alls alike that differ by more than this factor are slowed by chance, not by a pace."""


def senders(one: Exchange) -> int:
    """The most members that send to one, between hosts if any do."""
    cross, inside = one.parts()
    part = cross if cross.any() else inside
    off = part > 0
    np.fill_diagonal(off, False)
    return int(off.sum(axis=0).max(initial=0))


FIT = "fit"
"""In place of gamma: fit it to the trace."""


class Fitted(NamedTuple):
    """The incast term of all-to-alls that ran."""

    gamma: float
    error: float
    """Standard error of gamma; inf where there are too few to tell."""
    level: float
    """What one sender takes, over what the busiest port needs at the speed it is said to have."""
    scatter: tuple[float, float]
    """The least and the most that all-to-alls of most senders took over their port's need."""
    n: int


def stated(
    job: ReplayJob, found: Found, gamma: float | str, free: int, ports: dict
) -> tuple[ReplayJob, Incast, Fitted | None]:
    """The incast term: as given (0: as the job's fabric has it), or fitted where gamma is FIT.

    Fitted to all of the job's all-to-alls, also where `ports` (of `exchange.find`) choose the
    communicators that are to change: groups of another size are what tells incast from bandwidth.
    """
    fabric = found.job.facts.get("fabric")
    port = fabric.nic.link if fabric is not None and fabric.nic is not None else None
    if fabric is not None and port is not None and not gamma and port.incast_gamma > 0:
        said = f"incast gamma {port.incast_gamma:.4g}, as fabric {fabric.name} has it"
        job = found.job.note(assumptions=(said,))
        return job, Incast(port.incast_gamma, int(port.incast_free)), None
    if gamma != FIT:
        return found.job, Incast(float(gamma), free), None
    every = exchange.find(job, **{**ports, "comm": ()}) if ports.get("comm") else found
    fitted = fit(every, free)
    if fitted is None:
        said = (
            "gamma cannot be fitted: its all-to-alls have too much the same number of senders to "
            "tell incast from bandwidth; none is taken (record groups of different size, or state "
            "gamma)"
        )
        return found.job.note(warnings=(said,)), Incast(0.0, free), None
    job = found.job.note(assumptions=(_said(fitted),), warnings=_doubts(fitted))
    return job, Incast(fitted.gamma, free), fitted


def _said(fitted: Fitted) -> str:
    error = f" (standard error {fitted.error:.2g})" if np.isfinite(fitted.error) else ""
    return (
        f"gamma {fitted.gamma:.4g}: fitted to {fitted.n} all-to-alls that ran{error}; one sender "
        f"takes {fitted.level:.3g} times what its port needs"
    )


def _doubts(fitted: Fitted) -> tuple[str, ...]:
    low, high = fitted.scatter
    out = []
    if fitted.gamma < 2 * fitted.error:
        out.append(
            f"gamma {fitted.gamma:.2g} has a standard error of {fitted.error:.2g}: the trace does "
            "not tell whether senders at once cost anything, and the sign of this estimate neither"
        )
    if high > SCATTERED * low:
        out.append(
            f"all-to-alls of most senders took {low:.3g} to {high:.3g} times what their port "
            "needs: packets lost by chance, not a pace; their mean is what is estimated, and few "
            "steps tell it badly"
        )
    return tuple(out)


def fit(found: Found, free: int) -> Fitted | None:
    """gamma >= 0 from measured over port time against senders; None where they do not differ.

    measured = c (1 + gamma max(0, k - free)) times what the busiest port needs. c is the median of
    those of fewest senders (clocks and stragglers spoil some), and takes up an error of the
    bandwidth; gamma is least squares over the others: what losses cost on the mean. Measured is
    with what moved before the last arrival (`Exchange.aligned_ns`).
    """
    x, y = [], []
    for one in found.exchanges:
        bare = Native("all-at-once", 0, Incast()).time_ns(one, found.speeds) - one.latency_ns
        moved = one.aligned_ns - one.latency_ns
        if bare > 0 and moved > 0:
            x.append(max(0, senders(one) - free))
            y.append(moved / bare)
    if len(x) < 2 or max(x) < SPREAD * max(min(x), 1):
        return None
    x, y = np.array(x, float), np.array(y)
    few = x == x.min()
    at_few, about = float(np.median(y[few])), x - x.min()
    slope = max(0.0, float((about * (y - at_few)).sum() / (about**2).sum()))
    level = at_few - slope * x.min()
    if level <= 0:
        return None
    most = y[x == x.max()]
    off = y - (level + slope * x)
    error = float(np.sqrt((about**2 * off**2).sum()) / (about**2).sum() / level)
    scatter = float(most.min()), float(most.max())
    return Fitted(slope / level, error if len(x) > 3 else np.inf, level, scatter, len(x))


def words(term: Incast) -> str:
    """The incast term in one clause."""
    if term.gamma == 0:
        return "no incast term"
    return f"incast gamma {term.gamma:.4g} beyond {term.free} senders"
