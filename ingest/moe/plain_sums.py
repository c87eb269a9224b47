"""Sums of the plain form's rows by place and expert, kept small while the rows stream by."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING

import numpy as np
import polars as pl
import pyarrow as pa

from ..collect import Collector
from ..errors import UnusableInput
from ..schema import TABLES
from ..values import MAX_RANK
from .counted import MAX_EXPERTS
from .plain_columns import CLASSES, NULL, PLACE_KEYS, SPACES
from .plain_frames import KEYS, Sums, frame_of

if TYPE_CHECKING:
    from ..sources import Source

_LIMITS = {"microbatch": (1 << 31) - 1, "layer": (1 << 31) - 1, "rank": MAX_RANK,
           "expert_rank": MAX_RANK}  # fmt: skip
AMOUNTS = ("count", "tokens")
MOST_TOKENS = 1 << 50
MERGE_ROWS = 1 << 20
MOST_ROWS = 1 << 22
BATCH_ROWS = 131_072
SLICE_ROWS = 16_384


Block = pl.DataFrame | Sums
"""Rows of a block as they are read, or already their sums."""


def sums_of(
    source: Source, blocks: Callable[..., Iterator[Block]], rank: int | None, threads: int = 1
) -> Iterator[tuple[str, pa.RecordBatch]]:
    """`routing`, `ranks` and `problems` of the blocks of a source; see `plain.parse`."""
    c = Collector(source)
    parts: list[Block] = []
    waiting = 0
    some = False
    ranks: set[int] = set()
    for block in blocks(source, c.odd, rank, threads):
        if isinstance(block, Sums):
            part, n = block, len(block.groups)
            found = block.places[:, PLACE_KEYS.index("rank")].tolist()
            ranks.update(r for r in found if r != NULL)
        else:
            part = _summed_choices(c, _sound(c, block, rank))
            n = part.height
            ranks.update(part["rank"].drop_nulls().unique().to_list())
        some = some or n > 0
        parts.append(part)
        waiting += n
        if waiting > MERGE_ROWS:
            merged = _merged(parts)
            parts = [merged]
            waiting = 0
            if merged.height > MOST_ROWS:
                told = "more places than are summed at once: rows repeat, and add up"
                c.odd("partial_sums", told, "info")
                yield from _batches(merged)
                parts = []
    if not some:
        raise UnusableInput("no usable row of routing", path=source.name)
    if parts:
        yield from _batches(_merged(parts))
    for found in sorted(ranks):
        c.add("ranks", rank=found, clock="none", source=source.name)
    yield from c.rest()


def _merged(parts: list[Block]) -> pl.DataFrame:
    """The sums of all parts, one after another."""
    frames: list[pl.DataFrame] = []
    waiting: list[Sums] = []
    for part in parts:
        if isinstance(part, Sums):
            waiting.append(part)
            continue
        if waiting:
            frames.append(frame_of(waiting))
        waiting = []
        frames.append(part)
    if waiting:
        frames.append(frame_of(waiting))
    return summed(pl.concat(frames))


def _sound(c: Collector, rows: pl.DataFrame, rank: int | None) -> pl.DataFrame:
    """The rows that count some tokens, with every column, each value in its bounds."""
    given = set(rows.columns)
    rows = rows.with_columns(
        *(pl.lit(None, kind).alias(n) for n, kind in _EVERY.items() if n not in given)
    )
    amount = pl.coalesce(*AMOUNTS)
    if not given & set(AMOUNTS):
        amount = pl.lit(1, pl.Int64)
    elif "token" in given:
        # A row with a token's number and no count is that token.
        amount = pl.coalesce(amount, pl.when(pl.col("token").is_not_null()).then(1))
    rows = rows.with_columns(amount.alias("tokens"))
    usable = rows["tokens"].is_between(0, MOST_TOKENS).fill_null(False)
    if not usable.all():
        told = "a row without a count of tokens, or with one that cannot be; left out"
        c.odd("bad_count", told, "lost", count=int((~usable).sum()))
        rows = rows.filter(usable)
    for name, most in _LIMITS.items():
        bad = ~rows[name].is_between(0, most).fill_null(True)
        if bad.any():
            told = f"a {name} below 0 or beyond what there can be; null is kept"
            c.odd("value_out_of_range", told, count=int(bad.sum()))
            rows = rows.with_columns(pl.when(~bad).then(pl.col(name)))
    for name, known in (("token_class", CLASSES), ("id_space", SPACES)):
        bad = ~rows[name].is_in(known).fill_null(True)
        if bad.any():
            told = f"a {name} that is none of {', '.join(known)}; not used"
            c.odd(f"{name}_unknown", told, count=int(bad.sum()))
            rows = rows.with_columns(pl.when(~bad).then(pl.col(name)))
    if rank is not None:
        rows = rows.with_columns(pl.col("rank").fill_null(rank))
    source = pl.col("source")
    kind = pl.when(source.is_null()).then(pl.lit("routing")).otherwise("routing:" + source)
    return rows.with_columns(kind.alias("source"))


_EVERY = {
    **dict.fromkeys(("step", "microbatch", "layer", "rank", "token", "count", "tokens", "expert",
                     "physical_expert", "expert_rank"), pl.Int64()),
    **dict.fromkeys(("block", "token_class", "id_space", "source"), pl.String()),
    "weight_sum": pl.Float64(), "experts": pl.List(pl.Int64), "weights": pl.List(pl.Float64),
}  # fmt: skip


def _summed_choices(c: Collector, rows: pl.DataFrame) -> pl.DataFrame:
    """The sums of sound rows. A choice a row is many times the bytes: without weights, of which the
    sums depend on what is summed at once, some rows after others, where all have lists or none."""
    rows = rows.drop("token", "count")
    n_listed = len(rows) - rows["experts"].null_count()
    alike = n_listed in (0, len(rows))
    weighed = rows["weights"].null_count() + rows["weight_sum"].null_count() < 2 * len(rows)
    if weighed or not alike or len(rows) <= SLICE_ROWS:
        return summed(_choices(c, rows))
    return summed(pl.concat([summed(_choices(c, s)) for s in rows.iter_slices(SLICE_ROWS)]))


def _choices(c: Collector, rows: pl.DataFrame) -> pl.DataFrame:
    """A row an expert of each row. A row without any expert is one of padding; a choice of none
    (-1) in a row with others is dropped."""
    lists = rows["experts"].is_not_null()
    single = rows.filter(~lists).with_columns(
        pl.col("expert_rank").is_null().alias("_alone"), pl.lit(False).alias("_some")
    )
    many = rows.filter(lists)
    same = many["weights"].list.len() == many["experts"].list.len()
    differ = ~same.fill_null(True)
    if differ.any():
        told = "a row with another number of weights than of experts; its weights are not used"
        c.odd("lengths_differ", told, count=int(differ.sum()))
    lengths = pl.col("experts").list.len()
    many = (
        many.with_row_index("_row")
        .with_columns(
            pl.when(same.fill_null(False))
            .then(pl.col("weights"))
            .otherwise(pl.lit(None, pl.Float64).repeat_by(lengths))
        )
        .explode("experts", "weights", empty_as_null=True)
        .with_columns(pl.col("experts").alias("expert"), pl.col("weights").alias("weight_sum"))
    )
    many = _known(c, many, "expert")
    many = many.with_columns(
        pl.col("expert").is_not_null().any().over("_row").alias("_some"),
        pl.lit(True).alias("_alone"),
    )
    # Of a row without any expert one is kept.
    many = many.filter(pl.col("_some") | pl.col("_row").is_first_distinct())
    single = _known(c, _known(c, single, "expert"), "physical_expert")
    single = single.drop("experts", "weights")
    both = pl.concat([single, many.drop("_row", "experts", "weights").select(single.columns)])
    in_physical = (pl.col("id_space") == "physical").fill_null(False)
    infinite = ~both["weight_sum"].is_finite().fill_null(True)
    if infinite.any():
        told = "a weight that is no finite number; left out of the sums"
        c.odd("bad_weight", told, count=int(infinite.sum()))
    none = pl.col("expert").is_null() & pl.col("physical_expert").is_null() & pl.col("_alone")
    found = (
        pl.when(~none).then(pl.lit("real")).when(pl.col("_some")).then(pl.lit("dropped"))
        .otherwise(pl.lit("padding"))
    )  # fmt: skip
    return both.with_columns(
        pl.when(~in_physical).then(pl.col("expert")).alias("expert"),
        pl.when(in_physical).then(pl.coalesce("physical_expert", "expert"))
        .otherwise(pl.col("physical_expert")).alias("physical_expert"),
        pl.when(~infinite).then(pl.col("weight_sum")).alias("weight_sum"),
        pl.coalesce(pl.col("token_class"), found).alias("token_class"),
    )  # fmt: skip


def _known(c: Collector, rows: pl.DataFrame, name: str) -> pl.DataFrame:
    """Ids as they are where an expert can have them, else null; -1 is none."""
    ids = rows[name]
    good = ids.is_between(0, MAX_EXPERTS - 1).fill_null(False)
    beyond = ~good & (ids != -1).fill_null(False)
    if beyond.any():
        told = f"an expert id below -1 or from {MAX_EXPERTS} on; taken as none"
        c.odd("expert_out_of_range", told, "lost", count=int(beyond.sum()))
    return rows.with_columns(pl.when(good).then(pl.col(name)).alias(name))


def summed(rows: pl.DataFrame) -> pl.DataFrame:
    """Tokens and weights of rows with the same `KEYS`, in the order of the first of each.

    Weights are added one after the other, as they stand: what is left of a sum in its last bits
    depends on neither the machine's cores nor the reader.
    """
    groups = rows.group_by(KEYS, maintain_order=True).agg(
        pl.col("tokens").sum(), pl.col("weight_sum")
    )
    lists = groups["weight_sum"]
    of = np.repeat(np.arange(len(lists)), lists.list.len().to_numpy())
    weights = lists.explode(empty_as_null=False, keep_nulls=False)
    known = weights.is_not_null().to_numpy()
    total = np.bincount(of[known], weights.drop_nulls().to_numpy(), len(lists)).astype(float)
    none = np.bincount(of[known], minlength=len(lists)) == 0
    return groups.with_columns(pl.Series("weight_sum", pa.array(total, mask=none)))


def _batches(rows: pl.DataFrame) -> Iterator[tuple[str, pa.RecordBatch]]:
    order = ["step", "layer", "microbatch", "rank", "expert", "physical_expert", "token_class"]
    rows = rows.sort(order, nulls_last=True, maintain_order=True)
    names = [col.name for col in TABLES["routing"].columns]
    for part in rows.select(names).iter_slices(BATCH_ROWS):
        data = {}
        for n in names:
            values = part[n].to_arrow()
            if part[n].dtype == pl.String:
                values = values.cast(pa.string()).dictionary_encode()
            data[n] = values
        yield "routing", TABLES["routing"].batch(data)
