"""Names of what the lab makes: a prefix and who made it, so that it only touches its own."""

from __future__ import annotations

import os
from pathlib import Path

PREFIX = "rtlab"
NETNS = Path("/run/netns")


def run_id() -> str:
    """`<process>-<when it started>`: another process of the same number is told apart."""
    return f"{os.getpid()}-{_started(os.getpid())}"


def present() -> list[str]:
    """The lab's namespaces, of any run."""
    if not NETNS.is_dir():
        return []
    return sorted(p.name for p in NETNS.iterdir() if p.name.startswith(f"{PREFIX}-"))


def owner(name: str) -> int | None:
    """The process that made a namespace, if it still runs."""
    parts = name.split("-")
    if len(parts) < 3 or not parts[1].isdecimal():
        return None
    return int(parts[1]) if _started(int(parts[1])) == parts[2] else None


def by_owner() -> tuple[list[str], list[str]]:
    """Namespaces whose maker is gone, and those of other runs that go on."""
    dead, alive = [], []
    for name in present():
        pid = owner(name)
        if pid is None:
            dead.append(name)
        elif pid != os.getpid():
            alive.append(name)
    return dead, alive


def _started(pid: int) -> str:
    try:
        stat = Path(f"/proc/{pid}/stat").read_text()
    except OSError:
        return "0"
    return stat.rpartition(")")[2].split()[19]
