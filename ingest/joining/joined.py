"""Several sources of one rank made one: participations, ranks' clocks and communicators.

Two sources that describe the same operation become one row with the better time. What shows that
they do, surest first: the number on a communicator both name; the record function; the order on a
communicator, with evidence that one reading only fits. Everything stays inside a rank. A wrong row
is worse than two rows for one operation.
"""

from __future__ import annotations

from collections import Counter
from typing import NamedTuple

import numpy as np
import pyarrow as pa

from .. import schema
from ..matching.hosts import replace_column
from ..matching.participations import codes, ints, timed_rows
from ..schema import Problem
from . import comms as joining_comms
from .exact import Odd, by_function_id, by_number
from .merge import Merged, merge
from .order import by_order
from .rows import Groups, View, read
from .shifts import RankClock, Shift, clocks_of, on_clocks, shifts_of
from .whole import by_window


class Joined(NamedTuple):
    """The rows of all sources, one a participation."""

    collectives: pa.Table
    comms: pa.Table
    ranks: pa.Table
    gone: np.ndarray
    """event ids of rows that are part of another now"""
    stands: np.ndarray
    """the event ids of those"""
    shifts: dict[tuple[int, str], Shift]
    """by rank and kind of source"""
    clocks: dict[int, RankClock]
    """by rank, of those that have one"""
    problems: list[Problem]


def join(collectives: pa.Table, ranks: pa.Table, comms: pa.Table) -> Joined:
    """The rows with what is one made one; `ranks` has one row a rank.

    Pure: what is joined depends on the rows, not on their order. Rows keep their order; those of a
    participation become that of the source with the best time, with `source` naming all of them.
    """
    said = [w for t in (comms, collectives) for w in joining_comms.ids(t.column("comm"))]
    names: dict[str, str] = {}
    if any(joining_comms.is_cut(text) for text in said):
        sizes = joining_comms.sizes_of((comms, "size"), (collectives, "group_size"))
        names = joining_comms.whole_names(said, sizes)
    collectives = joining_comms.renamed(collectives, schema.COLLECTIVES, names)
    comms = joining_comms.renamed(comms, schema.COMMS, names)
    comms, problems = joining_comms.assembled(comms)
    clocks = clocks_of(collectives, ranks)
    if not collectives.num_rows:
        none = np.zeros(0, np.int64)
        return Joined(collectives, comms, ranks, none, none, {}, clocks.ranks, problems)
    view = read(collectives, clocks)
    groups = Groups(view)
    odd, reasons = _join(view, groups)
    shifts = shifts_of(view, groups, clocks.words)
    problems += _told(view, groups, odd, reasons)
    collectives, clocks, told = on_clocks(collectives, clocks, shifts)
    problems += told
    view = view._replace(timed=timed_rows(collectives)[view.at], clock=clocks.clock[view.at])
    merged = merge(collectives, view, groups)
    problems += merged.problems
    return Joined(
        _shared_numbers(merged), comms, ranks, merged.gone, merged.stands, shifts, clocks.ranks,
        problems,
    )  # fmt: skip


def _join(view: View, groups: Groups) -> tuple[list[Odd], Counter]:
    """Joins all pairs of kinds; gives contradictions, and why orders stayed apart by rank."""
    odd: list[Odd] = []
    reasons: Counter = Counter()
    kinds = range(len(view.kinds))
    pairs = [(i, j) for i in kinds for j in kinds if i < j]
    for first, second in pairs:
        odd += by_number(view, groups, first, second)
        odd += by_function_id(view, groups, first, second)
        by_window(view, groups, first, second)
    have = {tuple(p) for p in np.unique(np.stack([view.rank, view.kind], 1), axis=0).tolist()}
    for first, second in pairs:
        for rank in sorted({r for r, k in have if k == first and (r, second) in have}):
            tried = by_order(view, groups, rank, first, second)
            for reason, n in tried.items():
                reasons[(rank, first, second, reason)] += n
    return odd, reasons


def _shared_numbers(merged: Merged) -> pa.Table:
    """The rows, numbers that another source lent kept where all ranks of a communicator have some.

    Where one rank's operations have numbers and another's have none, order has to match them.
    """
    table = merged.table
    if not merged.lent.any():
        return table
    comm, _ = codes(table.column("comm"))
    timed, rank, seq = timed_rows(table), ints(table, "rank"), ints(table, "seq")
    use = timed & (comm >= 0)
    every = np.unique(np.stack([comm[use], rank[use]], 1), axis=0)
    use &= seq >= 0
    some = np.unique(np.stack([comm[use], rank[use]], 1), axis=0)
    n = int(comm.max()) + 1
    bare = np.bincount(every[:, 0], minlength=n) > np.bincount(some[:, 0], minlength=n)
    back = merged.lent & timed & (comm >= 0) & np.append(bare, False)[comm]
    new = np.where(back, -1, seq)
    return replace_column(table, schema.COLLECTIVES, "seq", pa.array(new, mask=new < 0))


_WHY = {
    "none": "no order of theirs fits without a contradiction",
    "open": "they fit equally well at more than one place, or nothing tells whether they fit",
    "apart": "their times do not agree at any place that their sizes allow",
}


def _told(view: View, groups: Groups, odd: list[Odd], reasons: Counter) -> list[Problem]:
    """What could not be joined, one problem a pair of kinds."""
    problems = []
    wrong: dict[tuple[str, str], list[Odd]] = {}
    for o in odd:
        wrong.setdefault((o.first, o.second), []).append(o)
    for (first, second), found in sorted(wrong.items()):
        problems.append(
            Problem(
                "sources_contradict",
                f"{first} and {second} disagree on op, type, size or time of operations that they "
                f"number alike (rank {min(o.rank for o in found)}): these are not joined; are the "
                "sources of one run?",
                count=sum(o.rows for o in found),
            )
        )
    single = (groups.member[groups.root] >= 0).sum(1) == 1
    left: dict[tuple[str, str], Counter] = {}
    for rank in np.unique(view.rank).tolist():
        mine = view.rank == rank
        kinds = np.unique(view.kind[mine]).tolist()
        for kind in kinds[1:]:
            if not single[mine & (view.kind == kind)].all():
                continue
            pair = (view.kinds[kinds[0]], view.kinds[kind])
            why = next(
                (w for w in ("apart", "open", "none") if reasons[(rank, kinds[0], kind, w)]), ""
            )
            left.setdefault(pair, Counter())[why] += 1
    for (first, second), why in sorted(left.items()):
        told = "; ".join(_WHY[w] for w in sorted(why) if w) or "they share no number and no name"
        problems.append(
            Problem(
                "sources_not_joined",
                f"operations of {second} are not joined to those of {first} on "
                f"{sum(why.values())} ranks: {told}; each source's rows stand alone",
                "info",
                sum(why.values()),
            )
        )
    return problems
