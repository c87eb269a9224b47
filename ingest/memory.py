"""Memory that was freed, given back to the system: what comes next may need it in another shape."""

from __future__ import annotations

import ctypes
import functools
import mmap
from collections.abc import Callable

import pyarrow as pa

SMALL_BYTES = 256 << 20
"""A process that holds less keeps it: to take it again costs more than it is worth to others."""


def give_back() -> None:
    """Lets go of memory that this process holds and does not use; milliseconds.

    Small processes do nothing, see `SMALL_BYTES`.
    """
    if resident_bytes() < SMALL_BYTES:
        return
    pa.default_memory_pool().release_unused()
    _trim()(0)


def resident_bytes() -> int:
    """Memory that this process holds; more than any has where the system does not say."""
    try:
        with open("/proc/self/statm", "rb") as f:
            return int(f.read().split()[1]) * mmap.PAGESIZE
    except (OSError, ValueError, IndexError):
        return 1 << 62


@functools.cache
def _trim() -> Callable[[int], object]:
    """What gives back the freed memory of glibc; other C libraries have no such thing."""
    try:
        return ctypes.CDLL(None).malloc_trim
    except (OSError, AttributeError, TypeError):
        return lambda kept_bytes: None
