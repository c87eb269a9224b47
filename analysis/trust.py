"""How far a replay can be trusted, in words: what it reproduces, and what that rests on."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from . import units

PARTS = {
    "work_share": "measured work",
    "host_share": "host time between calls",
    "transfer_share": "communication transfer",
    "unexplained_share": "unexplained gaps",
}
"""Fields of `critical_path`, and their words."""

BY_CONSTRUCTION = (
    "An unchanged replay is all but exact by construction: what no dependency explains stays as it "
    "was measured. The share of it says how much that proves."
)


def off_by(fidelity_pct: float | None) -> str:
    """`off by 0.06 %`; a replay is never said to be exact."""
    if fidelity_pct is None:
        return f"off by {units.NOTHING}"
    return f"off by {share(abs(fidelity_pct) / 100)}"


def share(of: float) -> str:
    """A share of a path that is measured with an error of its own: never a plain 0 %."""
    return "less than 0.01 %" if of < 1e-4 else units.percent(of)


def fidelity(found: Mapping[str, Any]) -> str:
    """What the unchanged replay took, how far off that is, and how much of it is unexplained.

    `found` has `replayed_ns`, `fidelity_pct` and `critical_path`, as `replay` gives them.
    """
    text = (
        f"replayed unchanged {units.time(found['replayed_ns'], 4)}: "
        f"{off_by(found.get('fidelity_pct'))}"
    )
    shares = found.get("critical_path")
    if shares is None:
        return text
    text += (
        f"; {share(shares['unexplained_share'])} of the critical path is gaps no recorded "
        "dependency explains, kept as measured"
    )
    if shares["host_share"] >= 0.01:
        text += f", as is the host time between calls ({share(shares['host_share'])})"
    return text


def path(found: Mapping[str, Any]) -> str:
    """What the critical path is made of; empty where that is not known."""
    shares = found.get("critical_path")
    if shares is None:
        return ""
    parts = [f"{share(shares[k])} {words}" for k, words in PARTS.items()]
    return f"critical path: {', '.join(parts)}"
