"""`retime replay`: baseline, fidelity, and what each policy would have made of the step."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace as changed
from typing import Any, NamedTuple

import numpy as np

from ..ingest.errors import UnusableInput, UsageError
from . import bounds, doubt, engine, scenarios, spending, sweep
from . import steps as timing
from .calibration import calibrate
from .contention import settle
from .findings import critical
from .graph import TaskGraph
from .load import load, with_fabric
from .policy import ReplayJob
from .scenarios import Chosen, plan
from .told import short, told

__all__ = [
    "Baseline",
    "Chosen",
    "NotFaithful",
    "Timelines",
    "baseline",
    "estimate",
    "interval",
    "plan",
    "replay",
    "timelines",
]

DRAWS = 2_000
"""Resamples of the bootstrap over steps."""

GATE_PCT = 5.0
"""An unchanged replay further off than this makes every estimate doubtful, and says so."""

DOUBTFUL = "estimates are doubtful"
"""How the warning begins that such a replay puts before every other."""

UNEXPLAINED_SHARE = 0.25
"""With more of the critical path unexplained than this, every estimate says so."""


class NotFaithful(UnusableInput):
    """The unchanged replay is too far off for estimates, and `strict` asks for none then."""


class Baseline(NamedTuple):
    """The unchanged replay: times of the chosen steps, and what communication cost in them."""

    job: ReplayJob
    steps: np.ndarray
    measured_ns: np.ndarray
    """float64 [s]."""
    replayed_ns: np.ndarray
    """float64 [s]."""
    communication: spending.Communication
    path: critical.CriticalPath
    start_ns: np.ndarray
    """int64 [n]: start of each task in it."""
    end_ns: np.ndarray
    seen_bytes_per_s: np.ndarray
    """float64 [2]: `bounds.seen`."""
    contention: settle.Recorded
    """What ran beside what in it, and what that cost."""
    only: int | None = None
    """The one step that is looked at; None for all."""

    @property
    def fidelity_pct(self) -> float:
        """Mean over steps of |replayed - measured| / measured, in percent."""
        off = np.abs(self.replayed_ns - self.measured_ns) / self.measured_ns
        return float(100 * off.mean())


class Timelines(NamedTuple):
    """When every task of a job runs before and after a scenario; times int64 [n], ns."""

    before: ReplayJob
    before_start_ns: np.ndarray
    before_end_ns: np.ndarray
    after: ReplayJob
    """Its graph may have other tasks than `before`, where a policy made new ones."""
    after_start_ns: np.ndarray
    after_end_ns: np.ndarray


def replay(
    snapshot: Any,
    policies: Sequence[Any] = (),
    *,
    sweep: Mapping[str, Sequence[Any]] | None = None,
    step: int | None = None,
    fabric: Any = None,
    strict: bool = False,
    calibration: bool = False,
    progress: Callable[[int, int], None] | None = None,
    ray: str | None = None,
) -> dict[str, Any]:
    """Re-times a job (a `Snapshot`, or a ReplayJob) under policies.

    `policies` are `name`, `name:k=v,k=v`, (name, mapping) or Policy. Several are tried each
    alone and then, as the last entry, together: by `Stage`, those of one stage in the order given
    (name `a + b` in the order in which they applied, parameters `a.k`; of the second of a name
    `a#2.k`). `sweep` gives parameters of the last policy several values: an entry a point (of
    their product). `step` looks at one step only. `fabric` is a file, a preset's name or a
    Fabric; without, it is made from the job's topology, if that says enough. `progress` is told
    how many entries are done, and of how many. `ray` is the address of a Ray cluster
    (`ingest.on_ray.check_address`) whose nodes make the entries: the same, in the same order.

    Returns one object, times in ns: `job`; `steps` (their numbers); `measured_ns` and
    `replayed_ns`, means over steps; `fidelity_pct`, and what it rests on: `critical_path`
    (`critical.CriticalPath`); `floors` (`free_communication_ns`, `busiest_link_ns`, `link`:
    `bounds.Floors`); `warnings` about the baseline; and `policies`, each with `name`, `params`,
    `step_ns`, `low_ns`, `high_ns` (what steps differ by, a bootstrap, what the model may be off
    by, and runs of one job by: `doubt`), `gain_pct`,
    `recovered` (`wait_ns`, `transfer_ns`, `exposed_ns`: what a rank saves a step), `floors`,
    `assumptions`, `warnings`. With `calibration`, `calibrate.table` under that name, and its
    `pools`, `curves` and `lateness` as `calibration_levels`, `calibration_curves`, `lateness`.

    Raises UsageError for an unknown policy, parameter, value or step, UnusableInput for a job
    with nothing to replay, ClusterError for a cluster that cannot do it; and where `strict`,
    NotFaithful if the unchanged replay is further than GATE_PCT off the measured steps.
    """
    tries = plan(policies, sweep)
    if ray is not None:
        _check_ray(ray, snapshot)
    job = snapshot if isinstance(snapshot, ReplayJob) else load(snapshot)
    base = baseline(with_fabric(job, fabric), step)
    if strict and base.fidelity_pct > GATE_PCT:
        raise NotFaithful(
            f"the unchanged replay is {base.fidelity_pct:.1f} % off the measured steps, more than "
            f"the {GATE_PCT:g} % that --strict allows: without it estimates are given, and doubtful"
        )
    result = {
        "job": base.job.job,
        "steps": [int(s) for s in base.steps],
        "measured_ns": _ns(base.measured_ns.mean()),
        "replayed_ns": _ns(base.replayed_ns.mean()),
        "fidelity_pct": base.fidelity_pct,
        "critical_path": base.path._asdict(),
        "floors": _floors(base, base.job, base.start_ns, base.replayed_ns.mean())[0],
        "warnings": told(_warnings(base)),
        "policies": [],
    }
    if ray is None or not tries:
        result["policies"] = estimates(base, tries, progress)
    else:
        from . import on_ray

        result["policies"] = on_ray.estimates(
            ray, snapshot, len(tries), step=step, policies=policies, sweep=sweep,
            fabric=None if fabric is None else base.job.facts["fabric"], progress=progress,
        )  # fmt: skip
    if calibration:
        result |= {
            "calibration": calibrate.table(base.job),
            "calibration_levels": calibrate.pools(base.job),
            "calibration_curves": calibrate.curves(base.job),
            "lateness": calibrate.lateness(base.job),
        }
    return result


def _check_ray(address: str, snapshot: Any) -> None:
    from ..ingest.on_ray import check_address

    check_address(address)
    if isinstance(snapshot, ReplayJob):
        raise UsageError("a Ray cluster re-times jobs of a warehouse, not a ReplayJob")


def baseline(job: ReplayJob, step: int | None = None) -> Baseline:
    """The unchanged replay of all steps, or of one. Raises UsageError for a step it has not.

    A job without a fabric has that of its topology, if that says enough (`load.with_fabric`).
    """
    job = with_fabric(job)
    graph = job.graph
    start, end = engine.replay(graph)
    steps, replayed = timing.step_times(graph, start, end)
    _, measured = timing.measured(graph)
    if step is not None:
        if step not in steps:
            raise UsageError(f"job {job.job!r} has no step {step}; it has {_range(steps)}")
        only = steps == step
        steps, replayed, measured = steps[only], replayed[only], measured[only]
    if not len(steps) or not (measured > 0).all() or not (replayed > 0).all():
        raise UnusableInput(
            f"job {job.job!r} has steps that take no time: nothing can be re-timed; check the step "
            "marks that its traces hold (retime problems)"
        )
    if job.facts.get("measured") is not graph:
        job = changed(job, facts={**job.facts, "measured": graph})
    spent = spending.communication(graph, start, end, steps)
    path = critical.critical_path(graph, start, end, steps)
    seen = bounds.seen(job, start, end, steps, float(replayed.mean()))
    beside = settle.recorded(job, start, end)
    return Baseline(job, steps, measured, replayed, spent, path, start, end, seen, beside, step)


def timelines(
    base: Baseline, scenario: Sequence[Chosen], steps: Sequence[int] | None = None
) -> Timelines:
    """The job before and after the policies of a scenario, in the order of their stages.

    With `steps` (default: the one that `base` looks at, if any) tasks outside of them keep their
    own times: these steps begin when they did. `after` has what the policies say, not what was
    said of the job before. Raises what a policy raises.
    """
    job = changed(base.job, assumptions=(), warnings=())
    for policy, values in scenarios.ordered(scenario):
        before, job = job, policy.apply(job, **values)
        if job.assumptions == before.assumptions:
            # One that does not say what this use of it assumes assumes all that it may.
            job = job.note(assumptions=policy.assumptions)
        if job.warnings == before.warnings and _same(before, job):
            said = (
                f"{policy.name} changed nothing: the job has nothing that it re-times with these "
                f"parameters (`retime policies {policy.name}`)"
            )
            job = job.note(warnings=(said,))
    if steps is None and base.only is not None:
        steps = (base.only,)
    if steps is not None:
        job = changed(job, graph=_within(base.job.graph, job.graph, steps))
    job, start, end = settle.settled(base.contention, base.job.graph, job)
    return Timelines(base.job, base.start_ns, base.end_ns, job, start, end)


def _same(before: ReplayJob, after: ReplayJob) -> bool:
    """Whether a policy left all as it was: durations, delays, edges, and what is not of a step."""
    was, now = before.graph, after.graph
    if was is not now and (
        was.n != now.n
        or was.pred is not now.pred
        or not np.array_equal(was.dur_ns, now.dur_ns)
        or not np.array_equal(was.gap_ns, now.gap_ns)
    ):
        return False
    return before.facts.get("time_factor") == after.facts.get("time_factor")


def estimates(
    base: Baseline,
    tries: Sequence[Sequence[Chosen]],
    progress: Callable[[int, int], None] | None = None,
) -> list[dict[str, Any]]:
    """`estimate` of several scenarios, which share the baseline and all cores.

    `progress` is called with the number that is done, and of all.
    """
    return sweep.over(
        lambda scenario: estimate(base, scenario), tries,
        tasks=base.job.graph.n, progress=progress,
    )  # fmt: skip


def estimate(base: Baseline, scenario: Sequence[Chosen]) -> dict[str, Any]:
    """One entry of the result: the policies of a scenario applied in the order of their stages.

    The estimate is the measured step times replayed(policies) / replayed(unchanged), but never
    under its floors.
    """
    scenario = scenarios.ordered(scenario)
    _, _, _, job, start, end = timelines(base, scenario)
    at, times = timing.step_times(job.graph, start, end)
    # What is not of a step (saves, failures) makes each of them longer by its share.
    times = times[np.isin(at, base.steps)] * job.facts.get("time_factor", 1.0)
    measured = float(base.measured_ns.mean())
    was = float(base.replayed_ns.mean())
    floors, highest = _floors(base, job, start, float(times.mean()))
    low, high, said = interval(base.replayed_ns, times)
    ratio = float(times.mean()) / was
    assumed: tuple[str, ...] = ()
    doubtful = doubt.bounds_ns(base.job, job, base.steps, doubt.share(scenario))
    if doubtful is not None:
        low, high = doubt.widened(ratio, low, high, doubtful.mean(axis=1) / was)
        assumed = (doubt.said(scenario),)
    if ratio * was < highest:
        said = (
            *said,
            f"raised to its floor: {_ms(measured * ratio)} would be less than the busiest link "
            f"needs ({floors['link']}); the policy makes that link faster, or is too hopeful",
        )
        ratio = highest / was
        low, high = max(low, ratio), max(high, ratio)
    now = spending.communication(job.graph, start, end, base.steps)
    order = scenarios.name(scenario)
    applied = (f"applied in the order of their stages: {order}",) if len(scenario) > 1 else ()
    return {
        "name": order,
        "params": scenarios.params(scenario),
        "step_ns": _ns(measured * ratio),
        "low_ns": _ns(measured * low),
        "high_ns": _ns(measured * high),
        "gain_pct": float(100 * (1 - ratio)),
        "recovered": {
            name: _ns(was - is_now)
            for name, was, is_now in zip(now._fields, base.communication, now, strict=True)
        },
        "floors": floors,
        "assumptions": told((*applied, *base.job.assumptions, *job.assumptions, *assumed)),
        "warnings": told((*_warnings(base), *job.warnings, *said)),
    }


def _floors(
    base: Baseline, job: ReplayJob, start: np.ndarray, step_ns: float
) -> tuple[dict[str, Any], float]:
    """The floors of a replayed job as they are told (of the measured step), and the higher one.

    The second is in the replay's own ns. Ends and beginnings of steps that not all ranks have
    cannot lift the floor of free communication over the replay that it is less than.
    """
    found = bounds.floors(job, start, base.steps, base.seen_bytes_per_s)
    found = found._replace(free_communication_ns=min(found.free_communication_ns, step_ns))
    to_measured = float(base.measured_ns.mean() / base.replayed_ns.mean())
    told = {
        "free_communication_ns": _ns(found.free_communication_ns * to_measured),
        "busiest_link_ns": _ns(found.busiest_link_ns * to_measured),
        "link": short(found.link),
    }
    return told, found.highest_ns


def _within(was: TaskGraph, now: TaskGraph, steps: Sequence[int]) -> TaskGraph:
    """The changed graph with all tasks outside these steps as they were.

    What a policy saves in the steps before would begin this one earlier, and what it saves here
    end it earlier: their difference is not what it does to this step. A graph of other tasks is
    taken whole.
    """
    if now.n != was.n or not np.array_equal(now.pred, was.pred):
        return now
    here = np.zeros(was.n, bool)
    for step in steps:
        here |= timing.within(was, step)
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
        what = (
            "one step: the interval has nothing of what steps differ by"
            if k == 1
            else "two steps: the interval is at least their two values"
        )
        return float(ratios.min()), float(ratios.max()), (what,)
    drawn = np.random.default_rng(0).integers(0, k, (DRAWS, k))
    ratios = now_ns[drawn].sum(1) / base_ns[drawn].sum(1)
    low, high = np.percentile(ratios, [2.5, 97.5])
    return float(low), float(high), ()


def _warnings(base: Baseline) -> list[str]:
    said = [*base.job.warnings, *base.contention.warnings]
    if base.fidelity_pct > GATE_PCT:
        said.append(
            f"{DOUBTFUL}: the unchanged replay is {base.fidelity_pct:.1f} % off the measured steps"
        )
    unexplained = base.path.unexplained_share
    if unexplained > UNEXPLAINED_SHARE:
        said.append(
            f"{100 * unexplained:.0f} % of the critical path is gaps that no recorded dependency "
            "explains: a change of what they really wait for would not move them"
        )
    return said


def _range(steps: np.ndarray) -> str:
    if not len(steps):
        return "no steps"
    return f"step {steps[0]}" if len(steps) == 1 else f"steps {steps[0]} to {steps[-1]}"


def _ms(value_ns: float) -> str:
    return f"{value_ns / 1e6:.4g} ms"


def _ns(value: float) -> int:
    return round(float(value))
