"""The time by the clock of where a job lies: what lies there is dated by no other."""

from __future__ import annotations

import os
import tempfile
import time
import uuid
from pathlib import Path
from typing import TYPE_CHECKING

from .errors import StoreRefused

if TYPE_CHECKING:
    from .store import Folder


def now_ns(folder: Path) -> int:
    """The time by the clock of a folder's file system, by which all nodes' files there are dated.

    A node's own clock may be off by years, and what it then took for old be in the making. Where
    nothing can be written, nothing can be removed either, and its own clock will do.
    """
    try:
        with tempfile.TemporaryFile(dir=folder) as f:
            return os.fstat(f.fileno()).st_mtime_ns
    except OSError:
        return time.time_ns()


def clock_ns(folder: Folder) -> int:
    """The time by the clock of where a folder lies, on a disk or in an object store.

    In a store an object is made and removed for it; where that is refused this node's clock tells.
    Raises StoreBusy: a clock that may be off by years is no reason to remove anything.
    """
    if folder.local is not None:
        return now_ns(folder.local)
    file = f"_claims/clock-{uuid.uuid4().hex}"
    try:
        folder.put(file, b"")
        entry = folder.entry(file)
        folder.remove([file])
    except (StoreRefused, OSError):
        entry = None
    return time.time_ns() if entry is None else entry.modified_ns
