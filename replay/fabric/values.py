"""One value of a fabric file: its unit, its range, and one sentence where it is neither."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

from ..quantities import bandwidth_bytes_per_s, time_ns

FASTEST_BYTES_PER_S = 1e15
"""No link carries a petabyte a second."""

LONGEST_NS = 3.6e12
"""An hour: longer than any link takes to do anything."""

MOST = 1 << 20
"""Of anything that is counted."""


class Wrong(ValueError):
    """What is wrong with a value, without where it stands."""


def bandwidth(value: Any) -> float:
    """bytes/s from `"450GB/s"` or `"400Gb/s"`; a number without a unit is refused."""
    if not isinstance(value, str):
        raise Wrong(f'is {_shown(value)}: write it with its unit, like "450GB/s" or "400Gb/s"')
    if not value.strip().endswith(("/s", "ps")):
        raise Wrong(f'is {_shown(value)}: a bandwidth is by the second, like "450GB/s"')
    try:
        found = bandwidth_bytes_per_s(value)
    except ValueError as e:
        raise Wrong(f"is {_shown(value)}: {e}") from e
    if not 1e3 <= found <= FASTEST_BYTES_PER_S:
        raise Wrong(f"is {_shown(value)}: from 1 kB/s to 1 PB/s would work")
    return found


def time(value: Any) -> float:
    """ns from `"0.7us"`; a number without a unit is refused."""
    if not isinstance(value, str):
        raise Wrong(f'is {_shown(value)}: write it with its unit, like "0.7us"')
    if value.strip()[-1:].isdigit():
        raise Wrong(f'is {_shown(value)}: a time has a unit, like "0.7us"')
    try:
        found = time_ns(value)
    except ValueError as e:
        raise Wrong(f"is {_shown(value)}: {e}") from e
    if not 0 <= found <= LONGEST_NS:
        raise Wrong(f"is {_shown(value)}: from 0 to an hour would work")
    return found


def text(value: Any) -> str:
    """A short text."""
    if not isinstance(value, str) or not value or len(value) > 200 or not value.isprintable():
        raise Wrong(f"is {_shown(value)}: a text of 1 to 200 printable characters would work")
    return value


def flag(value: Any) -> bool:
    """true or false."""
    if not isinstance(value, bool):
        raise Wrong(f"is {_shown(value)}: true or false would work")
    return value


def count(low: int, high: int = MOST) -> Callable[[Any], int]:
    """A whole number in a range."""

    def parse(value: Any) -> int:
        if isinstance(value, bool) or not isinstance(value, int) or not low <= value <= high:
            raise Wrong(f"is {_shown(value)}: a whole number from {low} to {high} would work")
        return value

    return parse


def number(low: float, high: float) -> Callable[[Any], float]:
    """A number in a range."""

    def parse(value: Any) -> float:
        good = isinstance(value, int | float) and not isinstance(value, bool)
        if not good or not math.isfinite(value) or not low <= value <= high:
            raise Wrong(f"is {_shown(value)}: a number from {low:g} to {high:g} would work")
        return float(value)

    return parse


def choice(*known: str) -> Callable[[Any], str]:
    """One of some words."""

    def parse(value: Any) -> str:
        if value not in known:
            raise Wrong(f"is {_shown(value)}: {' or '.join(known)} would work")
        return value

    return parse


def counts(value: Any) -> tuple[int, ...]:
    """A list of whole numbers from 0 on."""
    one = count(0)
    if not isinstance(value, list) or not 0 < len(value) <= MOST:
        raise Wrong(f"is {_shown(value)}: a list of whole numbers would work, like [0, 0, 1, 1]")
    return tuple(one(v) for v in value)


def _shown(value: Any) -> str:
    if isinstance(value, dict | list):
        return "a table" if isinstance(value, dict) else "a list"
    try:
        shown = repr(value)
    except ValueError:  # an integer of more digits than Python writes out
        return "a number beyond all bounds"
    return shown if len(shown) <= 60 else shown[:57] + "..."
