"""How long communication and compute of a device ran beside each other, block by block of time.

A block has all kernels that begin in a stretch of time. What still runs at its end goes on into
the next one with what it has come to so far: so few are held as run at a time.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import NamedTuple, TypeVar

import numpy as np

from ..sorting import Sorted
from .aligned import Odd
from .segmented import LEAST

BLOCK_ROWS = 1 << 16
MOST_TOGETHER = 1 << 21
"""Kernels of a device that begin at one moment, or run at one; with more the job is left to the
views."""

END = np.iinfo(np.int64).max


class Kernels(NamedTuple):
    """Kernels of a rank; arrays of one length, `LEAST` null, codes of names -1."""

    device: np.ndarray
    start_ns: np.ndarray
    event: np.ndarray
    dur_ns: np.ndarray
    name: np.ndarray
    talks: np.ndarray
    """1: communication"""
    grid_blocks: np.ndarray
    block_threads: np.ndarray

    def at(self, rows: np.ndarray) -> Kernels:
        """Some of them."""
        return Kernels(*(c[rows] for c in self))


class Block(NamedTuple):
    """The kernels of one device that begin in a stretch of time, in order of start and event."""

    kernels: Kernels
    until_ns: int
    """when the next begins, `END` none"""


class Beside(NamedTuple):
    """Compute kernels that have ended; arrays of one length."""

    dur_ns: np.ndarray
    name: np.ndarray
    grid_blocks: np.ndarray
    block_threads: np.ndarray
    overlapped_ns: np.ndarray
    """how long any communication ran beside it"""
    talk: np.ndarray
    """name of the communication that shared most of it: the last to begin before it, or the last
    to begin before its end; -1 none"""
    comm: np.ndarray
    """its communicator, -1 none"""


class Held(NamedTuple):
    """Communication kernels that have ended; arrays of one length."""

    name: np.ndarray
    comm: np.ndarray
    grid_blocks: np.ndarray
    channels: np.ndarray
    ns: np.ndarray
    overlapped_ns: np.ndarray
    """how long any compute ran beside it"""


class Covered(NamedTuple):
    """Disjoint stretches of time, and how much of it lies in those before each."""

    start_ns: np.ndarray
    until_ns: np.ndarray
    before_ns: np.ndarray

    def until(self, at: np.ndarray, side: str) -> tuple[np.ndarray, np.ndarray]:
        """The stretch that began last before each moment (-1 none; at it, for side `right`), and
        how much of the time before the moment is covered."""
        i = np.searchsorted(self.start_ns, at, side) - 1  # pyright: ignore
        j = np.maximum(i, 0)
        if not len(self.start_ns):
            return i, np.zeros(len(at), np.int64)
        inside = np.maximum(0, np.minimum(at, self.until_ns[j]) - self.start_ns[j])
        return i, np.where(i < 0, 0, self.before_ns[j] + inside)


def union(start: np.ndarray, end: np.ndarray) -> tuple[Covered, np.ndarray]:
    """Intervals in order of start as stretches, one a start; and the last interval of each."""
    last = np.flatnonzero(np.append(start[1:] != start[:-1], True)) if len(start) else start[:0]
    at, until = start[last], np.maximum.accumulate(end)[last]
    following = np.append(at[1:], until[-1:])
    covers = np.maximum(0, np.minimum(following, until) - at)
    return Covered(at, until, np.cumsum(covers) - covers), last


def blocks(rows: Sorted) -> Iterator[Block]:
    """The kernels, sorted by device, start and event, in blocks; of a device one after another.

    Raises Odd where more than `MOST_TOGETHER` begin at one moment of a device.
    """
    held = np.empty((len(Kernels._fields), 0), np.int64)
    for piece in rows.pieces(BLOCK_ROWS):
        whole = np.concatenate([held, piece], axis=1)
        new = np.flatnonzero(np.any(whole[:2, 1:] != whole[:2, :-1], axis=0)) + 1
        cut = int(new[-1]) if len(new) else 0
        yield from _of_devices(whole[:, :cut], whole[:2, cut])
        held = whole[:, cut:].copy()
        if held.shape[1] > MOST_TOGETHER:
            raise Odd
    yield from _of_devices(held, None)


def _of_devices(whole: np.ndarray, following: np.ndarray | None) -> Iterator[Block]:
    """Rows by device; `following` are device and start of what comes next, None at the end."""
    if not whole.shape[1]:
        return
    edges = np.flatnonzero(whole[0, 1:] != whole[0, :-1]) + 1
    its = np.split(whole, edges, axis=1)
    for one in its[:-1]:
        yield Block(Kernels(*one), END)
    until = END
    if following is not None and following[0] == whole[0, -1]:
        until = int(following[1])
    yield Block(Kernels(*its[-1]), until)


class _Work(NamedTuple):
    """Compute kernels that run."""

    start_ns: np.ndarray
    dur_ns: np.ndarray
    name: np.ndarray
    grid_blocks: np.ndarray
    block_threads: np.ndarray
    overlapped_ns: np.ndarray
    """so far"""
    talk_end_ns: np.ndarray
    """end of the communication that began last before it, `LEAST` none"""
    talk: np.ndarray
    comm: np.ndarray


class _Talk(NamedTuple):
    """Communication kernels that run."""

    start_ns: np.ndarray
    end_ns: np.ndarray
    name: np.ndarray
    comm: np.ndarray
    grid_blocks: np.ndarray
    channels: np.ndarray
    overlapped_ns: np.ndarray
    """so far"""


Running = TypeVar("Running", _Work, _Talk)


class Sweep:
    """Goes along the time of one device.

    `said` gives what collectives say of communication kernels by their events: the communicator
    (code, -1 null) and the channels (`LEAST` null).
    """

    def __init__(self, said: Callable[[np.ndarray], tuple[np.ndarray, np.ndarray]]):
        self._said = said
        self._work = _Work(*(np.zeros(0, np.int64) for _ in _Work._fields))
        self._talk = _Talk(*(np.zeros(0, np.int64) for _ in _Talk._fields))
        self._last = self._talk
        """the communication that began last; none at first"""
        self._talk_until = self._work_until = int(LEAST)
        """when all that has begun has ended"""

    def take(self, block: Block) -> tuple[Beside, Held]:
        """What has ended before the next block begins.

        Raises Odd where more than `MOST_TOGETHER` kernels run on.
        """
        k, until = block.kernels, block.until_ns
        begins = int(k.start_ns[0])
        talks = k.at(np.flatnonzero(k.talks))
        works = k.at(np.flatnonzero((k.talks == 0) & (k.dur_ns > 0)))
        end = talks.start_ns + np.maximum(talks.dur_ns, 0)
        comm, channels = self._said(talks.event)
        none = np.zeros(len(end), np.int64)
        talk = _Talk(talks.start_ns, end, talks.name, comm, talks.grid_blocks, channels, none)
        beside = self._compute(works, talk, begins, until)
        held = self._communication(talk, works, begins, until)
        if len(self._work.dur_ns) + len(self._talk.end_ns) > MOST_TOGETHER:
            raise Odd
        return beside, held

    def _compute(self, k: Kernels, talk: _Talk, begins: int, until: int) -> Beside:
        # What began before the block: of all its times one stretch, and who began last.
        began = _joined(self._last, talk)
        ends = began.end_ns.copy()
        ends[: len(self._last.end_ns)] = self._talk_until
        talking, last = union(began.start_ns, ends)
        ran = _Talk(*(c[last] for c in began))
        a, before = talking.until(k.start_ns, "right")
        new = _Work(
            k.start_ns, k.dur_ns, k.name, k.grid_blocks, k.block_threads, -before,
            _of(ran.end_ns, a, LEAST), _of(ran.name, a, -1), _of(ran.comm, a, -1),
        )  # fmt: skip
        _, so_far = talking.until(np.array([begins]), "right")
        work = self._work._replace(overlapped_ns=self._work.overlapped_ns - so_far)
        work = _joined(work, new)
        end = work.start_ns + work.dur_ns
        b, covered = talking.until(np.minimum(end, until), "left")
        work = work._replace(overlapped_ns=work.overlapped_ns + covered)
        self._work = _Work(*(c[end > until] for c in work))
        if len(talk.end_ns):
            self._talk_until = max(self._talk_until, int(talk.end_ns.max()))
            self._last = _Talk(*(c[-1:] for c in talk))
        over = np.flatnonzero(end <= until)
        end, b = end[over], b[over]
        work = _Work(*(c[over] for c in work))
        first = np.minimum(end, work.talk_end_ns) - work.start_ns
        began_ns, ended_ns = _of(ran.start_ns, b, 0), _of(ran.end_ns, b, 0)
        later = np.minimum(end, ended_ns) - np.maximum(work.start_ns, began_ns)
        at_first = (work.talk_end_ns != LEAST) & (first >= later)
        return Beside(
            work.dur_ns, work.name, work.grid_blocks, work.block_threads, work.overlapped_ns,
            np.where(at_first, work.talk, _of(ran.name, b, -1)),
            np.where(at_first, work.comm, _of(ran.comm, b, -1)),
        )  # fmt: skip

    def _communication(self, new: _Talk, k: Kernels, begins: int, until: int) -> Held:
        # All compute counts: what runs beside communication at all is all that shares its time.
        starts, ends = k.start_ns, k.start_ns + k.dur_ns
        if self._work_until > begins:
            starts, ends = np.append(begins, starts), np.append(self._work_until, ends)
        working, _ = union(starts, ends)
        talk = _joined(self._talk, new)
        _, before = working.until(np.maximum(talk.start_ns, begins), "right")
        _, covered = working.until(np.minimum(talk.end_ns, until), "right")
        talk = talk._replace(overlapped_ns=talk.overlapped_ns + covered - before)
        self._work_until = max(self._work_until, int(ends.max(initial=LEAST)))
        self._talk = _Talk(*(c[talk.end_ns > until] for c in talk))
        over = talk.end_ns <= until
        talk = _Talk(*(c[over] for c in talk))
        return Held(
            talk.name, talk.comm, talk.grid_blocks, talk.channels, talk.end_ns - talk.start_ns,
            talk.overlapped_ns,
        )  # fmt: skip


def _joined(held: Running, new: Running) -> Running:
    return type(held)(*(np.concatenate(c) for c in zip(held, new, strict=True)))


def _of(values: np.ndarray, at: np.ndarray, none: int) -> np.ndarray:
    """The values at places; `none` at -1."""
    return np.append(values, none)[at]
