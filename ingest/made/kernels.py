"""Device work by name: how often and how long (view `kernel_stats`)."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from .aligned import within
from .segmented import LEAST, runs


class Stats(NamedTuple):
    """A rank's kernels, copies and sets of memory by what they are; arrays of one length."""

    name: np.ndarray
    kind: np.ndarray
    category: np.ndarray
    count: np.ndarray
    total_ns: np.ndarray
    """`LEAST` where no duration is known, as the two below"""
    median_ns: np.ndarray
    p99_ns: np.ndarray


def stats(name: np.ndarray, kind: np.ndarray, category: np.ndarray, dur_ns: np.ndarray) -> Stats:
    """The durations (`LEAST` null) of each name, kind and category (codes, -1 null).

    Raises Odd where they add up to too much.
    """
    most = int(category.max(initial=0)) + 2
    key = ((name + 1) * (int(kind.max(initial=0)) + 1) + kind) * most + category + 1
    of = np.lexsort((dur_ns, key))  # in order of duration, those that are not there first
    by = runs(key)
    known = by.total((dur_ns != LEAST).astype(np.int64))
    there = np.where(dur_ns == LEAST, 0, dur_ns)
    within(np.abs(there.astype(np.float64)).sum(keepdims=True))
    total = by.total(there)
    ends, sorted_dur = by.first + by.length, dur_ns[of]

    def quantile(percent: int) -> np.ndarray:
        """The one that `quantile_disc` gives of those that are known."""
        above = (100 - percent) * known // 100
        place = ends - known + np.maximum(1, known - above) - 1
        return np.where(known > 0, sorted_dur[np.minimum(place, len(sorted_dur) - 1)], LEAST)

    row = by.order[by.first]
    return Stats(
        name[row], kind[row], category[row], by.length, np.where(known > 0, total, LEAST),
        quantile(50), quantile(99),
    )  # fmt: skip
