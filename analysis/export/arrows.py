"""Arrows between the ranks of a collective: from the rank that came last to those it released."""

from __future__ import annotations

import numpy as np
import polars as pl


def with_releasers(parts: pl.DataFrame) -> pl.DataFrame:
    """Participations with `waits_for_rank`: the rank whose arrival ended the wait.

    That is the one of the collective that waited for nobody and started at the moment at which
    the wait ends (the lowest of several): the last to come, the root of a broadcast, the peer. Null
    where there was no wait, or that rank is not among the rows.
    """
    released = pl.col("collective_id").is_not_null() & pl.col("wait_known")
    came = (
        parts.filter(released & (pl.col("wait_ns") == 0) & (pl.col("transfer_ns") > 0))
        .group_by("collective_id", ready_ns="start_ns")
        .agg(pl.col("rank").min().alias("waits_for_rank"))
    )
    waited = pl.when(released & (pl.col("wait_ns") > 0)).then(
        pl.col("start_ns") + pl.col("wait_ns")
    )
    return (
        parts.with_columns(ready_ns=waited)
        .join(came, on=["collective_id", "ready_ns"], how="left", maintain_order="left")
        .drop("ready_ns")
    )


def flows(moved: pl.DataFrame) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Flows of participations that move bytes, one from a releaser to each that it released.

    `moved` has the columns of `with_releasers`. Returns offsets by row [n + 1], the ids of their
    flows (each id stands at two rows), and whether a row has flows that leave it (bool [n]).
    """
    n = len(moved)
    rows = moved.select("rank", "collective_id", "waits_for_rank", "start_ns", "wait_ns")
    rows = rows.with_row_index("row")
    came = rows.filter(pl.col("wait_ns") == 0).unique(
        ["collective_id", "rank", "start_ns"], keep="first", maintain_order=True
    )
    pairs = (
        rows.drop_nulls(["collective_id", "waits_for_rank"])
        .with_columns(ready_ns=pl.col("start_ns") + pl.col("wait_ns"))
        .join(
            came.select("collective_id", waits_for_rank="rank", ready_ns="start_ns", source="row"),
            on=["collective_id", "waits_for_rank", "ready_ns"],
            maintain_order="left",
        )
    )
    source, target = pairs["source"].to_numpy(), pairs["row"].to_numpy()
    ids = np.arange(1, len(pairs) + 1)
    row = np.concatenate([source, target]).astype(np.int64)
    order = np.argsort(row, kind="stable")
    ptr = np.searchsorted(row[order], np.arange(n + 1)).astype(np.int64)
    leads = np.zeros(n, bool)
    leads[source] = True
    return ptr, np.concatenate([ids, ids])[order], leads
