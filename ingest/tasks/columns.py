"""Columns of Arrow tables as arrays of some rows, each in one pass; null has a value of its own."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence

import numpy as np
import pyarrow as pa

from ..compiled import compiled

MANY_TEXTS = 1 << 10
"""A chunk with no more different texts is not looked through for those that rows have."""

_NO_BITS = np.empty(0, np.uint8)
_NO_BITS.flags.writeable = False


def numbers(tables: Sequence[pa.Table], name: str, rows: np.ndarray, null: int) -> np.ndarray:
    """int64: whole numbers of some rows (int64, in order) of tables after each other.

    Those of a table that lacks the column are null.
    """
    out = np.empty(len(rows), np.int64)
    since = k = 0
    for chunk, length in _chunks(tables, name):
        if chunk is None:
            begin, k = k, int(np.searchsorted(rows, since + length))
            out[begin:k] = null
        else:
            if chunk.type not in (pa.int64(), pa.int32()):
                chunk = chunk.cast(pa.int64())
            k = _numbers(*_parts(chunk), since, rows, k, null, out)
        since += length
    return out


def coded(
    tables: Sequence[pa.Table],
    name: str,
    rows: np.ndarray,
    code: Callable[[Sequence[str | None]], list[int]],
) -> np.ndarray:
    """int32: what `code` says of the texts of some rows, as in `numbers`; -1 for null.

    `code` is asked once for each chunk's different texts that these rows have.
    """
    out = np.empty(len(rows), np.int32)
    since = k = 0
    for chunk, length in _chunks(tables, name):
        if chunk is None:
            begin, k = k, int(np.searchsorted(rows, since + length))
            out[begin:k] = -1
        else:
            if not pa.types.is_dictionary(chunk.type):
                chunk = chunk.dictionary_encode()
            place = chunk.indices
            used = None
            # Of names of ranges nearly each may be another one, and few of these rows ranges.
            if len(chunk.dictionary) > MANY_TEXTS:
                some = rows[k : np.searchsorted(rows, since + length)] - since
                used = _used(place, some, len(chunk.dictionary))
            table = _codes_of(chunk.dictionary, used, code)
            if place.type != pa.int32():
                place = place.cast(pa.int32())
            k = _coded(*_parts(place), since, rows, k, table, out)
        since += length
    return out


def _used(places: pa.Array, rows: np.ndarray, many: int) -> np.ndarray:
    """The places (int64, sorted) that some rows have, of so many."""
    is_used = np.zeros(many, bool)
    is_used[places.take(pa.array(rows)).drop_null().to_numpy()] = True
    return np.flatnonzero(is_used)


def _codes_of(
    texts: pa.Array,
    used: np.ndarray | None,
    code: Callable[[Sequence[str | None]], list[int]],
) -> np.ndarray:
    """int32 [texts + 1]: the codes of texts (-1 where not used; None: all are); null is last."""
    table = np.full(len(texts) + 1, -1, np.int32)
    if used is None:
        table[:-1] = code(texts.to_pylist())
    elif len(used):
        table[used] = code(texts.take(pa.array(used)).to_pylist())
    return table


def _chunks(tables: Sequence[pa.Table], name: str) -> Iterator[tuple[pa.Array | None, int]]:
    """The chunks of a column and how many rows each has; None for a table without it."""
    for table in tables:
        if table.schema.get_field_index(name) >= 0:
            yield from ((chunk, len(chunk)) for chunk in table[name].chunks)
        else:
            yield None, table.num_rows


def _parts(chunk: pa.Array) -> tuple[np.ndarray, np.ndarray, int]:
    """Values, the bits that say which are there (none where all are), and where these begin."""
    valid, data = chunk.buffers()
    values = np.frombuffer(data, chunk.type.to_pandas_dtype()) if data else np.empty(0, np.int64)
    values = values[chunk.offset : chunk.offset + len(chunk)]
    values.flags.writeable = False
    if valid is None or not chunk.null_count:
        return values, _NO_BITS, 0
    bits = np.frombuffer(valid, np.uint8)
    bits.flags.writeable = False
    return values, bits, chunk.offset


@compiled
def _numbers(values, bits, offset, since, rows, k, null, out):  # pragma: no cover - compiled
    stop = since + len(values)
    if len(bits) == 0:
        while k < len(rows) and rows[k] < stop:
            out[k] = values[rows[k] - since]
            k += 1
        return k
    while k < len(rows) and rows[k] < stop:
        i = rows[k] - since
        bit = i + offset
        out[k] = values[i] if (bits[bit >> 3] >> (bit & 7)) & 1 else null
        k += 1
    return k


@compiled
def _coded(places, bits, offset, since, rows, k, table, out):  # pragma: no cover - compiled
    stop = since + len(places)
    last = len(table) - 1
    while k < len(rows) and rows[k] < stop:
        i = rows[k] - since
        bit = i + offset
        there = len(bits) == 0 or (bits[bit >> 3] >> (bit & 7)) & 1
        out[k] = table[places[i] if there else last]
        k += 1
    return k
