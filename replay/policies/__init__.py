"""The policy catalogue: one file a policy, found by its `POLICY`."""

from __future__ import annotations

import difflib
from collections.abc import Mapping
from importlib import import_module
from pkgutil import iter_modules
from typing import Any

from ...ingest.errors import UsageError
from ..policy import BadParam, Policy


class UnknownPolicy(UsageError):
    """The catalogue has no policy of this name."""


def _discover() -> dict[str, Policy]:
    found: dict[str, Policy] = {}
    for module in sorted(m.name for m in iter_modules(__path__)):
        policy = getattr(import_module(f".{module}", __name__), "POLICY", None)
        if policy is None:
            continue
        if policy.name in found:
            raise RuntimeError(f"two policies are called {policy.name!r}")
        found[policy.name] = policy
    return found


REGISTRY: dict[str, Policy] = _discover()
"""Every policy by its name."""


def policy(name: str) -> Policy:
    """The policy of a name; raises UnknownPolicy, with the names nearest to it."""
    if name not in REGISTRY:
        close = difflib.get_close_matches(name, list(REGISTRY), n=3, cutoff=0.5)
        hint = f"did you mean {' or '.join(close)}?" if close else f"there are {_all()}"
        raise UnknownPolicy(f"no policy {name!r}: {hint}")
    return REGISTRY[name]


def parse(spec: str) -> tuple[Policy, dict[str, Any]]:
    """A policy and the parameters given to it, from `name` or `name:k=v,k=v` (values as text).

    Raises UnknownPolicy, and BadParam for what is not of that form or given twice.
    """
    name, _, rest = spec.partition(":")
    chosen = policy(name.strip())
    given: dict[str, Any] = {}
    for item in (i.strip() for i in rest.split(",")):
        if not item:
            continue
        key, equals, value = (part.strip() for part in item.partition("="))
        if not equals or not key or not value:
            raise BadParam(f"policy {chosen.name}: {item!r} is not of the form parameter=value")
        if key in given:
            raise BadParam(f"policy {chosen.name}: parameter {key!r} is given twice")
        given[key] = value
    return chosen, given


def resolve(spec: Any) -> tuple[Policy, dict[str, Any]]:
    """A policy and every parameter's value from text, a name with a mapping, or a Policy.

    Raises UnknownPolicy and BadParam.
    """
    if isinstance(spec, Policy):
        return spec, spec.values({})
    if isinstance(spec, str):
        chosen, given = parse(spec)
        return chosen, chosen.values(given)
    try:
        named, given = spec
    except (TypeError, ValueError):
        raise BadParam(f"a policy is a name or (name, parameters), not {spec!r}") from None
    chosen = named if isinstance(named, Policy) else policy(named)
    if not isinstance(given, Mapping):
        raise BadParam(f"policy {chosen.name}: parameters are a mapping, not {given!r}")
    return chosen, chosen.values(given)


def _all() -> str:
    return ", ".join(sorted(REGISTRY))
