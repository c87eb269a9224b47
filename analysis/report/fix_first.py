"""What to fix first: what each thing would gain, re-timed or at the most, and which leads."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from .. import units

LEAST_SHARE = 0.01
"""Share of a step under which a gain is not worth a headline."""

ENOUGH = 0.8
"""One rank's gain leads before all ranks' together where it is at least this part of it."""

ROOM = {
    "exposed_transfer": "moving bytes under compute, or faster",
    "exposed_memcpy": "copies under compute",
    "idle_launch_bound": "launching kernels in time (larger kernels, CUDA graphs)",
    "idle_waiting_for_host": "a host that does not hold the device up",
    "idle_waiting_for_stream": "streams that do not wait for each other",
    "idle_data_loading": "data that is there in time",
    "exposed_comm_unsplit": "communication under compute, or faster",
}
"""Classes whose whole time is the most that a fix could gain, and the fix in words."""


def candidates(whatif: Mapping[str, Any], facts: Mapping[str, Any]) -> list[dict[str, Any]]:
    """What could be gained, the surest first: `what`, `basis`, `gain_ns`, `low_ns`, `high_ns`.

    `basis` is "re-timed" (a replay, with its interval over steps; `sure` where all of it is a gain
    beyond the replay's own error) or "at most" (the whole time of a class of the mean step: what
    no fix of it can exceed). Recorded jobs' what-if of everything at its ideal is no fix.
    """
    out = [_retimed(r, whatif) for r in whatif["rows"] if _is_fix(r)]
    out.sort(key=lambda c: (not c["sure"], -c["gain_ns"]))
    rooms = [
        {
            "what": ROOM[r["class"]],
            "class": r["class"],
            "basis": "at most",
            "gain_ns": round(r["mean_ns"]),
            "low_ns": 0,
            "high_ns": round(r["mean_ns"]),
            "sure": False,
        }
        for r in facts.get("classes", ())
        if r["class"] in ROOM and r["share"] >= LEAST_SHARE and facts["scope"] == "step"
    ]
    return out + sorted(rooms, key=lambda c: -c["gain_ns"])


def _is_fix(row: Mapping[str, Any]) -> bool:
    return row["error"] is None and "to=ideal" not in row["policy"]


def _retimed(row: Mapping[str, Any], whatif: Mapping[str, Any]) -> dict[str, Any]:
    measured = whatif["measured_ns"]
    one = len(whatif.get("steps") or ()) == 1
    gain = measured - row["step_ns"]
    low, high = measured - row["high_ns"], measured - row["low_ns"]
    error = measured * abs(whatif.get("fidelity_pct") or 0.0) / 100
    return {
        "what": f"if {row['words']}",
        "policy": row["policy"],
        "basis": "re-timed",
        "gain_ns": gain,
        "low_ns": None if one else low,
        "high_ns": None if one else high,
        "sure": min(gain, low) > max(error, 0) and gain >= LEAST_SHARE * measured,
    }


def first(found: Sequence[Mapping[str, Any]]) -> Mapping[str, Any] | None:
    """The candidate that leads: the largest sure gain, one rank's before all ranks' if enough."""
    sure = [c for c in found if c["sure"]]
    if not sure:
        return None
    best = max(sure, key=lambda c: c["gain_ns"])
    of_ranks = [
        c for c in sure if "ranks=" in c["policy"] and c["gain_ns"] >= ENOUGH * best["gain_ns"]
    ]
    return max(of_ranks, key=lambda c: c["gain_ns"]) if of_ranks else best


def sentence(found: Sequence[Mapping[str, Any]], whatif: Mapping[str, Any]) -> tuple[str, str]:
    """What to fix first in a few words, and what it would gain with how that is known."""
    measured = whatif.get("measured_ns")
    best = first(found)
    at_most = [c for c in found if c["basis"] == "at most"]
    if best is not None and measured:
        head = _heads(best)
        gain = (
            f"Re-timed, the step would take {gain_words(best)} less"
            f" ({units.percent(best['gain_ns'] / measured)})."
        )
        return head, gain
    tried = [c for c in found if c["basis"] == "re-timed"]
    head = "Nothing re-timed gains beyond its interval"
    if not tried:
        head = "Nothing could be re-timed"
    if not at_most:
        return head, "No class of the step leaves more than 1 % to gain."
    room = at_most[0]
    return (
        head,
        f"The most room is in {room['what']}: at most {units.time(room['gain_ns'])} of the mean "
        "step. How much of it a fix gains is not known.",
    )


def _heads(best: Mapping[str, Any]) -> str:
    policy = best["policy"]
    if policy == "align-arrivals":
        return "Get all ranks to their collectives at the same time"
    if policy.startswith("align-arrivals:ranks="):
        return f"Get rank {policy.partition('=')[2]} to its collectives in time"
    return best["what"].removeprefix("if ").capitalize()


def gain_words(c: Mapping[str, Any]) -> str:
    """A gain with its interval; of a class, the most that it can be."""
    if c["basis"] == "at most":
        return f"at most {units.time(c['gain_ns'])}"
    return units.interval(c["gain_ns"], c["low_ns"], c["high_ns"])
