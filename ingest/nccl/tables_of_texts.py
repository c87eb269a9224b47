"""Distinct texts and triples of numbers by code, and what is kept: tables compiled code fills."""

from __future__ import annotations

import os

import numpy as np

_HEAD = 4

ABSENT = -1
"""Of what may be kept: nothing is."""


def _table(most: int, held: int, arena_bytes: int) -> np.ndarray:
    table = np.zeros(_HEAD + 2 * most + held, np.int64)
    table[1:_HEAD] = int.from_bytes(os.urandom(7), "little"), most, arena_bytes
    table[_HEAD : _HEAD + 2 * most] = -1
    return table


class Texts:
    """Texts by code, in order of their first use: room for `most`, a power of two, of them.

    `table` is what `tables_at.intern` fills; its owner clears it once it is full. The seed of its
    hashes is another in each process: a stranger cannot choose texts that meet.
    """

    def __init__(self, most: int, mean_bytes: int):
        self._most = most
        self.table = _table(most, 2 * most + 1 + most * mean_bytes // 8, most * mean_bytes)
        self._offsets = self.table[_HEAD + 2 * most :]
        self._arena = self.table[_HEAD + 4 * most + 1 :].view(np.uint8)

    def __len__(self) -> int:
        return int(self.table[0])

    def text(self, code: int) -> bytes:
        """The bytes of a code."""
        return self._arena[self._offsets[code] : self._offsets[code + 1]].tobytes()

    def clear(self) -> None:
        """Forgets them all."""
        _clear(self.table, self._most)


class Triples:
    """Triples by code: room for `most`, a power of two. `table` is for `intern_numbers`."""

    def __init__(self, most: int):
        self._most = most
        self.table = _table(most, 3 * most, 0)
        self._keys = self.table[_HEAD + 2 * most :].reshape(most, 3)

    def __len__(self) -> int:
        return int(self.table[0])

    def numbers(self, code: int) -> list[int]:
        """The three numbers of a code."""
        return self._keys[code].tolist()

    def all(self) -> list[list[int]]:
        """The three numbers of each code, in order."""
        return self._keys[: len(self)].tolist()

    def clear(self) -> None:
        """Forgets them all."""
        _clear(self.table, self._most)


class Lately:
    """A number for each of the last triples: room for `most`, a power of two, twice.

    `tables` and `values` are for `keep` and `kept` of `tables_at`: once the newer half is full, it
    becomes the older, and what that held is forgotten.
    """

    def __init__(self, most: int):
        self.tables = np.stack([_table(most, 3 * most, 0) for _ in range(2)])
        self.values = np.zeros((3, most), np.int64)


def _clear(table: np.ndarray, most: int) -> None:
    table[0] = 0
    table[_HEAD : _HEAD + 2 * most] = -1
