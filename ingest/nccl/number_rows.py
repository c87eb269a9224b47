"""Rows of a table as numbers in one matrix, which compiled code fills, and their batches."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa

from .. import collect, memory
from ..schema import TABLES, TEXT

if TYPE_CHECKING:
    from ..collect import Collector

NULL = -(1 << 63)
WORDS, NARROW, WIDE = range(3)
"""Kinds of columns: codes of texts, and numbers of 32 and of 64 bits."""

_I32_MAX = (1 << 31) - 1
_PLACE_BITS = 34
_ROOM = 1 << 12
MOST_WORDS = 1 << 18
"""Rows with a text beyond so many are kept as they are given."""


class Words:
    """Texts by code, in the order of their first use."""

    def __init__(self) -> None:
        self._words: list[str] = []
        self._codes: dict[str, int] = {}
        self.place = np.full(64, -1, np.int64)
        self.used = np.zeros(64, np.int64)

    def __len__(self) -> int:
        return len(self._words)

    def __contains__(self, text: object) -> bool:
        return text in self._codes

    def code(self, text: str | None) -> int:
        """The code of a text; NULL for none."""
        if text is None:
            return NULL
        code = self._codes.get(text)
        if code is None:
            code = self._codes[text] = len(self._words)
            self._words.append(text)
            self._make_room()
        return code

    def all_codes(self, texts: list[str]) -> np.ndarray:
        """The codes of many texts."""
        known = self._codes
        codes = [known.setdefault(text, len(known)) for text in texts]
        self._words += list(known)[len(self._words) :]  # they are in the order of their codes
        self._make_room()
        return np.array(codes, np.int64)

    def _make_room(self) -> None:
        if len(self._words) > len(self.place):
            n = 2 * len(self._words)
            self.place, self.used = np.full(n, -1, np.int64), np.zeros(n, np.int64)

    def text(self, code: int) -> str:
        """The text of a code."""
        return self._words[code]

    def recoded(self, column: np.ndarray, recode: Callable[..., int]) -> list[str]:
        """The texts that a column uses; its codes are their places then, -1 for none."""
        used = recode(column, self.place, self.used)
        return [self._words[code] for code in self.used[:used].tolist()]


class NumberRows:
    """Rows until they are taken as a batch; texts are codes in them.

    The matrix has these `columns` and a last one, `member`: where that is not -1, what stands in
    the columns `places` is a place of that communicator (below 2**34), which `rank_at(member,
    place)` tells the global rank of (None: unknown). `constants` are texts and booleans that all
    rows have. Of the compiled `functions`, `columns` and `recode` of `columns_at` are used; `words`
    may be those of another table.
    """

    def __init__(
        self,
        collector: Collector,
        table: str,
        columns: Sequence[str],
        places: Sequence[str],
        constants: Mapping[str, str | bool],
        functions: Mapping[str, Callable[..., Any]],
        rank_at: Callable[[int, int], int | None],
        words: Words | None = None,
    ):
        self._collector, self._table = collector, TABLES[table]
        self._columns, self._places, self._constants = columns, places, constants
        self._turn, self._recode = functions["columns"], functions["recode"]
        self._rank_at = rank_at
        kinds = {c.name: c.type for c in self._table.columns}
        self._texts = {name for name in columns if kinds[name] == TEXT}
        self._kinds = np.array(
            [WORDS if n in self._texts else NARROW if kinds[n] == pa.int32() else WIDE
             for n in columns]
        )  # fmt: skip
        self._alike: dict[str, pa.Array] = {}
        self._most = {n: _I32_MAX if kinds[n] == pa.int32() else -NULL - 1 for n in columns}
        self.words = Words() if words is None else words
        self._unfit: dict[int, dict[str, Any]] = {}
        self.matrix = memory.untouched(collect.BATCH_ROWS + _ROOM, len(columns) + 1)
        self.n = 0

    def code(self, text: str | None) -> int:
        """The code of a text; NULL for none."""
        return self.words.code(text)

    def text(self, code: int) -> str:
        """The text of a code."""
        return self.words.text(code)

    def add(self, **values: Any) -> None:
        """A row by the values of its columns, which may be too large for them."""
        self.make_room()
        row = self.matrix[self.n]
        row[:] = NULL
        row[-1] = -1
        for i, name in enumerate(self._columns):
            value = values.get(name)
            if name in self._texts:
                if value in self.words or len(self.words) < MOST_WORDS:
                    row[i] = self.code(value)
                elif value is not None:
                    self._unfit[self.n] = values
            elif value is not None and abs(value) <= self._most[name]:
                row[i] = value
            elif value is not None:
                self._unfit[self.n] = values
        self.n += 1

    def make_room(self) -> None:
        """Room for one row more, where there is none."""
        if self.n == len(self.matrix):
            self.matrix = np.concatenate([self.matrix, np.zeros_like(self.matrix)])

    def full(self) -> Iterator[tuple[str, pa.RecordBatch]]:
        """A batch of the rows, where there are enough of them."""
        if self.n >= collect.BATCH_ROWS:
            yield from self.rest()

    def rest(self) -> Iterator[tuple[str, pa.RecordBatch]]:
        """All rows that there are; those whose values fit no column go through the collector."""
        n, unfit = self.n, self._unfit
        if not n:
            return
        rows = self.matrix[:n]
        columns = dict(zip(self._columns, rows.T, strict=False))
        self._resolve(columns, rows[:, -1])
        self.n, self._unfit = 0, {}
        if not unfit:
            yield self._table.name, collect.in_order(self._table, self._batch(rows))
            return
        for row in range(n):
            values = unfit.get(row) or self._values(columns, row)
            self._collector.add(self._table.name, **values)
        yield from self._collector.full()

    def _resolve(self, columns: dict[str, np.ndarray], members: np.ndarray) -> None:
        """Global ranks in place of places."""
        for name in self._places:
            column = columns[name]
            at = np.flatnonzero((column != NULL) & (members >= 0))
            if not at.size:
                continue
            pairs, which = np.unique((members[at] << _PLACE_BITS) | column[at], return_inverse=True)
            ranks = [self._rank_at(*divmod(pair, 1 << _PLACE_BITS)) for pair in pairs.tolist()]
            column[at] = np.array([NULL if r is None else r for r in ranks], np.int64)[which]

    def _values(self, columns: dict[str, np.ndarray], row: int) -> dict[str, Any]:
        found: dict[str, Any] = dict(self._constants)
        for name in self._columns:
            value = int(columns[name][row])
            found[name] = None if value == NULL else value
            if name in self._texts and value != NULL:
                found[name] = self.words.text(value)
        return found

    def _batch(self, rows: np.ndarray) -> pa.RecordBatch:
        n, kinds = len(rows), self._kinds
        n_wide = int((kinds == WIDE).sum())
        narrow, wide = np.empty((len(kinds) - n_wide, n), np.int32), np.empty((n_wide, n), np.int64)
        valid = np.empty((len(kinds), -(-n // 8)), np.uint8)
        missing = np.empty(len(kinds), np.int64)
        self._turn(rows, kinds, narrow, wide, valid, missing)
        its: dict[str, pa.Array] = {}
        next_narrow, next_wide = iter(narrow), iter(wide)
        for name, kind, bits, lacks in zip(
            self._columns, kinds.tolist(), valid, missing.tolist(), strict=True
        ):
            column = next(next_wide if kind == WIDE else next_narrow)
            words = self.words.recoded(column, self._recode) if kind == WORDS else None
            its[name] = _array(column, bits if lacks else None, words)
        arrays = [
            its[c.name] if c.name in its else self._alike_in_all(c.name, c.type, n)
            for c in self._table.columns
        ]
        return pa.RecordBatch.from_arrays(arrays, schema=self._table.schema)

    def _alike_in_all(self, name: str, kind: pa.DataType, n: int) -> pa.Array:
        """A column of `n` times a constant, or of nulls: made once for many batches."""
        found = self._alike.get(name)
        if found is None or len(found) < n:
            room = max(n, min(2 * n, len(self.matrix)))
            value = self._constants.get(name)
            found = pa.nulls(room, kind) if value is None else _constant(value, room)
            self._alike[name] = found
        return found[:n]


def _array(values: np.ndarray, valid: np.ndarray | None, words: list[str] | None) -> pa.Array:
    """Numbers, or texts by code, built of buffers: anything else would import pandas."""
    kind = pa.int32() if values.dtype == np.int32 else pa.int64()
    bits = None if valid is None else pa.py_buffer(valid)
    numbers = pa.Array.from_buffers(kind, len(values), [bits, pa.py_buffer(values)])
    if words is None:
        return numbers
    return pa.DictionaryArray.from_arrays(numbers, pa.array(words, pa.string()))


def _constant(value: str | bool, n: int) -> pa.Array:
    if isinstance(value, str):
        return _array(np.zeros(n, np.int32), None, [value])
    bits = pa.py_buffer(np.packbits(np.full(n, value), bitorder="little"))
    return pa.Array.from_buffers(pa.bool_(), n, [None, bits])
