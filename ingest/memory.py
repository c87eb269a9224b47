"""Memory that was freed, given back to the system: what comes next may need it in another shape."""

from __future__ import annotations

import ctypes
import functools
from collections.abc import Callable

import pyarrow as pa


def give_back() -> None:
    """Lets go of memory that this process holds and does not use; milliseconds."""
    pa.default_memory_pool().release_unused()
    _trim()(0)


@functools.cache
def _trim() -> Callable[[int], object]:
    """What gives back the freed memory of glibc; other C libraries have no such thing."""
    try:
        return ctypes.CDLL(None).malloc_trim
    except (OSError, AttributeError, TypeError):
        return lambda kept_bytes: None
