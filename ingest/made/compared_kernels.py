"""The kernels that begin in a rank's stretches that are compared, added up by name."""

from __future__ import annotations

import numpy as np
import pyarrow as pa

from ..schema import TABLES, TEXT
from .aligned import Clock, within
from .compared import KERNELS, Stretches
from .overlap import Kernels
from .segmented import LEAST, runs

_SUMS = ("ns", "n", "blocks", "known")


class Compared:
    """Takes a rank's kernels, some at a time. Raises Odd where they add up to too much."""

    def __init__(self, rank: int, stretches: Stretches, clock: Clock):
        self._rank = rank
        self._stretches = stretches
        self._clock = clock
        self._keys = np.zeros((2, 0), np.int64)
        """int64[2, rows]: key and name (code, -1 null)"""
        self._sums = np.zeros((len(_SUMS), 0), np.int64)
        self._far = np.zeros(2)
        """what durations and blocks add up to, as doubles"""

    def add(self, k: Kernels) -> None:
        """Counts those that are no communication."""
        works = np.flatnonzero((k.talks == 0) & (k.dur_ns >= 0))
        start = self._clock.align(k.start_ns[works])
        order = np.argsort(start, kind="stable")
        start = start[order]
        s = self._stretches
        a, b = np.searchsorted(start, s.from_ns), np.searchsorted(start, s.until_ns)
        its = np.flatnonzero(b > a)  # a block of kernels is in few of them
        first, many = a[its], b[its] - a[its]
        place = np.arange(many.sum()) + np.repeat(first - (np.cumsum(many) - many), many)
        row = works[order[place]]
        dur, blocks = k.dur_ns[row], k.grid_blocks[row]
        there = blocks != LEAST
        blocks = np.where(there, blocks, 0)
        self._far += [float(np.abs(c.astype(np.float64)).sum()) for c in (dur, blocks)]
        within(self._far)
        sums = np.stack([dur, np.ones(len(row), np.int64), blocks, there.astype(np.int64)])
        keys = np.stack([np.repeat(s.key[its], many), k.name[row]])
        keys = np.concatenate([self._keys, keys], axis=1)
        sums = np.concatenate([self._sums, sums], axis=1)
        by = runs(*keys)
        self._keys = keys[:, by.order[by.first]]
        self._sums = np.stack([by.total(c) for c in sums])

    def rows(self, names: list[str]) -> pa.RecordBatch:
        """A row a key and name."""
        key, name = self._keys
        ns, n, blocks, known = self._sums
        return TABLES[KERNELS].batch(
            {
                "rank": pa.array(np.full(len(key), self._rank)),
                "key": pa.array(key),
                "name": pa.array([names[c] if c >= 0 else None for c in name.tolist()]).cast(TEXT),
                "ns": pa.array(ns),
                "n": pa.array(n),
                "blocks": pa.array(blocks, mask=known < n),
            }
        )
