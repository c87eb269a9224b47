"""A report's table of strings: few stay in memory, many wait in a temporary file."""

from __future__ import annotations

from collections.abc import Iterable

import numpy as np
import pyarrow as pa

from ..scratch import Scratch
from ..sorting import NULL, Lookup

HELD_BYTES = 32 << 20
"""Of texts; where there are more they are put away as they come."""
HELD_BLOCKS = 16
"""Batches of those put away that are in memory at a time."""

_SCHEMA = pa.schema([("value", pa.string())])


class Strings:
    """Texts by their id; of an id that repeats the first.

    `batches` are tables of the columns id and value. Raises ScratchError.
    """

    def __init__(self, batches: Iterable[pa.Table]):
        self._row = Lookup(1, 2, 2)
        self._starts: list[int] = []
        """first row of each block"""
        self._near: dict[int, pa.Array] = {}
        self._away: _Away | None = None
        rows = n_bytes = 0
        for batch in batches:
            ids = batch["id"].fill_null(NULL).to_numpy()
            its = np.flatnonzero(ids != NULL)
            self._row.add(ids[its], rows + its)
            texts = pa.concat_arrays(batch["value"].chunks)
            self._near[len(self._starts)] = texts
            self._starts.append(rows)
            rows += len(texts)
            n_bytes += texts.nbytes
            if n_bytes >= HELD_BYTES:
                self._away = self._away or _Away()
                self._away.put(self._near)
        if self._away is not None:
            self._away.put(self._near)
        elif self._near:
            self._near = {0: pa.concat_arrays(list(self._near.values()))}
            self._starts = [0]

    def of(self, ids: pa.Array | pa.ChunkedArray) -> pa.Array:
        """The text of each id; null where the id is null or not in the table."""
        (row,) = self._row.find(ids.fill_null(NULL).to_numpy(zero_copy_only=False))
        if self._starts == [0]:
            return self._block(0).take(pa.array(row, mask=row == NULL))
        block = np.searchsorted(self._starts, row, "right") - 1
        parts, places = [pa.nulls(1, pa.string())], np.zeros(len(row), np.int64)
        done = 1
        for b in np.unique(block).tolist():
            if b >= 0:
                its = np.flatnonzero(block == b)
                parts.append(self._block(b).take(pa.array(row[its] - self._starts[b])))
                places[its] = np.arange(done, done + len(its))
                done += len(its)
        return pa.concat_arrays(parts).take(pa.array(places))

    def _block(self, b: int) -> pa.Array:
        found = self._near.pop(b, None)
        if found is None:
            assert self._away is not None
            found = self._away.get(b)
            while len(self._near) >= HELD_BLOCKS:
                self._near.pop(next(iter(self._near)))
        self._near[b] = found  # the one used last is the last to go
        return found


class _Away:
    """Blocks of texts on a disk. Raises ScratchError."""

    def __init__(self) -> None:
        self._scratch = Scratch()
        self._blocks: list[tuple[int, int]] = []
        """where each begins, and its bytes"""

    def put(self, blocks: dict[int, pa.Array]) -> None:
        """Takes the next blocks out of memory."""
        for b in sorted(blocks):
            its = pa.record_batch([blocks.pop(b)], schema=_SCHEMA).serialize()
            at = self._scratch.put(np.frombuffer(its, np.uint8))
            self._blocks.append((at, its.size))

    def get(self, block: int) -> pa.Array:
        """One of them."""
        its = self._scratch.get(*self._blocks[block], np.uint8)
        return pa.ipc.read_record_batch(pa.py_buffer(its), _SCHEMA).column(0)
