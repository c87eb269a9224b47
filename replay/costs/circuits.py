"""Optical circuits: what a demand takes under a ready-driven schedule, and under periodic rotation.

A demand is a list of matchings: permutations of the ports, each with how long it must be up (its
largest pair's bytes over a circuit's rate). `switches` circuit switches run side by side; setting
one up takes `reconfigure_ns`. Times in ns. Formulas are deduced, and held to worked numbers.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import NamedTuple

import numpy as np

from ...ingest.errors import UsageError
from ..moe import rails

LEAST_HOLD_NS = 1.0
"""A circuit that is up for less carries nothing."""


class Rotor(NamedTuple):
    """Periodic rotation: each of `matchings` is up for `hold_ns` in turn, whatever is ready."""

    matchings: int
    hold_ns: float
    reconfigure_ns: float
    switches: int = 1
    """Switches that rotate side by side, evenly out of step: a matching is up on each in turn."""

    @property
    def slot_ns(self) -> float:
        """A matching's hold and the change to the next."""
        return self.hold_ns + self.reconfigure_ns

    @property
    def cycle_ns(self) -> float:
        """From a matching's turn to its next, on any of the switches."""
        return self.slot_ns * self.matchings / self.switches

    @property
    def duty(self) -> float:
        """Share of the time in which circuits are up."""
        return self.hold_ns / self.slot_ns

    @property
    def mean_wait_ns(self) -> float:
        """Of a demand that becomes ready at a random moment for its circuit to be up."""
        gap = max(self.cycle_ns - self.hold_ns, 0.0)
        return gap * gap / (2 * self.cycle_ns)


def checked(switches: int, reconfigure_ns: float, hold_ns: float) -> None:
    """Raises UsageError for counts and times that no switch has."""
    if switches < 1:
        raise UsageError(f"optical: switches={switches}: 1 or more")
    if not (math.isfinite(reconfigure_ns) and reconfigure_ns >= 0):
        raise UsageError(f"optical: reconfigure={reconfigure_ns:g}: a time of 0 or more")
    if not (math.isfinite(hold_ns) and hold_ns >= LEAST_HOLD_NS):
        raise UsageError(
            f"optical: hold={hold_ns:g}: a time above 0, of {LEAST_HOLD_NS:g} ns at least"
        )


def rotated_ns(uptimes_ns: np.ndarray, rotor: Rotor, phase_ns: float | None = None) -> float:
    """How long matchings 0..k-1 of a cycle take that each must be up so long (0: not needed).

    `phase_ns` is how far into the cycle the demand becomes ready; None gives the mean over 64
    phases. A matching's turn begins at its slot of each cycle.
    """
    need = np.asarray(uptimes_ns, np.float64)
    if len(need) > rotor.matchings:
        raise UsageError(
            f"optical: {len(need)} matchings do not fit a rotation of {rotor.matchings}"
        )
    if phase_ns is None:
        phases = np.arange(64) / 64 * rotor.cycle_ns
        return float(np.mean([rotated_ns(need, rotor, p) for p in phases]))
    ends = [0.0]
    for place, left in enumerate(need):
        if left <= 0:
            continue
        begin = (place * rotor.slot_ns - phase_ns) % rotor.cycle_ns
        # A turn that has begun when the demand comes is used for what is left of it.
        used = max(begin + rotor.hold_ns - rotor.cycle_ns, 0.0)
        if used >= left:
            ends.append(left)
            continue
        left -= used
        turns = math.ceil(left / rotor.hold_ns - 1e-12)
        ends.append(begin + (turns - 1) * rotor.cycle_ns + left - (turns - 1) * rotor.hold_ns)
    return max(ends)


def least_ns(
    matrix_ns: np.ndarray, switches: int, reconfigure_ns: float, *, up: bool = False
) -> float:
    """A floor of any schedule of a demand (entries: time on a circuit, [n, n]).

    max over rows and columns of (W + kappa delta) / s: every nonzero entry of a line needs a
    configuration of its own. `up`: the first circuits of all switches already are.
    """
    m = np.asarray(matrix_ns, np.float64)
    lines = [(m.sum(axis), (m > 0).sum(axis)) for axis in (0, 1)]
    floor = max(float(((w + k * reconfigure_ns) / switches).max(initial=0)) for w, k in lines)
    return max(floor - (reconfigure_ns if up else 0.0), 0.0)


def scheduled_ns(
    weights_ns: Sequence[float], switches: int, reconfigure_ns: float, *, up: bool = False
) -> float:
    """Makespan of matchings over switches, set up when they are needed: sum of delta + w, evened.

    Longest first to the least loaded switch, then the longest are split so that loads are even
    (a split pays delta again), where that is shorter. `up`: the first circuits already are.
    """
    weights = sorted((w for w in weights_ns if w > 0), reverse=True)
    if not weights:
        return 0.0
    first = reconfigure_ns if up else 0.0
    each = np.array([reconfigure_ns + w for w in weights])
    load = rails.lpt(each, min(switches, len(weights)))
    # Split evenly: each switch has its share of every matching that must be shared.
    even = sum(weights) / switches + reconfigure_ns * math.ceil(
        (len(weights) + switches - 1) / switches
    )
    return max(min(float(load.max()), even) - first, 0.0)
