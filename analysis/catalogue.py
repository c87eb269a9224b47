"""What there is to use: tables, views and macros with their units; policies with parameters."""

from __future__ import annotations

import difflib
from typing import Any

from ..ingest.errors import UsageError


def tables(name: str | None = None) -> list[dict[str, Any]]:
    """One row a table, view or macro (`kind`): its name and meaning, and `columns` with units.

    With a name, that one alone. Raises UsageError for a name that there is not.
    """
    from ..queries.manual import dictionary

    entries = {e.name: e for e in dictionary()}
    if name is not None and name not in entries:
        close = difflib.get_close_matches(name, list(entries), n=3, cutoff=0.5)
        hint = f"did you mean {' or '.join(close)}?" if close else "retime tables lists them"
        raise UsageError(f"no table, view or macro {name!r}: {hint}")
    return [
        {
            "name": e.name,
            "kind": e.kind,
            "meaning": e.meaning,
            "columns": [f._asdict() for f in e.fields],
        }
        for e in (entries.values() if name is None else [entries[name]])
    ]


def policies(name: str | None = None) -> list[dict[str, Any]]:
    """One row a policy: name, summary, source, assumptions, and params with their units.

    Also `stage`, the `order` of that stage among `stages` (policies apply by it), `needs` of the
    trace, `valid` (where it holds) and `checked` (what tests hold it to). With a name, that one
    alone. Raises UnknownPolicy for one that the catalogue does not hold.
    """
    from ..replay.policies import REGISTRY, policy
    from ..replay.policy import Stage

    chosen = [policy(name)] if name is not None else [REGISTRY[k] for k in sorted(REGISTRY)]
    return [
        {
            "name": p.name,
            "summary": p.summary,
            "source": p.source,
            "stage": p.stage.name.lower(),
            "order": int(p.stage),
            "stages": len(Stage),
            "params": [
                {
                    "name": q.name,
                    "type": getattr(q.type, "__name__", str(q.type)),
                    "default": q.default,
                    "unit": q.unit,
                    "meaning": q.meaning,
                    "choices": list(q.choices),
                }
                for q in p.params
            ],
            "assumptions": list(p.assumptions),
            "needs": list(p.needs),
            "valid": p.valid,
            "checked": p.checked,
        }
        for p in chosen
    ]
