"""Clocks of the sources of a rank: which rows are on another than the rank's, and what moves them.

A rank's times are on its host's clock (`host`, `boot`) or on one of a process's own (`process`).
Two clocks of one rank can be compared only by what sources on both say of the same operations.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
import pyarrow as pa

from .. import schema
from ..matching.hosts import EPOCH, replace_column
from ..matching.participations import codes, ints, texts
from ..schema import Problem
from .rows import KINDS, TIMELINES, Groups, View

FEW = 3
"""Joined rows that a shift of clocks takes at least."""
TIMES = ("start_ns", "end_ns", "enqueued_ns")
"""Columns of `collectives` that are moments."""
EPOCHS, TOLD = frozenset(EPOCH), ("host", "recorded")
"""Words for the host's time of day; those of a rank that has times."""
OWN = "process"
"""The word for a clock with a zero of its process's own: each kind of source has another."""


class Shift(NamedTuple):
    """What takes a source's clock to that of its rank, and the spread of what told it."""

    offset_ns: int
    spread_ns: int
    word: str
    """the source's clock"""


class RankClock(NamedTuple):
    """The clock of a rank: its word, and the kind of source whose it is where that matters."""

    word: str
    kind: str | None


class RowClocks(NamedTuple):
    """The clock of each row, and that of its rank, as codes: equal ones can be compared."""

    clock: np.ndarray
    own: np.ndarray
    """int64[rows], of the row's rank"""
    words: list[str]
    """word of each code"""
    ranks: dict[int, RankClock]
    """by rank, without those that have none"""

    def of_process(self) -> np.ndarray:
        """bool[rows]: the row's times count from a zero of a process's own."""
        return np.array([w == OWN for w in self.words], dtype=bool)[self.clock]

    def foreign(self) -> np.ndarray:
        """bool[rows]: the row's times are on another clock than its rank's."""
        return self.clock != self.own


def clocks_of(collectives: pa.Table, ranks: pa.Table) -> RowClocks:
    """The clocks of rows and ranks. A row that names none is on its host's, a timeline's on its
    rank's. A process's own clock is the timeline's where several sources have one.
    """
    said = dict(zip(ranks["rank"].to_pylist(), ranks["clock"].to_pylist(), strict=True))
    said.pop(None, None)
    if collectives.column("clock").null_count == collectives.num_rows and EPOCHS.issuperset(
        said.values()
    ):
        same = np.zeros(collectives.num_rows, dtype=np.int64)
        of_host = {r: RankClock("host", None) for r, w in said.items() if w in TOLD}
        return RowClocks(same, same, ["host"], of_host)
    clock, words = codes(collectives.column("clock"), ["host", OWN])
    source, kinds = codes(collectives.column("source"))
    for word in sorted({c for c in said.values() if c not in EPOCH} - set(words)):
        words.append(word)
    place = {w: i for i, w in enumerate(words)}
    # each kind's process has a code of its own; the last stands for one that no row has
    base = len(words)
    words += [OWN] * (len(kinds) + 1)
    rank = ints(collectives, "rank")
    clock = np.where(clock == 1, base + np.where(source < 0, len(kinds), source), clock)
    owner = _owners(rank, clock - base, kinds)
    ordered = sorted(said)
    own_of = np.zeros(len(ordered) + 1, dtype=np.int64)
    known = {}
    for i, r in enumerate(ordered):
        word = said[r]
        if word == OWN:
            own_of[i] = base + owner.get(r, len(kinds))
            known[r] = RankClock(OWN, kinds[owner[r]] if r in owner else None)
        elif word not in EPOCH:
            own_of[i] = place[word]
            known[r] = RankClock(word, None)
        elif word in TOLD:
            known[r] = RankClock("host", None)
    at = np.searchsorted(np.array(ordered, dtype=np.int64), rank)
    there = np.append(np.array(ordered, dtype=np.int64), -2)[at] == rank
    own = own_of[np.where(there, at, len(ordered))]
    of_timeline = np.array([k in TIMELINES for k in kinds] + [True])[source]
    clock = np.where(clock < 0, np.where(of_timeline, own, 0), clock)
    return RowClocks(clock, own, words, known)


def _owners(rank: np.ndarray, kind: np.ndarray, kinds: list[str]) -> dict[int, int]:
    """By rank the first kind, timelines before others, with times of its process's own."""
    there = (kind >= 0) & (kind < len(kinds))
    pairs = np.unique(np.stack([rank[there], kind[there]], 1), axis=0).tolist()
    out: dict[int, int] = {}
    for r, k in sorted(pairs, key=lambda p: (p[0], _order(kinds[p[1]]), kinds[p[1]])):
        out.setdefault(r, k)
    return out


def _order(kind: str) -> int:
    return KINDS.index(kind) if kind in KINDS else len(KINDS)


def shifts_of(view: View, groups: Groups, words: list[str]) -> dict[tuple[int, str], Shift]:
    """Shifts of sources' clocks by rank and kind, from rows joined to one of the rank's timeline.

    `words` are those of the clocks' codes. From starts or ends, whichever differ by the more
    constant amount.
    """
    out: dict[tuple[int, str], Shift] = {}
    away = np.flatnonzero((view.clock != view.own) & view.timed)
    if not len(away):
        return out
    line = np.full(len(away), -1, dtype=np.int64)
    for k, kind in enumerate(view.kinds):
        if kind in TIMELINES:
            mate = groups.partner(k)[away]
            good = (mate >= 0) & (line < 0)
            good[good] = view.timed[mate[good]] & (view.clock == view.own)[mate[good]]
            line[good] = mate[good]
    away, line = away[line >= 0], line[line >= 0]
    for rank, kind in np.unique(np.stack([view.rank[away], view.kind[away]], 1), axis=0).tolist():
        mine = (view.rank[away] == rank) & (view.kind[away] == kind)
        if mine.sum() < FEW or len(np.unique(view.clock[away[mine]])) > 1:
            continue
        found = []
        word = words[int(view.clock[away[mine][0]])]
        for moment in (view.end, view.start):
            gap = moment[line[mine]] - moment[away[mine]]
            middle = int(np.sort(gap)[(len(gap) - 1) // 2])
            spread = int(np.sort(np.abs(gap - middle))[(len(gap) - 1) // 2])
            found.append(Shift(middle, spread, word))
        out[(rank, view.kinds[kind])] = min(found, key=lambda s: s.spread_ns)
    return out


def on_clocks(
    table: pa.Table, clocks: RowClocks, shifts: dict[tuple[int, str], Shift]
) -> tuple[pa.Table, RowClocks, list[Problem]]:
    """The rows with times on the clock of their rank, or without where nothing ties the two."""
    there = {name: table.column(name).is_valid().to_numpy() for name in TIMES}
    says = table.column("clock").is_valid().to_numpy()
    strange = clocks.foreign() & (there["start_ns"] | there["end_ns"])
    strange |= clocks.foreign() & says & there["enqueued_ns"]
    if not strange.any():
        return table, clocks, []
    rank = ints(table, "rank")
    source, sources = codes(table.column("source"))
    move, moved = np.zeros(len(rank), dtype=np.int64), np.zeros(len(rank), dtype=bool)
    for (r, kind), shift in sorted(shifts.items()):
        mine = strange & (rank == r) & (source == sources.index(kind))
        mine &= np.array([w == shift.word for w in clocks.words])[clocks.clock]
        move[mine], moved[mine] = shift.offset_ns, True
    lost = strange & ~moved
    problems = _told(rank, moved, lost, shifts)
    for name in TIMES:
        new = ints(table, name, 0) + move
        values = pa.array(new, mask=~(there[name] & ~lost))
        table = replace_column(table, schema.COLLECTIVES, name, values)
    code, words = codes(table.column("clock"))
    names = [*words, *clocks.words]
    code = np.where(lost, -1, np.where(moved, len(words) + clocks.own, code))
    table = replace_column(table, schema.COLLECTIVES, "clock", texts(code, names))
    code, words = codes(table.column("timing"))
    timing = texts(np.where(lost, -1, code), words)
    table = replace_column(table, schema.COLLECTIVES, "timing", timing)
    return table, clocks._replace(clock=np.where(moved, clocks.own, clocks.clock)), problems


def _told(
    rank: np.ndarray, moved: np.ndarray, lost: np.ndarray, shifts: dict[tuple[int, str], Shift]
) -> list[Problem]:
    problems = []
    if moved.any():
        spread = max((s.spread_ns for s in shifts.values()), default=0)
        problems.append(
            Problem(
                "clock_shifted",
                "operations timed on another clock than their rank's are put on the clock of their "
                "rank by those that both sources timed; these differ from the shift by "
                f"{spread} ns in the median, at most over ranks",
                "info",
                int(moved.sum()),
            )
        )
    if lost.any():
        problems.append(
            Problem(
                "clock_unknown",
                "operations are timed on another clock than the timeline of their rank, and "
                f"nothing ties the two (rank {int(rank[lost].min())}): they are kept without times",
                count=int(lost.sum()),
            )
        )
    return problems
