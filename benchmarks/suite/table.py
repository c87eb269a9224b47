"""The run as text for a terminal: ways with peaks, ratios, goals, growth, profiles of misses."""

from __future__ import annotations

from typing import Any

from . import words
from .judge import goals


def text(found: dict[str, Any]) -> str:
    """All of it."""
    out = [_machine(found)]
    for case in found["cases"]:
        out += ["", *_case(case)]
    lines = [words.goal(c, g) for c in found["cases"] for g in goals(c)]
    if lines:
        out += ["", "goals", *_columns(lines)]
    if found["growth"]:
        out += ["", "growth (all sizes; the two largest)", *_growth(found)]
    out += _profiles(found)
    return "\n".join(out)


def _machine(found: dict[str, Any]) -> str:
    m = found["machine"]
    return (
        f"{m['cores']} cores of {m['processor']}, {m['memory_bytes'] / 1e9:.0f} GB, "
        f"load {m['load']} before; {found['runs']} rounds"
        + ("; SECONDS ARE OF CPU, of all cores together" if found.get("clock") == "cpu" else "")
    )


def _case(case: dict[str, Any]) -> list[str]:
    lines = []
    for w in case["ways"]:
        if "missing" in w:
            lines.append([w["name"], w["role"], f"not run: {w['missing']}"])
            continue
        lines.append(
            [w["name"], w["role"], words.time_of(w),
             f"{words.number(w['rate'])} {case['unit']}/s", f"peak {words.memory(w['peak_bytes'])}"]
        )  # fmt: skip
    limits = {w["name"] for w in case["ways"] if w["role"] == "limit"}
    ratios = [
        [f"{r['ours']} / {r['other']}", words.ratio(r),
         "of the limit's speed" if r["other"] in limits else "times faster"]
        for r in case["ratios"] if "values" in r
    ]  # fmt: skip
    wrong = [f"  ANSWERS DIFFER: {w}" for w in case["disagree"]]
    head = f"{case['name']} ({words.number(case['n'])} {case['unit']})"
    return [head, *_columns(lines), *_columns(ratios), *wrong]


def _growth(found: dict[str, Any]) -> list[str]:
    lines = []
    for g in found["growth"]:
        cpu, peak = ((g["power"][k], g["last_power"][k]) for k in ("cpu_s", "peak_bytes"))
        lines.append(
            [g["name"], "  ".join(words.seconds(s) for s in g["seconds"]),
             "time " + "; ".join(map(words.power, cpu)),
             "memory " + "; ".join(map(words.power, peak)), words.verdict(g)]
        )  # fmt: skip
    return _columns(lines)


def _profiles(found: dict[str, Any]) -> list[str]:
    out = []
    for case in found["cases"]:
        for name, profile in case.get("profiles", {}).items():
            out += ["", f"where the time is: {case['name']}, {name} ({profile['total_s']} s)"]
            out += _columns([[m, f"{s} s"] for m, s in profile["modules"]])
            out += _columns([[f, f"{s} s"] for f, s in profile["functions"]])
    return out


def _columns(lines: list[list[str]]) -> list[str]:
    """Lines with their columns under each other."""
    wide = [0] * max((len(line) for line in lines), default=0)
    for line in lines:
        for k, cell in enumerate(line[:-1]):
            wide[k] = max(wide[k], len(cell))
    return [
        "  " + "  ".join(c.ljust(wide[k]) for k, c in enumerate(line)).rstrip() for line in lines
    ]
