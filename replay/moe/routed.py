"""What a job's routing log says: tokens by layer, source rank and expert, and who holds them."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple
from weakref import WeakKeyDictionary

import numpy as np
import polars as pl

from ..policy import ReplayJob

ANY = -1
"""In place of a step that the log does not number, of a rank or a holder that it does not name."""

MOST_EXPERTS = 1 << 16
"""A layer of more has never been built: a log that says so is damaged."""

_READ: WeakKeyDictionary = WeakKeyDictionary()
"""By a job's reader of tables: the estimates of a sweep share what grouping a log costs."""

KEYS = ("step", "layer", "rank", "expert", "holder")


class Routing(NamedTuple):
    """Choices of experts, summed; `parts` by (step, layer) hold rank, expert, holder, tokens."""

    parts: dict[tuple[int, int], dict[str, np.ndarray]]
    experts: int
    steps: tuple[int, ...]
    layers: tuple[int, ...]
    """Numbered over blocks: those of a later block come after."""
    held: bool
    """Whether the log names the rank that holds each expert."""
    words: str
    known: dict
    """What was asked before: the same members of a layer and step are asked for many times."""

    def counts(self, step: int, layer: int, members: np.ndarray) -> np.ndarray:
        """Choices float64 [n, e] of each member's tokens; a sum over ranks is parted evenly."""
        return self._once("counts", step, layer, members, self._counts)

    def _once(self, what: str, step: int, layer: int, members: np.ndarray, find):
        key = (what, step, layer, members.tobytes())
        if key not in self.known:
            self.known[key] = find(step, layer, members)
        return self.known[key]

    def _counts(self, step: int, layer: int, members: np.ndarray) -> np.ndarray:
        part = self.parts.get((step, layer))
        if part is None:
            return np.zeros((len(members), self.experts))
        mine, source = self._members(part, members)
        out = np.zeros((len(members), self.experts))
        np.add.at(out, (source[mine], part["expert"][mine]), part["tokens"][mine])
        summed = part["rank"] == ANY
        if summed.any():
            here = summed
            if self.held:
                here = summed & np.isin(part["holder"], members)
            each = np.bincount(part["expert"][here], part["tokens"][here], minlength=self.experts)
            out += each / len(members)
        return out

    def matrix(self, step: int, layer: int, members: np.ndarray) -> np.ndarray | None:
        """Choices float64 [n, n] from member to member; None where no placement is known.

        Holders are what the log says, else experts lie in equal blocks in the order of members.
        """
        return self._once("matrix", step, layer, members, self._matrix)

    def _matrix(self, step: int, layer: int, members: np.ndarray) -> np.ndarray | None:
        if not self.held:
            place = contiguous(self.experts, len(members))
            return None if place is None else self.counts(step, layer, members) @ place
        part = self.parts.get((step, layer))
        out = np.zeros((len(members), len(members)))
        if part is None:
            return out
        mine, source = self._members(part, members)
        order = np.argsort(members)
        at = np.searchsorted(members, part["holder"], sorter=order).clip(max=len(members) - 1)
        to = order[at]
        there = members[to] == part["holder"]
        mine = mine & there
        np.add.at(out, (source[mine], to[mine]), part["tokens"][mine])
        summed = (part["rank"] == ANY) & there
        out += np.bincount(to[summed], part["tokens"][summed], minlength=len(members)) / len(
            members
        )
        return out

    def holders(self, members: np.ndarray) -> np.ndarray | None:
        """The part of each expert that each member holds, float64 [e, n]; None where not known."""
        if not self.held:
            return contiguous(self.experts, len(members))
        out = np.zeros((self.experts, len(members)))
        place = {int(r): i for i, r in enumerate(members)}
        for part in self.parts.values():
            for expert, holder in zip(part["expert"], part["holder"], strict=True):
                if int(holder) in place:
                    out[expert, place[int(holder)]] = 1.0
        total = out.sum(axis=1, keepdims=True)
        return None if (total == 0).any() else out / total

    def layers_of(self, members: np.ndarray) -> tuple[int, ...]:
        """Layers that the members (or nobody in particular) route in: those of their stage."""
        return self._once("layers", ANY, ANY, members, self._layers)

    def _layers(self, _step: int, _layer: int, members: np.ndarray) -> tuple[int, ...]:
        wanted = [*members.tolist(), ANY]
        found = {
            layer for (_, layer), part in self.parts.items() if np.isin(part["rank"], wanted).any()
        }
        return tuple(sorted(found))

    @staticmethod
    def _members(part: dict[str, np.ndarray], members: np.ndarray):
        order = np.argsort(members)
        at = np.searchsorted(members, part["rank"], sorter=order).clip(max=len(members) - 1)
        source = order[at]
        return members[source] == part["rank"], source


def contiguous(experts: int, members: int) -> np.ndarray | None:
    """Equal blocks of experts by member, float64 [e, n]; None where they do not divide."""
    if members < 1 or experts % members:
        return None
    return np.repeat(np.eye(members), experts // members, axis=0)


def of(job: ReplayJob) -> tuple[ReplayJob, Routing | None]:
    """The routing of a job, None where it has none; the job with what is doubtful about it."""
    reader = job.facts.get("tables")
    if reader is None:
        return job, None
    if reader not in _READ:
        _READ[reader] = _grouped(job.table("routing"))
    found, warnings = _READ[reader]
    return job.note(warnings=warnings), found


def _grouped(rows: pl.DataFrame) -> tuple[Routing | None, tuple[str, ...]]:
    """The routing of the rows of a table, and what is doubtful about it."""
    warnings: tuple[str, ...] = ()
    expert = pl.coalesce("expert", "physical_expert")
    is_real = pl.col("token_class").cast(pl.String).fill_null("real") == "real"
    rows = rows.filter(is_real & expert.is_not_null() & (pl.col("tokens") > 0))
    if not len(rows):
        return None, warnings
    experts = int(rows.select(expert.max()).item()) + 1
    if experts > MOST_EXPERTS:
        said = (
            f"routing numbers {experts} experts, more than {MOST_EXPERTS}: the log is damaged, and "
            "left out"
        )
        return None, (said,)
    by_source = rows.group_by(pl.col("source").cast(pl.String).alias("source")).agg(
        pl.col("tokens").sum()
    )
    if len(by_source) > 1:
        kept = by_source.sort("tokens", "source", descending=[True, False])["source"][0]
        rows = rows.filter(pl.col("source").cast(pl.String).eq_missing(pl.lit(kept)))
        said = f"routing has {len(by_source)} sources that may tell of the same tokens: took {kept}"
        warnings = (said,)
    held = rows["expert_rank"].null_count() == 0
    layers = rows.select(block=pl.col("block").cast(pl.String), layer="layer").unique()
    layers = layers.sort("block", "layer", nulls_last=False).with_row_index("place")
    rows = (
        rows.with_columns(pl.col("block").cast(pl.String))
        .join(layers, on=["block", "layer"], how="left", nulls_equal=True)
        .select(
            pl.col("step").fill_null(ANY),
            pl.col("place").cast(pl.Int64).alias("layer"),
            pl.col("rank").cast(pl.Int64).fill_null(ANY),
            expert.cast(pl.Int64).alias("expert"),
            pl.col("expert_rank").cast(pl.Int64).fill_null(ANY).alias("holder"),
            pl.col("tokens").cast(pl.Float64),
        )
        .group_by(KEYS)
        .agg(pl.col("tokens").sum())
        .sort(KEYS)
    )
    parts = {
        (int(step), int(layer)): {
            c: part[c].to_numpy() for c in ("rank", "expert", "holder", "tokens")
        }
        for (step, layer), part in rows.partition_by("step", "layer", as_dict=True).items()
    }
    steps = tuple(sorted({s for s, _ in parts}))
    placed = "held as the log says" if held else "in equal blocks in the order of the members"
    summed = ", summed over ranks, so parted evenly" if (rows["rank"] == ANY).all() else ""
    said = (
        f"routing: {rows['tokens'].sum():.0f} choices of {experts} experts, {placed}, "
        f"{len(steps)} steps, {len(layers)} layers{summed}"
    )
    return Routing(parts, experts, steps, tuple(range(len(layers))), held, said, {}), warnings


def layer_of(place: int, count: int, layers: Sequence[int]) -> tuple[int, bool] | None:
    """The layer of the place-th of `count` all-to-alls of a step, and whether it combines.

    A layer dispatches and combines: twice as many all-to-alls as layers are a forward pass, four
    times as many a forward and a backward one, in which the layers come in reverse. None where
    the count is neither.
    """
    n = len(layers)
    if n == 0 or count not in (2 * n, 4 * n):
        return None
    if place >= 2 * n:
        place = 4 * n - 1 - place
        # Backward of a combine sends gradients out as a dispatch does, and the other way round.
        return layers[place // 2], place % 2 == 0
    return layers[place // 2], place % 2 == 1
