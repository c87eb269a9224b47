"""From rounds to figures: medians and spreads, ratios by round, and whether goals are met."""

from __future__ import annotations

import math
import statistics
from typing import Any

from .case import Bound, Case, Ratio, Way
from .rounds import Rounds

MET, MISSED, NOT_RUN = "met", "missed", "not run"
TOLERANCE = 1e-6
"""How far answers of numbers may be apart, relatively: sums of floats in another order."""


def judged(case: Case, rounds: Rounds, missing: dict[str, str]) -> dict[str, Any]:
    """The case as it is kept: plain values that JSON can hold."""
    found = {
        "name": case.name,
        "stage": case.stage,
        "n": case.n,
        "unit": case.unit,
        "ways": [_way(case, w, rounds.get(w.name, []), missing.get(w.name, "")) for w in case.ways],
        "ratios": [_ratio(case, r, rounds, missing) for r in case.ratios],
        "bounds": [_bound(case, b, rounds, missing) for b in case.bounds],
        "growth": case.growth,
        "grows": list(case.grows),
        "disagree": _disagree(case, rounds),
    }
    return {**found, "note": case.note} if case.note else found


def _way(case: Case, way: Way, of_way: list[Any], missing: str) -> dict[str, Any]:
    out: dict[str, Any] = {"name": way.name, "role": way.role, "cores": way.cores,
                           "clock": way.clock}  # fmt: skip
    if missing:
        return {**out, "missing": missing}
    ran = [r for r in of_way if r is not None]
    seconds = [_seconds(way, r) for r in ran]
    out |= {
        **spread(seconds, "s"),
        "cpu_s": statistics.median(r["cpu_s"] for r in ran),
        "peak_bytes": max(r["peak_bytes"] for r in ran),
        "amount": _amount(case, way, ran[-1]),
        "rate": 1 / statistics.median(_unit_s(case, way, r) for r in ran),
        "rounds": of_way,
    }
    return out


def _seconds(way: Way, took: dict[str, Any], clock: str = "") -> float:
    value = took.get(clock or way.clock)
    return took["wall_s"] if value is None else value


def spread(values: list[float], unit: str) -> dict[str, float]:
    """`median_s`, `low_s`, `high_s` of values in seconds, and so on."""
    return {
        f"median_{unit}": statistics.median(values),
        f"low_{unit}": min(values),
        f"high_{unit}": max(values),
    }


def _ratio(case: Case, ratio: Ratio, rounds: Rounds, missing: dict[str, str]) -> dict[str, Any]:
    out: dict[str, Any] = {"ours": ratio.ours, "other": ratio.other, "clock": ratio.clock,
                           "at_least": ratio.at_least, "goal": ratio.goal}  # fmt: skip
    ways = {w.name: w for w in case.ways}
    for name in (ratio.ours, ratio.other):
        if name in missing:
            return {**out, **_verdict(ratio.at_least, None), "why": f"{name}: {missing[name]}"}
    ours, other = (ways[n] for n in (ratio.ours, ratio.other))
    times = [
        _unit_s(case, other, theirs, ratio.clock) / _unit_s(case, ours, mine, ratio.clock)
        for mine, theirs in zip(_every(ours, rounds), _every(other, rounds), strict=True)
        if mine is not None and theirs is not None
    ]
    if not times:
        return {**out, **_verdict(ratio.at_least, None), "why": "never in one round"}
    out |= {"values": times, **spread(times, "times")}
    if ratio.instead is not None and not any(n in missing for n in ratio.instead):
        out["ceiling"] = _ceiling(case, ratio, rounds)
    return {**out, **_verdict(ratio.at_least, times, at_most=False)}


def _ceiling(case: Case, ratio: Ratio, rounds: Rounds) -> float:
    """The ratio were all the same but for the parts that differ by nature; by medians."""
    ways = {w.name: w for w in case.ways}

    def seconds(name: str) -> float:
        ran = [r for r in rounds[name] if r is not None]
        return statistics.median(_seconds(ways[name], r, ratio.clock) for r in ran)

    other, less, more = (seconds(n) for n in (ratio.other, *(ratio.instead or ())))
    return other / (other - less + more)


def _every(way: Way, rounds: Rounds) -> list[Any]:
    """The rounds; of a way that runs in few, as it takes so long, the last stands beside others."""
    out, last = [], None
    if way.rounds is None:
        return rounds[way.name]
    for r in rounds[way.name]:
        last = last if r is None else r
        out.append(last)
    return out


CLOSE = 0.1
"""Goals that are met or missed by less are looked at in further rounds."""


def in_doubt(case: Case, rounds: Rounds, missing: dict[str, str]) -> set[str]:
    """Ways whose times decide a goal that is close."""
    found: set[str] = set()
    for ratio in case.ratios:
        told = _ratio(case, ratio, rounds, missing)
        if ratio.at_least and _close(told.get("median_times"), ratio.at_least):
            found |= {ratio.ours, ratio.other}
    for bound in case.bounds:
        told = _bound(case, bound, rounds, missing)
        if bound.what != "peak_bytes" and _close(told.get("median_value"), bound.bound):
            found.add(bound.way)
    return found


def _close(value: float | None, goal: float) -> bool:
    return value is not None and abs(value - goal) <= CLOSE * goal


def _unit_s(case: Case, way: Way, took: dict[str, Any], clock: str = "") -> float:
    """Seconds a unit; of a way that did nothing at all, for ever."""
    amount = _amount(case, way, took)
    return _seconds(way, took, clock) / amount if amount else math.inf


def _amount(case: Case, way: Way, took: dict[str, Any]) -> float:
    return took.get("amount", case.n if way.amount is None else way.amount)


def _bound(case: Case, bound: Bound, rounds: Rounds, missing: dict[str, str]) -> dict[str, Any]:
    out: dict[str, Any] = {"way": bound.way, "what": bound.what, "bound": bound.bound,
                           "at_most": bound.at_most, "goal": bound.goal}  # fmt: skip
    if bound.way in missing:
        return {**out, **_verdict(bound.bound, None), "why": missing[bound.way]}
    way = next(w for w in case.ways if w.name == bound.way)
    ran = [r for r in rounds[way.name] if r is not None]
    if bound.what == "peak_bytes":
        # The most that any run held: a bound on memory is for all of them.
        values = [float(max(r["peak_bytes"] for r in ran))]
    elif bound.what == "slowest":
        slow = [_slowest(r.get("parts", {}), bound.among) for r in ran]
        values = [s for _, s in slow]
        out["part"] = max(slow, key=lambda s: s[1])[0]
        out["parts"] = _worst(ran, bound.among)
    elif bound.what == "rate":
        values = [1 / _unit_s(case, way, r) for r in ran]
    else:
        values = [_seconds(way, r) for r in ran]
    out |= {"values": values, **spread(values, "value")}
    return {**out, **_verdict(bound.bound, values, at_most=bound.at_most)}


def _worst(ran: list[dict[str, Any]], among: tuple[str, ...]) -> dict[str, float]:
    """The parts that a bound is about, with the seconds of their slowest round."""
    found: dict[str, float] = {}
    for r in ran:
        for name, s in r.get("parts", {}).items():
            if not among or name in among:
                found[name] = max(s, found.get(name, 0.0))
    return found


def _slowest(parts: dict[str, float], among: tuple[str, ...]) -> tuple[str, float]:
    """The slowest part and its seconds; of no part at all, none and for ever."""
    some = [(s, name) for name, s in parts.items() if not among or name in among]
    seconds, name = max(some, default=(math.inf, ""))
    return name, seconds


def _verdict(
    goal: float | None, values: list[float] | None, *, at_most: bool = False
) -> dict[str, Any]:
    """`verdict` by the median; `edge` where some runs say otherwise. Nothing without a goal."""
    if goal is None:
        return {}
    if not values:
        return {"verdict": NOT_RUN}
    meets = (lambda v: v <= goal) if at_most else (lambda v: v >= goal)
    met = meets(statistics.median(values))
    return {
        "verdict": MET if met else MISSED,
        "edge": any(meets(v) != met for v in values),
    }


def _disagree(case: Case, rounds: Rounds) -> list[str]:
    """Groups of ways that have to give one answer and do not."""
    out = []
    for group in case.same:
        answers = {
            name: next(r["answer"] for r in rounds[name] if r is not None and "answer" in r)
            for name in group
            if any(r is not None and "answer" in r for r in rounds.get(name, []))
        }
        first = next(iter(answers.values()), None)
        if not all(alike(first, a) for a in answers.values()):
            out.append("; ".join(f"{n}: {a}" for n, a in answers.items()))
    return out


def alike(a: Any, b: Any) -> bool:
    """Equal, numbers up to TOLERANCE, lists and objects part by part."""
    if isinstance(a, dict) and isinstance(b, dict):
        return a.keys() == b.keys() and all(alike(a[k], b[k]) for k in a)
    if isinstance(a, list) and isinstance(b, list):
        return len(a) == len(b) and all(map(alike, a, b))
    if isinstance(a, int | float) and isinstance(b, int | float):
        return math.isclose(a, b, rel_tol=TOLERANCE, abs_tol=TOLERANCE)
    return a == b


def goals(found: dict[str, Any]) -> list[dict[str, Any]]:
    """All goals of a kept case: ratios and bounds that have a verdict."""
    return [g for g in (*found["ratios"], *found["bounds"]) if "verdict" in g]


def missed(found: dict[str, Any]) -> list[tuple[str, str]]:
    """Our ways of a kept case that miss a goal, each once, with the part that does ("": all)."""
    names = [
        (g.get("ours", g.get("way")), g.get("part", ""))
        for g in goals(found) if g["verdict"] == MISSED
    ]  # fmt: skip
    return list(dict.fromkeys(names))
