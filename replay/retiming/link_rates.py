"""What links carry after a policy, against what the floor of the busiest link counts on them.

`bounds` counts what a rank must send on its link in the host or out of it. A policy that puts
collectives on other links says what those carry, and the floor becomes one of the new links.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
import polars as pl

from .. import bounds
from ..policy import ReplayJob
from .places import Places


class Counted(NamedTuple):
    """How the floor counts each of k collectives."""

    hosts: np.ndarray
    """int64 [k]: hosts of their ranks, 0 where not known (then counted inside a host)."""
    share: np.ndarray
    """float64 [k]: what a rank must send, in sizes of the operation."""
    bytes_per_s: np.ndarray
    """float64 [k]: of the link on which that is counted, by data sheet or fabric."""


def counted(job: ReplayJob, rows: pl.DataFrame) -> Counted:
    """How `bounds` counts rows of `transfers.chosen` that run on links as recorded."""
    places, (rate, _) = Places.of(job), bounds.capacities(job)
    hosts, share = np.zeros(len(rows), np.int64), np.zeros(len(rows))
    number = rows.with_row_index("place")
    paired = pl.when(pl.col("op").is_in(bounds.P2P)).then(
        pl.col("ranks").list.eval(pl.element().cast(pl.String)).list.join(" ")
    )
    for (_, op, n, _), group in number.group_by("comm", "op", "n", paired.alias("pair")):
        at = group["place"].to_numpy()
        hosts[at] = places.hosts_of(group["ranks"][0].to_numpy())
        share[at] = bounds.least_share(str(op), int(str(n)), int(hosts[at[0]]))
    return Counted(hosts, share, rate[(hosts > 1).astype(np.int64)])


def ratio(of: Counted, bytes_per_s: np.ndarray) -> np.ndarray:
    """`bandwidth_ratio` of `transfers.scaled` for links that carry so much, float64 [k].

    NaN says that a collective's links are as they were.
    """
    new = np.asarray(bytes_per_s, np.float64)
    known = np.isfinite(new) & (new > 0)
    return np.where(known, new / of.bytes_per_s, 1.0)
