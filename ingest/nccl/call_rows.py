"""Rows of `collectives` as numbers in one matrix, which compiled code fills, and their batches."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa

from ..collect import BATCH_ROWS
from ..schema import COLLECTIVES, TEXT
from .debug_log_state import NULL, ROW_COLUMNS, ROW_MEMBER

if TYPE_CHECKING:
    from ..collect import Collector

_TEXTS = ("comm", "op", "dtype")
_I32_MAX = (1 << 31) - 1
_ROOT_OR_PEER = ("root", "peer")
_AT = {name: i for i, name in enumerate(ROW_COLUMNS)}


class CallRows:
    """Rows until they are taken as a batch; texts are codes in them.

    `matrix` has the columns of ROW_COLUMNS. Where `member` is not -1 `root` or `peer` is a place
    of that communicator, which `rank_at(member, place)` tells the global rank of (None: unknown).
    `recode` is the compiled function of that name.
    """

    def __init__(
        self,
        collector: Collector,
        source: str,
        recode: Callable[..., int],
        rank_at: Callable[[int, int], int | None],
    ):
        self._collector, self._source = collector, source
        self._recode, self._rank_at = recode, rank_at
        self._room = np.zeros((BATCH_ROWS, len(ROW_COLUMNS)), np.int64)
        self._beyond: list[np.ndarray] = []
        self._words: list[str] = []
        self._codes: dict[str, int] = {}
        self._place = np.full(64, -1, np.int64)
        self._used = np.zeros(64, np.int64)
        self._unfit: dict[int, dict[str, Any]] = {}
        self.n = 0

    @property
    def matrix(self) -> np.ndarray:
        """Room for the rows of a batch."""
        return self._room

    def code(self, text: str | None) -> int:
        """The code of a text; NULL for none."""
        if text is None:
            return NULL
        code = self._codes.get(text)
        if code is None:
            code = self._codes[text] = len(self._words)
            self._words.append(text)
            if code == len(self._place):
                self._place = np.full(2 * code, -1, np.int64)
                self._used = np.zeros(2 * code, np.int64)
        return code

    def add(self, **values: Any) -> None:
        """A row by the values of its columns, which may be too large for them."""
        row = np.full(len(ROW_COLUMNS), NULL, np.int64)
        row[ROW_MEMBER] = -1
        for name in ROW_COLUMNS[:-1]:
            value = values.get(name)
            if name in _TEXTS:
                row[_AT[name]] = self.code(value)
            elif value is not None and abs(value) <= _most(name):
                row[_AT[name]] = value
            elif value is not None:
                self._unfit[self.n] = values
        if self.n < BATCH_ROWS:
            self._room[self.n] = row
        else:
            self._beyond.append(row)
        self.n += 1

    def full(self) -> Iterator[tuple[str, pa.RecordBatch]]:
        """A batch of the rows, where there are enough of them."""
        if self.n >= BATCH_ROWS:
            yield from self.rest()

    def rest(self) -> Iterator[tuple[str, pa.RecordBatch]]:
        """All rows that there are; those whose values fit no column go through the collector."""
        n, unfit = self.n, self._unfit
        if not n:
            return
        rows = self._room[: min(n, BATCH_ROWS)]
        if self._beyond:
            rows = np.concatenate([rows, self._beyond])
        columns = {name: rows[:, i].copy() for i, name in enumerate(ROW_COLUMNS)}
        self._resolve(columns)
        self.n, self._unfit, self._beyond = 0, {}, []
        if not unfit:
            yield "collectives", self._batch(columns, n)
            return
        for row in range(n):
            self._collector.add("collectives", **unfit.get(row) or self._values(columns, row))
        yield from self._collector.full()

    def _resolve(self, columns: dict[str, np.ndarray]) -> None:
        """Global ranks in place of places."""
        for name in _ROOT_OR_PEER:
            column, members = columns[name], columns["member"]
            at = np.flatnonzero((column != NULL) & (members >= 0))
            if not at.size:
                continue
            pairs, which = np.unique(
                np.stack([members[at], column[at]], 1), axis=0, return_inverse=True
            )
            ranks = [self._rank_at(member, place) for member, place in pairs.tolist()]
            known = np.array([NULL if r is None else r for r in ranks], np.int64)
            column[at] = known[which.reshape(-1)]

    def _values(self, columns: dict[str, np.ndarray], row: int) -> dict[str, Any]:
        found: dict[str, Any] = {"source": self._source}
        for name in ROW_COLUMNS[:-1]:
            value = int(columns[name][row])
            found[name] = None if value == NULL else value
            if name in _TEXTS and value != NULL:
                found[name] = self._words[value]
        return found

    def _batch(self, columns: dict[str, np.ndarray], n: int) -> pa.RecordBatch:
        arrays = []
        for c in COLLECTIVES.columns:
            if c.name == "source":
                arrays.append(_texts(np.zeros(n, np.int64), [self._source]))
            elif c.name in _TEXTS:
                column = columns[c.name]
                used = self._recode(column, self._place, self._used)
                words = [self._words[code] for code in self._used[:used].tolist()]
                arrays.append(_texts(column, words))
            elif c.name in columns:
                column = columns[c.name]
                null = column == NULL
                column[null] = 0
                plain = column.astype(np.int32) if c.type == pa.int32() else column
                arrays.append(pa.array(plain, c.type, mask=null if null.any() else None))
            elif c.type == TEXT:
                arrays.append(_texts(np.full(n, -1, np.int64), []))
            else:
                arrays.append(pa.nulls(n, c.type))
        return pa.RecordBatch.from_arrays(arrays, schema=COLLECTIVES.schema)


def _most(column: str) -> int:
    return _I32_MAX if column in ("rank", "group_size", "root", "peer") else (1 << 63) - 1


def _texts(codes: np.ndarray, words: list[str]) -> pa.DictionaryArray:
    null = codes < 0
    indices = pa.array(codes.astype(np.int32), mask=null if null.any() else None)
    return pa.DictionaryArray.from_arrays(indices, pa.array(words, pa.string()))
