"""How much memory and how many threads a connection may use."""

from __future__ import annotations

import contextlib
import os
import re
from pathlib import Path

from ..ingest.errors import UsageError

SHARE = 0.5
"""Of the memory that this process may have, a connection's part unless said otherwise."""

MOST_THREADS = 16
"""No more by default, however many cores there are: a server has other users."""

LEAST_BYTES = 256 << 20
"""With less DuckDB cannot run the library's views at all."""

_UNITS = {
    "b": 1,
    "kb": 1000,
    "mb": 1000**2,
    "gb": 1000**3,
    "tb": 1000**4,
    "kib": 1 << 10,
    "mib": 1 << 20,
    "gib": 1 << 30,
    "tib": 1 << 40,
}
_AMOUNT = re.compile(r"\s*(\d{1,15}(?:\.\d{1,6})?)\s*(%|[KMGT]?i?B)\s*", re.IGNORECASE)


class OutOfMemory(UsageError):
    """A query that needs more memory than its connection may have."""

    def __init__(self, error: Exception):
        used = re.search(r"\(([^()]{1,40}) used\)", str(error))
        super().__init__(
            "a query needs more memory than it may have"
            + (f" ({used[1]} used)" if used else "")
            + ": say more by RETIME_MEMORY (8GB, 75%), or connect(memory=...) in Python, "
            "or ask for fewer ranks, steps or jobs"
        )


CGROUPS = Path("/sys/fs/cgroup")
OWN_GROUPS = Path("/proc/self/cgroup")


def memory_bytes(asked: str | int | None = None) -> int:
    """Bytes for a connection: those asked for, else $RETIME_MEMORY, else a share of what there is.

    Asked for as "8GB", "8GiB", "25%" (of what this process may have) or bytes. Raises UsageError
    for anything else and for less than `LEAST_BYTES`.
    """
    whence = "memory" if asked is not None else "RETIME_MEMORY"
    said = asked if asked is not None else os.environ.get("RETIME_MEMORY") or None
    if said is None:
        return max(LEAST_BYTES, int(available_bytes() * SHARE))
    found = _bytes(said)
    if found is None:
        raise UsageError(f"{whence} is {said!r}: say it as 8GB, 8GiB or 25%")
    if found < LEAST_BYTES:
        raise UsageError(
            f"{whence} is {said!r}: a connection needs {LEAST_BYTES >> 20} MiB or more"
        )
    return found


def _bytes(said: str | int) -> int | None:
    if isinstance(said, int):
        return said
    m = _AMOUNT.fullmatch(said)
    if m is None:
        return int(said) if said.strip().isdecimal() and len(said) < 20 else None
    if m[2] == "%":
        return int(available_bytes() * float(m[1]) / 100) if float(m[1]) <= 100 else None
    return int(float(m[1]) * _UNITS[m[2].lower()])


def threads(asked: int | str | None = None) -> int:
    """Threads for a connection: those asked for, else $RETIME_THREADS, else a core each.

    Of cores there are those that this process may run on, `MOST_THREADS` at most. Raises
    UsageError for anything but a number from 1 to 1024.
    """
    whence = "threads" if asked is not None else "RETIME_THREADS"
    said = asked if asked is not None else os.environ.get("RETIME_THREADS") or None
    if said is None:
        return min(cores(), MOST_THREADS)
    text = str(said).strip()
    if not re.fullmatch(r"[0-9]{1,4}", text) or not 1 <= int(text) <= 1024:
        raise UsageError(f"{whence} is {said!r}: say a number from 1 to 1024")
    return int(text)


def available_bytes() -> int:
    """Memory that this process may have: the machine's, or less where its cgroup has less."""
    found = [os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")]
    for folder in _own_cgroups("memory"):
        for name in ("memory.max", "memory.limit_in_bytes"):
            with contextlib.suppress(OSError, ValueError):
                found.append(int((folder / name).read_text()))
    return min(n for n in found if n > 0)


def cores() -> int:
    """Cores that this process may use: by affinity, and by its cgroup's quota of time."""
    found = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count()
    least = float(found or 1)
    for folder in _own_cgroups("cpu"):
        with contextlib.suppress(OSError, ValueError):
            quota, period = (folder / "cpu.max").read_text().split()
            least = min(least, int(quota) / int(period))
        with contextlib.suppress(OSError, ValueError):
            quota = int((folder / "cpu.cfs_quota_us").read_text())
            if quota > 0:
                least = min(least, quota / int((folder / "cpu.cfs_period_us").read_text()))
    return max(1, round(least))


def _own_cgroups(controller: str) -> list[Path]:
    """Folders of the cgroups that this process is in, for one controller, inner ones first."""
    found: list[Path] = []
    try:
        lines = OWN_GROUPS.read_text().splitlines()
    except OSError:
        lines = []
    for line in lines:
        number, controllers, path = (*line.split(":", 2), "", "")[:3]
        if number == "0" and not controllers:
            base = CGROUPS
        elif controller in controllers.split(","):
            base = CGROUPS / controller
        else:
            continue
        here = base / path.lstrip("/")
        found += [here, *(p for p in here.parents if p == base or base in p.parents)]
    # In a container the path is often the host's, and the group itself is mounted as the root.
    return list(dict.fromkeys([*found, CGROUPS, CGROUPS / controller]))
