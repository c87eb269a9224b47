"""What moved between two replays of a step: by rank, by name, and task by task."""

from __future__ import annotations

from collections.abc import Mapping
from typing import NamedTuple

import numpy as np
import polars as pl

from ...replay import steps as timing
from ...replay.graph import Kind
from . import names, sides
from .pairs import Pairs
from .sides import Side

MOST = 15
"""Rows of each of the lists of what changed most."""

SAVED = {
    "compute_ns": (sides.COMPUTE, sides.WITH_COMM),
    "wait_ns": (sides.WAIT,),
    "transfer_ns": (sides.TRANSFER,),
    "copy_ns": (sides.COPY,),
    "idle_ns": (sides.IDLE,),
}
"""Parts of what a rank's step is shorter by, with their classes: they add up to it."""


class Members(NamedTuple):
    """Tasks of the step on both sides: what was measured in it, and what a policy put there."""

    before: np.ndarray
    """bool [n]."""
    after: np.ndarray
    """bool [n']."""


def members(before: Side, after: Side, pairs: Pairs, step: int) -> Members:
    """Tasks of the step: the same on both sides but for those that only one has."""
    was = timing.within(before.graph, step) & (before.graph.rank >= 0)
    now = np.zeros(after.graph.n, bool)
    now[pairs.after] = was[pairs.before]
    made = after.begun() if "begins" in after.graph.extra else after.graph.step == step
    now[pairs.new] = made[pairs.new]
    return Members(was, now)


def by_rank(before: Side, after: Side, was: pl.DataFrame, now: pl.DataFrame) -> pl.DataFrame:
    """One row a rank that has the step on both sides, from both sides' `sides.stretches`.

    `rank`; `before_ns` and `after_ns`, when it ends the step; `earlier_ns`, by how much;
    `saved_ns`, by how much its step is shorter, and its parts (`SAVED`); `changed_ns`, what each
    class gained or lost, added up, and by how much it ends earlier or later.
    """
    ranks = np.intersect1d(before.ranks, after.ranks)
    at, to = np.searchsorted(before.ranks, ranks), np.searchsorted(after.ranks, ranks)
    less = sides.by_rank(was, before.ranks)[at] - sides.by_rank(now, after.ranks)[to]
    ends = before.until_ns[at], after.until_ns[to]
    columns = {name: less[:, list(of)].sum(1) for name, of in SAVED.items()}
    return pl.DataFrame(
        {
            "rank": ranks,
            "before_ns": ends[0],
            "after_ns": ends[1],
            "earlier_ns": ends[0] - ends[1],
            "saved_ns": less.sum(1),
            **columns,
            "changed_ns": np.abs(less).sum(1) + np.abs(ends[0] - ends[1]),
        }
    )


def by_name(before: Side, after: Side, inside: Members) -> pl.DataFrame:
    """What changed most by name: at most MOST rows, the greatest change first.

    `what`; `n_before` and `n_after`, how many there are; `before_ns`, `after_ns` and `saved_ns`,
    the mean over ranks of what a rank spends on them; `rank`, where most of it changed. Waits and
    transfers of an operation are rows of their own, and so is the delay before a task that no
    dependency explains.
    """
    was, now = _spent(before, inside.before), _spent(after, inside.after)
    rows = pl.concat([was.with_columns(side=pl.lit(0)), now.with_columns(side=pl.lit(1))])
    first, second = pl.col("side") == 0, pl.col("side") == 1
    ranks = max(1, len(before.ranks))
    of_rank = rows.group_by("what", "rank").agg(
        before_ns=pl.col("ns").filter(first).sum(),
        after_ns=pl.col("ns").filter(second).sum(),
        n_before=first.sum().cast(pl.Int64),
        n_after=second.sum().cast(pl.Int64),
    )
    change = pl.col("before_ns") - pl.col("after_ns")
    return (
        of_rank.sort(change.abs(), "rank", descending=[True, False])
        .group_by("what")
        .agg(
            pl.col("n_before", "n_after").sum(),
            pl.col("before_ns", "after_ns").sum() / ranks,
            pl.col("rank").first(),
        )
        .with_columns(saved_ns=change)
        .filter(pl.col("saved_ns") != 0)
        .sort(pl.col("saved_ns").abs(), "what", descending=[True, False])
        .head(MOST)
    )


def _spent(side: Side, inside: np.ndarray) -> pl.DataFrame:
    """What the tasks of a step take: `what`, `rank`, `ns`."""
    graph = side.graph
    task = np.flatnonzero(inside & np.isin(graph.kind, list(names.WORDS)))
    part = inside[side.transfer]
    arrive, transfer = side.arrive[part], side.transfer[part]
    late = np.flatnonzero(inside & (graph.gap_ns > 0) & (graph.kind != Kind.JOIN))
    took = side.end_ns - side.start_ns
    waited = side.start_ns[transfer] - side.end_ns[arrive]
    found = (
        ("{}", names.with_words(graph, task), task, took[task]),
        ("wait for others in {}", names.plain(graph, transfer), transfer, waited),
        ("transfer of {}", names.plain(graph, transfer), transfer, took[transfer]),
        ("delay before {}", names.plain(graph, late), late, graph.gap_ns[late]),
    )
    return pl.concat(
        pl.DataFrame(
            {
                "what": pl.Series(texts, dtype=pl.String),
                "rank": graph.rank[at].astype(np.int64),
                "ns": ns,
            }
        ).with_columns(what=pl.format(form, "what"))
        for form, texts, at, ns in found
    )


def singles(
    before: Side,
    after: Side,
    inside: Members,
    pairs: Pairs,
    dim_of: Mapping[str, str | None],
) -> pl.DataFrame:
    """One row a task or collective of the step that starts at another moment or takes another time.

    `what`; `rank` (-1: several) and `ranks`, how many; `start_before_ns`, `start_after_ns`,
    `takes_before_ns`, `takes_after_ns` (null where that side has it not) and `saved_ns`,
    `earlier_ns` (of what is on both sides; what is new or gone saves what it takes). A collective
    starts when its last rank is there, and takes the mean over ranks of wait and transfer.
    """
    rows = pl.concat(
        [
            _tasks(before, after, inside, pairs),
            _collectives(before, after, inside, dim_of),
        ],
        how="diagonal",
    )
    was, now = (pl.col(f"takes_{s}_ns").fill_null(0) for s in ("before", "after"))
    rows = rows.with_columns(
        saved_ns=was - now, earlier_ns=pl.col("start_before_ns") - pl.col("start_after_ns")
    )
    return rows.filter((pl.col("saved_ns") != 0) | (pl.col("earlier_ns") != 0))


def most(rows: pl.DataFrame, by: str) -> pl.DataFrame:
    """The MOST rows of `singles` with the greatest change, earlier or later, longer or shorter.

    What moved takes its followers with it: of starts only the one of a name on a rank that moved
    most is among them.
    """
    rows = rows.filter(pl.col(by).is_not_null() & (pl.col(by) != 0))
    order = [pl.col(by).abs(), pl.max_horizontal("takes_before_ns", "takes_after_ns")]
    rows = rows.sort(*order, "start_before_ns", "rank", descending=[True, True, False, False])
    if by == "earlier_ns":
        rows = rows.unique(["what", "rank"], keep="first", maintain_order=True)
    return rows.head(MOST)


def _tasks(before: Side, after: Side, inside: Members, pairs: Pairs) -> pl.DataFrame:
    def rows(side: Side, task: np.ndarray, which: str) -> dict[str, np.ndarray]:
        return {
            f"start_{which}_ns": side.start_ns[task],
            f"takes_{which}_ns": (side.end_ns - side.start_ns)[task],
        }

    def chosen(side: Side, inside: np.ndarray, task: np.ndarray) -> np.ndarray:
        return inside[task] & np.isin(side.graph.kind[task], list(names.WORDS))

    def about(side: Side, task: np.ndarray) -> dict[str, object]:
        texts = names.with_words(side.graph, task)
        return {
            "what": pl.Series(texts, dtype=pl.String),
            "rank": side.graph.rank[task].astype(np.int64),
            "ranks": np.ones(len(task), np.int64),
        }

    both = chosen(before, inside.before, pairs.before)
    was, now = pairs.before[both], pairs.after[both]
    # Most did not move: names are made for those that did.
    changed = (before.start_ns[was] != after.start_ns[now]) | (
        (before.end_ns - before.start_ns)[was] != (after.end_ns - after.start_ns)[now]
    )
    was, now = was[changed], now[changed]
    gone = pairs.gone[chosen(before, inside.before, pairs.gone)]
    new = pairs.new[chosen(after, inside.after, pairs.new)]
    return pl.concat(
        [
            pl.DataFrame(
                {
                    **about(before, was),
                    **rows(before, was, "before"),
                    **rows(after, now, "after"),
                }
            ),
            pl.DataFrame({**about(before, gone), **rows(before, gone, "before")}),
            pl.DataFrame({**about(after, new), **rows(after, new, "after")}),
        ],
        how="diagonal",
    )


def _collectives(
    before: Side, after: Side, inside: Members, dim_of: Mapping[str, str | None]
) -> pl.DataFrame:
    was = _instances(before, inside.before, dim_of, "before")
    now = _instances(after, inside.after, dim_of, "after")
    both = was.join(now, on="collective", how="full", coalesce=True)
    return both.select(
        pl.coalesce("what", "what_right").alias("what"),
        pl.coalesce("rank", "rank_right").alias("rank"),
        pl.coalesce("ranks", "ranks_right").alias("ranks"),
        *(f"{c}_{s}_ns" for c in ("start", "takes") for s in ("before", "after")),
    )


def _instances(
    side: Side, inside: np.ndarray, dim_of: Mapping[str, str | None], which: str
) -> pl.DataFrame:
    graph = side.graph
    part = inside[side.transfer]
    arrive, transfer = side.arrive[part], side.transfer[part]
    labels = names.collectives(graph, transfer, dim_of)
    rows = pl.DataFrame(
        {
            "collective": graph.collective[transfer],
            "what": pl.Series(labels, dtype=pl.String),
            "rank": graph.rank[transfer].astype(np.int64),
            "start": side.start_ns[transfer],
            "takes": side.end_ns[transfer] - side.end_ns[arrive],
        }
    )
    one = pl.col("rank").n_unique() == 1
    return (
        rows.sort("collective", "rank")
        .group_by("collective", maintain_order=True)
        .agg(
            pl.col("what").first(),
            pl.when(one).then(pl.col("rank").first()).otherwise(-1).alias("rank"),
            pl.col("rank").n_unique().cast(pl.Int64).alias("ranks"),
            pl.col("start").min().alias(f"start_{which}_ns"),
            pl.col("takes").mean().round().cast(pl.Int64).alias(f"takes_{which}_ns"),
        )
    )
