"""What the host threads of traced ranks did: segments between calls, and what blocked them.

A thread's time is cut where it launches, synchronises or asks for a collective (on a rank without
a device: where any event begins or ends). The task of a cut is the segment up to it, a host gap or
the innermost event; a cut where the thread had been blocked (a return) waits for what blocked it.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from ..compiled import compiled
from . import host_collectives, threads
from .codes import distinct
from .collectives import Participations
from .device import Activities, Calls
from .events import Events, Words
from .kinds import PIN_END, PIN_START, Kind
from .piece import Piece
from .rows import by_time, grouped, last_at, ordered
from .tables import HOST

GAP = "host gap"

RETURN, MOMENT, BEGINNING = 0, 1, 2
"""Kinds of cuts, in the order they come at one time."""


class Cuts(NamedTuple):
    """Cuts by thread, then time; arrays [c]."""

    rank: np.ndarray
    """Place of the rank among those of the piece."""
    first: np.ndarray
    """int64 [ranks + 1]: where those of each rank begin."""
    by_time: np.ndarray
    """int64 [c]: the rows of each rank in order of time."""
    thread: np.ndarray
    """Dense code of (rank, thread)."""
    time_ns: np.ndarray
    is_return: np.ndarray
    call: np.ndarray
    """The launching call (a row of `Calls`), or -1."""
    part: np.ndarray
    """Of a return: the participation that blocked, -1 for the device."""
    task: np.ndarray


class _Found(NamedTuple):
    """Cuts as they are found, int64 [c] each; -1 where a cut has no such thing."""

    thread: np.ndarray
    time: np.ndarray
    order: np.ndarray
    """RETURN, MOMENT or BEGINNING."""
    event: np.ndarray
    call: np.ndarray
    part: np.ndarray
    step: np.ndarray


class Threads(NamedTuple):
    """The host threads of the ranks: dense codes of (rank, thread), by rank, then name."""

    rows: np.ndarray
    """Events on the host (rows of the piece's events)."""
    code: np.ndarray
    """The thread of each."""
    rank: np.ndarray
    """int64 [threads]: place of each one's rank."""
    key: np.ndarray
    """int64 [threads], sorted: what a rank and the place of a thread's name make."""
    name: np.ndarray
    """int64: the place of each name (by its code in `Words`; the last is null's)."""

    def of(self, rank: np.ndarray, name: np.ndarray) -> np.ndarray:
        """The codes of threads that are there, by rank and code of the name."""
        key = rank * len(self.name) + self.name[name]
        low, high = (int(self.key[0]), int(self.key[-1])) if len(self.key) else (0, -1)
        if high - low >= len(key):
            return np.searchsorted(self.key, key)
        code = np.zeros(high - low + 1, np.int64)
        code[self.key - low] = np.arange(len(self.key))
        return code[key - low]


def segments(
    piece: Piece,
    events: Events,
    end_ns: np.ndarray,
    act: Activities,
    calls: Calls,
    part: Participations,
    activity: np.ndarray,
    words: Words,
    marks_at: np.ndarray,
) -> Cuts:
    """Adds the host segments of all threads, and the edges between and into them.

    `activity` int64 [p] is that of each participation (-1: on the host); `marks_at` int64 [2, s]
    has rank and begin (on the host) of steps, whose annotations say nothing of what ran.
    """
    host = _threads(piece, events, words)
    found = [_of_calls(host, calls)]
    names: list[str | None] = []
    on_host = np.flatnonzero(activity < 0)
    asked = None
    if len(on_host) or not act.on_device[host.rank].all():
        asked = host_collectives.Asked(
            piece, events, end_ns, host, act.on_device, part, on_host, words.texts
        )
        ends, begins, names = asked.event_cuts(marks_at)
        found += [
            _Found(*ends[:2], np.full(len(ends[0]), MOMENT), *ends[2:]),
            _Found(*begins[:2], np.full(len(begins[0]), BEGINNING), *begins[2:]),
        ]
        starts, returns = asked.cuts(part)
        found += [
            _Found(*starts[:2], np.full(len(starts[0]), MOMENT), *starts[2:]),
            _Found(*returns[:2], np.full(len(returns[0]), RETURN), *returns[2:]),
        ]
    cut, inner = _in_order(_Found(*(np.concatenate(c) for c in zip(*found, strict=True))))
    n = len(cut.thread)
    rank = host.rank[cut.thread]
    first = np.searchsorted(rank, np.arange(len(piece.ranks) + 1))
    order = by_time(first, cut.time)
    is_return = cut.order == RETURN
    begins_thread = np.ones(n, bool)
    begins_thread[1:] = cut.thread[1:] != cut.thread[:-1]
    own = np.where(begins_thread, np.iinfo(np.int64).min, np.roll(cut.time, 1))
    over = np.full(n, -1, np.int64)
    if n and (np.diff(host.rank[distinct(cut.thread)[0]]) == 0).any():
        over = threads.hand_overs(rank, cut.thread, cut.time, own, order)
        over[is_return | ~act.on_device[rank]] = -1
    since = np.where(over >= 0, cut.time[over], np.where(begins_thread | is_return, cut.time, own))
    op = np.full(n, piece.word(GAP), np.int64)
    if names:
        known = inner >= 0
        op[known] = np.array([piece.word(GAP if t is None else t) for t in names])[inner[known]]
    task = piece.add(
        "cut",
        n,
        kind=int(Kind.HOST),
        rank=piece.ranks[rank],
        step=cut.step,
        op=op,
        start_ns=since,
        end_ns=cut.time,
        release_ns=cut.time,
        pin=np.where(is_return, PIN_START, PIN_END),
        thread=cut.thread - cut.thread[first[rank]],
    )
    cuts = Cuts(rank, first, order, cut.thread, cut.time, is_return, cut.call, cut.part, task)
    follows = np.flatnonzero(~begins_thread)
    piece.edge(task[follows - 1], task[follows])
    after = np.flatnonzero(over >= 0)
    piece.edge(task[over[after]], task[after])
    piece.handed_over |= len(after) > 0
    _blocked(piece, act, part, cuts)
    if asked is not None:
        _asked(piece, asked, part, cuts)
    return cuts


def launches(piece: Piece, calls: Calls, cuts: Cuts) -> None:
    """Edges from the cut of each launching call to what it launched."""
    task = np.full(len(calls.rank) + 1, -1, np.int64)
    is_launch = cuts.call >= 0
    task[cuts.call[is_launch]] = cuts.task[is_launch]
    by = task[calls.of]
    launched = np.flatnonzero((calls.of >= 0) & (by >= 0))
    piece.into_activity(by[launched], launched)


def _threads(piece: Piece, events: Events, words: Words) -> Threads:
    rows = events.of(*HOST)
    # Names in their order, null as "?".
    texts = [*words.texts, "?"]
    used = distinct(events.thread[rows])[0]
    sorted_texts = sorted({texts[u] for u in used.tolist()})
    place = {t: i for i, t in enumerate(sorted_texts)}
    name = np.zeros(len(texts), np.int64)
    name[used] = [place[texts[u]] for u in used.tolist()]
    rank = piece.place(events.rank[rows])
    key, code = distinct(rank * len(name) + name[events.thread[rows]])
    return Threads(rows, code, key // len(name), key, name)


def _of_calls(host: Threads, calls: Calls) -> _Found:
    """Launches, and synchronisations with their returns."""
    thread = host.of(calls.rank, calls.events.thread)
    n = int(calls.launches.sum() + 2 * calls.syncs.sum())
    found = _Found(*(np.full(n, -1, np.int64) for _ in _Found._fields))
    _put_calls(
        thread, calls.events.start_ns, calls.end_ns, calls.launches, calls.syncs,
        calls.events.step, found.thread, found.time, found.order, found.call, found.step,
    )  # fmt: skip
    return found


def _in_order(found: _Found) -> tuple[_Found, np.ndarray]:
    """The cuts by thread and time, mere moments that are equal once; the event inside of which
    each is (an index of the events that are cut, -1: none)."""
    by_thread, _ = grouped(found.thread, int(found.thread.max(initial=-1)) + 1)
    thread, time, kind = (c[by_thread] for c in (found.thread, found.time, found.order))
    rest = [_codes(c, by_thread) for c in (found.event, found.call, found.part)]
    many = [n for _, n in rest]
    if many[0] * many[1] * many[2] < 2**60:
        last = kind
        for code, n in rest:
            if n > 1:
                last = last * n + code
        order = ordered(thread, time, last)
    else:
        order = np.lexsort((*(code for code, _ in rest[::-1]), kind, time, thread))
    thread, time, kind = thread[order], time[order], kind[order]
    order = by_thread[order]
    inner = np.full(len(order), -1, np.int64)
    if many[0] > 1:
        inner = threads.innermost(thread, found.event[order], kind == BEGINNING)
    call = found.call[order]
    again = np.zeros(len(order), bool)
    again[1:] = (thread[1:] == thread[:-1]) & (time[1:] == time[:-1])
    again &= (call < 0) & (kind != RETURN)
    if again.any():
        kept = np.flatnonzero(~again)
        order, thread, time, kind, call = (c[kept] for c in (order, thread, time, kind, call))
        inner = inner[kept]
    event, part, step = (c[order] for c in (found.event, found.part, found.step))
    return _Found(thread, time, kind, event, call, part, step), inner


def _codes(values: np.ndarray, rows: np.ndarray) -> tuple[np.ndarray, int]:
    """Numbers from 0 in the order of some values of -1 and more, by row, and how many at most."""
    return values[rows] + 1, int(values.max(initial=-1)) + 2


def _blocked(piece: Piece, act: Activities, part: Participations, cuts: Cuts) -> None:
    """Edges into returns, from the collective or the device activity that was waited for."""
    by_part = np.flatnonzero(cuts.is_return & (cuts.part >= 0))
    if len(by_part):
        transfer = piece.blocks["transfer"].base
        piece.edge(transfer + cuts.part[by_part], cuts.task[by_part])
    by_device = np.flatnonzero(cuts.is_return & (cuts.part < 0))
    if not len(by_device):
        return
    until = cuts.rank[by_device], cuts.time_ns[by_device]
    last = last_at(act.first, act.by_end, act.end_ns, *until)
    known = last >= 0
    piece.edge(piece.finish[last[known]], cuts.task[by_device[known]])


def _asked(piece: Piece, asked: host_collectives.Asked, part: Participations, cuts: Cuts) -> None:
    """Edges from the caller's last cut to the arrival of each host collective."""
    n_threads = int(max(cuts.thread.max(initial=-1), asked.caller.max(initial=-1))) + 1
    by_thread = np.arange(len(cuts.thread))
    first = np.searchsorted(cuts.thread, np.arange(n_threads + 1))
    rows = asked.part
    last = last_at(first, by_thread, cuts.time_ns, asked.caller, part.start_ns[rows])
    known = last >= 0
    arrive = piece.blocks["arrive"].base
    piece.edge(cuts.task[last[known]], arrive + rows[known])


@compiled
def _put_calls(
    thread, start, end, launches, syncs, steps, out_thread, time, order, call, step
):  # pragma: no cover - compiled
    k = 0
    for i in range(len(thread)):
        if launches[i]:
            out_thread[k], time[k], order[k], call[k], step[k] = thread[i], start[i], 1, i, steps[i]
            k += 1
        if syncs[i]:
            out_thread[k], time[k], order[k], step[k] = thread[i], start[i], 1, steps[i]
            out_thread[k + 1], time[k + 1], order[k + 1], step[k + 1] = (
                thread[i], end[i], 0, steps[i],
            )  # fmt: skip
            k += 2
