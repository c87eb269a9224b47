"""What of an all-to-all moves before its last member is there, and what arrivals then change.

Two members exchange as soon as both are there, and buffers take bytes for one that is not. So from
the last arrival on, an all-to-all may take less than its busiest port needs; where a policy lets
members arrive more nearly together, what moved early has to move after all. Deduced; seen on
sockets, where a port that needed 30 ms was done 18.6 ms after the last arrival.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
import polars as pl

from .. import engine
from ..graph import TaskGraph
from ..steps import participations

TOGETHER = 0.1
"""Arrivals within this share of the time after the last are together: nothing moved early."""

ROUNDS = 3
"""Times change when members arrive, and that what moves early: so often one follows the other."""


class Arrived(NamedTuple):
    """Of each of some collectives, float64 [k], ns."""

    took_ns: np.ndarray
    """From the last arrival until the last member is done."""
    spread_ns: np.ndarray
    """From the first arrival to the last."""
    late_ns: np.ndarray
    """What its members wait for the last, their mean."""


def arrived(graph: TaskGraph, collectives: np.ndarray) -> Arrived:
    """As a replay of the graph has it."""
    _, end = engine.replay(graph)
    arrive, transfer = participations(graph)
    at = end[arrive]
    frame = pl.DataFrame(
        {"collective": graph.collective[arrive], "at": at, "took": graph.dur_ns[transfer]}
    )
    found = frame.group_by("collective").agg(
        pl.col("took").max(),
        spread=pl.col("at").max() - pl.col("at").min(),
        late=pl.col("at").max() - pl.col("at").mean(),
    )
    asked = pl.DataFrame({"collective": collectives}, schema={"collective": pl.Int64})
    found = found.with_columns(pl.col("collective").cast(pl.Int64))
    rows = asked.join(found, on="collective", how="left", maintain_order="left")
    return Arrived(
        *(rows[c].fill_null(0).to_numpy().astype(np.float64) for c in ("took", "spread", "late"))
    )


def reached(was: Arrived, need_ns: np.ndarray) -> float:
    """What exchanges take of what their busiest port needs, 1 at most: ports may be faster.

    The median over those whose members came together; 1 where none did.
    """
    fair = (was.spread_ns <= TOGETHER * was.took_ns) & (need_ns > 0)
    return min(1.0, float(np.median(was.took_ns[fair] / need_ns[fair]))) if fair.any() else 1.0


def early_ns(was: Arrived, need_ns: np.ndarray) -> np.ndarray:
    """What moved before the last arrival, float64 [k], in ns of the busiest port.

    What is missing to the port's need (`need_ns`, as `reached`), and no more than there was time
    for between the first arrival and the last.
    """
    return np.clip(need_ns * reached(was, need_ns) - was.took_ns, 0.0, was.spread_ns)


def share(was: Arrived, now: Arrived) -> np.ndarray:
    """What of `early_ns` still moves early, float64 [k]: as much as members still wait."""
    return np.minimum(
        1.0,
        np.divide(now.late_ns, was.late_ns, out=np.ones(len(was.late_ns)), where=was.late_ns > 0),
    )
