"""How far off an estimate may be for its model's sake, beside what steps differ by.

A policy's model gives some tasks other times. The replay is made twice more, with all of these off
by the same share, to either side: what that does to the step is the model's part of the interval,
so that a time that hides behind others widens nothing. The shares come from a real little network
on which the same changes were made and measured (docs/lab.md, `python -m benchmarks.lab shares`).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numba
import numpy as np

from . import edges, engine, sweep
from . import steps as timing
from .graph import Kind
from .policy import ReplayJob
from .scenarios import Chosen

SHARES = {
    "align-arrivals": 0.16,
    "algorithm": 0.09,
    "algorithm:algo=direct": 0.33,
    "scale-fabric": 0.10,
    "rail-balance": 0.10,
    "wave-schedule": 0.13,
    "hierarchical": 0.07,
    "batch-a2a": 0.23,
    "isolate-storage": 0.05,
    "overlap": 0.05,
}
"""By policy, or policy and value: what nine of ten pairs of the lab's first measurement were off by
at most, of the times that changed; 5 % where all were within their other parts. Messages of many
peers at once (direct) cost what no trace of another algorithm shows."""

UNMEASURED = 0.10
"""Of policies that the lab has no pair of: as the less exact of those that it has."""

BETWEEN_RUNS = 0.01
"""Of the step: what two runs of one job differ by, as a step is measured in one and estimated for
another."""


def share(scenario: Sequence[Chosen]) -> float:
    """What the times that some policies changed may be off by, of themselves: the largest share."""
    return max((_of(policy.name, values) for policy, values in scenario), default=0.0)


def _of(name: str, values: Mapping[str, Any]) -> float:
    fits = [f"{name}:{key}={value}" for key, value in values.items()]
    return next((SHARES[key] for key in (*fits, name) if key in SHARES), UNMEASURED)


def said(scenario: Sequence[Chosen]) -> str:
    """The sentence that says what an interval is made of."""
    missing = sorted({policy.name for policy, _ in scenario if policy.name not in SHARES})
    more = f"; {', '.join(missing)}: not measured there, so assumed" if missing else ""
    return (
        f"the interval: what steps differ by, {100 * share(scenario):.0f} % of the times that "
        f"changed (as in the lab, docs/lab.md{more}), {100 * BETWEEN_RUNS:.0f} % between runs"
    )


def bounds_ns(was: ReplayJob, now: ReplayJob, steps: np.ndarray, off: float) -> np.ndarray | None:
    """Steps' times with every changed time shorter and longer by `off` of itself: float64 [2, s].

    `steps` (int64 [s]) are those that count. A transfer that changed is off by a share of all it
    takes, as a model gives that anew; other tasks and launch delays by a share of what they changed
    by, as the rest of them was measured. None where nothing changed.
    """
    before, after = was.graph, now.graph
    factor = now.facts.get("time_factor", 1.0)
    dur, gap = before.dur_ns, before.gap_ns
    if "origin" in after.extra:
        like = edges.origin(after)
        dur, gap = dur[like], gap[like]
    sides_ns = np.empty((4, after.n), np.int64)
    any_changed = _shifted(
        after.kind == Kind.TRANSFER, after.dur_ns, dur, after.gap_ns, gap, off, sides_ns
    )
    if factor == 1.0 and not any_changed and np.array_equal(after.pred, before.pred):
        return None

    def side(k: int) -> np.ndarray:
        moved = after.with_(dur_ns=sides_ns[k], gap_ns=sides_ns[2 + k])
        numbers, times = timing.step_times(moved, *engine.replay(moved))
        return times[np.isin(numbers, steps)] * (factor + (-1, 1)[k] * off * abs(factor - 1.0))

    return np.stack(sweep.over(side, range(2), tasks=after.n))


@numba.njit(cache=True, nogil=True)
def _shifted(transfer, dur, was, gap, was_gap, off, out):  # pragma: no cover - compiled
    """Writes durations and delays, shorter and longer, to `out` [4, n]; whether any had changed."""
    changed = False
    for i in range(len(dur)):
        more = 0
        if dur[i] != was[i]:
            changed = True
            more = np.int64(np.rint(off * (dur[i] if transfer[i] else abs(dur[i] - was[i]))))
        out[0, i], out[1, i] = max(dur[i] - more, 0), dur[i] + more
        more = 0
        if gap[i] != was_gap[i]:
            changed = True
            more = np.int64(np.rint(off * abs(gap[i] - was_gap[i])))
        out[2, i], out[3, i] = max(gap[i] - more, 0), gap[i] + more
    return changed


def widened(ratio: float, low: float, high: float, by_model: np.ndarray) -> tuple[float, float]:
    """The interval about a ratio of steps with what is not of steps in it; parts add as squares.

    `low` and `high` are what steps differ by, `by_model` the ratio with shorter and with longer
    changed times.
    """
    runs = BETWEEN_RUNS * ratio
    down = np.sqrt((ratio - low) ** 2 + (ratio - by_model[0]) ** 2 + runs**2)
    up = np.sqrt((high - ratio) ** 2 + (by_model[1] - ratio) ** 2 + runs**2)
    return float(ratio - down), float(ratio + up)
