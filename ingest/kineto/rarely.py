"""Columns that few events have, as a reader fills them: a value a row that has any of them."""

from __future__ import annotations

import numpy as np


class Rare:
    """One such column: looks like an array of a batch's rows, and holds what is there alone.

    `at` has for each row the place of its value, or -1 where it has none.
    """

    def __init__(self, values: np.ndarray, at: np.ndarray, absent: int):
        self._values = values
        self._at = at
        self._absent = absent
        self.dtype = values.dtype

    def __len__(self) -> int:
        return len(self._at)

    def __getitem__(self, rows: np.ndarray | slice) -> np.ndarray:
        at = self._at[rows]
        out = np.full(len(at), self._absent, self.dtype)
        there = np.flatnonzero(at >= 0)
        out[there] = self._values[at[there]]
        return out

    def tolist(self) -> list[int]:
        """Every row's value."""
        return self[:].tolist()


class RareRows:
    """Room for them in one batch: column i of `ints` and of `syms` is one column.

    `at` is -1 for a row that has none of them, else its place: their row. Only the places that are
    taken are touched, and they lie together, so the rest of the memory costs nothing.
    """

    def __init__(self, capacity: int, n_ints: int, n_syms: int, null: int):
        self.at = np.empty(capacity, np.int32)
        self.ints = np.empty((capacity, n_ints), np.int64)
        self.syms = np.empty((capacity, n_syms), np.int32)
        self.n = 0
        self._null = null

    def place(self, row: int) -> int:
        """The place of a row's values, a new one where it had none."""
        place = int(self.at[row])
        if place < 0:
            place = self.at[row] = self.n
            self.ints[place] = self._null
            self.syms[place] = -1
            self.n += 1
        return place
