"""Tables of a SQLite file read page by page: which pages are a table's, and its rows in batches."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

import numpy as np
import pyarrow as pa

from .columns import INT, REAL

HEADER_BYTES = 100
MAGIC = b"SQLite format 3\0"
UTF8 = 1
INTERIOR, LEAF = 0x05, 0x0D
MOST_LEVELS = 16
AT_ONCE_BYTES = 1 << 20
"""Pages read together."""
ARENA_BYTES = 1 << 18


class NotPlain(Exception):
    """Something in a table or file that SQLite itself has to read."""


class Stored(NamedTuple):
    """A column as a table declares it."""

    name: str
    declared: str
    is_key: bool
    is_hidden: bool


class Pages:
    """The pages of a file. Raises NotPlain where it is none that can be read so."""

    def __init__(self, path: Path):
        self._fd = os.open(path, os.O_RDONLY)
        try:
            head = os.pread(self._fd, HEADER_BYTES, 0)
            if len(head) < HEADER_BYTES or head[:16] != MAGIC:
                raise NotPlain
            stated = int.from_bytes(head[16:18], "big")
            self.page_bytes = 65536 if stated == 1 else stated
            self.usable = self.page_bytes - head[20]
            good = self.page_bytes >= 512 and self.page_bytes & (self.page_bytes - 1) == 0
            if not good or self.usable < 480 or int.from_bytes(head[56:60], "big") != UTF8:
                raise NotPlain
            self.n_pages = os.fstat(self._fd).st_size // self.page_bytes
            said = int.from_bytes(head[28:32], "big")
            if said and head[24:28] == head[92:96]:
                self.n_pages = min(self.n_pages, said)
        except BaseException:
            self.close()
            raise

    def close(self) -> None:
        """Lets go of the file."""
        os.close(self._fd)

    def read(self, numbers: np.ndarray) -> np.ndarray:
        """The bytes of these pages (numbered from 1), one behind the other."""
        out = np.empty(len(numbers) * self.page_bytes, np.uint8)
        view = memoryview(out)  # pyright: ignore[reportArgumentType]
        cuts = np.flatnonzero(np.diff(numbers) != 1) + 1
        for first, last in zip([0, *cuts], [*cuts, len(numbers)], strict=True):
            part = view[first * self.page_bytes : last * self.page_bytes]
            if os.preadv(self._fd, [part], (int(numbers[first]) - 1) * self.page_bytes) < len(part):
                raise NotPlain
        return out

    def leaves(self, root: int) -> np.ndarray:
        """The leaf pages below a table's root, in the order of its rows."""
        level = np.array([root], np.int64)
        self._check(level)
        for _ in range(MOST_LEVELS):
            # A tree is as deep on all its sides; what is not is met as no leaf.
            if self.read(level[:1])[0] == LEAF:
                return level
            level = np.concatenate([self._children(int(n)) for n in level.tolist()])
            self._check(level)
        raise NotPlain

    def _check(self, numbers: np.ndarray) -> None:
        if len(numbers) > self.n_pages or ((numbers < 2) | (numbers > self.n_pages)).any():
            raise NotPlain

    def _children(self, number: int) -> np.ndarray:
        page = self.read(np.array([number]))
        n = int(page[3]) << 8 | int(page[4])
        first = 12 + 2 * n
        if page[0] != INTERIOR or not 1 <= n <= (self.page_bytes - 8) // 6 or first > self.usable:
            raise NotPlain
        pointers = page[12:first].astype(np.int64)
        cells = pointers[0::2] << 8 | pointers[1::2]
        if ((cells < first) | (cells > self.usable - 5)).any():
            raise NotPlain
        at = np.concatenate([cells, [8]])
        return sum(page[at + i].astype(np.int64) << (24 - 8 * i) for i in range(4))  # type: ignore


def batches(
    pages: Pages, root: int, stored: list[Stored], wanted: dict[str, str], batch_rows: int
) -> Iterator[pa.RecordBatch]:
    """Rows of a table in batches, the columns in the types that `sqlite.SqliteTables` gives.

    Integers are null where no integer is stored, reals infinite, bytes empty. Raises NotPlain
    before the first batch or after any.
    """
    from . import leaves

    names = [s.name for s in stored]
    if any(s.is_key or s.is_hidden for s in stored) or len(set(names)) < len(names):
        raise NotPlain
    kinds = np.zeros(len(stored), np.int64)
    slots = np.zeros(len(stored), np.int64)
    counts = {leaves.INTEGER: 0, leaves.REAL: 0, leaves.BYTES: 0}
    for i, s in enumerate(stored):
        kind = wanted.get(s.name)
        if kind is None:
            continue
        if kind == INT and _is_real(s.declared):
            raise NotPlain  # its integers are read as reals, which hold fewer digits
        kinds[i] = leaves.INTEGER if kind == INT else leaves.REAL if kind == REAL else leaves.BYTES
        slots[i] = counts[int(kinds[i])]
        counts[int(kinds[i])] += 1
    found = pages.leaves(root)
    state = np.zeros(4, np.int64)
    state[leaves.ROWID] = np.iinfo(np.int64).min
    bits = np.zeros(1, np.int64)
    room = _Room(counts, batch_rows)
    at_once = max(1, AT_ONCE_BYTES // pages.page_bytes)
    for first in range(0, len(found), at_once):
        some = found[first : first + at_once]
        buf = pages.read(some)
        state[leaves.PAGE] = state[leaves.CELL] = 0
        while True:
            why = leaves.read(
                buf, len(some), pages.page_bytes, pages.usable, kinds, slots, state, bits,
                room.integers, room.nulls, room.reals, room.arena, room.ends,
            )  # fmt: skip
            if why == leaves.DONE:
                break
            if why == leaves.ODD:
                raise NotPlain
            if why == leaves.ROOM:
                room.arena = np.concatenate([room.arena, np.empty_like(room.arena)], 1)
                continue
            yield _batch(room, int(state[leaves.ROW]), kinds, slots, stored, wanted)
            room = _Room(counts, batch_rows)
            state[leaves.ROW] = 0
    if state[leaves.ROW]:
        yield _batch(room, int(state[leaves.ROW]), kinds, slots, stored, wanted)


class _Room:
    """Empty columns for the rows of a batch."""

    def __init__(self, counts: dict[int, int], rows: int):
        n_integers, n_reals, n_bytes = counts.values()
        self.integers = np.empty((n_integers, rows), np.int64)
        self.nulls = np.empty((n_integers, rows), np.bool_)
        self.reals = np.empty((n_reals, rows))
        self.arena = np.empty((n_bytes, ARENA_BYTES), np.uint8)
        self.ends = np.zeros((n_bytes, rows + 1), np.int32)


def _batch(
    room: _Room,
    n: int,
    kinds: np.ndarray,
    slots: np.ndarray,
    stored: list[Stored],
    wanted: dict[str, str],
) -> pa.RecordBatch:
    from . import leaves

    out: dict[str, pa.Array] = {}
    for s, kind, slot in zip(stored, kinds.tolist(), slots.tolist(), strict=True):
        if kind == leaves.INTEGER:
            null = room.nulls[slot, :n]
            valid = pa.py_buffer(np.packbits(~null, bitorder="little")) if null.any() else None
            data = pa.py_buffer(room.integers[slot, :n])
            out[s.name] = pa.Array.from_buffers(pa.int64(), n, [valid, data])
        elif kind == leaves.REAL:
            out[s.name] = pa.array(room.reals[slot, :n])
        elif kind == leaves.BYTES:
            ends = pa.py_buffer(room.ends[slot, : n + 1])
            data = pa.py_buffer(room.arena[slot, : room.ends[slot, n]])
            out[s.name] = pa.Array.from_buffers(pa.binary(), n, [None, ends, data])
    return pa.RecordBatch.from_pydict({name: out[name] for name in wanted})


def _is_real(declared: str) -> bool:
    """Whether SQLite reads the numbers of a column so declared as reals."""
    kind = declared.upper()
    if "INT" in kind or any(w in kind for w in ("CHAR", "CLOB", "TEXT", "BLOB")):
        return False
    return any(w in kind for w in ("REAL", "FLOA", "DOUB"))
