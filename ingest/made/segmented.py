"""Sums, least and greatest of runs of equal keys, over sorted arrays."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

LEAST = np.iinfo(np.int64).min
"""Stands for a number that is not there; no number that is stored is so small."""


class Runs(NamedTuple):
    """Rows in the order of a key; a run is the rows that have the same one."""

    order: np.ndarray
    """row of each place in the order"""
    first: np.ndarray
    """place at which each run begins"""
    run: np.ndarray
    """run of each row"""

    @property
    def length(self) -> np.ndarray:
        """Rows of each run."""
        return np.diff(np.append(self.first, len(self.order)))

    def most(self, values: np.ndarray) -> np.ndarray:
        """The greatest of each run; `LEAST` stands for a value that is not there."""
        return _reduced(np.maximum, values, self)

    def least(self, values: np.ndarray) -> np.ndarray:
        """The least of each run."""
        return _reduced(np.minimum, values, self)

    def total(self, values: np.ndarray) -> np.ndarray:
        """The sum of each run."""
        return _reduced(np.add, values, self)


def _reduced(how: np.ufunc, values: np.ndarray, runs: Runs) -> np.ndarray:
    if not len(runs.first):
        return values[:0]
    return how.reduceat(values[runs.order], runs.first)


def runs(*keys: np.ndarray) -> Runs:
    """The runs of rows with equal keys (integers); the first key is the most significant."""
    n = len(keys[0])
    order = np.argsort(keys[0], kind="stable") if len(keys) == 1 else np.lexsort(keys[::-1])
    new = np.zeros(n, bool)
    if n:
        new[0] = True
    for key in keys:
        k = key[order]
        new[1:] |= k[1:] != k[:-1]
    run = np.empty(n, np.int64)
    run[order] = np.cumsum(new) - 1
    return Runs(order, np.flatnonzero(new), run)
