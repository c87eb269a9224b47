"""How time and memory grow with the input: the power that fits, over all sizes and the last two."""

from __future__ import annotations

import math
import statistics
from collections.abc import Sequence
from typing import Any

MOST = 1.1
"""A larger power needs a reason."""
NOTHING_S = 0.05
"""A part that takes less at the largest size is start-up and noise: no power is told of it."""

REASONS: dict[str, str] = {
    "queries, every view: expert_load": (
        "each rank routes to each expert, and the made-up job has as many experts as ranks: four "
        "times the ranks are sixteen times the rows of routing, which take ten times as long"
    ),
    **dict.fromkeys(
        ("queries, every view: expert_rail_regression", "queries, every view: expert_imbalance"),
        "four times the ranks of the made-up job are sixteen times the rows of routing, which it "
        "reads all: see `expert_load`",
    ),
    "queries, every view: replay_scores": (
        "for every eight ranks of a job it walks the whole graph once: what it asks is ranks times "
        "events"
    ),
    "replay, a step, align-arrivals": (
        "from 256 to 1,024 ranks a column of the graph grows past 32 MB, beyond which the C "
        "library gives memory back: every estimate takes its pages anew (a fifth of its time; "
        "where the library is told to keep them it is n^0.9), and rows of one rank, which lie a "
        "stride of all ranks apart, are no longer in the processor's cache"
    ),
    **dict.fromkeys(
        ("queries, every view: rail_load", "queries, every view: rail_imbalance"),
        "what overlaps on a link is found by sorting, n log n; from half a million rows of its "
        "tables on it is stored with the job, and no view does it",
    ),
}
"""By the name of a line, or of a part of one: why it grows faster than its input."""


def power(n: Sequence[float], values: Sequence[float]) -> float | None:
    """The exponent k of values ~ n^k by least squares in logarithms; None for fewer than two."""
    if len(n) < 2 or min(values) <= 0 or len(set(n)) < 2:
        return None
    logs = [[math.log(v) for v in column] for column in (n, values)]
    return statistics.linear_regression(*logs).slope


def lines(cases: Sequence[dict[str, Any]]) -> list[dict[str, Any]]:
    """A line a growing way: sizes, seconds, CPU, peaks, powers; and one a part of it.

    `verdict` is by the powers of CPU seconds and of memory, over the two largest sizes too: what
    is the same for any size hides growth among small ones.
    """
    by_line: dict[str, list[tuple[dict[str, Any], dict[str, Any]]]] = {}
    for case in cases:
        for w in case["ways"] if case["growth"] else ():
            if w["name"] in case["grows"] and "missing" not in w:
                name = case["growth"] + (f", {w['name']}" if len(case["grows"]) > 1 else "")
                by_line.setdefault(name, []).append((case, w))
    out = []
    for name, found in by_line.items():
        found.sort(key=lambda f: f[0]["n"])
        n = [c["n"] for c, _ in found]
        if len(n) < 2:
            continue
        values = {
            "seconds": [w["median_s"] for _, w in found],
            "cpu_s": [w["cpu_s"] for _, w in found],
            "peak_bytes": [w["peak_bytes"] for _, w in found],
        }
        line = {"name": name, "unit": found[0][0]["unit"], "n": n, **values, **_powers(n, values)}
        line["parts"] = _parts(n, [w for _, w in found])
        out.append({**line, **_verdict(line)})
    return out


def _powers(n: list[float], values: dict[str, list[float]]) -> dict[str, Any]:
    return {
        "power": {k: power(n, v) for k, v in values.items()},
        "last_power": {k: power(n[-2:], v[-2:]) for k, v in values.items()},
    }


def _parts(n: list[float], ways: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """Parts (a view, say) by their seconds in the fastest round, the steepest first."""
    by_size = []
    for w in ways:
        rounds = [r["parts"] for r in w["rounds"] if r is not None and "parts" in r]
        if not rounds:
            return []
        by_size.append({k: min(r[k] for r in rounds) for k in rounds[0]})
    out = []
    for name in by_size[-1]:
        seconds = [size.get(name, 0.0) for size in by_size]
        if seconds[-1] >= NOTHING_S and min(seconds) > 0:
            out.append(
                {"name": name, "seconds": seconds, "power": power(n, seconds),
                 "last_power": power(n[-2:], seconds[-2:])}
            )  # fmt: skip
    return sorted(out, key=lambda p: -(p["last_power"] or 0))


def _verdict(line: dict[str, Any]) -> dict[str, Any]:
    steepest = max(
        p for of in ("power", "last_power") for k in ("cpu_s", "peak_bytes")
        if (p := line[of][k]) is not None
    )  # fmt: skip
    parts = [p for p in line["parts"] if max(p["power"] or 0, p["last_power"] or 0) > MOST]
    if steepest <= MOST and not parts:
        return {"verdict": "met"}
    named = [line["name"], *(f"{line['name']}: {p['name']}" for p in parts)]
    wanting = named if steepest > MOST else named[1:]
    reasons = {n: REASONS[n] for n in wanting if n in REASONS}
    met = all(n in reasons for n in wanting)
    return {"verdict": "met" if met else "missed", "reasons": reasons,
            "steep": [n for n in wanting if n not in reasons]}  # fmt: skip
