"""Durations by group, of any number of rows: how many, their sum, and those at places in order."""

from __future__ import annotations

import numpy as np

from ..sorting import Sorted
from .segmented import LEAST, runs

PIECE_ROWS = 1 << 17


class Grouped:
    """Rows are added some at a time; what is asked of them is asked once, when all are there.

    A group has its own values of so many `keys`. Raises ScratchError.
    """

    def __init__(self, keys: int) -> None:
        self._keys = keys
        self._rows = Sorted(2)
        self._number: dict[tuple[int, ...], int] = {}
        self._counts = np.zeros((3, 0), np.int64)
        """int64[3, groups]: rows, those whose duration is known, and the sum of these"""

    def add(self, dur_ns: np.ndarray, *keys: np.ndarray) -> None:
        """Takes rows: durations (`LEAST` null) and their keys."""
        by = runs(*keys)
        one = by.order[by.first]
        each = zip(*(k[one].tolist() for k in keys), strict=True)
        code = np.array([self._number.setdefault(k, len(self._number)) for k in each], np.int64)
        self._rows.add(code[by.run], dur_ns)
        more = np.zeros((3, len(self._number) - self._counts.shape[1]), np.int64)
        self._counts = np.concatenate([self._counts, more], axis=1)
        there = dur_ns != LEAST
        self._counts[:, code] += (
            by.length, by.total(there.astype(np.int64)), by.total(np.where(there, dur_ns, 0)),
        )  # fmt: skip

    def groups(self) -> tuple[np.ndarray, np.ndarray]:
        """The keys, int64[keys, groups], in their order; and rows, rows whose duration is known
        and the sum of these, int64[3, groups]."""
        return (
            np.array(sorted(self._number), np.int64).reshape(-1, self._keys).T,
            self._counts[:, self._in_order()],
        )

    def at(self, *places: np.ndarray) -> np.ndarray:
        """int64[places, groups]: the duration at a place of each group (as `groups` has them);
        from 0 on, in order, those that are not known first."""
        order = self._in_order()
        n = self._counts[0]
        begins = np.cumsum(n) - n
        wanted = np.concatenate([begins[order] + p for p in places])
        by_place = np.argsort(wanted, kind="stable")
        found, at = np.empty(len(wanted), np.int64), 0
        for _, dur_ns in self._rows.pieces(PIECE_ROWS):
            first, until = np.searchsorted(wanted, [at, at + len(dur_ns)], sorter=by_place)
            its = by_place[first:until]
            found[its] = dur_ns[wanted[its] - at]
            at += len(dur_ns)
        return found.reshape(len(places), -1)

    def _in_order(self) -> np.ndarray:
        """The number of each group, in the order of their keys."""
        return np.array([self._number[k] for k in sorted(self._number)], np.int64)
