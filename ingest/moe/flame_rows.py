"""Rows of FLAME-MoE's routing traces: tokens and score sums by expert of one layer."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from ..collect import Collector
from ..errors import UnusableInput
from ..parquet_in import TROUBLE, opened
from .counted import MAX_EXPERTS, added
from .tally import Routing

if TYPE_CHECKING:
    from ..sources import Source


def rows_of(
    source: Source, step: int | None, layer: int | None, rank: int | None
) -> Iterator[tuple[str, pa.RecordBatch]]:
    """All tokens of a file of this step and layer; see `flame.parse`."""
    c = Collector(source)
    tokens = np.zeros(0, np.int64)
    sums = np.zeros(0)
    n_none = 0
    with source.as_file() as local:
        try:
            with opened(local) as file:
                _check(file.schema, source.name)
                for batch in file.batches(["indices", "scores"]):
                    ids, weights, empty = _flat(batch)
                    n_none += empty
                    tokens, sums = _grown(tokens, sums, ids, weights, c.odd)
        except TROUBLE as e:
            told = f"Parquet that cannot be read to its end: {str(e)[:200]}"
            if not tokens.any():
                raise UnusableInput(told, path=source.name) from e
            c.odd("truncated", f"{told}; what came before is kept", "lost")
    if step is None or layer is None:
        told = "the path does not say iter_<N>/layer_<NN>.parquet; what it does not say is null"
        c.odd("place_unknown", told)
    rows = Routing("flame-moe")
    experts = np.flatnonzero(tokens)
    rows.add(tokens[experts], expert=experts, weights=sums[experts], step=step, layer=layer)
    if n_none:
        rows.add(np.array([n_none]), step=step, layer=layer, token_class="padding")
    if rank is not None:
        c.odd("rank_not_used", "tokens are of all ranks: --rank is not used", "info")
    yield from rows.rest()
    yield from c.rest()


def _check(schema: pa.Schema, name: str) -> None:
    for column, kinds in (("indices", (pa.types.is_integer,)),
                          ("scores", (pa.types.is_floating,))):  # fmt: skip
        at = schema.get_field_index(column)
        kind = schema.field(at).type if at >= 0 else pa.null()
        lists = pa.types.is_list(kind) or pa.types.is_large_list(kind)
        if not (lists or pa.types.is_fixed_size_list(kind)):
            raise UnusableInput(f"column {column} is {kind}, not a list", path=name)
        if not any(k(kind.value_type) for k in kinds):  # type: ignore[attr-defined]
            raise UnusableInput(f"column {column} holds {kind}", path=name)


def _flat(batch: pa.RecordBatch) -> tuple[np.ndarray, np.ndarray, int]:
    """Ids, their scores (NaN where missing), and how many rows have no id at all."""
    ids, scores = batch.column(0), batch.column(1)
    n_ids = _lengths(ids)
    same = bool((n_ids == _lengths(scores)).all())
    flat = ids.flatten()
    values = np.asarray(flat.fill_null(-1).to_numpy(zero_copy_only=False)).astype(np.int64)
    weights = np.full(len(values), np.nan)
    if same:
        given = scores.flatten().cast(pa.float32()).to_numpy(zero_copy_only=False)
        weights = np.asarray(given, np.float64)
    return values, weights, int((n_ids == 0).sum())


def _lengths(column) -> np.ndarray:
    lengths = pc.call_function("list_value_length", [column])
    return np.asarray(lengths.fill_null(0).to_numpy(zero_copy_only=False))


def _grown(tokens, sums, ids, weights, odd):
    """The counts with some more choices in them."""
    good = (ids >= 0) & (ids < MAX_EXPERTS)
    if not good.all():
        told = f"an expert id below 0 or from {MAX_EXPERTS} on; left out of the counts"
        odd("expert_out_of_range", told, "lost", count=int((~good).sum()))
        ids, weights = ids[good], weights[good]
    finite = np.isfinite(weights)
    if not finite.all():
        told = "a score that is missing or no finite number; left out of the sum"
        odd("bad_weight", told, count=int((~finite).sum()))
        weights = np.where(finite, weights, 0.0)
    more = np.bincount(ids, minlength=len(tokens))
    more_sums = np.bincount(ids, weights, minlength=len(sums))
    return added(tokens, more), added(sums, more_sums)
