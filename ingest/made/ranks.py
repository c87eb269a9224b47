"""What the views tell of one rank, from its events, participations and steps."""

from __future__ import annotations

from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from typing import NamedTuple, TypeVar

import numpy as np

from .. import ahead, memory
from . import causes, kernels
from . import events as ev
from .aligned import UNKNOWN, Clock, Windows
from .compared import Marks
from .composition import Composed, Signed, compose
from .events import Events, Words
from .segmented import LEAST
from .walk import COMM, COMPUTE, COPY, Activity, Stretches, Walked, stretches, walk

LIBRARY = ("c10d::", "gloo:", "nccl:", "mpi:", "ucc:", "record_param_comms")
"""Beginnings of the names of the communication library's own host operations."""


class Parts(NamedTuple):
    """A rank's participations that the view `waits` has; arrays of one length."""

    event: np.ndarray
    start_ns: np.ndarray
    end_ns: np.ndarray
    ready_ns: np.ndarray
    """start and wait; the end where nothing says what part is wait"""
    wait_known: np.ndarray
    op: np.ndarray
    """code in the job's names"""
    signature: np.ndarray


class Ready(NamedTuple):
    """Of each event that carries participations, sorted: from when the first moves bytes."""

    event: np.ndarray
    transfer_ns: np.ndarray
    """`LEAST` where nothing says what part is wait"""

    def of(self, event: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """bool: it carries any; and from when it moves bytes, `LEAST` unknown."""
        if not len(self.event):
            return np.zeros(len(event), bool), np.full(len(event), LEAST)
        at = np.minimum(np.searchsorted(self.event, event), len(self.event) - 1)
        there = self.event[at] == event
        return there, np.where(there, self.transfer_ns[at], LEAST)


BESIDE_EVENTS = 20_000
"""From so many events of a rank on, two threads make what there is to make of it."""

ALONE_EVENTS = 1_200_000
"""From so many on again one: what both need at a time would be too much memory."""

T = TypeVar("T")


class OfRank(NamedTuple):
    """All that is made of a rank; what is called is perhaps still being made, or is only then."""

    rank: int
    stretches: Stretches
    walked: Walked
    caused: causes.Caused
    before: np.ndarray
    """name of the work whose end began each gap, -1 none"""
    after: np.ndarray
    composed: Callable[[], Composed]
    stats: Callable[[], kernels.Stats]
    moments: np.ndarray
    """those that `walked.covered` is of"""
    on_host: bool
    """its compute is that of its host"""
    bare: bool
    """it has no device, and its host does something"""
    marks: Marks


def of_rank(
    events: Events,
    words: Words,
    blocking: np.ndarray,
    library: np.ndarray,
    parts: Parts,
    ready: Ready,
    clock: Clock | None,
    windows: Windows | None,
    moments: np.ndarray,
) -> OfRank:
    """Everything of one rank. `blocking` and `library` tell it of each name (False at the end).

    `moments` are times at which the rank or a step of it begins or ends. Uses the events up: they
    are gone afterwards.
    """
    n = len(events.kind)
    beside = BESIDE_EVENTS <= n < ALONE_EVENTS and ahead.cores() > 1
    pool = ThreadPoolExecutor(1, "retime-made") if beside else None

    def later(make: Callable[..., T], *of: object) -> Callable[[], T]:
        return partial(make, *of) if pool is None else pool.submit(make, *of).result

    if pool is None:
        stats = partial(_given, kernels.stats(*_device(events)))
    on_device = bool(np.any(events.kind == ev.KERNEL))
    comm = int(words.categories.codes(["comm"])[0])
    a = activity(events, library, parts, ready, clock, comm, on_device)
    s = stretches(windows)
    signed = Signed(parts.event, parts.start_ns, parts.end_ns, parts.signature)
    composed = later(compose, a, s, windows, signed)
    if pool is not None:
        stats = pool.submit(kernels.stats, *_device(events)).result
        pool.shutdown(wait=False)
    host = _host(events, words, blocking, clock)
    on_host = bool(np.any(a.kind == COMPUTE)) and not on_device
    bare = bool(np.any(events.kind == ev.HOST_OP)) and not on_device
    marks = marks_of(events, clock)
    rank = events.rank
    events.let_go()
    if n >= ALONE_EVENTS:
        memory.give_back()
    edges = [] if windows is None else [windows.start_ns, windows.end_ns]
    moments = np.unique(np.concatenate([moments, parts.start_ns, parts.end_ns, *edges]))
    walked = walk(a, s, windows is not None, moments)
    gaps = walked.gaps
    ended_by = gaps.row
    none = ended_by < 0
    correlation = np.where(none, LEAST, np.append(a.correlation, LEAST)[ended_by])
    caused = causes.find(gaps, correlation, host)
    del host, correlation
    if n >= ALONE_EVENTS:
        memory.give_back()
    after = np.where(none, -1, np.append(a.name, np.int32(-1))[ended_by])
    return OfRank(
        rank, s, walked, caused, ended(a, gaps.free_ns), after, composed, stats, moments, on_host,
        bare, marks,
    )  # fmt: skip


def _given(value: T) -> T:
    return value


def _device(e: Events) -> tuple[np.ndarray, ...]:
    """Name, kind, category and duration of what ran on the device."""
    d = e.kind <= ev.MEMSET
    return e.name[d], e.kind[d], e.category[d], e.dur_ns[d]


def activity(
    e: Events, library: np.ndarray, parts: Parts, ready: Ready, clock: Clock | None, comm: int,
    on_device: bool,
) -> Activity:  # fmt: skip
    """The intervals of work of a rank, or of a part of its time; `comm` is the category's code."""
    of = clock or UNKNOWN
    kernel, copy = e.kind == ev.KERNEL, (e.kind == ev.MEMCPY) | (e.kind == ev.MEMSET)
    talks = kernel & (e.category == comm)
    kind = np.where(talks, np.int8(COMM), np.where(kernel, np.int8(COMPUTE), np.int8(COPY)))
    rows = np.flatnonzero(kernel | copy)
    if not on_device and clock is not None:
        rows = np.concatenate([rows, _of_host(e, library, ready, comm)])
        kind[e.kind == ev.HOST_OP] = COMPUTE
    start = of.align(e.start_ns[rows])
    end = of.align(e.start_ns[rows] + np.maximum(e.dur_ns[rows], 0))
    kind, event = kind[rows], e.event[rows]
    transfer, unsplit = start.copy(), np.zeros(len(rows), bool)
    its = np.flatnonzero(kind == COMM)
    _, moves = ready.of(event[its])
    unsplit[its] = moves == LEAST
    moves = np.where(moves == LEAST, end[its], moves)
    transfer[its] = np.maximum(start[its], np.minimum(end[its], moves))
    # What no event carries counts by its own times, and all of a rank without a device.
    own = np.flatnonzero((parts.event == LEAST) | (not on_device))
    device = e.kind[rows] <= ev.MEMSET
    return Activity(
        np.concatenate([start, parts.start_ns[own]]),
        np.concatenate([end, parts.end_ns[own]]),
        np.concatenate([kind, np.full(len(own), COMM, np.int8)]),
        np.concatenate([transfer, parts.ready_ns[own]]),
        np.concatenate([unsplit, ~parts.wait_known[own]]),
        np.concatenate([event, parts.event[own]]),
        np.concatenate([e.name[rows], parts.op[own].astype(np.int32)]),
        np.concatenate([np.where(device, e.correlation[rows], LEAST), np.full(len(own), LEAST)]),
    )


def _of_host(e: Events, library: np.ndarray, ready: Ready, comm: int) -> np.ndarray:
    """Rows of host operations that are the compute of a rank without a device."""
    carries, _ = ready.of(e.event)
    own = np.unique(e.thread[carries & (e.kind == ev.ANNOTATION) & (e.thread >= 0)])
    # A name that is not there passes no pattern.
    its = (e.kind == ev.HOST_OP) & (e.category != comm) & ~library[e.name] & (e.name >= 0)
    return np.flatnonzero(its & ~carries & ~np.isin(e.thread, own))


def _host(e: Events, words: Words, blocking: np.ndarray, clock: Clock | None) -> causes.Host:
    of = clock or UNKNOWN
    calls, loads = (
        np.flatnonzero(e.kind == ev.RUNTIME),
        np.flatnonzero(ev.marked(e, ev.LOADS)),
    )
    # The first thread of several is that by name.
    threads = np.unique(e.thread[e.thread >= 0])
    place = np.full(len(words.threads.all) + 1, -1, np.int32)
    place[sorted(threads.tolist(), key=words.threads.all.__getitem__)] = np.arange(len(threads))

    def times(rows: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        start = e.start_ns[rows]
        return of.align(start), of.align(start + np.maximum(e.dur_ns[rows], 0))

    return causes.Host(
        *times(calls), e.correlation[calls], place[e.thread[calls]], blocking[e.name[calls]],
        *times(loads), place[e.thread[loads]],
    )  # fmt: skip


def marks_of(e: Events, clock: Clock | None) -> Marks:
    """When the host collects garbage or loads data."""
    rows = np.flatnonzero(ev.marked(e, ev.LOADS | ev.GARBAGE) & (e.dur_ns > 0))
    of = clock or UNKNOWN
    start = e.start_ns[rows]
    garbage = ev.marked(e, ev.GARBAGE)[rows]
    return Marks(garbage, of.align(start), of.align(start + e.dur_ns[rows]))


def ended(a: Activity, at_ns: np.ndarray) -> np.ndarray:
    """Name of the work that ended at each of these times, the first to begin; -1 none."""
    if not len(a.end_ns) or not len(at_ns):
        return np.full(len(at_ns), -1)
    turn = np.where(a.event == LEAST, np.iinfo(np.int64).max, a.event)
    order = np.lexsort((turn, a.start_ns, a.end_ns))
    ends = a.end_ns[order]
    at = np.minimum(np.searchsorted(ends, at_ns), len(ends) - 1)
    return np.where(ends[at] == at_ns, a.name[order][at], -1)
