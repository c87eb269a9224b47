"""Marks of no length where a step begins and ends on a rank: the step's time in any replay."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
import polars as pl

from .collectives import Participations
from .device import Activities
from .events import Events
from .host import Cuts
from .kinds import NULL, Kind
from .piece import Piece
from .rows import last_at
from .tables import DEVICE, HOST, ints, last_by


class Windows(NamedTuple):
    """The windows of steps on ranks, by rank, then step; arrays [s]."""

    rank: np.ndarray
    step: np.ndarray
    begin_ns: np.ndarray
    end_ns: np.ndarray
    ends: np.ndarray
    """The step that ends where this one begins, `NULL` for none."""
    has_end: np.ndarray
    """bool: no mark of another step's beginning stands at its end."""

    def of(self, low: int, high: int) -> Windows:
        """Those of ranks from `low` to `high`."""
        return Windows(*(c[(self.rank >= low) & (self.rank <= high)] for c in self))


def windows(steps: pl.DataFrame) -> tuple[Windows, int]:
    """The windows of `steps` (in one clock), and how many there were twice (the first is taken).

    A step that ends where the next one begins ends at that one's mark.
    """
    rows = steps.select("rank", "step", "start_ns", "end_ns").drop_nulls()
    rows = rows.filter(pl.col("end_ns") > pl.col("start_ns"))
    rows = rows.sort("rank", "step", "start_ns", "end_ns")
    once = rows.unique(["rank", "step"], keep="first", maintain_order=True)
    rank, step, begin, end = (ints(once[c]) for c in ("rank", "step", "start_ns", "end_ns"))
    next_one = last_by((rank, begin), np.lexsort((begin, rank)), (rank, end))
    shared = (next_one >= 0) & (begin[next_one] == end)
    # A mark ends one step: of steps that end together the others have marks of their own.
    met = np.flatnonzero(shared)
    shared[np.delete(met, np.unique(next_one[met], return_index=True)[1])] = False
    ends = np.full(len(rank), NULL, np.int64)
    ends[next_one[shared]] = step[shared]
    return Windows(rank, step, begin, end, ends, ~shared), len(rows) - len(once)


def whole_trace(piece: Piece, events: Events, end_ns: np.ndarray, part: Participations) -> Windows:
    """One step for each rank, 0, that lasts as long as its trace: where no steps are marked."""
    rows = events.of(*DEVICE, *HOST)
    rank = np.concatenate([piece.place(events.rank[rows]), piece.place(part.rank)])
    first = np.full(len(piece.ranks), np.iinfo(np.int64).max)
    last = np.full(len(piece.ranks), np.iinfo(np.int64).min)
    np.minimum.at(first, rank, np.concatenate([events.start_ns[rows], part.start_ns]))
    np.maximum.at(last, rank, np.concatenate([end_ns[rows], part.end_ns]))
    spans = pl.DataFrame({"rank": piece.ranks, "start_ns": first, "end_ns": last})
    return windows(spans.with_columns(step=pl.lit(0, pl.Int64)))[0]


def marks(piece: Piece, of: Windows, act: Activities, cuts: Cuts) -> None:
    """Adds the marks of all steps' windows on the ranks of a piece.

    A mark stands in front of the device activity that starts at its moment; where none does, it
    follows the last activity (on a rank without a device: the last host segment) before.
    """
    _add(piece, act, cuts, "begins", of.rank, of.step, of.begin_ns, begins=of.step, ends=of.ends)
    own = Windows(*(c[of.has_end] for c in of))
    _add(piece, act, cuts, "ends", own.rank, own.step, own.end_ns, ends=own.step)


def _add(
    piece: Piece,
    act: Activities,
    cuts: Cuts,
    name: str,
    rank: np.ndarray,
    step: np.ndarray,
    time_ns: np.ndarray,
    **extra: np.ndarray,
) -> None:
    """Adds marks at moments of ranks, tied to what happens there."""
    mark = piece.add(
        name,
        len(rank),
        kind=int(Kind.OTHER),
        rank=rank,
        step=step,
        op=piece.word(f"step {name}"),
        start_ns=time_ns,
        release_ns=time_ns,
        end_ns=time_ns,
        **extra,
    )
    at = piece.place(rank)
    pred = np.full(len(mark), -1, np.int64)
    last = last_at(cuts.first, cuts.by_time, cuts.time_ns, at, time_ns)
    pred[last >= 0] = cuts.task[last[last >= 0]]
    # On a rank with a device the host runs ahead: it bounds a step only before all activity.
    last = last_at(act.first, act.by_end, act.end_ns, at, time_ns)
    pred[last >= 0] = piece.finish[last[last >= 0]]
    by_start = np.arange(len(act))
    before = last_at(act.first, by_start, act.start_ns, at, time_ns - 1)
    first = np.where(before >= 0, before + 1, act.first[at])
    starts_here = first < act.first[at + 1]
    starts_here[starts_here] = act.start_ns[first[starts_here]] == time_ns[starts_here]
    piece.put_before(mark[starts_here], first[starts_here])
    tied = ~starts_here & (pred >= 0)
    piece.edge(pred[tied], mark[tied])
