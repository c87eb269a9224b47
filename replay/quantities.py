"""Times, sizes and bandwidths as people write them: `0.822us`, `80MiB`, `450GB/s`."""

from __future__ import annotations

import math
import re

TIMES_NS = {
    "ns": 1.0, "us": 1e3, "µs": 1e3, "ms": 1e6, "s": 1e9, "min": 60e9, "h": 3600e9, "d": 86400e9,
}  # fmt: skip
DECIMAL = {"": 1, "k": 10**3, "K": 10**3, "M": 10**6, "G": 10**9, "T": 10**12}
BINARY = {"Ki": 1 << 10, "Mi": 1 << 20, "Gi": 1 << 30, "Ti": 1 << 40}

LONGEST_NS = 36_525 * 86_400e9
"""A century: beyond it, times no longer fit 64 bits of ns."""

MOST_BYTES = 1 << 62

SLOWEST_BYTES_PER_S, FASTEST_BYTES_PER_S = 1.0, 1e30

LEAST_BARE_BYTES_PER_S = 1e6
"""A bare number under this was meant in another unit: no link is that slow."""

_NUMBER = re.compile(r"\s*([0-9.]+(?:[eE][+-]?[0-9]+)?)\s*(\S*)\s*")


def _parts(text: str, example: str) -> tuple[float, str]:
    found = _NUMBER.fullmatch(text)
    try:
        value = float(found[1]) if found else math.nan
    except ValueError:
        value = math.nan
    if found is None or not math.isfinite(value):
        raise ValueError(f"expected a number with its unit, like {example}")
    return value, found[2]


def time_ns(text: str) -> float:
    """ns from `0.822us`, `3 ms`, `250ns`; a bare number is ns.

    Raises ValueError, also beyond LONGEST_NS.
    """
    value, unit = _parts(text, "0.822us")
    if unit not in ("", *TIMES_NS):
        raise ValueError(f"unknown unit of time {unit!r}; known are {', '.join(TIMES_NS)}")
    found = value * TIMES_NS.get(unit, 1.0)
    if found > LONGEST_NS:
        raise ValueError("a time is at most a century (36525d)")
    return found


def size_bytes(text: str) -> int:
    """Bytes from `80MiB`, `1GB`, `4096`; K, M, G, T are powers of 1000.

    Raises ValueError, also beyond MOST_BYTES.
    """
    value, unit = _parts(text, "80MiB")
    found = value * _prefix(unit.removesuffix("B"), unit)
    if found > MOST_BYTES:
        raise ValueError(f"a size is at most {MOST_BYTES} bytes")
    return round(found)


def bandwidth_bytes_per_s(text: str) -> float:
    """Bytes/s from `450GB/s` or `100Gb/s` (bits, also `Gbps`); a bare number is bytes/s, and large.

    Raises ValueError for another unit, and for a bandwidth of 0 or out of all bounds.
    """
    value, unit = _parts(text, "450GB/s")
    rate = unit.removesuffix("/s").removesuffix("ps")
    bits = rate.endswith(("b", "bit"))
    prefix = rate.removesuffix("bit") if bits else rate
    if not unit and 0 < value < LEAST_BARE_BYTES_PER_S:
        raise ValueError(f"{text.strip()[:40]} bytes/s is no link: give a unit, such as 5GB/s")
    per_s = value * _prefix(prefix.removesuffix("b").removesuffix("B"), unit) / (8 if bits else 1)
    if per_s <= 0:
        raise ValueError("a bandwidth is more than 0")
    if not SLOWEST_BYTES_PER_S <= per_s <= FASTEST_BYTES_PER_S:
        raise ValueError("a bandwidth is from 1 byte/s to 1e30 bytes/s")
    return per_s


def _prefix(prefix: str, unit: str) -> int:
    factor = (DECIMAL | BINARY).get(prefix)
    if factor is None:
        raise ValueError(
            f"unknown unit {unit!r}; use B with K, M, G, T, Ki, Mi, Gi or Ti before it"
        )
    return factor
