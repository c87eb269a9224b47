"""Profiles of communicators from the participations of a job."""

from __future__ import annotations

from collections import Counter

import polars as pl
import pyarrow as pa

from .. import classify
from .profile import SMALL_BYTES, Profile


def profiles(collectives: pa.Table, steps: pa.Table, comms: list[str]) -> dict[str, Profile]:
    """The profile of each of `comms` that has operations."""
    columns = ["comm", "rank", "op", "dtype", "in_bytes", "out_bytes", "peer", "in_splits",
               "start_ns", "group_size"]  # fmt: skip
    frame = pl.from_arrow(collectives.select(columns))
    assert isinstance(frame, pl.DataFrame)
    frame = frame.with_columns(pl.col("comm", "op", "dtype").cast(pl.String))
    frame = frame.filter(pl.col("comm").is_in(comms), pl.col("op") != "barrier")
    frame = _in_steps(frame, steps)
    out = {}
    for (comm,), rows in frame.group_by("comm", maintain_order=True):
        out[str(comm)] = _profile(rows)
    return out


def _in_steps(frame: pl.DataFrame, steps: pa.Table) -> pl.DataFrame:
    """With `step_at` (the window that holds its start) and `place` in it; null outside."""
    windows = pl.from_arrow(steps.select(["rank", "step", "start_ns", "end_ns"]))
    assert isinstance(windows, pl.DataFrame)
    windows = windows.drop_nulls().filter(pl.col("end_ns") > pl.col("start_ns"))
    windows = windows.rename({"step": "step_at", "start_ns": "begin_ns", "end_ns": "stop_ns"})
    joined = frame.sort("start_ns").join_asof(
        windows.sort("begin_ns"), left_on="start_ns", right_on="begin_ns", by="rank",
        check_sortedness=False,
    )  # fmt: skip
    inside = pl.col("start_ns") < pl.col("stop_ns")
    length = (pl.col("stop_ns") - pl.col("begin_ns")).cast(pl.Float64)
    place = (pl.col("start_ns") - pl.col("begin_ns")).cast(pl.Float64) / length
    return joined.with_columns(
        step_at=pl.when(inside).then("step_at"), place=pl.when(inside).then(place)
    )


def _profile(rows: pl.DataFrame) -> Profile:
    busiest = rows.group_by("rank").len().sort(["len", "rank"], descending=[True, False])
    mine = rows.filter(pl.col("rank").eq_missing(busiest["rank"][0]))
    calls: Counter[str] = Counter()
    large: Counter[str] = Counter()
    sizes: dict[str, Counter[int]] = {}
    shards: dict[str, set[int]] = {}
    for r in mine.iter_rows(named=True):
        op = r["op"] or "unknown"
        calls[op] += 1
        whole = max(r["in_bytes"] or 0, r["out_bytes"] or 0)
        if whole > SMALL_BYTES:
            known = classify.dtype_of(r["dtype"])
            item = known.itemsize if known is not None else 1
            large[op] += 1
            sizes.setdefault(op, Counter())[whole // item] += 1
            least = min(r["in_bytes"] or whole, r["out_bytes"] or whole)
            shards.setdefault(op, set()).add(least // item)
    placed = mine.filter(
        pl.max_horizontal("in_bytes", "out_bytes") > SMALL_BYTES, pl.col("place").is_not_null()
    )
    places = {str(op): group["place"].to_numpy() for (op,), group in placed.group_by("op")}
    return Profile(
        dict(calls),
        dict(large),
        {op: dict(c) for op, c in sizes.items()},
        {op: frozenset(s) for op, s in shards.items()},
        _edges(rows),
        _uneven(mine),
        places,
        mine["step_at"].drop_nulls().n_unique(),
    )


def _edges(rows: pl.DataFrame) -> frozenset[tuple[int, int]]:
    ends = rows.filter(pl.col("op").is_in(["send", "recv"])).select("op", "rank", "peer")
    ends = ends.drop_nulls().unique()
    return frozenset((r, p) if op == "send" else (p, r) for op, r, p in ends.iter_rows() if r != p)


def _uneven(mine: pl.DataFrame) -> bool:
    """All-to-alls of unequal parts that are others nearly every time, as routed tokens are.

    Parts that stay the same from call to call are a layout (sharded embedding tables), no routing.
    """
    asked = mine.filter(pl.col("op") == "all_to_all")
    if len(asked) < 4:
        return False
    unequal = 0
    for r in asked.iter_rows(named=True):
        splits = r["in_splits"]
        apart = r["in_bytes"] is not None and r["out_bytes"] not in (None, r["in_bytes"])
        unequal += apart or (splits is not None and len(set(splits)) > 1)
    kinds = asked.select(pl.struct("in_bytes", "out_bytes").n_unique()).item()
    return 2 * unequal >= len(asked) and 2 * kinds >= len(asked)
