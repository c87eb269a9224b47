"""The ideals that a job is held against, side by side: what each gives and what it assumes."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from . import units
from .whatif import TO_IDEAL

WHY_APART = (
    "They differ because a mean spreads slow work over all ranks, where a median takes it away, "
    "and because with some ranks in time others are last."
)

NOBODY_LATE = (
    "before each collective a late rank sheds what its work has above the median rank's; transfers "
    "stay as measured"
)
SOME_IN_TIME = "the same of {} only: others may then be last"
ALL_IDEAL = (
    "every computation and host stretch takes the mean of those like it, over ranks and steps, "
    "every transfer and launch delay their median"
)
STUDY = "the same without launch delays, in the step as in its ideal"
SAME = 1e-3
"""Two steps that are no further apart are one: a traced job's, which keeps its launch delays."""


def rows(whatif: Mapping[str, Any], study: Mapping[str, Any] | None = None) -> list[dict[str, Any]]:
    """One row an ideal: `ideal`, `from_ns`, `step_ns`, `gain_pct`, `assumes`, from `whatif` and S.

    `from_ns` is the step that it is the ideal of. The straggler study's ideal (`study`) has a row
    of its own where its step is another one: of recorded operations, without launch delays.
    """
    out = [
        {
            "ideal": r["words"],
            "policy": r["policy"],
            "from_ns": whatif["measured_ns"],
            "step_ns": r["step_ns"],
            "gain_pct": r["gain_pct"],
            "assumes": _assumes(r["policy"]),
        }
        for r in whatif["rows"]
        if r["error"] is None and _assumes(r["policy"])
    ]
    retimed = next((r for r in out if r["policy"] == TO_IDEAL), None)
    if study is None:
        if retimed is not None:
            retimed["assumes"] += " (S of retime stragglers is against it)"
        return out
    said = f"S = {study['slowdown']:.3f}"
    if retimed is not None and _near(retimed["from_ns"], study["replayed_ns"]):
        retimed["assumes"] += f" ({said} of the straggler study)"
        return out
    return [
        *out,
        {
            "ideal": f"the straggler study's ideal ({said})",
            "policy": None,
            "from_ns": round(study["replayed_ns"]),
            "step_ns": round(study["ideal_ns"]),
            "gain_pct": 100 * (1 - study["ideal_ns"] / study["replayed_ns"]),
            "assumes": ALL_IDEAL if retimed is None else STUDY,
        },
    ]


def _near(a: float, b: float) -> bool:
    return abs(a - b) <= SAME * b


def _assumes(policy: str) -> str:
    """What the ideal of a policy about lateness assumes; empty for other policies."""
    if policy == "align-arrivals":
        return NOBODY_LATE
    if policy == TO_IDEAL:
        return ALL_IDEAL
    name, _, ranks = policy.partition(":ranks=")
    if name != "align-arrivals" or not ranks:
        return ""
    of = ranks.split("+")
    return SOME_IN_TIME.format(f"rank {of[0]}" if len(of) == 1 else "these ranks")


def texts(found: Sequence[Mapping[str, Any]]) -> list[dict[str, str]]:
    """`rows` in words: `ideal`, `step`, `gain`, `assumes`."""
    return [
        {
            "ideal": r["ideal"],
            "step": f"{units.time(r['step_ns'])} of {units.time(r['from_ns'])}",
            "gain": units.percent(r["gain_pct"] / 100),
            "assumes": r["assumes"],
        }
        for r in found
    ]
