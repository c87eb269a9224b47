"""What depends on a symbol's text alone, worked out once a symbol."""

from __future__ import annotations

from collections.abc import Callable
from typing import Protocol

import numpy as np


class Texts(Protocol):
    """Texts by code, all codes below the length: `rawbatch.Symbols`, or a reader's own."""

    def __len__(self) -> int: ...

    def text(self, code: int) -> str: ...


class Lookup:
    """A function of a symbol's text, kept in an array by symbol code and computed when met."""

    _UNKNOWN = np.iinfo(np.int32).min

    def __init__(self, symbols: Texts, function: Callable[[str], int], absent: int):
        self._symbols = symbols
        self._function = function
        self._absent = absent
        self._table = np.full(1024, self._UNKNOWN, np.int32)
        self._table[-1] = absent

    def __call__(self, codes: np.ndarray) -> np.ndarray:
        """The function's values for an array of codes; `absent` for code -1."""
        if len(self._symbols) >= len(self._table):
            old = self._table
            self._table = np.full(2 * len(self._symbols) + 2, self._UNKNOWN, np.int32)
            self._table[: len(old) - 1] = old[:-1]
            # Code -1 indexes the last entry.
            self._table[-1] = self._absent
        values = self._table[codes]
        unknown = values == self._UNKNOWN
        if unknown.any():
            for code in np.unique(codes[unknown]).tolist():
                self._table[code] = self._function(self._symbols.text(code))
            values = self._table[codes]
        return values
