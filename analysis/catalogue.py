"""What there is to use: tables, views and macros with their units; policies with parameters."""

from __future__ import annotations

import difflib
from collections.abc import Iterable
from typing import Any

from ..ingest.errors import UsageError


def near(name: str, known: Iterable[str], what: str, command: str) -> UsageError:
    """The error for a name that there is not: the nearest ones, or where the list is."""
    close = difflib.get_close_matches(name, list(known), n=3, cutoff=0.5)
    hint = f"did you mean {' or '.join(close)}?" if close else f"{command} lists them"
    return UsageError(f"no {what} {name!r}: {hint}")


def policies(name: str | None = None) -> list[dict[str, Any]]:
    """One row a policy: name, summary, source, assumptions, and params with their units.

    Raises UsageError for a name that the catalogue does not hold.
    """
    from ..replay.policies import REGISTRY

    if name is not None and name not in REGISTRY:
        raise near(name, REGISTRY, "policy", "retime policies")
    chosen = [REGISTRY[name]] if name is not None else [REGISTRY[k] for k in sorted(REGISTRY)]
    return [
        {
            "name": p.name,
            "summary": p.summary,
            "source": p.source,
            "params": [
                {
                    "name": q.name,
                    "type": q.type.__name__,
                    "default": q.default,
                    "unit": q.unit,
                    "meaning": q.meaning,
                    "choices": list(q.choices),
                }
                for q in p.params
            ],
            "assumptions": list(p.assumptions),
        }
        for p in chosen
    ]
