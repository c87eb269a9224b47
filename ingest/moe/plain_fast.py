"""Sums of ordinary blocks of the plain form, by compiled code; what is not ordinary is left.

Importing this module costs numba. Every function gives the frame of `plain_sums.summed` for the
rows of a block, or None where the forgiving way has to read it: it tells what is odd.
"""

from __future__ import annotations

import os

import numpy as np
import polars as pl
import pyarrow as pa

from .plain_fold import GROUP_KEYS, PLACE_KEYS, fold
from .plain_scan import (
    INTEGERS,
    MOST_WORDS,
    NULL,
    PAD,
    PLACE,
    SKIPPED,
    TEXTS,
    Columns,
    room,
    scan_csv,
    scan_json,
)
from .plain_sums import AMOUNTS, CLASSES, KEYS, SPACES

_SEED = np.uint64(int.from_bytes(os.urandom(8), "little") >> 1)


def csv_sums(block: bytes, names: list[str], rank: int | None) -> pl.DataFrame | None:
    """Of whole lines of CSV under a header of these names."""
    buf, n_bytes = _ended(block)
    to = room(n_bytes, int(np.count_nonzero(buf == 0x0A)) + 1)
    fields = np.array([PLACE.get(n, SKIPPED) for n in names], np.int64)
    n, n_words = scan_csv(buf, n_bytes, fields, to)
    return _folded(n, to, _words_of(to, n_words, block), set(names), rank)


def json_sums(block: bytes, rank: int | None) -> pl.DataFrame | None:
    """Of whole lines, a JSON object each."""
    buf, n_bytes = _ended(block)
    to = room(n_bytes, int(np.count_nonzero(buf == 0x0A)) + 1)
    n, n_words = scan_json(buf, n_bytes, to)
    given = {name for name, i in PLACE.items() if to.given[i]}
    return _folded(n, to, _words_of(to, n_words, block), given, rank)


def batch_sums(batch: pa.RecordBatch, rank: int | None) -> pl.DataFrame | None:
    """Of a batch of the plain form's columns and no others."""
    n = batch.num_rows
    integers = np.full((n, len(INTEGERS)), NULL, np.int64)
    texts = np.full((n, len(TEXTS)), -1, np.int32)
    sums = np.full(n, np.nan)
    lists = {k: (np.zeros(0, v), np.zeros(n + 1, np.int64), np.zeros(n, np.bool_))
             for k, v in (("experts", np.int64), ("weights", np.float64))}  # fmt: skip
    words: list[tuple[int, str]] = []
    try:
        for name, column in zip(batch.schema.names, batch.columns, strict=True):
            if name in lists:
                lists[name] = _listed(column, pa.int64() if name == "experts" else pa.float64())
            elif name in INTEGERS:
                integers[:, INTEGERS.index(name)] = _integers(column)
            elif name in TEXTS:
                at = TEXTS.index(name)
                texts[:, at], known = _coded(column, len(words))
                words += [(at, w) for w in known]
            else:
                sums = _numbers(column, pa.types.is_floating)
    except (pa.ArrowException, _NotPlain):
        return None
    to = Columns(integers, texts, sums, *lists["experts"], *lists["weights"],
                 np.zeros((0, 3), np.int64), np.zeros(0, np.bool_))  # fmt: skip
    return _folded(n, to, words, set(batch.schema.names), rank)


class _NotPlain(Exception):
    """A column that the forgiving way has to read."""


def _ended(block: bytes) -> tuple[np.ndarray, int]:
    """(the bytes with a line's end at their end and PAD more, how many without these)."""
    end = b"" if block.endswith(b"\n") else b"\n"
    return np.frombuffer(b"".join((block, end, bytes(PAD))), np.uint8), len(block) + len(end)


def _words_of(to: Columns, n_words: int, block: bytes) -> list[tuple[int, str]]:
    return [(c, block[a:b].decode("ascii")) for c, a, b in to.words[:n_words].tolist()]


def _folded(
    n: int, to: Columns, words: list[tuple[int, str]], given: set[str], rank: int | None
) -> pl.DataFrame | None:
    """The sums of `n` rows whose texts have these codes, by the columns that are given."""
    if n <= 0 or len(words) > MOST_WORDS:
        return None
    # The last entry is that of no text.
    class_of = np.full(len(words) + 1, -1, np.int64)
    in_physical = np.zeros(len(words) + 1, np.bool_)
    for code, (column, word) in enumerate(words):
        if TEXTS[column] == "token_class":
            if word not in CLASSES:
                return None
            class_of[code] = CLASSES.index(word)
        elif TEXTS[column] == "id_space":
            if word not in SPACES:
                return None
            in_physical[code] = word == "physical"
    places, groups, sums = fold(
        n, to, bool(given & set(AMOUNTS)), "token" in given, NULL if rank is None else rank,
        class_of, in_physical, _SEED,
    )  # fmt: skip
    return None if not len(places) else _frame(places, groups, sums, [w for _, w in words])


def _frame(
    places: np.ndarray, groups: np.ndarray, sums: np.ndarray, words: list[str]
) -> pl.DataFrame:
    of_place = places[groups[:, 0]]
    texts = pa.array([*words, None], pa.large_string())
    kinds = pa.array(["routing", *(f"routing:{w}" for w in words)], pa.large_string())
    out: dict[str, pa.Array] = {}
    for i, name in enumerate(PLACE_KEYS):
        values = of_place[:, i]
        if name == "source":
            out[name] = kinds.take(pa.array(values + 1))
        elif name == "block":
            out[name] = texts.take(pa.array(np.where(values < 0, len(words), values)))
        else:
            out[name] = pa.array(values, mask=values == NULL)
    for i, name in enumerate(GROUP_KEYS):
        values = groups[:, i]
        if name in ("expert", "physical_expert"):
            out[name] = pa.array(values, mask=values == NULL)
        elif name == "token_class":
            out[name] = pa.array(CLASSES, pa.large_string()).take(pa.array(values))
    out["tokens"] = pa.array(groups[:, GROUP_KEYS.index("tokens")])
    out["weight_sum"] = pa.array(sums, mask=groups[:, GROUP_KEYS.index("weights")] == 0)
    made = pl.from_arrow(pa.table({n: out[n] for n in (*KEYS, "tokens", "weight_sum")}))
    assert isinstance(made, pl.DataFrame)
    return made


def _integers(column: pa.Array) -> np.ndarray:
    if pa.types.is_null(column.type):
        return np.full(len(column), NULL, np.int64)
    if not pa.types.is_integer(column.type):
        raise _NotPlain
    values = column.cast(pa.int64())
    if values.null_count < len(values) and bool((_valid(values) == NULL).any()):
        raise _NotPlain
    return values.fill_null(NULL).to_numpy(zero_copy_only=False)


def _valid(column: pa.Array) -> np.ndarray:
    return column.drop_null().to_numpy(zero_copy_only=False)


def _numbers(column: pa.Array, is_kind) -> np.ndarray:
    if pa.types.is_null(column.type):
        return np.full(len(column), np.nan)
    if not is_kind(column.type):
        raise _NotPlain
    values = column.cast(pa.float64())
    if not np.isfinite(_valid(values)).all():
        raise _NotPlain
    return values.fill_null(np.nan).to_numpy(zero_copy_only=False)


def _coded(column: pa.Array, first: int) -> tuple[np.ndarray, list[str]]:
    """Codes from `first` on, -1 for null, and the texts that they are of."""
    if pa.types.is_null(column.type):
        return np.full(len(column), -1, np.int32), []
    if not (pa.types.is_string(column.type) or pa.types.is_large_string(column.type)):
        raise _NotPlain
    coded = column.dictionary_encode()
    if len(coded.dictionary) > MOST_WORDS:
        raise _NotPlain
    codes = coded.indices.fill_null(-1).to_numpy(zero_copy_only=False).astype(np.int32)
    return np.where(codes < 0, codes, codes + first), coded.dictionary.to_pylist()


def _listed(column: pa.Array, kind: pa.DataType) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """(elements, where each row's begin and end, which rows have a list)."""
    t = column.type
    if pa.types.is_null(t):
        n = len(column)
        return np.zeros(0, kind.to_pandas_dtype()), np.zeros(n + 1, np.int64), np.zeros(n, bool)
    lists = pa.types.is_list(t) or pa.types.is_large_list(t)
    if not (lists or pa.types.is_fixed_size_list(t)):
        raise _NotPlain
    inner = t.value_type
    floats = pa.types.is_floating(inner) and kind == pa.float64()
    if not (pa.types.is_integer(inner) or floats):
        raise _NotPlain
    flat = column.flatten()
    if flat.null_count:
        raise _NotPlain
    lengths = pa.compute.list_value_length(column).fill_null(0)  # pyright: ignore
    ends = np.zeros(len(column) + 1, np.int64)
    np.cumsum(lengths.to_numpy(zero_copy_only=False), out=ends[1:])
    if len(flat) != ends[-1]:
        raise _NotPlain
    values = flat.cast(kind).to_numpy(zero_copy_only=False)
    if kind == pa.float64() and not np.isfinite(values).all():
        raise _NotPlain
    return values, ends, column.is_valid().to_numpy(zero_copy_only=False)
