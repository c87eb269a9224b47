"""What a rank writes: the plain form that retime ingests, on its host's own wrong clock."""

from __future__ import annotations

import json
import time
from dataclasses import dataclass
from pathlib import Path
from typing import Any


@dataclass(frozen=True)
class Clock:
    """A host's clock: the machine's, off by a known offset and (if any) a known drift."""

    offset_ns: int
    drift_ppm: float
    zero_ns: int

    def now_ns(self) -> int:
        """The time as this host has it."""
        return self.of(time.monotonic_ns())

    def of(self, true_ns: int) -> int:
        """A moment of the machine's clock as this host has it."""
        return true_ns + self.offset_ns + round((true_ns - self.zero_ns) * self.drift_ppm * 1e-6)


class Trace:
    """Rows of one rank, kept until it ends."""

    def __init__(self) -> None:
        self._lines: list[str] = []

    def add(self, table: str, **columns: Any) -> None:
        """One row; what is None is left out."""
        row = {"table": table, **{k: v for k, v in columns.items() if v is not None}}
        self._lines.append(json.dumps(row, separators=(",", ":")))

    def write(self, path: Path) -> None:
        """Writes all rows."""
        path.write_text("\n".join(self._lines) + "\n")
