"""What to fix first: what each thing would gain or takes, how that is known, and which leads."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

from . import units
from .sentences import mostly_paired

if TYPE_CHECKING:
    from .doors import Job

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
"""Classes whose time a fix could lessen, and the fix in words."""

LEAST_EXCESS = 0.1
"""M_S or M_W under which a stage or a rank at its ideal is no fix."""


def candidates(
    whatif: Mapping[str, Any], facts: Mapping[str, Any], study: Mapping[str, Any] | None = None
) -> list[dict[str, Any]]:
    """What could be gained, the surest first: `what`, `basis`, `gain_ns`, `low_ns`, `high_ns`.

    `basis` is "re-timed" (a replay, with its interval over steps; `sure` where all of it is a gain
    beyond the replay's own error), "straggler study" (of `study`, where most of the wait is at
    sends and receives) or "own time" (the time of a class of the mean step, neither a gain nor its
    bound: the wait that it causes elsewhere is not in it). Everything at its ideal is no fix.
    """
    out = [_retimed(r, whatif) for r in whatif["rows"] if _is_fix(r)]
    if study is not None and mostly_paired(facts):
        out += _of_study(study, whatif)
    out.sort(key=lambda c: (not c["sure"], -c["gain_ns"]))
    rooms = [
        {
            "what": ROOM[r["class"]],
            "class": r["class"],
            "basis": "own time",
            "gain_ns": round(r["mean_ns"]),
            "low_ns": None,
            "high_ns": None,
            "sure": False,
        }
        for r in facts.get("classes", ())
        if r["class"] in ROOM and r["share"] >= LEAST_SHARE
    ]
    return out + sorted(rooms, key=lambda c: -c["gain_ns"])


def of_job(job: Job, facts: Mapping[str, Any]) -> dict[str, Any] | None:
    """What a job's page leads with: `head` and `gain`, two sentences; None where no time is known.

    `gain` is None where re-timing the job takes long and nothing is kept of it (`whatif.CHEAP`).
    """
    if facts["scope"] == "nothing":
        return None
    found = job.whatif_at_hand(facts)
    if found is None:
        return {"head": None, "gain": None}
    unit = "step" if facts["scope"] == "step" else "trace"
    study = job.study_of_pairs(facts)
    head, gain = sentence(candidates(found, facts, study), found, unit)
    return {"head": head, "gain": gain}


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


def _of_study(study: Mapping[str, Any], whatif: Mapping[str, Any]) -> list[dict[str, Any]]:
    """The last stage and the slowest ranks at their ideal: M_S and M_W of what is over the ideal.

    Never more than what every operation at its ideal gains, in the study or re-timed.
    """
    measured = whatif.get("measured_ns") or study["measured_ns"]
    excess = study["replayed_ns"] - study["ideal_ns"]
    everything = [
        measured - r["step_ns"]
        for r in whatif["rows"]
        if r["error"] is None and "to=ideal" in r["policy"]
    ]
    most = min([excess, *everything])
    bound = "in that study" if most == excess else "re-timed"
    ranks = study["slowest_ranks"]
    whose = f"rank {ranks[0]} at its" if len(ranks) == 1 else f"ranks {_listed(ranks)} at their"
    out = []
    for what, part in (
        ("the last pipeline stage at its ideal", study["m_s"]),
        (f"{whose} ideal", study["m_w"]),
    ):
        if part is None or part < LEAST_EXCESS or most < LEAST_SHARE * measured:
            continue
        gain = round(min(part * excess, most))
        out.append(
            {
                "what": what,
                "policy": "",
                "basis": "straggler study",
                "gain_ns": gain,
                "low_ns": None,
                "high_ns": None,
                "capped": (bound if part * excess > most else None),
                "sure": gain >= LEAST_SHARE * measured,
            }
        )
    return out


def _listed(ranks: Sequence[Any]) -> str:
    *most, last = map(str, ranks)
    return f"{', '.join(most)} and {last}" if most else last


def first(found: Sequence[Mapping[str, Any]]) -> Mapping[str, Any] | None:
    """The candidate that leads: the largest sure gain, fewer ranks' before all's if enough."""
    sure = [c for c in found if c["sure"]]
    if not sure:
        return None
    best = max(sure, key=lambda c: c["gain_ns"])
    of_ranks = [
        c for c in sure if "ranks=" in c["policy"] and c["gain_ns"] >= ENOUGH * best["gain_ns"]
    ]
    if not of_ranks:
        return best
    return min(of_ranks, key=lambda c: (c["policy"].count("+"), -c["gain_ns"]))


def sentence(
    found: Sequence[Mapping[str, Any]], whatif: Mapping[str, Any], unit: str = "step"
) -> tuple[str, str]:
    """What to fix first in a few words, and what it would gain with how that is known.

    `unit` is what is re-timed: a step, or a trace without steps.
    """
    measured = whatif.get("measured_ns")
    best = first(found)
    rooms = [c for c in found if c["basis"] == "own time"]
    if best is not None and measured:
        how = "Re-timed" if best["basis"] == "re-timed" else "By the straggler study"
        share = units.percent(best["gain_ns"] / measured)
        alone = best["basis"] == "re-timed" and len(whatif.get("steps") or ()) == 1
        one = f"; of one {unit} alone" if alone else ""
        said = f"{how}, the {unit} would take {gain_words(best)} less ({share}{one})"
        if best.get("capped"):
            said += f", as much as with every operation at its ideal ({best['capped']})"
        return _heads(best), f"{said}."
    head = "Nothing could be re-timed"
    if any(c["basis"] == "re-timed" for c in found):
        head = "Nothing re-timed gains beyond its interval"
    elif any(r["error"] is None for r in whatif["rows"]):
        head = "No stage and no rank stands out"
    if not rooms:
        return head, f"No class that a fix is known for takes 1 % of the {unit}."
    room = rooms[0]
    return (
        head,
        f"The most room is in {room['what']}: {units.time(room['gain_ns'])} of the mean {unit}, "
        "without the wait that it causes on other ranks. How much a fix gains is not known.",
    )


def _heads(best: Mapping[str, Any]) -> str:
    policy = best["policy"]
    if policy == "align-arrivals":
        return "Get all ranks to their collectives at the same time"
    if policy.startswith("align-arrivals:ranks="):
        ranks = policy.partition("=")[2].split("+")
        if len(ranks) > 1:
            return f"Get ranks {_listed(ranks)} to their collectives in time"
        return f"Get rank {ranks[0]} to its collectives in time"
    if best["basis"] == "straggler study":
        return f"Get {best['what'].replace(' at ', ' to ', 1)}"
    return best["what"].removeprefix("if ").capitalize()


def gain_words(c: Mapping[str, Any]) -> str:
    """A gain with its interval; of a class, its time."""
    if c["basis"] == "own time":
        return f"{units.time(c['gain_ns'])} of its own"
    return units.interval(c["gain_ns"], c["low_ns"], c["high_ns"])
