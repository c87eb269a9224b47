"""Memory for large arrays, which takes longer to get than to fill: a thread of its own gets it."""

from __future__ import annotations

import ctypes
from collections.abc import Iterable, Mapping
from functools import cache
from typing import Any

import numpy as np

from ...ingest.memory import SMALL_PAGES, stretch

SMALL = 1 << 20
"""So many bytes, or fewer, are asked for as usual."""

AT_ONCE = 4 << 20
"""Bytes that are got at once: no other thread can ask for memory, or give any back, meanwhile."""

_POPULATE_WRITE = 23
"""Linux 5.14 and later: gives all pages of a stretch at once, faster than one after another."""


def arrays(types: Mapping[str, tuple[Any, int]]) -> dict[str, np.ndarray]:
    """Arrays of these types and lengths; what is in them is any."""
    return {name: array(n, of) for name, (of, n) in types.items()}


def array(n: int, of: Any) -> np.ndarray:
    """An array [n]; what is in it is any.

    Where it is large not numpy's, which asks for large pages (`ingest.memory.stretch`).
    """
    size = n * np.dtype(of).itemsize
    if size <= SMALL or SMALL_PAGES is None:
        return np.empty(n, of)
    return np.frombuffer(stretch(size), of)


def get(given: Iterable[np.ndarray]) -> None:
    """Gets the memory of arrays of `array`, which others may use already.

    Where the system does not know how, who writes to a page gets it.
    """
    for one in given:
        if one.nbytes <= SMALL or SMALL_PAGES is None:
            continue
        first = one.ctypes.data
        for at in range(0, one.nbytes, AT_ONCE):
            _madvise()(first + at, min(AT_ONCE, one.nbytes - at), _POPULATE_WRITE)


@cache
def _madvise() -> Any:
    """The system's: `mmap.madvise` holds the interpreter meanwhile."""
    advise = ctypes.CDLL(None).madvise
    advise.argtypes = [ctypes.c_void_p, ctypes.c_size_t, ctypes.c_int]
    return advise
