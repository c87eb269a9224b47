"""Figures in words: seconds, bytes, ratios with their spread."""

from __future__ import annotations

from typing import Any


def seconds(value: float) -> str:
    """With the unit that leaves three figures."""
    if value >= 100:
        return f"{value:.0f} s"
    if value >= 0.95:
        return f"{value:.2f} s"
    return f"{value * 1e3:.0f} ms" if value >= 0.02 else f"{value * 1e3:.2f} ms"


def memory(value: float) -> str:
    """In megabytes, of a million bytes."""
    return f"{value / 1e6:,.0f} MB"


def number(value: float) -> str:
    """Three figures, or all of them before the point."""
    if value >= 1e9:
        return f"{value / 1e9:.3g} G"
    if value >= 1e6:
        return f"{value / 1e6:.3g} M"
    if value >= 100:
        return f"{value:,.0f}"
    return f"{value:.3g}"


def time_of(way: dict[str, Any]) -> str:
    """Median, and lowest to highest where they differ."""
    if way["low_s"] == way["high_s"]:
        return seconds(way["median_s"])
    return f"{seconds(way['median_s'])} ({seconds(way['low_s'])} to {seconds(way['high_s'])})"


def ratio(found: dict[str, Any]) -> str:
    """`12.3 (11.9 to 12.8)`, and what it could be at most if that is known; or `-`."""
    if "why" in found:
        return "-"
    low, high = found["low_times"], found["high_times"]
    spread = "" if low == high else f" ({number(low)} to {number(high)})"
    ceiling = f", {number(found['ceiling'])} possible" if "ceiling" in found else ""
    return number(found["median_times"]) + spread + ceiling


def bound(found: dict[str, Any], value: float) -> str:
    """A value of what a bound is on, with its unit."""
    if found["what"] == "peak_bytes":
        return memory(value)
    return f"{number(value)}/s" if found["what"] == "rate" else seconds(value)


def verdict(found: dict[str, Any]) -> str:
    """`met`, `MISSED`, `not run`; whether some runs say otherwise."""
    said = found["verdict"].upper() if found["verdict"] == "missed" else found["verdict"]
    return said + (", some runs not" if found.get("edge") else "")


def goal(case: dict[str, Any], found: dict[str, Any]) -> list[str]:
    """Case, way, goal, target, measured, verdict: a line of the table of goals."""
    if "ours" in found:
        way, measured = found["ours"], ratio(found)
        target = f"at least {number(found['at_least'])} times {found['other']}"
    else:
        way = found["way"]
        measured = bound(found, found["median_value"]) if "values" in found else "-"
        if "part" in found:
            measured += f" ({found['part']})"
        side = "at most" if found["at_most"] else "at least"
        target = f"{side} {bound(found, found['bound'])}"
    return [case["name"], way, found["goal"], target, measured, verdict(found)]


def power(value: float | None) -> str:
    """`n^1.02`; nothing where none fits."""
    return "-" if value is None else f"n^{value:.2f}"
