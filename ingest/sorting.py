"""Rows of numbers in order, however many: those beyond what memory may hold wait on a disk."""

from __future__ import annotations

from collections.abc import Iterator
from typing import NamedTuple

import numpy as np

from .scratch import Scratch

NULL = np.iinfo(np.int64).min
"""Stands for a number that is not there; no number that is stored is so small."""

RUN_ROWS = 1 << 17
"""Rows that are held; of more, as many are sorted and put away together."""
LEAST_RUN_ROWS = 1 << 10
MARK_ROWS = 1 << 12
"""Of a run on the disk the keys of every so-manieth row stay in memory."""
MERGED_ROWS = 1 << 16
"""Rows that are brought together from all runs at a time, or somewhat more."""
BLOCK_ROWS = 1 << 14
HELD_BLOCKS = 8
"""Of a `Lookup` on the disk so many blocks of so many rows are in memory at a time."""


def share(n: int) -> int:
    """Rows that each of `n` may hold, where all of them are there at a time."""
    return max(RUN_ROWS // max(n, 1), LEAST_RUN_ROWS)


class _Run(NamedTuple):
    """Sorted rows on the disk, column by column."""

    at: int
    first: int
    """rows that were put away before it"""
    rows: int
    marks: np.ndarray
    """int64[keys + 1, rows / MARK_ROWS]; the last is the row's number, which no two rows share"""


class Sorted:
    """Rows of int64 columns that come out in the order of the first `keys` of them.

    Rows that tie, however many, come in the order in which they were added. Those that are not to
    be held lie in `scratch`, which others may use beside. Raises ScratchError.
    """

    def __init__(self, keys: int, held_rows: int | None = None, scratch: Scratch | None = None):
        self._keys = keys
        self._most = held_rows or RUN_ROWS
        self._waiting: list[np.ndarray] = []
        self._n_waiting = 0
        self._runs: list[_Run] = []
        self._scratch = scratch or Scratch()
        self.rows = 0

    def add(self, *columns: np.ndarray) -> None:
        """Takes rows, an array a column."""
        n = len(columns[0])
        if not n:
            return
        self._waiting.append(np.stack(columns).astype(np.int64, copy=False))
        self._n_waiting += n
        self.rows += n
        if self._n_waiting >= self._most:
            self._put_away()

    def pieces(self, rows: int) -> Iterator[np.ndarray]:
        """The rows, int64[columns, rows] at a time, the last piece shorter; once."""
        found = _of_size(self._merged() if self._runs else self._held(), rows)
        try:
            yield from found
        finally:
            self.close()

    def close(self) -> None:
        """Lets go of all rows."""
        self._waiting, self._runs = [], []
        self._scratch = Scratch()  # the other goes with its last user

    def _held(self) -> Iterator[np.ndarray]:
        if self._waiting:
            whole = _ordered(_joined(self._waiting), self._keys)
            self._waiting = []
            yield whole

    def _put_away(self) -> None:
        whole = _ordered(_joined(self._waiting), self._keys)
        n, first = whole.shape[1], self.rows - self._n_waiting
        self._waiting, self._n_waiting = [], 0
        numbers = np.arange(first, first + n, MARK_ROWS)
        marks = np.concatenate([whole[: self._keys, ::MARK_ROWS], numbers[None]])
        self._runs.append(_Run(self._scratch.put(whole), first, n, marks))
        self._columns = len(whole)

    def _merged(self) -> Iterator[np.ndarray]:
        """Ranges of the keys one after another, of each what all runs have of it."""
        if self._waiting:
            self._put_away()
        marks = _ordered(_joined([r.marks for r in self._runs]), self._keys + 1)
        done = [0] * len(self._runs)
        for k in range(MERGED_ROWS // MARK_ROWS, marks.shape[1], MERGED_ROWS // MARK_ROWS):
            ends = [self._begin(r, marks[:, k]) for r in self._runs]
            yield self._range(done, ends)
            done = ends
        yield self._range(done, [r.rows for r in self._runs])

    def _begin(self, run: _Run, key: np.ndarray) -> int:
        """The first row of a run that does not come before the key."""
        block = int(np.count_nonzero(_below(run.marks, key))) - 1
        if block < 0:
            return 0
        first = block * MARK_ROWS
        last = min(first + MARK_ROWS, run.rows)
        its = self._read(run, first, last, self._keys)
        numbers = np.arange(run.first + first, run.first + last)
        return first + int(np.count_nonzero(_below(np.concatenate([its, numbers[None]]), key)))

    def _range(self, begins: list[int], ends: list[int]) -> np.ndarray:
        found = [
            self._read(r, a, b, self._columns)
            for r, a, b in zip(self._runs, begins, ends, strict=True)
            if a < b
        ]
        return (
            _ordered(_joined(found), self._keys)
            if found
            else np.empty((self._columns, 0), np.int64)
        )

    def _read(self, run: _Run, a: int, b: int, columns: int) -> np.ndarray:
        return np.stack(
            [self._scratch.get(run.at + 8 * (c * run.rows + a), b - a) for c in range(columns)]
        )


def _joined(parts: list[np.ndarray]) -> np.ndarray:
    return parts[0] if len(parts) == 1 else np.concatenate(parts, axis=1)


def _ordered(rows: np.ndarray, keys: int) -> np.ndarray:
    """The rows in the order of the first so many columns; those that tie keep theirs."""
    first = rows[0]
    if np.all(first[1:] > first[:-1]):
        return rows
    if keys == 1:
        return rows[:, np.argsort(first, kind="stable")]
    return rows[:, np.lexsort(rows[:keys][::-1])]


def _below(keys: np.ndarray, key: np.ndarray) -> np.ndarray:
    """bool[rows]: which of these keys (a column each) come before the one."""
    found = keys[-1] < key[-1]
    for column, value in zip(keys[-2::-1], key[-2::-1], strict=True):
        found = (column < value) | ((column == value) & found)
    return found


def _of_size(parts: Iterator[np.ndarray], rows: int) -> Iterator[np.ndarray]:
    """The same rows in pieces of one size."""
    rest: np.ndarray | None = None
    for part in parts:
        part = part if rest is None else _joined([rest, part])
        whole = part.shape[1] - part.shape[1] % rows
        for at in range(0, whole, rows):
            yield part[:, at : at + rows]
        rest = part[:, whole:].copy()
        del part
    if rest is not None and rest.shape[1]:
        yield rest


class Lookup:
    """Numbers by a key: of several rows with one key, of each column the first that is there.

    Those come first that come first by the first `order` of all `columns`, of which the first
    `keys` are the key. Those that are not to be held lie in `scratch`, which others may use
    beside. Raises ScratchError.
    """

    def __init__(
        self, keys: int, order: int, columns: int, held_rows: int | None = None,
        scratch: Scratch | None = None,
    ):  # fmt: skip
        self._keys, self._width = keys, columns
        self._sorted = Sorted(order, held_rows, scratch)
        self._scratch = scratch or Scratch()
        self._firsts = np.empty((keys, 0), np.int64)
        self._blocks: list[tuple[int, int]] = []
        self._near: dict[int, np.ndarray] = {}
        self._settled = False

    def add(self, *columns: np.ndarray) -> None:
        """Takes rows, an array a column, the key first; not after the first `find`."""
        self._sorted.add(*columns)

    def find(self, *wanted: np.ndarray) -> np.ndarray:
        """int64[columns behind the key, wanted]: what stands by each key; `NULL` nothing."""
        if not self._settled:
            self._settle()
        keys = np.stack(wanted)
        out = np.full((self._width - self._keys, keys.shape[1]), NULL)
        block = _last_up_to(self._firsts, keys)
        for b in np.unique(block).tolist():
            if b < 0:
                continue
            rows = np.flatnonzero(block == b) if len(self._blocks) > 1 else slice(None)
            its, asked = self._block(b), keys[:, rows]
            at = _last_up_to(its[: self._keys], asked)
            same = (at >= 0) & np.all(its[: self._keys, at] == asked, axis=0)
            out[:, rows] = np.where(same, its[self._keys :, at], NULL)
        return out

    def close(self) -> None:
        """Lets go of all rows."""
        self._sorted.close()
        self._scratch = Scratch()
        self._near = {}

    def _settle(self) -> None:
        """Puts the rows into blocks, a row a key."""
        self._settled = True
        if self._sorted.rows <= RUN_ROWS:
            for whole in self._sorted.pieces(RUN_ROWS):
                its = self._near[0] = _firsts(whole, self._keys)
                self._note(0, its)  # and is never let go, as there is no other
            return
        rest: np.ndarray | None = None
        for piece in self._sorted.pieces(BLOCK_ROWS):
            its = _firsts(piece if rest is None else _joined([rest, piece]), self._keys)
            # The last key may go on.
            self._put(its[:, :-1])
            rest = its[:, -1:].copy()
        if rest is not None:
            self._put(rest)

    def _put(self, rows: np.ndarray) -> None:
        if rows.shape[1]:
            self._note(self._scratch.put(rows), rows)

    def _note(self, at: int, rows: np.ndarray) -> None:
        if rows.shape[1]:
            self._blocks.append((at, rows.shape[1]))
            self._firsts = np.concatenate([self._firsts, rows[: self._keys, :1]], axis=1)

    def _block(self, b: int) -> np.ndarray:
        found = self._near.pop(b, None)
        if found is None:
            at, rows = self._blocks[b]
            found = self._scratch.get(at, self._width * rows).reshape(self._width, rows)
            while len(self._near) >= HELD_BLOCKS:
                self._near.pop(next(iter(self._near)))
        self._near[b] = found  # the one used last is the last to go
        return found


def _firsts(rows: np.ndarray, keys: int) -> np.ndarray:
    """A row a key: of each other column the first value that is there."""
    new = np.any(rows[:keys, 1:] != rows[:keys, :-1], axis=0)
    if new.all():
        return rows
    first = np.flatnonzero(np.append(True, new))
    out = rows[:, first]
    n = rows.shape[1]
    for c in range(keys, len(rows)):
        if np.any(out[c] == NULL):
            at = np.minimum.reduceat(np.where(rows[c] == NULL, n, np.arange(n)), first)
            out[c] = np.where(at < n, rows[c][np.minimum(at, n - 1)], NULL)
    return out


def _last_up_to(keys: np.ndarray, wanted: np.ndarray) -> np.ndarray:
    """The last of sorted keys that is not beyond each wanted one; -1 none."""
    if len(keys) == 1:
        return np.searchsorted(keys[0], wanted[0], "right") - 1
    n = keys.shape[1]
    order = np.lexsort(np.concatenate([keys, wanted], axis=1)[::-1])  # of equal ones ours first
    at = np.empty(len(order), np.int64)
    at[order] = np.cumsum(order < n)
    return at[n:] - 1
