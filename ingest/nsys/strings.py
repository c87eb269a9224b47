"""A report's table of strings: few stay in memory, many wait in a temporary file."""

from __future__ import annotations

import tempfile
from collections.abc import Iterable

import numpy as np
import pyarrow as pa

from ..sorting import NULL, Lookup

HELD_BYTES = 32 << 20
"""Of texts; where there are more they are put away as they come."""
HELD_BLOCKS = 16
"""Batches of those put away that are in memory at a time."""

_SCHEMA = pa.schema([("value", pa.string())])


class Strings:
    """Texts by their id; of an id that repeats the first.

    `batches` are tables of the columns id and value. Raises OSError where the temporary folder is
    full.
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
            self._away.finish()
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
    """Blocks of texts in a file that nobody else sees."""

    def __init__(self) -> None:
        self._file = tempfile.TemporaryFile()  # noqa: SIM115
        self._writer = pa.ipc.new_file(pa.PythonFile(self._file, "w"), _SCHEMA)

    def __del__(self) -> None:
        self._file.close()

    def put(self, blocks: dict[int, pa.Array]) -> None:
        """Takes the next blocks out of memory."""
        for _, texts in sorted(blocks.items()):
            self._writer.write(pa.record_batch([texts], schema=_SCHEMA))
        blocks.clear()

    def finish(self) -> None:
        """Says that there are no more, and that they are to be read."""
        self._writer.close()
        self._reader = pa.ipc.open_file(pa.PythonFile(self._file, "r"))

    def get(self, block: int) -> pa.Array:
        """One of them."""
        return self._reader.get_batch(block).column(0)
