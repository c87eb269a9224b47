"""What the views tell of a rank with very many events, by parts of its time.

A part ends where nothing runs, and the next begins with the work that comes then. What lies in one
owes nothing to the others but where its first gap began, which a piece of work without length
tells that stands there for all before.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import NamedTuple

import numpy as np

from .. import memory
from ..sorting import Lookup, Sorted
from . import causes, kernels
from . import events as ev
from .aligned import UNKNOWN, Clock, Odd, Windows
from .compared import Marks
from .composition import Signed, compose
from .events import Events, Rows, Words
from .ranks import OfRank, Parts, Ready, activity, ended, marks_of
from .segmented import LEAST, runs
from .walk import COMM, COPY, UNIONS, Activity, Gaps, before, stretches, walk

PART_ROWS = 100_000
"""Device work of a part; it has more where the rank's work never rests."""
MOST_PART_ROWS = 4_000_000
"""Of more, the job is left to the views."""
MOST_MARKS = 4_000_000
"""Blocking calls, and marks, of a rank that are held; with more, too."""

PIECE_ROWS = 1 << 15
_NO_THREAD = np.iinfo(np.int64).max
"""Comes behind all threads that have a name."""
_NAMES = ("kind", "name", "category", "event", "start_ns", "dur_ns", "correlation")


_Three = tuple[np.ndarray, np.ndarray, np.ndarray]


class _Blocked:
    """Calls that hold their thread: start, end and thread, in order of time."""

    def __init__(self, start: np.ndarray, end: np.ndarray, thread: np.ndarray):
        order = np.lexsort((end, start))
        self._calls = start[order], end[order], thread[order]
        by = runs(self._calls[2])
        self._of_thread = np.split(by.order, by.first[1:])

    def before(self, moments: np.ndarray) -> _Three:
        """Of each thread the last before each moment, and perhaps others."""
        first, until = np.searchsorted(
            self._calls[0], [moments.min(initial=0), moments.max(initial=0)]
        )
        last = [its[at - 1] for its in self._of_thread if (at := np.searchsorted(its, first))]
        rows = np.concatenate([np.array(last, np.int64), np.arange(first, until)])
        start, end, thread = (c[rows] for c in self._calls)
        return start, end, thread


class _BySignature:
    """A rank's participations by what they are known by, of which a part of its time has some."""

    def __init__(self, parts: Parts):
        carried = np.flatnonzero(parts.event != LEAST)
        self._rows = carried[np.argsort(parts.event[carried], kind="stable")]
        self._event = parts.event[self._rows]
        self._all = Signed(parts.event, parts.start_ns, parts.end_ns, parts.signature)

    def of(self, a: Activity, own: Parts) -> Signed:
        """Those that this work carries, and its own."""
        event = np.unique(a.event[(a.kind == COMM) & (a.event != LEAST)])
        first, until = (np.searchsorted(self._event, event, side) for side in ("left", "right"))
        many = until - first
        rows = np.arange(many.sum()) + np.repeat(first - (np.cumsum(many) - many), many)
        carried = (c[self._rows[rows]] for c in self._all)
        its = (own.event, own.start_ns, own.end_ns, own.signature)
        return Signed(*(np.concatenate(c) for c in zip(carried, its, strict=True)))


class _Last(NamedTuple):
    """The work that ended last of all before a part: when, and its name."""

    end_ns: int
    name: int


class Large:
    """A rank's events, sorted and put away."""

    def __init__(self, rows: Rows, words: Words, blocking: np.ndarray, clock: Clock | None):
        self.rank = rows.rank
        self._of = clock or UNKNOWN
        self._device = Sorted(2)
        self._calls = Lookup(1, 3, 3)
        self.stats = kernels.Streamed()
        # The first thread of several is that by name.
        place = np.empty(len(words.threads.all) + 1, np.int64)
        place[np.argsort(words.threads.all)] = np.arange(len(words.threads.all))
        place[-1] = _NO_THREAD
        blocked: list[_Three] = []
        loads: list[_Three] = []
        marks: list[Marks] = []
        n_marks = 0
        for e in rows.pieces():
            self._add_device(e)
            blocked.append(self._add_calls(e, place, blocking))
            hosts = np.flatnonzero(e.marks)
            start, end = self._times(e, hosts)
            its = ev.marked(e, ev.LOADS)[hosts]
            loads.append((start[its], end[its], place[e.thread[hosts[its]]]))
            marks.append(marks_of(e, clock))
            n_marks += len(hosts) + len(blocked[-1][0])
            if n_marks > MOST_MARKS:
                raise Odd
        self._blocked, self._loads = _Blocked(*_joined(blocked)), _joined(loads)
        self.marks = Marks(*_joined(marks))
        memory.give_back()

    def _times(self, e: Events, rows: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        start = e.start_ns[rows]
        return self._of.align(start), self._of.align(start + np.maximum(e.dur_ns[rows], 0))

    def _add_device(self, e: Events) -> None:
        rows = np.flatnonzero(e.kind <= ev.MEMSET)
        start, end = self._times(e, rows)
        self._device.add(start, e.event[rows], end, *(getattr(e, c)[rows] for c in _NAMES))
        self.stats.add(e.name[rows], e.kind[rows], e.category[rows], e.dur_ns[rows])

    def _add_calls(self, e: Events, place: np.ndarray, blocking: np.ndarray) -> _Three:
        """Puts away the launches; gives start, end and thread of calls that hold theirs."""
        calls = np.flatnonzero(e.kind == ev.RUNTIME)
        start, end = self._times(e, calls)
        thread, correlation = place[e.thread[calls]], e.correlation[calls]
        known = correlation != LEAST
        self._calls.add(correlation[known], start[known], thread[known])
        its = blocking[e.name[calls]]
        return start[its], end[its], thread[its]

    def parts(
        self, library: np.ndarray, comm: int, parts: Parts, ready: Ready, windows: Windows | None,
        moments: np.ndarray,
    ) -> Iterator[OfRank]:  # fmt: skip
        """What there is of each part of the rank's time, in order: gaps, and moments up to its end.

        The times of the classes and what is composed of all parts add up to the rank's.
        """
        s, signed = stretches(windows), _BySignature(parts)
        edges = [] if windows is None else [windows.start_ns, windows.end_ns]
        moments = np.unique(np.concatenate([moments, parts.start_ns, parts.end_ns, *edges]))
        last, so_far = None, np.zeros(len(UNIONS), np.int64)
        for e, its, is_last in self._cut(parts):
            a = activity(e, library, its, ready, self._of, comm, True)
            if last is not None:
                a = _behind(last, a)
            begins, ends = LEAST if last is None else last.end_ns, int(a.end_ns.max(initial=LEAST))
            n = len(moments) if is_last else int(np.searchsorted(moments, ends, "right"))
            walked = walk(a, s, windows is not None, np.append(moments[:n], ends))
            covered, so_far = walked.covered[:-1] + so_far, walked.covered[-1] + so_far
            gaps = _within(walked.gaps, begins, None if is_last else ends)
            by = np.where(gaps.row < 0, LEAST, np.append(a.correlation, LEAST)[gaps.row])
            composed = compose(a, s, windows, signed.of(a, its))
            yield OfRank(
                self.rank, s, walked._replace(gaps=gaps, covered=covered),
                causes.find(gaps, by, self._host(by)), ended(a, gaps.free_ns),
                np.where(gaps.row < 0, -1, np.append(a.name, np.int32(-1))[gaps.row]),
                lambda composed=composed: composed, self.stats.result, moments[:n], False, False,
                self.marks,
            )  # fmt: skip
            last, moments = _Last(ends, int(ended(a, np.array([ends]))[0])), moments[n:]
        self._calls.close()

    def _host(self, correlation: np.ndarray) -> causes.Host:
        """What the host did that can have caused gaps before work of these correlations."""
        wanted = np.unique(correlation[correlation != LEAST])
        start, thread = self._calls.find(wanted)
        found = start != LEAST
        at, (held, until, holds) = start[found], self._blocked.before(start[found])
        load_start, load_end, loads = self._loads
        return causes.Host(
            np.concatenate([at, held]), np.concatenate([at, until]),
            np.concatenate([wanted[found], np.full(len(held), LEAST)]),
            _threads(np.concatenate([thread[found], holds])),
            np.arange(len(at) + len(held)) >= len(at),
            load_start, load_end, _threads(loads),
        )  # fmt: skip

    def _cut(self, parts: Parts) -> Iterator[tuple[Events, Parts, bool]]:
        """The events and participations of each part, and whether it is the last."""
        own = np.flatnonzero(parts.event == LEAST)
        own = own[np.argsort(parts.start_ns[own], kind="stable")]
        begins = parts.start_ns[own]
        until = np.maximum.accumulate(parts.end_ns[own])
        taken, held, n = 0, [], 0
        for piece in self._device.pieces(PIECE_ROWS):
            held.append(piece)
            n += piece.shape[1]
            if n < PART_ROWS:
                continue
            whole = np.concatenate(held, axis=1)
            at = _rest(whole[0], whole[2], begins, until)
            if at:
                to = int(np.searchsorted(begins, whole[0, at]))
                its = Parts(*(c[np.sort(own[taken:to])] for c in parts))
                yield _events(self.rank, whole[:, :at]), its, False
                taken, whole = to, whole[:, at:].copy()
            elif n > MOST_PART_ROWS:
                raise Odd
            held, n = [whole], whole.shape[1]
        whole = np.concatenate(held, axis=1) if held else np.empty((3 + len(_NAMES), 0), np.int64)
        yield _events(self.rank, whole), Parts(*(c[np.sort(own[taken:])] for c in parts)), True


def _joined(found: Sequence[_Three]) -> _Three:
    first, second, third = (np.concatenate(c) for c in zip(*found, strict=True))
    return first, second, third


def _threads(place: np.ndarray) -> np.ndarray:
    return np.where(place == _NO_THREAD, -1, place)


def _events(rank: int, rows: np.ndarray) -> Events:
    columns = dict(zip(_NAMES, rows[3:], strict=True))
    none = np.full(rows.shape[1], -1, np.int32)
    return Events(
        rank, columns["kind"].astype(np.int8), columns["name"].astype(np.int32), none,
        columns["category"].astype(np.int32), columns["event"], columns["start_ns"],
        columns["dur_ns"], columns["correlation"], np.zeros(rows.shape[1], np.int8),
    )  # fmt: skip


def _rest(start: np.ndarray, end: np.ndarray, own_begins: np.ndarray, own_until: np.ndarray) -> int:
    """The last row before whose start nothing runs, of the device or of what no event carries."""
    at = np.flatnonzero((start > before(end)) & (before(end) != LEAST))
    own = np.searchsorted(own_begins, start[at]) - 1
    rests = (own < 0) | (np.append(own_until, LEAST)[own] < start[at])
    return int(at[rests][-1]) if rests.any() else 0


def _behind(last: _Last, a: Activity) -> Activity:
    """The part's work behind a piece without length that stands for all before it."""
    at, none = last.end_ns, LEAST
    first = Activity(*(
        np.array([v], c.dtype)
        for v, c in zip((at, at, COPY, at, False, none, last.name, none), a, strict=True)
    ))  # fmt: skip
    return Activity(*(np.concatenate(c) for c in zip(first, a, strict=True)))


def _within(gaps: Gaps, begins: int, ends: int | None) -> Gaps:
    """Those of a part: from when all before has ended until it all has."""
    its = gaps.start_ns >= begins
    if ends is not None:
        its &= gaps.start_ns < ends
    return Gaps(*(c[its] for c in gaps))
