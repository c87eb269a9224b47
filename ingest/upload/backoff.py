"""When to try again: exponential with full jitter, so that a thousand nodes do not come at once."""

from __future__ import annotations

import random
import re

from ..errors import UsageError

FIRST_S = 1.0
MOST_S = 60.0
"""Longest pause within one call."""

LATER_FIRST_S = 60.0
LATER_MOST_S = 3600.0
"""Pauses between calls: what is left over waits a minute and more, an hour at most."""

_DURATION = re.compile(r"(\d+(?:\.\d+)?)\s*(ms|s|m|h|d|)", re.I)
_UNITS = {"ms": 1e-3, "s": 1.0, "": 1.0, "m": 60.0, "h": 3600.0, "d": 86400.0}
LONGEST_S = 30 * 86400.0


def pause_s(attempt: int) -> float:
    """How long to wait after the attempt-th failure (from 0) of a call: anything up to a bound."""
    return random.uniform(0.0, min(MOST_S, FIRST_S * 2.0 ** min(attempt, 30)))


def later_s(attempts: int) -> float:
    """How long from now an entry is due again after so many attempts in all."""
    bound = min(LATER_MOST_S, LATER_FIRST_S * 2.0 ** min(attempts, 30))
    return random.uniform(bound / 2, bound)


def seconds(text: str, option: str) -> float:
    """`90`, `90s`, `5m`, `1h` in seconds. Raises UsageError for what is none of them."""
    found = _DURATION.fullmatch(text.strip())
    value = float(found[1]) * _UNITS[found[2].lower()] if found else -1.0
    if not 0 <= value <= LONGEST_S:
        raise UsageError(
            f"{option} is a time such as 90s, 5m or 1h (30d at most), not {text[:40]!r}"
        )
    return value
