"""How far off an estimate may be for its model's sake, beside what steps differ by.

A policy's model gives some tasks other times. The replay is made twice more, with all of these off
by the same share, to either side: what that does to the step is the model's part of the interval,
so that a time that hides behind others widens nothing. The shares come from a real little network
on which the same changes were made and measured (docs/lab.md, `python -m benchmarks.lab shares`).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from ..ingest.compiled import compiled
from . import edges, lanes
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

INT64 = np.iinfo(np.int64)

SIDES = 2


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
    numbers, index = after.steps
    marks = timing.Marks.of(after) if "begins" in after.extra else None
    mark = np.full(after.n if marks else 0, -1, np.int32)
    if marks is not None:
        mark[marks.tasks] = np.arange(len(marks.tasks))
    starts = np.empty((0 if marks is None else len(marks.tasks), SIDES), np.int64)
    kept = 1 << lanes.reach(after).bit_length()
    least, spans = (np.full((SIDES, len(numbers)), x) for x in (INT64.max, INT64.min))
    any_changed = _sides(
        after.kind, int(Kind.TRANSFER), after.dur_ns, dur, after.gap_ns, gap, off, after.pred_ptr,
        after.pred, after.release_ns, index, mark, starts,
        np.empty((kept, SIDES), np.int64), least, spans,
    )  # fmt: skip
    if factor == 1.0 and not any_changed and np.array_equal(after.pred, before.pred):
        return None
    if marks is not None:
        numbers, spans = marks.steps, [marks.times(starts[:, k]) for k in range(SIDES)]
    times = np.asarray(spans, np.float64)[:, np.isin(numbers, steps)]
    return times * (factor + np.array([[-1], [1]]) * off * abs(factor - 1.0))


@compiled
def _sides(
    kind, transfer, dur, was, gap, was_gap, off, pred_ptr, pred, release, index, mark, starts, end,
    least, most,
):  # fmt: skip  # pragma: no cover - compiled
    """Last end less first start of each step with shorter and longer times, into `most` (int64
    [2, steps], of the least there is; `least` of the greatest); whether any time had changed.

    Starts of tasks with a `mark` go to its row of `starts`. `end` (int64 [w, 2], w a power of 2
    above `lanes.reach`) has the ends of the last w tasks.
    """
    ring = len(end) - 1
    changed = False
    for i in range(len(dur)):
        a, b = pred_ptr[i], pred_ptr[i + 1]
        first = second = release[i]
        if a < b:
            first, second = end[pred[a] & ring, 0], end[pred[a] & ring, 1]
        for e in range(a + 1, b):
            j = pred[e] & ring
            first, second = max(first, end[j, 0]), max(second, end[j, 1])
        more = later = np.int64(0)
        if dur[i] != was[i]:
            changed = True
            more = np.int64(
                np.rint(off * (dur[i] if kind[i] == transfer else abs(dur[i] - was[i])))
            )
        if gap[i] != was_gap[i]:
            changed = True
            later = np.int64(np.rint(off * abs(gap[i] - was_gap[i])))
        first += max(gap[i] - later, 0)
        second += gap[i] + later
        at, s = i & ring, index[i]
        end[at, 0] = first + max(dur[i] - more, 0)
        end[at, 1] = second + dur[i] + more
        if len(mark) and mark[i] >= 0:
            starts[mark[i], 0], starts[mark[i], 1] = first, second
        if s >= 0:
            least[0, s], least[1, s] = min(least[0, s], first), min(least[1, s], second)
            most[0, s], most[1, s] = max(most[0, s], end[at, 0]), max(most[1, s], end[at, 1])
    for s in range(most.shape[1]):
        most[0, s] -= least[0, s]
        most[1, s] -= least[1, s]
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
