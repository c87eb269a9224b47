"""Memory that takes nothing until it is used, and what was freed given back to the system."""

from __future__ import annotations

import contextlib
import ctypes
import functools
import math
import mmap
from collections.abc import Callable

import numpy as np
import pyarrow as pa

SMALL_BYTES = 256 << 20
"""A process that holds less keeps it: to take it again costs more than it is worth to others."""


SMALL_PAGES = getattr(mmap, "MADV_NOHUGEPAGE", None)


def stretch(n_bytes: int) -> mmap.mmap:
    """So many zeros of this process alone, at least one; pages come, small ones, as they are used.

    A machine that is itself a virtual one takes several times as long to give large pages, unless
    somebody had them before.
    """
    found = mmap.mmap(-1, max(n_bytes, 1), flags=mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS)
    if SMALL_PAGES is not None:
        with contextlib.suppress(OSError):  # of a system that has no others
            found.madvise(SMALL_PAGES)
    return found


def untouched(*shape: int) -> np.ndarray:
    """int64 zeros of a shape: what nobody has looked at takes no memory, and no time.

    `numpy.zeros` clears them where the allocator has memory left that was used before.
    """
    n = math.prod(shape)
    return np.frombuffer(stretch(8 * n), np.int64, n).reshape(shape)


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
