"""Marks of no length where a step begins and ends on a rank: the step's time in any replay."""

from __future__ import annotations

import numpy as np
import polars as pl

from ..graph import NULL, Kind
from ..keys import paired
from .device import Activities
from .draft import Draft
from .host import Cuts
from .tables import DEVICE, HOST, Tables, ints, kind_is, last_by


def marks(draft: Draft, tables: Tables, act: Activities, cuts: Cuts) -> None:
    """Adds the marks of all steps' windows on all ranks.

    A mark stands in front of the device activity that starts at its moment; where none does, it
    follows the last activity (on a rank without a device: the last host segment) before. A step
    that ends where the next one begins ends at that one's mark.
    """
    windows = tables.steps.drop_nulls(["rank", "step", "start_ns", "end_ns"])
    if not len(windows):
        windows = _whole_trace(draft, tables)
    windows = windows.filter(pl.col("end_ns") > pl.col("start_ns"))
    windows = windows.sort("rank", "step", "start_ns", "end_ns")
    once = windows.unique(["rank", "step"], keep="first", maintain_order=True)
    if len(once) < len(windows):
        draft.warnings.append(
            f"{len(windows) - len(once)} windows of steps that their rank has already: the first "
            "of each is taken"
        )
    windows = once
    rank, step, begin, end = (ints(windows[c]) for c in ("rank", "step", "start_ns", "end_ns"))
    next_one = last_by((rank, begin), np.lexsort((begin, rank)), (rank, end))
    shared = (next_one >= 0) & (begin[next_one] == end)
    # A mark ends one step: of steps that end together the others have marks of their own.
    met = np.flatnonzero(shared)
    shared[np.delete(met, np.unique(next_one[met], return_index=True)[1])] = False
    ends = np.full(len(rank), NULL, np.int64)
    ends[next_one[shared]] = step[shared]
    _add(draft, act, cuts, "step begins", rank, step, begin, begins=step, ends=ends)
    own = ~shared
    _add(
        draft, act, cuts, "step ends", rank[own], step[own], end[own], ends=step[own]
    )  # fmt: skip


def _whole_trace(draft: Draft, tables: Tables) -> pl.DataFrame:
    draft.warnings.append("the trace marks no steps: the whole of it is taken as step 0")
    columns = ("rank", "start_ns", "end_ns")
    spans = pl.concat(
        [
            tables.events.filter(kind_is(*DEVICE, *HOST)).select(columns),
            tables.collectives.select(columns),
        ]
    )
    spans = spans.group_by("rank").agg(pl.col("start_ns").min(), pl.col("end_ns").max())
    return spans.with_columns(step=pl.lit(0, pl.Int64))


def _add(
    draft: Draft,
    act: Activities,
    cuts: Cuts,
    name: str,
    rank: np.ndarray,
    step: np.ndarray,
    time_ns: np.ndarray,
    **extra: np.ndarray,
) -> None:
    """Adds marks at moments of ranks, tied to what happens there."""
    mark = draft.add(
        len(rank),
        kind=Kind.OTHER,
        rank=rank,
        step=step,
        op=draft.codes(pl.Series([name] * len(rank), dtype=pl.String)),
        start_ns=time_ns,
        end_ns=time_ns,
        **extra,
    )
    now = rank, time_ns
    pred = np.full(len(mark), -1, np.int64)
    if len(cuts.task):
        order = np.lexsort((np.arange(len(cuts.task)), cuts.time_ns, cuts.rank))
        last = last_by((cuts.rank, cuts.time_ns), order, now)
        pred = np.where(last >= 0, cuts.task[last], pred)
    starts_here = np.zeros(len(mark), bool)
    if len(act):
        # On a rank with a device the host runs ahead: it bounds a step only before all activity.
        order = np.lexsort((np.arange(len(act)), act.end_ns, act.rank))
        last = last_by((act.rank, act.end_ns), order, now)
        pred = np.where(last >= 0, act.finish[last], pred)
        order = np.lexsort((np.arange(len(act)), act.start_ns, act.rank))
        keys, wanted = paired((act.rank[order], act.start_ns[order]), now)
        at = np.searchsorted(keys, wanted)
        first = order[np.minimum(at, len(order) - 1)]
        starts_here = (at < len(order)) & (keys[np.minimum(at, len(order) - 1)] == wanted)
        draft.put_before(mark[starts_here], act.begin[first[starts_here]])
    draft.edge(np.where(starts_here, -1, pred), mark)
