"""Device work by name: how often and how long (view `kernel_stats`)."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from .aligned import within
from .grouped import Grouped
from .segmented import LEAST


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
    key = name.astype(np.int64) + 1
    key *= int(kind.max(initial=0)) + 1
    key += kind
    key *= most
    key += category
    key += 1
    there = np.where(dur_ns == LEAST, 0, dur_ns).astype(np.float64)
    within(np.abs(there, out=there).sum(keepdims=True))
    del there
    key, sorted_dur = _by_key(key, dur_ns)
    first = np.flatnonzero(np.append(True, key[1:] != key[:-1])) if len(key) else key
    length = np.diff(np.append(first, len(key)))
    rest, of_category = np.divmod(key[first], most)
    of_name, of_kind = np.divmod(rest, int(kind.max(initial=0)) + 1)
    del key, rest
    is_known = sorted_dur != LEAST
    known, total = (
        np.add.reduceat(values, first) if len(first) else first
        for values in (is_known.astype(np.int64), np.where(is_known, sorted_dur, 0))
    )
    ends = first + length

    def quantile(percent: int) -> np.ndarray:
        """The one that `quantile_disc` gives of those that are known."""
        above = (100 - percent) * known // 100
        place = ends - known + np.maximum(1, known - above) - 1
        return np.where(known > 0, sorted_dur[np.minimum(place, len(sorted_dur) - 1)], LEAST)

    return Stats(
        of_name - 1, of_kind, of_category - 1, length, np.where(known > 0, total, LEAST),
        quantile(50), quantile(99),
    )  # fmt: skip


def _by_key(key: np.ndarray, dur_ns: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Keys (0 or more) and durations in order of both, those that are not there first of a key."""
    there = dur_ns != LEAST
    low, high = int(dur_ns.min(where=there, initial=0)), int(dur_ns.max(initial=0))
    bits = (high - low + 1).bit_length()
    if int(key.max(initial=0)).bit_length() + bits < 63:  # one number has both
        both = (key << bits) | np.where(there, dur_ns - low + 1, 0)
        both.sort()
        dur = both & ((1 << bits) - 1)
        return both >> bits, np.where(dur > 0, dur + (low - 1), LEAST)
    of = np.lexsort((dur_ns, key))
    return key[of], dur_ns[of]


class Streamed:
    """The same of any number of rows, which are added some at a time."""

    def __init__(self) -> None:
        self._rows = Grouped(3)
        self._sum = 0.0

    def add(
        self, name: np.ndarray, kind: np.ndarray, category: np.ndarray, dur_ns: np.ndarray
    ) -> None:
        """Takes rows as `stats` does."""
        there = dur_ns != LEAST
        self._sum += float(np.abs(np.where(there, dur_ns, 0).astype(np.float64)).sum())
        self._rows.add(dur_ns, name, kind, category)

    def result(self) -> Stats:
        """What they come to; once. Raises Odd where they add up to too much."""
        within(np.array([self._sum]))
        (name, kind, category), (n, known, total) = self._rows.groups()
        places = [
            np.minimum(n, n - known + np.maximum(1, known - (100 - percent) * known // 100)) - 1
            for percent in (50, 99)
        ]
        median, p99 = (np.where(known > 0, ns, LEAST) for ns in self._rows.at(*places))
        total = np.where(known > 0, total, LEAST)
        return Stats(name, kind, category, n, total, median, p99)
