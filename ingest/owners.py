"""Whose unfinished work is: its name says which process, and whether that is still alive."""

from __future__ import annotations

import contextlib
import hashlib
import os
import re
import socket
import time
from collections.abc import Callable
from pathlib import Path

SCRATCH = "retime-scratch-"
ABANDONED_S = 24 * 3600.0
"""Unfinished work of another machine that nothing has touched for so long is given up."""


def owner() -> str:
    """This process, as the name of its unfinished work: host, process space, number, start.

    In the name, because a folder and its name come into being in one moment.
    """
    host = re.sub(r"[^A-Za-z0-9-]", "-", socket.gethostname())[:60]
    space = hashlib.sha256(_process_space().encode()).hexdigest()[:12]
    return f"{host}.{space}.{os.getpid()}.{_born(os.getpid())}"


def _process_space() -> str:
    """Which process numbers compare: this boot of this machine, this container."""
    try:
        boot = Path("/proc/sys/kernel/random/boot_id").read_text().strip()
        return f"{socket.gethostname()} {boot} {os.readlink('/proc/self/ns/pid')}"
    except OSError:
        return socket.gethostname()


def _born(pid: int) -> str:
    """Start time of a process, so that a number used again is not taken for its owner."""
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[19]
    except (OSError, IndexError):
        return ""


def alive(name: str, token: Path, now: Callable[[], int] = time.time_ns) -> bool:
    """Whether somebody may still be working at unfinished work; `name` says who.

    `now` gives the time (ns) by which what is another machine's may be too old.
    """
    parts = name.split(".")
    if parts[:2] == owner().split(".")[:2] and len(parts) == 5 and parts[2].isdecimal():
        pid = int(parts[2])
        try:
            os.kill(pid, 0)
        except (ProcessLookupError, OverflowError):
            return False
        except PermissionError:
            pass
        return _born(pid) == parts[3]
    paths = [str(token)]
    for found, folders, files in os.walk(token):
        paths += [os.path.join(found, name) for name in (*folders, *files)]
    newest = 0
    for path in paths:
        with contextlib.suppress(OSError):
            newest = max(newest, os.stat(path).st_mtime_ns)
    return now() - newest < ABANDONED_S * 1e9
