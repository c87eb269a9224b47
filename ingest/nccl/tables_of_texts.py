"""Distinct texts and triples of numbers by code, and what is kept: tables compiled code fills."""

from __future__ import annotations

import os

import numpy as np

from .. import memory

_HEAD = 4

ABSENT = -1
"""Of what may be kept: nothing is."""


def _tables(n: int, most: int, held: int, arena_bytes: int) -> np.ndarray:
    """So many empty tables, one a row; their memory is taken as they are filled."""
    tables = memory.untouched(n, _HEAD + 2 * most + held)
    for table in tables:
        table[1:_HEAD] = int.from_bytes(os.urandom(7), "little"), most, arena_bytes
    return tables


class Texts:
    """Texts by code, in order of their first use: room for `most`, a power of two, of them.

    `table` is what `tables_at.intern` fills; its owner clears it once it is full. The seed of its
    hashes is another in each process: a stranger cannot choose texts that meet.
    """

    def __init__(self, most: int, mean_bytes: int):
        self._most = most
        held = 2 * most + 1 + most * mean_bytes // 8
        (self.table,) = _tables(1, most, held, most * mean_bytes)
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
        (self.table,) = _tables(1, most, 3 * most, 0)
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
        self.tables = _tables(2, most, 3 * most, 0)
        self.values = memory.untouched(3, most)


def _clear(table: np.ndarray, most: int) -> None:
    table[0] = 0
    table[_HEAD : _HEAD + 2 * most] = 0
