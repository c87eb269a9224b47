"""How busy the machine's cores were in a stretch of time, and whether that was too much."""

from __future__ import annotations

import time
from pathlib import Path
from typing import NamedTuple

SATURATED = 0.85
"""Share of all cores from which a run says nothing about a network."""


class Use(NamedTuple):
    """Shares of all cores' time."""

    seconds: float
    busy: float
    stolen: float

    @property
    def saturated(self) -> bool:
        """Whether cores were the bottleneck, or may have been."""
        return self.busy + self.stolen > SATURATED


class Meter:
    """Measures from its making on."""

    def __init__(self) -> None:
        self._at, self._jiffies = time.monotonic(), _jiffies()

    def use(self) -> Use:
        """Since then."""
        now = _jiffies()
        spent = [b - a for a, b in zip(self._jiffies, now, strict=True)]
        total = max(sum(spent), 1)
        idle, stolen = spent[3] + spent[4], spent[7]
        return Use(time.monotonic() - self._at, (total - idle - stolen) / total, stolen / total)


def _jiffies() -> list[int]:
    words = Path("/proc/stat").read_text().splitlines()[0].split()
    return [int(w) for w in words[1:9]]
