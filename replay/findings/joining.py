"""What the collectives of a job tell of its ranks: whether their clocks agree, and their ids."""

from __future__ import annotations

from typing import Any

import numpy as np
import polars as pl

from ...ingest.errors import UnusableInput
from .. import load


def check_clocks(rank: np.ndarray, collective: np.ndarray, ranks: pl.DataFrame) -> None:
    """Raises UnusableInput unless the ranks of each collective can be compared.

    As `_rank_clocks` has it in SQL: those that something ties to the job's clock can, and otherwise
    those of one host. `rank` (0 or more) and `collective` are those of each arrival, `ranks` the
    table.
    """
    word = pl.col("clock").cast(pl.String).fill_null("host")
    host = pl.col("host").cast(pl.String)
    own = (
        pl.when(host.is_null() | (word == "process"))
        .then(pl.format("rank {}", "rank"))
        .when(~word.is_in(["host", "recorded", "none"]))
        .then(pl.format("{} of host {}", word, host))
        .otherwise(pl.format("host {}", host))
    )
    clock = pl.when(pl.col("clock_error_ns").is_null()).then(own).otherwise(pl.lit("job"))
    known = ranks.select("rank", clock=clock.rank("dense").cast(pl.Int64)).unique("rank")
    n_ranks = int(rank.max(initial=-1)) + 1
    of_rank = -1 - np.arange(n_ranks)
    there = known.filter(pl.col("rank").is_between(0, n_ranks - 1))
    of_rank[there["rank"].to_numpy()] = there["clock"].to_numpy()
    _, instance = np.unique(collective, return_inverse=True)
    clocks = of_rank[rank]
    first = np.zeros(len(rank), np.int64)
    first[instance.reshape(-1)] = clocks
    if (first[instance.reshape(-1)] != clocks).any():
        raise UnusableInput(
            "ranks that meet in collectives are on clocks that nothing ties together: who came "
            "last, and so what set a step's time, is not known"
        )


def collective_ids(snapshot: Any, event_id: np.ndarray, code: np.ndarray) -> np.ndarray:
    """int64 [codes]: `collective_id` of the collective of each code, -1 for none.

    Tasks with a `code` (0 or more) know the events of their participations (-1: none); those of one
    collective share its id. Of several that a kernel carries the first counts, as in the graph.
    """
    rows = load.read(
        snapshot.files, "collectives", columns=("event_id", "collective_id", "start_ns")
    )
    rows = rows.drop_nulls(["event_id", "collective_id"]).sort("start_ns", "collective_id")
    rows = rows.unique("event_id", keep="first", maintain_order=True).sort("event_id")
    event, id = rows["event_id"].to_numpy(), rows["collective_id"].to_numpy()
    of_code = np.full(int(code.max(initial=-1)) + 1, -1, np.int64)
    if len(event):
        at = np.minimum(np.searchsorted(event, event_id), len(event) - 1)
        known = event[at] == event_id
        of_code[code[known]] = id[at[known]]
    return of_code
