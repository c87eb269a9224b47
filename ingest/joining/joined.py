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
from ..matching.participations import codes, ints, texts, timed_rows
from ..schema import Problem
from . import comms as joining_comms
from .exact import Odd, by_function_id, by_number
from .merge import Merged, merge
from .order import by_order
from .rows import TIMELINES, Groups, View, read
from .whole import by_window

FEW = 3
"""Joined rows that a shift of clocks takes at least."""


class Shift(NamedTuple):
    """What takes a process's own clock to that of its rank, and the spread of what told it."""

    offset_ns: int
    spread_ns: int


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
    timed_ranks: set[int]
    process_ranks: set[int]
    """ranks whose own clock is that of a process"""
    problems: list[Problem]


def join(collectives: pa.Table, ranks: pa.Table, comms: pa.Table) -> Joined:
    """The rows with what is one made one; `ranks` has one row a rank.

    Pure: what is joined depends on the rows, not on their order. Rows keep their order; those of a
    participation become that of the source with the best time, with `source` naming all of them.
    """
    names = joining_comms.whole_names(
        [*codes(comms.column("comm"))[1], *codes(collectives.column("comm"))[1]],
        joining_comms.sizes_of((comms, "size"), (collectives, "group_size")),
    )
    collectives = joining_comms.renamed(collectives, schema.COLLECTIVES, names)
    comms = joining_comms.renamed(comms, schema.COMMS, names)
    comms, problems = joining_comms.assembled(comms)
    view = read(collectives)
    groups = Groups(view)
    odd, reasons = _join(view, groups)
    clock = dict(zip(ranks["rank"].to_pylist(), ranks["clock"].to_pylist(), strict=True))
    of_process = {r for r, c in clock.items() if c == "process"}
    shifts = _shifts(view, groups, of_process)
    problems += _told(view, groups, odd, reasons)
    collectives, told = _on_clocks(collectives, shifts, of_process)
    problems += told
    view = view._replace(timed=timed_rows(collectives)[view.at])
    merged = merge(collectives, view, groups)
    return Joined(
        _shared_numbers(merged), comms, ranks, merged.gone, merged.stands, shifts,
        {r for r, c in clock.items() if c not in (None, "none")}, of_process, problems,
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


def _shifts(view: View, groups: Groups, of_process: set[int]) -> dict[tuple[int, str], Shift]:
    """Shifts of processes' own clocks, from rows joined to one of the rank's timeline.

    From starts or ends, whichever differ by the more constant amount.
    """
    out = {}
    own = np.flatnonzero(view.process & view.timed)
    if not len(own):
        return out
    line = np.full(len(own), -1, dtype=np.int64)
    for k, kind in enumerate(view.kinds):
        if kind in TIMELINES:
            mate = groups.partner(k)[own]
            good = (mate >= 0) & (line < 0)
            good[good] = view.timed[mate[good]] & ~view.process[mate[good]]
            line[good] = mate[good]
    own, line = own[line >= 0], line[line >= 0]
    for rank, kind in np.unique(np.stack([view.rank[own], view.kind[own]], 1), axis=0).tolist():
        mine = (view.rank[own] == rank) & (view.kind[own] == kind)
        if mine.sum() < FEW or rank in of_process:
            continue
        best = None
        for moment in (view.end, view.start):
            gap = moment[line[mine]] - moment[own[mine]]
            middle = int(np.sort(gap)[(len(gap) - 1) // 2])
            spread = int(np.sort(np.abs(gap - middle))[(len(gap) - 1) // 2])
            if best is None or spread < best.spread_ns:
                best = Shift(middle, spread)
        assert best is not None
        out[(rank, view.kinds[kind])] = best
    return out


def _on_clocks(
    table: pa.Table, shifts: dict[tuple[int, str], Shift], of_process: set[int]
) -> tuple[pa.Table, list[Problem]]:
    """The rows with times on the clock of their rank, or without where nothing ties the two."""
    clock, words = codes(table.column("clock"))
    own = clock == (words.index("process") if "process" in words else -2)
    host = clock == (words.index("host") if "host" in words else -2)
    rank = ints(table, "rank")
    on_own = np.isin(rank, np.array(sorted(of_process), dtype=np.int64))
    strange = (own & ~on_own) | (host & on_own)
    strange &= table.column("start_ns").is_valid().to_numpy()
    if not strange.any():
        return table, []
    source, sources = codes(table.column("source"))
    move, moved = np.zeros(len(rank), dtype=np.int64), np.zeros(len(rank), dtype=bool)
    problems = []
    for (r, kind), shift in sorted(shifts.items()):
        mine = strange & own & (rank == r) & (source == sources.index(kind))
        move[mine], moved[mine] = shift.offset_ns, True
    spread = max((s.spread_ns for s in shifts.values()), default=0)
    if moved.any():
        problems.append(
            Problem(
                "clock_shifted",
                "operations timed on a clock of their process's own are put on the clock of their "
                "rank by those that both sources timed; these differ from the shift by "
                f"{spread} ns in the median, at most over ranks",
                "info",
                int(moved.sum()),
            )
        )
    lost = strange & ~moved
    if lost.any():
        problems.append(
            Problem(
                "clock_unknown",
                "operations are timed on another clock than the timeline of their rank, and "
                f"nothing ties the two (rank {int(rank[lost].min())}): they are kept without times",
                count=int(lost.sum()),
            )
        )
    for name in ("start_ns", "end_ns"):
        old = table.column(name).cast(pa.int64())
        there = old.is_valid().to_numpy() & ~lost
        new = old.fill_null(0).to_numpy() + move
        table = replace_column(table, schema.COLLECTIVES, name, pa.array(new, mask=~there))
    for name, value in (("clock", "host"), ("timing", None)):
        code, words = codes(table.column(name))
        code = np.where(moved & (value is not None), len(words), code)
        values = texts(np.where(lost, -1, code), [*words, "host"])
        table = replace_column(table, schema.COLLECTIVES, name, values)
    return table, problems


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
