"""What the picture of two timelines needs, within a budget: lanes, stretches, named parts."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
import polars as pl

from ...replay.graph import Kind
from ..report.stretches import TICKS, fitted
from ..screen import clean
from . import names
from .pairs import Pairs
from .sides import Side

MOST_LANES = 64
"""Ranks with a lane in each timeline; where there are more, those whose step changed most stay."""

MOST_STRETCHES = 60_000
"""Stretches of one timeline over all lanes; short ones are merged until so many are left."""

MOST_PARTS = 24_000
"""Tasks and participations of one timeline that can be named under the pointer: the longest."""

TASK = -2
"""Stands in the place of a wait where a part is no participation."""


def kept(changed: pl.DataFrame, hosts: Mapping[int, str | None]) -> list[int]:
    """Ranks with a lane, in the order of lanes: hosts together, then by rank.

    `changed` is `moved.by_rank`.
    """
    most = changed.sort("changed_ns", "rank", descending=[True, False]).head(MOST_LANES)
    ranks = sorted(most["rank"].to_list())
    first: dict[str | None, int] = {}
    for rank in ranks:
        first.setdefault(hosts.get(rank), rank)
    return sorted(ranks, key=lambda r: (first[hosts.get(r)], r))


def data(
    two: tuple[Side, Side],
    rows: tuple[pl.DataFrame, pl.DataFrame],
    pairs: Pairs,
    ranks: list[int],
    hosts: Mapping[int, str | None],
    dim_of: Mapping[str, str | None],
) -> dict[str, Any]:
    """The data of the drawing: of the sides of a step, and what `sides.stretches` gives of each.

    `tick_ns`; `lanes` (rank and host); `sides`, each `ends` (the tick at which its last rank ends
    the step) and `lanes`: by rank the tick it begins `from`, its `run` of stretches as
    ticks * 8 + class, and its `parts` as four numbers each: place in `things`, begin, ticks of wait
    (-2 for a task), ticks in all; `things`, of each the place of its name in `labels`;
    `merged_under_ns`, `merged_share` and `unnamed`: what was left out.
    """
    span = max(1, *(side.ends_ns for side in two))
    scale = TICKS / span
    lanes: list[dict[int, dict[str, Any]]] = []
    lost = width = 0
    for side_rows in rows:
        mine = side_rows.filter(pl.col("rank").is_in(ranks))
        fewer, ns, under = fitted(mine, span, MOST_STRETCHES)
        lost, width = lost + ns, max(width, under)
        lanes.append(_lanes(fewer, scale))
    named, labels, things, unnamed = _named(two, pairs, np.array(ranks), dim_of)
    for of_side, parts in zip(lanes, named, strict=True):
        for rank, thing, start, wait, took in parts.iter_rows():
            if rank in of_side:
                ticks = wait if wait == TASK else round(wait * scale)
                of_side[rank]["parts"] += [
                    thing,
                    round(start * scale),
                    ticks,
                    max(0, round(took * scale)),
                ]
    drawn = sum(int((r["end_ns"] - r["start_ns"]).sum()) for r in rows)
    return {
        "tick_ns": span / TICKS,
        "lanes": [{"rank": r, "host": _clean(hosts.get(r))} for r in ranks],
        "sides": [
            {"lanes": of_side, "ends": round(side.ends_ns * scale)}
            for of_side, side in zip(lanes, two, strict=True)
        ],
        "labels": labels,
        "things": things,
        "merged_under_ns": width,
        "merged_share": lost / max(1, drawn),
        "unnamed": unnamed,
    }


def _clean(host: str | None) -> str | None:
    return None if host is None else clean(host)


def _lanes(rows: pl.DataFrame, scale: float) -> dict[int, dict[str, Any]]:
    """Stretches by rank in whole ticks; rounding never adds up."""
    cut = rows.with_columns(
        (pl.col("start_ns") * scale).round().cast(pl.Int64).alias("a"),
        (pl.col("end_ns") * scale).round().cast(pl.Int64).alias("b"),
    ).filter(pl.col("b") > pl.col("a"))
    lanes: dict[int, dict[str, Any]] = {}
    for rank, a, b, kind in cut.select("rank", "a", "b", "class").iter_rows():
        lane = lanes.setdefault(rank, {"from": a, "run": [], "parts": []})
        lane["run"].append((b - a) * 8 + kind)
    return lanes


def _named(
    two: tuple[Side, Side], pairs: Pairs, ranks: np.ndarray, dim_of: Mapping[str, str | None]
) -> tuple[list[pl.DataFrame], list[str], list[int], int]:
    """Parts of both sides (`rank`, `thing`, `start`, `wait`, `took`), names, how many have none.

    The same task is the same thing on both sides, and a collective on all ranks.
    """
    k = len(pairs.before)
    ids = [np.full(side.graph.n, -1) for side in two]
    ids[0][pairs.before] = ids[1][pairs.after] = np.arange(k)
    ids[0][pairs.gone] = k + np.arange(len(pairs.gone))
    ids[1][pairs.new] = k + len(pairs.gone) + np.arange(len(pairs.new))
    free = k + len(pairs.gone) + len(pairs.new)
    frames = [_parts(side, of, free, ranks) for side, of in zip(two, ids, strict=True)]
    rows = pl.concat([f.with_columns(side=pl.lit(i)) for i, f in enumerate(frames)])
    longest = rows.with_columns(longest=pl.col("took").max().over("id"))
    longest = longest.sort("longest", "id", "side", "rank", descending=[True, *[False] * 3])
    shown = longest.head(2 * MOST_PARTS).with_columns(
        thing=pl.col("id").rank("dense").cast(pl.Int64) - 1
    )
    first = shown.unique("thing", keep="first", maintain_order=True).sort("thing")
    texts: list[str] = [""] * len(first)
    for i, side in enumerate(two):
        for collective, words in ((False, names.with_words), (True, None)):
            mine = first.filter((pl.col("side") == i) & ((pl.col("wait") != TASK) == collective))
            tasks = mine["task"].to_numpy()
            made = (
                words(side.graph, tasks)
                if words is not None
                else names.collectives(side.graph, tasks, dim_of)
            )
            for thing, text in zip(mine["thing"].to_list(), made, strict=True):
                texts[thing] = text
    labels = {text: place for place, text in enumerate(dict.fromkeys(texts))}
    order = ["rank", "thing", "start", "wait", "took"]
    return (
        [
            shown.filter(pl.col("side") == i).sort("start", "rank", "thing").select(order)
            for i in range(2)
        ],
        list(labels),
        [labels[t] for t in texts],
        len(rows) - len(shown),
    )


def _parts(side: Side, ids: np.ndarray, free: int, ranks: np.ndarray) -> pl.DataFrame:
    """Tasks and participations of these ranks that lie in the step, at least in part."""
    graph = side.graph
    on_device = np.isin(graph.kind, (Kind.COMPUTE, Kind.COPY))
    # Where a rank has no device its host's segments are its lane; else they run beside it.
    bare = ~np.isin(graph.rank, np.unique(graph.rank[on_device]))
    task = np.flatnonzero(on_device | ((graph.kind == Kind.HOST) & bare))
    found = (
        (task, ids[task], side.start_ns[task], np.full(len(task), TASK), side.end_ns[task]),
        (
            side.transfer,
            free + graph.collective[side.transfer],
            side.end_ns[side.arrive],
            side.start_ns[side.transfer] - side.end_ns[side.arrive],
            side.end_ns[side.transfer],
        ),
    )
    frames = []
    for at, ident, start, wait, end in found:
        begin, until = side.window(at)
        keep = np.isin(graph.rank[at], ranks) & (end > start) & (end > begin) & (start < until)
        frames.append(
            pl.DataFrame(
                {
                    "task": at[keep],
                    "id": ident[keep].astype(np.int64),
                    "rank": graph.rank[at[keep]].astype(np.int64),
                    "start": start[keep],
                    "wait": wait[keep].astype(np.int64),
                    "took": end[keep] - start[keep],
                }
            )
        )
    return pl.concat(frames)
