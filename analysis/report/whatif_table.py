"""The panel of what-if: each policy that was tried, its estimate with interval, warnings."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from .. import ideals, trust, units
from ..replay_screen import estimate
from .parts import EVERYONE, Panel, absent, items, note, section, table, text

TITLE = "What if"


def render(
    found: Mapping[str, Any],
    facts: Mapping[str, Any],
    study: Mapping[str, Any] | None = None,
) -> Panel:
    """The panel from `whatif.estimates`, with its ideals and the study's beside each other."""
    if not found["rows"]:
        none = "no rank is known to be late"
        return absent("whatif", TITLE, f"Nothing can be re-timed: {found['error'] or none}.")
    unit = "step" if facts["steps"] else "trace"
    rows = [_row(r, len(found.get("steps") or ())) for r in found["rows"]]
    saw = [r for r in found["rows"] if r["error"] is None]
    parts = []
    if saw:
        parts.append(
            note(
                f"Measured {units.time(found['measured_ns'], 4)} a {unit}, "
                f"{trust.fidelity(found)}. {trust.BY_CONSTRUCTION}"
            )
        )
        if trust.path(found):
            parts.append(note(f"The {trust.path(found)}."))
    titles = {
        "what": "if",
        "step": f"the {unit} takes (interval)",
        "gain": "gain",
        "wait": "wait saved",
        "transfer": "transfer saved",
        "exposed": "exposed saved",
        "policy": "policy",
    }
    right = ("gain", "wait", "transfer", "exposed")
    parts.append(table([{k: r.get(k) for k in titles} for r in rows], titles, right=right))
    warned = list(dict.fromkeys(t for r in saw for t in r.get("warnings") or ()))
    assumed = list(dict.fromkeys(t for r in saw for t in r.get("assumptions") or ()))
    parts.append(items(warned, "warn"))
    beside = ideals.texts(ideals.rows(found, study))
    if len(beside) > 1:
        columns = {
            "ideal": "ideal",
            "step": f"the {unit} takes",
            "gain": "gain",
            "assumes": "what it assumes",
        }
        parts.append("<h3>The ideals beside each other</h3>")
        parts.append(note(ideals.WHY_APART))
        parts.append(table(beside, columns, right=("step", "gain")))
    if assumed:
        parts.append(
            f"<details><summary>{text('What this assumes')}</summary>{items(assumed)}</details>"
        )
    return Panel(section("whatif", TITLE, EVERYONE, *parts))


def _row(r: Mapping[str, Any], steps: int) -> dict[str, Any]:
    if r["error"] is not None:
        return {"what": r["words"], "policy": r["policy"], "step": r["error"]}
    got = r.get("recovered") or {}
    return {
        "what": r["words"],
        "policy": r["policy"],
        "step": estimate(r, steps),
        "gain": units.percent(r["gain_pct"] / 100),
        "wait": units.time(got.get("wait_ns")),
        "transfer": units.time(got.get("transfer_ns")),
        "exposed": units.time(got.get("exposed_ns")),
    }
