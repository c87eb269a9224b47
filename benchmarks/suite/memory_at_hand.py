"""Memory that the machine has ready before something is timed, as files are in the system's cache.

A virtual machine may give memory that nobody has used for some seconds back to its host; to get it
again can cost milliseconds a megabyte, a hundred times what clearing it costs. Whoever runs next
would pay for that, or not, by chance of when the one before it ended.
"""

from __future__ import annotations

import mmap
import os
import subprocess
import sys

MEGABYTES = 600
"""More than ours may hold."""
PIECE_MB = 16
"""What one process holds: its peak counts as that of a child of what is measured."""

_TOUCH = """
import mmap, os, sys
pieces, size = int(sys.argv[1]), int(sys.argv[2])
held, hold = os.pipe(), os.pipe()
for _ in range(pieces):
    if not os.fork():
        os.close(hold[1])
        memory = mmap.mmap(-1, size, flags=mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS)
        memory.madvise(mmap.MADV_HUGEPAGE)
        for at in range(0, size, 4096):
            memory[at] = 1
        os.write(held[1], b"1")
        os.read(hold[0], 1)
        os._exit(0)
os.close(held[1])
for _ in range(pieces):
    os.read(held[0], 1)
os.close(hold[1])
for _ in range(pieces):
    os.wait()
"""


def at_hand() -> None:
    """Gets up to MEGABYTES in processes of their own, all held at one time, and lets them go.

    No more than a quarter of what the machine has free. Nothing where pages cannot be asked for
    so (another system than Linux).
    """
    pieces = min(MEGABYTES, _free_mb() // 4) // PIECE_MB
    if pieces and hasattr(mmap, "MADV_HUGEPAGE"):
        words = [sys.executable, "-I", "-S", "-c", _TOUCH, str(pieces), str(PIECE_MB << 20)]
        subprocess.run(words, check=False)


def _free_mb() -> int:
    try:
        return os.sysconf("SC_AVPHYS_PAGES") * os.sysconf("SC_PAGE_SIZE") >> 20
    except (ValueError, OSError):
        return 0
