"""Whether cores were the bottleneck of a run: how busy they were, how long ranks waited for one."""

from __future__ import annotations

import time
from pathlib import Path
from typing import NamedTuple

MOST_WAITED = 0.1
"""Share of a run that a rank may wait for a core, ready to run: more says that cores, and not
links, set the pace."""
HELD_UP_S = 0.1
"""A sleeper that wakes up so late: the machine itself stood still."""


class Use(NamedTuple):
    """Shares of all cores' time."""

    seconds: float
    busy: float
    stolen: float


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


def waited_s() -> float:
    """How long this process was ready to run and had no core, so far."""
    try:
        return int(Path("/proc/self/schedstat").read_text().split()[1]) * 1e-9
    except (OSError, IndexError):
        return 0.0
