"""What is to be tried: policies with their values, alone and together, over a sweep's points."""

from __future__ import annotations

import itertools
from collections.abc import Mapping, Sequence
from typing import Any

from ..ingest.errors import UsageError
from .policies import resolve
from .policy import BadParam, Policy

Chosen = tuple[Policy, dict[str, Any]]

MAX_POINTS = 10_000
"""Points of a sweep: more are surely a mistake, and would replay for hours."""


def plan(
    policies: Sequence[Any], sweep: Mapping[str, Sequence[Any]] | None = None
) -> list[tuple[Chosen, ...]]:
    """The scenarios to run, each a tuple of policies with their values, in order of the result.

    Each policy alone, then all of them together in the order in which they apply (`ordered`).
    `sweep` varies parameters of the last one given. Raises UnknownPolicy, BadParam, and
    UsageError for a sweep without a policy.
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
        points = [{**values, **point} for point in _points(last, sweep)]
    scenarios: list[tuple[Chosen, ...]] = [(one,) for one in before]
    scenarios += [((last, point),) for point in points]
    if before:
        scenarios += [ordered((*before, (last, point))) for point in points]
    return scenarios


def ordered(scenario: Sequence[Chosen]) -> tuple[Chosen, ...]:
    """Policies in the order in which they apply: by stage, those of one stage as given."""
    return tuple(sorted(scenario, key=lambda one: one[0].stage))


def name(scenario: Sequence[Chosen]) -> str:
    """`a + b`, in the order in which they apply."""
    return " + ".join(p.name for p, _ in scenario)


def params(scenario: Sequence[Chosen]) -> dict[str, Any]:
    """The values of a scenario; of several policies `a.k`, of the second of a name `a#2.k`."""
    out: dict[str, Any] = {}
    for place, (policy, values) in enumerate(scenario):
        before = sum(p.name == policy.name for p, _ in scenario[:place])
        prefix = policy.name if not before else f"{policy.name}#{before + 1}"
        for k, v in values.items():
            key = k if len(scenario) == 1 else f"{prefix}.{k}"
            out[key] = list(v) if isinstance(v, tuple) else v
    return out


def _points(policy: Policy, sweep: Mapping[str, Sequence[Any]]) -> list[dict[str, Any]]:
    if any(isinstance(v, str) or not len(v) for v in sweep.values()):
        raise BadParam("a sweep takes several values of a parameter: k=v1,v2")
    n = 1
    for values in sweep.values():
        n *= len(values)
    if n > MAX_POINTS:
        raise BadParam(f"a sweep of {n} points: at most {MAX_POINTS}")
    points = []
    for point in itertools.product(*sweep.values()):
        given = dict(zip(sweep, point, strict=True))
        values = policy.values(given)
        points.append({k: values[k] for k in given})
    return points
