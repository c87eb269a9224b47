"""Numbers as a person reads them: times, sizes, rates, shares; no digit that is not there."""

from __future__ import annotations

import math

TIME_UNITS = ((1_000_000_000, "s"), (1_000_000, "ms"), (1_000, "us"), (1, "ns"))
"""ns in a unit, largest first."""

NOTHING = "-"
"""Printed where there is no value."""


def _digits(value: float, significant: int) -> int:
    """Decimals that give `value` so many significant digits (never negative)."""
    if value == 0:
        return 0
    return max(0, significant - 1 - math.floor(math.log10(abs(value))))


def _significant(value: float, significant: int) -> float:
    """`value` rounded to so many significant digits, integers left whole."""
    return round(value, _digits(value, significant))


def time(ns: float | None, significant: int = 3) -> str:
    """A duration in ns as `850 ns`, `12.3 us`, `4.56 ms` or `1.23 s`; `-` for None or NaN.

    The unit is chosen after rounding (999 999 ns is `1.00 ms`), and nothing finer than the
    nanosecond that traces are kept in is ever shown.
    """
    if ns is None or math.isnan(ns):
        return NOTHING
    for size, unit in TIME_UNITS:
        value = _significant(ns / size, significant)
        if abs(value) >= 1 or size == 1:
            decimals = 0 if size == 1 else min(_digits(value, significant), _decimals_of(size))
            return f"{value:.{decimals}f} {unit}"
    raise AssertionError("the last unit takes every value")


def unit_of(ns: float) -> tuple[int, str]:
    """The largest unit of which `ns` holds at least one: (ns in it, its name)."""
    return next(((s, u) for s, u in TIME_UNITS if abs(ns) >= s), TIME_UNITS[-1])


def _decimals_of(size: int) -> int:
    """Decimals of a unit at which one nanosecond is still visible."""
    return round(math.log10(size))


def interval(value_ns: float | None, low_ns: float | None, high_ns: float | None) -> str:
    """An estimate with its interval in one unit: `12.31 ms (12.28 to 12.40)`.

    Digits are chosen so that the interval's width shows two of them, but no figure has more than
    five. Without an interval this is `time(value_ns)`.
    """
    if value_ns is None or low_ns is None or high_ns is None:
        return time(value_ns)
    largest = max(abs(value_ns), abs(low_ns), abs(high_ns))
    size, unit = unit_of(largest)
    width = (high_ns - low_ns) / size
    wanted = _digits(width, 2) if width else _digits(largest / size, 3)
    decimals = min(_decimals_of(size), wanted, _digits(largest / size, 5))
    value, low, high = (x / size for x in (value_ns, low_ns, high_ns))
    return f"{value:.{decimals}f} {unit} ({low:.{decimals}f} to {high:.{decimals}f})"


def size(n_bytes: float | None) -> str:
    """A size in bytes as `512 B`, `1.5 KiB`, `192 MiB` (powers of 1024, three digits)."""
    if n_bytes is None or math.isnan(n_bytes):
        return NOTHING
    value, unit = float(n_bytes), "B"
    for bigger in ("KiB", "MiB", "GiB", "TiB", "PiB"):
        if abs(_significant(value, 3)) < 1024:
            break
        value, unit = value / 1024, bigger
    if unit == "B":
        return f"{value:.0f} B"
    return f"{_significant(value, 3):g} {unit}"


def decimal_size(n_bytes: float | None) -> str:
    """A size in powers of 1000, three digits: `80 GB`, as vendors give memory and links a second.

    Where sizes stand beside those (`retime plan`) one unit is for all; messages, whose sizes are
    powers of two, have `size`.
    """
    if n_bytes is None or math.isnan(n_bytes):
        return NOTHING
    value, unit = float(n_bytes), "B"
    for bigger in ("KB", "MB", "GB", "TB", "PB"):
        if abs(_significant(value, 3)) < 1000:
            break
        value, unit = value / 1000, bigger
    if unit == "B":
        return f"{value:.0f} B"
    return f"{_significant(value, 3):g} {unit}"


def rate(gb_per_s: float | None) -> str:
    """A bandwidth in GB/s (10^9 bytes a second), three digits: `38.2 GB/s`."""
    if gb_per_s is None or math.isnan(gb_per_s):
        return NOTHING
    return f"{gb_per_s:.{min(3, _digits(gb_per_s, 3))}f} GB/s"


def percent(share: float | None, significant: int = 3) -> str:
    """A share of one as a percentage: `97.3 %`; at most one decimal, two below one percent."""
    if share is None or math.isnan(share):
        return NOTHING
    value = share * 100
    if 0 < abs(value) < 0.005:
        return "<0.01 %"
    decimals = min(_digits(value, significant), 2 if abs(value) < 1 else 1)
    return f"{value:.{decimals}f} %"


def count(n: int | None) -> str:
    """A whole number with thousands kept apart: `27,104`."""
    return NOTHING if n is None else f"{n:,}"


def counted(n: int, thing: str, things: str | None = None) -> str:
    """A count with its noun: `1 host`, `27,104 events`."""
    return f"{count(n)} {thing if n == 1 else things or thing + 's'}"


def of(name: str, value: object) -> str:
    """Any value of a column called `name`, formatted by the unit that ends the column's name."""
    if value is None:
        return NOTHING
    if isinstance(value, bool):
        return "yes" if value else "no"
    if isinstance(value, int | float):
        if name == "ns" or (name.endswith("_ns") and not name.startswith(("time_", "created_"))):
            return time(value)
        if name == "bytes" or name.endswith("_bytes"):
            return size(value)
        if name.endswith("_gbps"):
            return rate(value)
        if name == "share" or name.endswith("_share"):
            return percent(value)
        if isinstance(value, float):
            return f"{value:.4g}"
        return str(value)
    return str(value)
