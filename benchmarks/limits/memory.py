"""How fast this machine moves memory, and passes over arrays that nothing depends on."""

from __future__ import annotations

import mmap
import time
from typing import Any

from benchmarks.suite import memory_at_hand
from benchmarks.suite.clock import counted, fastest

BYTES = 512 << 20
GOT = 256 << 20
IDLE_S = 6.0
"""After so long without a user, memory of a virtual machine may be its host's again."""


def copy() -> dict[str, Any]:
    """Half a gigabyte copied: bytes read and written are twice that."""
    import numpy as np

    source = np.ones(BYTES // 8, np.int64)
    target = np.zeros_like(source)
    fastest(lambda: np.copyto(target, source), 5)
    return {"rows": len(source)}


def add_up() -> dict[str, Any]:
    """Half a gigabyte of integers added up: read once."""
    import numpy as np

    source = np.ones(BYTES // 8, np.int64)
    return {"rows": int(fastest(source.sum, 5))}


def got() -> dict[str, Any]:
    """A quarter of a gigabyte got from the system, which somebody has just let go, and cleared."""
    memory_at_hand.at_hand()
    return {"rows": counted(_touched)}


def got_idle() -> dict[str, Any]:
    """The same of memory that nobody used for some seconds."""
    memory_at_hand.at_hand()
    time.sleep(IDLE_S)
    return {"rows": counted(_touched)}


def _touched() -> int:
    with mmap.mmap(-1, GOT, flags=mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS) as memory:
        if hasattr(mmap, "MADV_HUGEPAGE"):
            memory.madvise(mmap.MADV_HUGEPAGE)
        for at in range(0, GOT, mmap.PAGESIZE):
            memory[at] = 1
    return GOT
