"""Memory for large arrays that is there to be used: to get it may take longer than to fill it."""

from __future__ import annotations

import ctypes
import mmap
from collections.abc import Mapping
from functools import cache
from typing import Any

import numpy as np

from ...ingest.compiled import compiled

SMALL = 1 << 20
"""So many bytes, or fewer, are asked for as usual."""

LINE = 64
"""Bytes: arrays of one stretch begin at lines of the cache of their own."""

_SMALL_PAGES = getattr(mmap, "MADV_NOHUGEPAGE", None)
_POPULATE_WRITE = 23
"""Linux 5.14 and later: gives all pages of a stretch at once, faster than one after another."""


def arrays(types: Mapping[str, tuple[Any, int]]) -> dict[str, np.ndarray]:
    """Arrays of these types and lengths, in one stretch of memory; what is in them is any.

    The stretch is given back when none of them is left.
    """
    sizes = [n * np.dtype(of).itemsize for of, n in types.values()]
    since = np.cumsum([0, *(-(-size // LINE) * LINE for size in sizes)]).tolist()
    whole = _stretch(since[-1])
    return {
        name: whole[at : at + size].view(of)
        for at, size, (name, (of, _)) in zip(since, sizes, types.items(), strict=False)
    }


def array(n: int, of: Any) -> np.ndarray:
    """One such array [n]."""
    return arrays({"": (of, n)})[""]


def _stretch(n: int) -> np.ndarray:
    """Bytes, uint8 [n]. Not numpy's, which asks for large pages: a machine that is itself a virtual
    one takes several times as long to give those as small ones, unless somebody had them before.
    """
    if n <= SMALL:
        return np.empty(n, np.uint8)
    if _SMALL_PAGES is None:  # another system
        return _touched(n)
    out = np.frombuffer(mmap.mmap(-1, n, flags=mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS), np.uint8)
    # Where the system knows one of these not, who writes gets the pages.
    for advice in (_SMALL_PAGES, _POPULATE_WRITE):
        _madvise()(out.ctypes.data, n, advice)
    return out


@cache
def _madvise() -> Any:
    """The system's: `mmap.madvise` holds the interpreter meanwhile."""
    advise = ctypes.CDLL(None).madvise
    advise.argtypes = [ctypes.c_void_p, ctypes.c_size_t, ctypes.c_int]
    return advise


@compiled
def _touched(n):  # pragma: no cover - compiled
    out = np.empty(n, np.uint8)
    for i in range(0, n, 4096):
        out[i] = 0
    return out
