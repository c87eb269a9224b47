"""What an upload did: what is in, what is left for later, what cannot be delivered."""

from __future__ import annotations

import time
from dataclasses import dataclass, field
from typing import Any

from .entry import Entry


@dataclass
class Sent:
    """One file: `state` is new, already, waiting or failed; `stored` if the spool keeps it."""

    path: str
    job: str
    to: str
    state: str
    id: str = ""
    ranks: tuple[int, ...] = ()
    size_bytes: int = 0
    stored: bool = False
    attempts: int = 0
    error: str = ""
    next_try_s: float | None = None
    since_s: float | None = None


@dataclass
class UploadReport:
    """What became of each file. `notes` are what else is to be known; `lost` counts input lost.

    `finished` names the jobs (warehouse, job) whose derived tables were made, `new_warehouses` the
    addresses in object stores that had no job before.
    """

    spool: str
    sent: list[Sent] = field(default_factory=list)
    others: int = 0
    lost: int = 0
    notes: list[str] = field(default_factory=list)
    finished: list[tuple[str, str]] = field(default_factory=list)
    new_warehouses: list[str] = field(default_factory=list)
    bytes: int = 0
    seconds: float = 0.0

    @property
    def delivered(self) -> list[Sent]:
        """Files that are in their job, now or already before."""
        return [s for s in self.sent if s.state in ("new", "already")]

    @property
    def left(self) -> list[Sent]:
        """Files that are still to be delivered."""
        return [s for s in self.sent if s.state == "waiting"]

    @property
    def failed(self) -> list[Sent]:
        """Files that another try would not deliver."""
        return [s for s in self.sent if s.state == "failed"]

    @property
    def exit_code(self) -> int:
        """0 all delivered, 1 some input lost or left for later, 3 nothing of it usable."""
        if self.failed and not self.delivered and not self.left:
            return 3
        return 1 if self.left or self.failed or self.lost else 0

    def to_dict(self) -> dict[str, Any]:
        """The report as one object of JSON."""
        return {
            "exit_code": self.exit_code,
            "spool": self.spool,
            "delivered": len(self.delivered),
            "left": len(self.left),
            "failed": len(self.failed),
            "no_traces": self.others,
            "lost": self.lost,
            "bytes": self.bytes,
            "seconds": round(self.seconds, 3),
            "files": [_row(s) for s in self.sent],
            "finished": [{"warehouse": to, "job": job} for to, job in self.finished],
            "new_warehouses": self.new_warehouses,
            "notes": self.notes,
        }


def listed(entry: Entry, path: str) -> Sent:
    """An entry as it stands in the spool."""
    state = "waiting" if entry.state == "writing" else entry.state
    return Sent(
        path, entry.job, entry.to, state, entry.id, (), entry.size_bytes, entry.stored,
        entry.attempts, entry.error, entry.next_try_s or None, entry.since_s,
    )  # fmt: skip


def _row(s: Sent) -> dict[str, Any]:
    return {
        "id": s.id,
        "path": s.path,
        "job": s.job,
        "to": s.to,
        "state": s.state,
        "ranks": list(s.ranks),
        "size_bytes": s.size_bytes,
        "stored": s.stored,
        "attempts": s.attempts,
        "error": s.error,
        "next_try_utc": _utc(s.next_try_s),
        "since_utc": _utc(s.since_s),
    }


def _utc(seconds: float | None) -> str | None:
    if seconds is None or not 0 < seconds < 253_402_300_800:
        return None
    return time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime(seconds))
