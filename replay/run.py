"""`retime replay`: baseline, fidelity, and what each policy would have made of the step."""

from __future__ import annotations

import itertools
from collections.abc import Mapping, Sequence
from dataclasses import replace as changed
from typing import Any, NamedTuple

import numpy as np

from ..ingest.errors import UsageError
from . import critical, engine
from . import steps as timing
from .graph import TaskGraph
from .load import load
from .policies import resolve
from .policy import BadParam, Policy, ReplayJob

DRAWS = 2_000
"""Resamples of the bootstrap over steps."""

GATE_PCT = 5.0
"""An unchanged replay further off than this makes every estimate doubtful, and says so."""

UNEXPLAINED_SHARE = 0.25
"""With more of the critical path unexplained than this, every estimate says so."""

Chosen = tuple[Policy, dict[str, Any]]


class Baseline(NamedTuple):
    """The unchanged replay: times of the chosen steps, and what communication cost in them."""

    job: ReplayJob
    steps: np.ndarray
    measured_ns: np.ndarray
    """float64 [s]."""
    replayed_ns: np.ndarray
    """float64 [s]."""
    communication: timing.Communication
    path: critical.CriticalPath
    only: int | None = None
    """The one step that is looked at; None for all."""

    @property
    def fidelity_pct(self) -> float:
        """Mean over steps of |replayed - measured| / measured, in percent."""
        off = np.abs(self.replayed_ns - self.measured_ns) / self.measured_ns
        return float(100 * off.mean())


def replay(
    snapshot: Any,
    policies: Sequence[Any] = (),
    *,
    sweep: Mapping[str, Sequence[Any]] | None = None,
    step: int | None = None,
) -> dict[str, Any]:
    """Re-times a job (a `Snapshot`, or a ReplayJob) under policies.

    `policies` are `name`, `name:k=v,k=v`, (name, mapping) or Policy. Several are tried each
    alone and then, as the last entry, together in the order given (name `a + b`, parameters
    `a.k`; of the second of a name `a#2.k`). `sweep` gives parameters of the last policy several
    values: an entry a point (of their product). `step` looks at one step only.

    Returns the object of DESIGN section 5, times in ns: `job`; `steps` (their numbers);
    `measured_ns` and `replayed_ns`, means over steps; `fidelity_pct`, and what it rests on:
    `critical_path` (`critical.CriticalPath`); `warnings` about the baseline; and `policies`, each
    with `name`, `params`, `step_ns`, `low_ns`, `high_ns` (the 95 % bootstrap interval over
    steps), `gain_pct`, `recovered` (`wait_ns`, `transfer_ns`, `exposed_ns`: what a rank saves a
    step), `assumptions`, `warnings`.

    Raises UsageError for an unknown policy, parameter, value or step, UnusableInput for a job
    with nothing to replay.
    """
    scenarios = plan(policies, sweep)
    job = snapshot if isinstance(snapshot, ReplayJob) else load(snapshot)
    base = baseline(job, step)
    return {
        "job": base.job.job,
        "steps": [int(s) for s in base.steps],
        "measured_ns": _ns(base.measured_ns.mean()),
        "replayed_ns": _ns(base.replayed_ns.mean()),
        "fidelity_pct": base.fidelity_pct,
        "critical_path": base.path._asdict(),
        "warnings": _warnings(base),
        "policies": [estimate(base, scenario) for scenario in scenarios],
    }


def plan(
    policies: Sequence[Any], sweep: Mapping[str, Sequence[Any]] | None = None
) -> list[tuple[Chosen, ...]]:
    """The scenarios to run, each a tuple of policies with their values, in order of the result.

    Raises UnknownPolicy, BadParam, and UsageError for a sweep without a policy.
    """
    if isinstance(policies, str | Policy):
        policies = [policies]
    chosen = [resolve(p) for p in policies]
    if not chosen:
        if sweep:
            raise UsageError("a sweep needs a policy: it varies a parameter of the last one")
        return []
    *before, (last, values) = chosen
    points = [values]
    if sweep:
        if any(isinstance(v, str) or not len(v) for v in sweep.values()):
            raise BadParam("a sweep takes several values of a parameter: k=v1,v2")
        points = [
            {**values, **_swept(last, dict(zip(sweep, point, strict=True)))}
            for point in itertools.product(*sweep.values())
        ]
    scenarios: list[tuple[Chosen, ...]] = [(one,) for one in before]
    scenarios += [((last, point),) for point in points]
    if before:
        scenarios += [(*before, (last, point)) for point in points]
    return scenarios


def _swept(policy: Policy, given: dict[str, Any]) -> dict[str, Any]:
    values = policy.values(given)
    return {k: values[k] for k in given}


def baseline(job: ReplayJob, step: int | None = None) -> Baseline:
    """The unchanged replay of all steps, or of one. Raises UsageError for a step it has not."""
    graph = job.graph
    start, end = engine.replay(graph)
    steps, replayed = timing.step_times(graph, start, end)
    _, measured = timing.measured(graph)
    if step is not None:
        if step not in steps:
            raise UsageError(f"job {job.job!r} has no step {step}; it has {_range(steps)}")
        only = steps == step
        steps, replayed, measured = steps[only], replayed[only], measured[only]
    if job.facts.get("measured") is not graph:
        job = changed(job, facts={**job.facts, "measured": graph})
    spent = timing.communication(graph, start, end, steps)
    path = critical.critical_path(graph, start, end, steps)
    return Baseline(job, steps, measured, replayed, spent, path, step)


def estimate(base: Baseline, scenario: tuple[Chosen, ...]) -> dict[str, Any]:
    """One entry of the result: the policies of a scenario applied in their order.

    The estimate is the measured step times replayed(policies) / replayed(unchanged).
    """
    job = base.job.note()
    job = changed(job, assumptions=(), warnings=())
    for policy, values in scenario:
        before = job.assumptions
        job = policy.apply(job, **values)
        if job.assumptions == before:
            # One that does not say what this use of it assumes assumes all that it may.
            job = job.note(assumptions=policy.assumptions)
    if base.only is not None:
        job = changed(job, graph=_within(base.job.graph, job.graph, base.only))
    start, end = engine.replay(job.graph)
    at, times = timing.step_times(job.graph, start, end)
    times = times[np.isin(at, base.steps)]
    low, high, said = interval(base.replayed_ns, times)
    ratio = times.mean() / base.replayed_ns.mean()
    measured = base.measured_ns.mean()
    now = timing.communication(job.graph, start, end, base.steps)
    return {
        "name": " + ".join(p.name for p, _ in scenario),
        "params": _params(scenario),
        "step_ns": _ns(measured * ratio),
        "low_ns": _ns(measured * low),
        "high_ns": _ns(measured * high),
        "gain_pct": float(100 * (1 - ratio)),
        "recovered": {
            name: _ns(was - is_now)
            for name, was, is_now in zip(now._fields, base.communication, now, strict=True)
        },
        "assumptions": list(dict.fromkeys((*base.job.assumptions, *job.assumptions))),
        "warnings": list(dict.fromkeys((*_warnings(base), *job.warnings, *said))),
    }


def _within(was: TaskGraph, now: TaskGraph, step: int) -> TaskGraph:
    """The changed graph with all tasks outside a step as they were.

    What a policy saves in the steps before would begin this one earlier, and what it saves here
    end it earlier: their difference is not what it does to this step. A graph of other tasks is
    taken whole.
    """
    if now.n != was.n or not np.array_equal(now.pred, was.pred):
        return now
    here = timing.within(was, step)
    return now.with_(
        gap_ns=np.where(here, now.gap_ns, was.gap_ns), dur_ns=np.where(here, now.dur_ns, was.dur_ns)
    )


def interval(base_ns: np.ndarray, now_ns: np.ndarray) -> tuple[float, float, tuple[str, ...]]:
    """Low and high of mean(now) / mean(base) over steps, and what to say about them.

    The 2.5 and 97.5 percentiles of a bootstrap over steps (seed 0); with fewer than three steps
    the least and the greatest ratio of a step.
    """
    k = len(base_ns)
    if k < 3:
        ratios = now_ns / base_ns
        what = "one step: no interval" if k == 1 else "two steps: the interval is their two values"
        return float(ratios.min()), float(ratios.max()), (what,)
    drawn = np.random.default_rng(0).integers(0, k, (DRAWS, k))
    ratios = now_ns[drawn].sum(1) / base_ns[drawn].sum(1)
    low, high = np.percentile(ratios, [2.5, 97.5])
    return float(low), float(high), ()


def _warnings(base: Baseline) -> list[str]:
    said = list(base.job.warnings)
    if base.fidelity_pct > GATE_PCT:
        said.append(
            f"the unchanged replay is {base.fidelity_pct:.1f} % off the measured steps: "
            "estimates from it are doubtful"
        )
    unexplained = base.path.unexplained_share
    if unexplained > UNEXPLAINED_SHARE:
        said.append(
            f"{100 * unexplained:.0f} % of the critical path is gaps that no recorded dependency "
            "explains: a change of what they really wait for would not move them"
        )
    return said


def _params(scenario: tuple[Chosen, ...]) -> dict[str, Any]:
    out: dict[str, Any] = {}
    for place, (policy, values) in enumerate(scenario):
        before = sum(p.name == policy.name for p, _ in scenario[:place])
        prefix = policy.name if not before else f"{policy.name}#{before + 1}"
        for name, v in values.items():
            key = name if len(scenario) == 1 else f"{prefix}.{name}"
            out[key] = list(v) if isinstance(v, tuple) else v
    return out


def _range(steps: np.ndarray) -> str:
    if not len(steps):
        return "no steps"
    return f"step {steps[0]}" if len(steps) == 1 else f"steps {steps[0]} to {steps[-1]}"


def _ns(value: float) -> int:
    return round(float(value))
