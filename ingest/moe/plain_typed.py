"""Columns of the plain form as what they should be; what does not fit becomes null and is told."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import polars as pl
import pyarrow as pa

from .plain import COLUMNS

Odd = Callable[..., None]

WANTED: dict[str, Any] = {
    n: pl.Int64() for n in ("step", "microbatch", "layer", "rank", "token", "count", "tokens",
                            "expert", "physical_expert", "expert_rank")
} | {n: pl.String() for n in ("block", "token_class", "id_space", "source")} | {
    "weight_sum": pl.Float64(), "experts": pl.List(pl.Int64), "weights": pl.List(pl.Float64),
}  # fmt: skip
ARROW = {n: pl.Series([], dtype=k).to_arrow().type for n, k in WANTED.items()}
_INTEGER = r"^[+-]?[0-9]{1,18}$"
_NUMBER = r"^[+-]?([0-9]{1,30}\.?[0-9]{0,30}|\.[0-9]{1,30})([eE][+-]?[0-9]{1,3})?$"
_BETWEEN = r"[\s,;|\[\]()\"']+"


def typed(frame: pl.DataFrame, odd: Odd) -> pl.DataFrame:
    """The known columns as what they should be; what does not fit becomes null and is told."""
    out: dict[str, pl.Series] = {}
    for name in frame.columns:
        if name not in COLUMNS:
            continue
        wanted, given = WANTED[name], frame[name]
        if isinstance(given.dtype, pl.Categorical | pl.Enum):
            given = given.cast(pl.String)
        if isinstance(wanted, pl.List):
            lists = _listed(given)
            flat = lists.explode(empty_as_null=False, keep_nulls=False)
            made = _simple(flat, wanted.inner)
            out[name] = _lists(lists, made).cast(wanted)
            n_given = len(flat) - flat.null_count()
            if not isinstance(given.dtype, pl.List | pl.Array) and not len(lists.drop_nulls()):
                n_given = len(given) - given.null_count()
        else:
            made = out[name] = _simple(given, wanted)
            n_given = len(given) - given.null_count()
        n_bad = n_given - (len(made) - made.null_count())
        if n_bad > 0:
            told = f"a value of `{name}` that is not {wanted}; null is kept"
            odd("wrong_type", told, count=n_bad)
    return pl.DataFrame(out)


def _listed(values: pl.Series) -> pl.Series:
    """A column of lists, whatever it was: texts are taken apart, single numbers become lists."""
    kind = values.dtype
    if isinstance(kind, pl.List):
        return values
    if isinstance(kind, pl.Array):
        return values.arr.to_list()
    if kind == pl.String:
        clean = values.str.replace_all(_BETWEEN, " ").str.strip_chars(" ")
        # Nothing is a list without elements, not one with an empty text.
        parts = clean.str.split(" ")
        empty = (clean == "").fill_null(False)
        if empty.any():
            none = pl.Series([[]], dtype=pl.List(pl.String))
            parts = none.new_from_index(0, len(parts)).zip_with(empty, parts)
        return parts
    if kind.is_numeric():
        return values.reshape((-1, 1)).arr.to_list().zip_with(
            values.is_not_null(), pl.Series([None] * len(values), dtype=pl.List(kind))
        )  # fmt: skip
    return pl.Series(values.name, [None] * len(values), pl.List(pl.Null))


def _lists(like: pl.Series, flat: pl.Series) -> pl.Series:
    """Lists of the same lengths as those of `like` (null where it is null) from flat values."""
    lengths = like.list.len().fill_null(0).to_numpy().astype(np.int64)
    ends = np.concatenate([[0], np.cumsum(lengths)])
    mask = like.is_null().to_numpy() if like.null_count() else None
    made = pa.LargeListArray.from_arrays(
        pa.array(ends, pa.int64()), flat.to_arrow(), mask=None if mask is None else pa.array(mask)
    )
    return pl.Series(like.name, made)


def _simple(values: pl.Series, wanted: pl.DataType | type) -> pl.Series:
    kind = values.dtype
    none = pl.Series(values.name, [None] * len(values), wanted)
    if kind == pl.Null:
        return none
    if wanted == pl.String:
        return values if kind == pl.String else none
    if kind == pl.String:
        values = values.str.strip_chars()
        # A number is plain: no `inf`, and nothing that is no digit.
        good = values.str.contains(_NUMBER if wanted == pl.Float64 else _INTEGER)
        values = values.set(~good.fill_null(True), None)
        return values.str.strip_prefix("+").cast(wanted, strict=False)
    if not kind.is_numeric():
        return none
    if wanted == pl.Int64 and kind.is_float():
        floats = values.cast(pl.Float64)
        whole = (floats == floats.round()) & floats.is_finite() & (floats.abs() < 2.0**53)
        return floats.set(~whole.fill_null(True), None).cast(pl.Int64, strict=False)
    return values.cast(wanted, strict=False)


def frame_of_batch(batch: pa.RecordBatch, odd: Odd) -> pl.DataFrame:
    """The batch as a frame. Names inside of types and texts are a stranger's: they are checked
    before polars sees them."""
    out: dict[str, pl.Series] = {}
    for name, column in zip(batch.schema.names, batch.columns, strict=True):
        kind = column.type
        try:
            column.validate(full=True)
            if pa.types.is_list(kind) or pa.types.is_large_list(kind):
                column = column.cast(pa.large_list(kind.value_type))
            elif pa.types.is_fixed_size_list(kind):
                column = column.cast(pa.list_(kind.value_type, kind.list_size))
            if pa.types.is_nested(kind) and pa.types.is_nested(kind.value_type):
                raise ValueError("nested deeper than a list")
        except (pa.ArrowException, ValueError, AttributeError) as e:
            told = f"column `{name}` cannot be read ({str(e)[:100]}); null is kept"
            odd("bad_column", told, "lost", count=len(column))
            column = pa.nulls(len(column), pa.null())
        made = pl.from_arrow(column)
        assert isinstance(made, pl.Series)
        out[name] = made
    return pl.DataFrame(out)
