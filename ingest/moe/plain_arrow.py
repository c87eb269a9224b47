"""Batches of Arrow columns to the columns that compiled code sums, where they are plain."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute

from .plain_columns import CLASSES, INTEGERS, MOST_WORDS, NULL, PLACE, SPACES, TEXTS, Columns

_pc: Any = pyarrow.compute
_LISTS = ("experts", "weights")
_KNOWN = {"token_class": CLASSES, "id_space": SPACES}


class NotPlain(Exception):
    """A column that the forgiving way has to read."""


Words = dict[tuple[str, str], int]
"""Codes by column and text."""


def fill(batch: pa.RecordBatch, make_room: Callable[[int, int], Columns], words: Words) -> None:
    """Puts a batch of the plain form's columns into `make_room(rows, elements)`; texts that are new
    go to `words`. Raises NotPlain and ArrowException."""
    n = batch.num_rows
    lists = {
        name: _listed(batch.column(name), pa.int64() if name == "experts" else pa.float64())
        for name in _LISTS if name in batch.schema.names
    }  # fmt: skip
    to = make_room(n, max((len(values) for values, *_ in lists.values()), default=0))
    to.listed[:n] = to.weighed[:n] = 0
    to.id_ends[: n + 1] = to.weight_ends[: n + 1] = 0
    for name, (values, ends, there) in lists.items():
        of, its_ends, flags = (
            (to.ids, to.id_ends, to.listed) if name == "experts"
            else (to.weights, to.weight_ends, to.weighed)
        )  # fmt: skip
        of[: len(values)], its_ends[: n + 1], flags[:n] = values, ends, there
    for name, column in zip(batch.schema.names, batch.columns, strict=True):
        if name in INTEGERS:
            to.integers[INTEGERS.index(name), :n] = _integers(column)
        elif name in TEXTS:
            to.texts[TEXTS.index(name), :n] = _coded(column, name, words, to.class_of)
        elif name not in lists:
            to.sums[:n] = _numbers(column)
        to.used[PLACE[name]] = 1


def _integers(column: pa.Array) -> np.ndarray | int:
    if pa.types.is_null(column.type):
        return NULL
    if not pa.types.is_integer(column.type):
        raise NotPlain
    if column.type == pa.uint64():
        column = column.cast(pa.int64())
    if column.null_count:
        column = column.cast(pa.int64())
        _refuse_null_number(column.drop_null())
        return column.fill_null(NULL).to_numpy(zero_copy_only=False)
    return _refuse_null_number(column)


def _refuse_null_number(column: pa.Array) -> np.ndarray:
    """The values, none of which is what stands for null."""
    values = column.to_numpy(zero_copy_only=False)
    if values.dtype == np.int64 and len(values) and values.min() == NULL:
        raise NotPlain
    return values


def _numbers(column: pa.Array) -> np.ndarray | float:
    if pa.types.is_null(column.type):
        return np.nan
    if not pa.types.is_floating(column.type):
        raise NotPlain
    values = column.cast(pa.float64())
    if not np.isfinite(values.drop_null().to_numpy(zero_copy_only=False)).all():
        raise NotPlain
    return values.fill_null(np.nan).to_numpy(zero_copy_only=False)


def _coded(column: pa.Array, name: str, words: Words, class_of: np.ndarray) -> np.ndarray | int:
    """Codes of the texts, -1 for null; `words` and `class_of` get those that are new."""
    if pa.types.is_null(column.type):
        return -1
    if not (pa.types.is_string(column.type) or pa.types.is_large_string(column.type)):
        raise NotPlain
    coded = column.dictionary_encode()
    known = _KNOWN.get(name)
    codes = []
    for word in coded.dictionary.to_pylist():
        if known is not None and word not in known:
            raise NotPlain
        codes.append(words.setdefault((name, word), len(words)))
        if len(words) > MOST_WORDS:
            raise NotPlain
        class_of[codes[-1]] = 0 if known is None else known.index(word)
    # The last is what null points to.
    at = coded.indices.fill_null(len(codes)).to_numpy(zero_copy_only=False)
    return np.array([*codes, -1], np.int32)[at]


def _listed(
    column: pa.Array, kind: pa.DataType
) -> tuple[np.ndarray, np.ndarray | int, np.ndarray | bool]:
    """(elements, where each row's begin and end, which rows have a list)."""
    t = column.type
    if pa.types.is_null(t):
        return np.zeros(0, kind.to_pandas_dtype()), 0, False
    lists = pa.types.is_list(t) or pa.types.is_large_list(t)
    if not (lists or pa.types.is_fixed_size_list(t)):
        raise NotPlain
    inner = t.value_type
    floats = pa.types.is_floating(inner) and kind == pa.float64()
    if not (pa.types.is_integer(inner) or floats):
        raise NotPlain
    if lists and not column.null_count:
        ends = column.offsets.to_numpy()
        flat = column.values[int(ends[0]) : int(ends[-1])]
        ends, there = ends - ends[0], True
    else:
        flat = column.flatten()
        lengths = _pc.list_value_length(column).fill_null(0)
        ends = np.zeros(len(column) + 1, np.int64)
        np.cumsum(lengths.to_numpy(zero_copy_only=False), out=ends[1:])
        there = column.is_valid().to_numpy(zero_copy_only=False)
    if flat.null_count or len(flat) != ends[-1]:
        raise NotPlain
    if inner in (pa.uint64(), pa.float16()) or (kind == pa.float64() and not floats):
        flat = flat.cast(kind)  # tells what does not fit
    values = flat.to_numpy(zero_copy_only=False)
    if kind == pa.float64() and not np.isfinite(values).all():
        raise NotPlain
    return values, ends, there
