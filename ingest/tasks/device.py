"""What ran on the devices of some traced ranks: order on streams, launches, waits between them."""

from __future__ import annotations

import re
from typing import NamedTuple

import numpy as np

from . import streams
from .codes import distinct
from .events import Events, Some, Words
from .keys import paired
from .kinds import NULL
from .piece import Piece
from .rows import by_time, first_of, grouped, ordered
from .tables import DEVICE, within

SYNC_CALLS = (
    "cudaDeviceSynchronize",
    "cudaStreamSynchronize",
    "cudaEventSynchronize",
    "cudaMemcpy",
    "cuCtxSynchronize",
    "cuStreamSynchronize",
    "cuEventSynchronize",
    "hipDeviceSynchronize",
    "hipStreamSynchronize",
    "hipEventSynchronize",
    "hipMemcpy",
    "hipMemcpyWithStream",
)
"""Runtime calls that return only when the device has got somewhere."""


_VERSION = re.compile(r"_v[0-9]+$")


class Activities(NamedTuple):
    """Kernels, copies and sets, rank by rank in order of start; arrays [a]."""

    events: Some
    """Their rows."""
    rank: np.ndarray
    """Place of the rank among those of the piece."""
    first: np.ndarray
    """int64 [ranks + 1]: where those of each rank begin."""
    start_ns: np.ndarray
    end_ns: np.ndarray
    by_end: np.ndarray
    """int64 [a]: the rows of each rank in order of their ends."""
    lane: np.ndarray
    """Dense code of (rank, device, stream)."""
    before: np.ndarray
    over: np.ndarray
    """`streams.stream_order`."""

    @property
    def on_device(self) -> np.ndarray:
        """bool [ranks]: which ranks have any."""
        return np.diff(self.first) > 0

    def __len__(self) -> int:
        return len(self.rank)


class Calls(NamedTuple):
    """Runtime calls of ranks with a device, rank by rank in order of start; arrays [c]."""

    events: Some
    rank: np.ndarray
    end_ns: np.ndarray
    syncs: np.ndarray
    """bool: waits for the device. Likewise `records` an event, and `waits` (a stream's wait)."""
    records: np.ndarray
    waits: np.ndarray
    launches: np.ndarray
    """bool: launched an activity."""
    of: np.ndarray
    """int64 [a]: the call that launched each activity, -1 where none is known."""
    launch_ns: np.ndarray
    """int64 [a]: when that call began; NULL where it is not known, or after the activity began."""


def activities(piece: Piece, events: Events, end_ns: np.ndarray) -> Activities:
    """The device activities among the events of a piece (ends int64 [n], on the job's clock)."""
    rows = events.of(*DEVICE)
    rank = piece.place(events.rank[rows])
    order = ordered(rank, events.start_ns[rows], end_ns[rows], events.event_id[rows])
    rows, rank = rows[order], rank[order]
    mine, end = events.take(rows), end_ns[rows]
    first = np.searchsorted(rank, np.arange(len(piece.ranks) + 1))
    devices, device = distinct(mine.device)
    lanes, stream = distinct(np.where(mine.stream == NULL, -1, mine.stream))
    lane = distinct((rank * len(devices) + device) * len(lanes) + stream)[1]
    before, over = streams.stream_order(lane, mine.start_ns, end)
    by_end = by_time(first, end)
    return Activities(mine, rank, first, mine.start_ns, end, by_end, lane, before, over)


def calls(piece: Piece, events: Events, end_ns: np.ndarray, act: Activities, words: Words) -> Calls:
    """The runtime calls, and which of them launched what (by rank and correlation)."""
    rows = events.of("runtime")
    rank = piece.place(events.rank[rows])
    with_device = act.on_device[rank]
    rows, rank = rows[with_device], rank[with_device]
    order = ordered(rank, events.start_ns[rows], events.event_id[rows])
    rows, rank = rows[order], rank[order]
    mine = events.take(rows)
    of = first_of(rank, mine.correlation, act.rank, act.events.correlation, int(NULL))
    launches = np.zeros(len(rows), bool)
    launches[of[of >= 0]] = True
    # A clock that puts a kernel before its launch says nothing about the launch.
    known = np.flatnonzero(of >= 0)
    late = known[mine.start_ns[of[known]] > act.start_ns[known]]
    of[late] = -1
    launch_ns = np.full(len(act), NULL, np.int64)
    known = np.flatnonzero(of >= 0)
    launch_ns[known] = mine.start_ns[of[known]]
    syncs, records, waits = (flags[mine.name] for flags in _what_calls_do(words))
    return Calls(mine, rank, end_ns[rows], syncs, records, waits, launches, of, launch_ns)


def _what_calls_do(words: Words) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """bool [names + 1] each: which names wait for the device, record an event, make one wait."""
    texts = words.texts
    plain = [_VERSION.sub("", t) for t in texts]
    return tuple(
        np.array([*said, False], bool)
        for said in (
            [t in SYNC_CALLS for t in plain],
            ["EventRecord" in t for t in texts],
            ["StreamWaitEvent" in t for t in texts],
        )
    )  # type: ignore[return-value]


def order_on_streams(piece: Piece, act: Activities) -> None:
    """Edges from each activity's predecessor on its stream."""
    after = np.flatnonzero(act.before >= 0)
    piece.into_activity(piece.finish[act.before[after]], after)


def waits_between_streams(piece: Piece, events: Events, act: Activities, calls: Calls) -> None:
    """Edges between activities of different streams.

    What `sync` rows name where a rank has them; else what the calls and the times show.
    """
    if not len(act):
        return
    src, dst = _recorded(piece, events, act, calls)
    told = np.zeros(len(piece.ranks), bool)
    told[act.rank[dst]] = True
    beside_src, beside_dst = _side_by_side(act, calls)
    guess = ~told[act.rank[beside_dst]]
    seen = streams.inferred_waits(
        act.rank, act.lane, act.start_ns, act.end_ns, calls.launch_ns, act.before, act.by_end
    )
    late = np.flatnonzero(seen >= 0)
    late = late[~told[act.rank[late]]]
    src = np.concatenate([src, beside_src[guess], seen[late]])
    dst = np.concatenate([dst, beside_dst[guess], late])
    sane = (act.end_ns[src] <= act.start_ns[dst]) & (src < dst)
    src, dst = src[sane], dst[sane]
    piece.into_activity(piece.finish[src], dst)
    _overlapping(piece, act, src, dst)
    if guess.any() or len(late):
        piece.inferred = True


def _overlapping(piece: Piece, act: Activities, src: np.ndarray, dst: np.ndarray) -> None:
    """What overlaps its predecessor started once that one could: it waits for the same."""
    over = np.flatnonzero(act.over >= 0)
    if not len(over):
        return
    under = act.over[over]
    is_collective = piece.begin[under] != piece.finish[under]
    piece.into_activity(piece.begin[under[is_collective]], over[is_collective])
    order = np.argsort(dst, kind="stable")
    low = np.searchsorted(dst[order], under, "left")
    many = np.searchsorted(dst[order], under, "right") - low
    rows = order[np.repeat(low, many) + within(many)]
    piece.into_activity(piece.finish[src[rows]], np.repeat(over, many))


def _recorded(
    piece: Piece, events: Events, act: Activities, calls: Calls
) -> tuple[np.ndarray, np.ndarray]:
    """Waits that `sync` rows name: the last activity on one stream before the record's call, and
    the first on the other after the wait's."""
    sync = events.take(events.of("sync"))
    known = (sync.wait_correlation != NULL) & (sync.wait_stream != NULL) & (sync.stream != NULL)
    none = np.empty(0, np.int64)
    sync = sync.take(np.flatnonzero(known))
    if not len(sync.rank) or not len(calls.rank):
        return none, none
    rank, null = piece.place(sync.rank), int(NULL)
    own = calls.rank, calls.events.correlation
    record = first_of(*own, rank, sync.wait_correlation, null)
    wait = first_of(*own, rank, sync.correlation, null)
    streams_of = act.rank, act.events.stream
    to = first_of(*streams_of, rank, sync.stream, null)
    of = first_of(*streams_of, rank, sync.wait_stream, null)
    there = np.flatnonzero((record >= 0) & (to >= 0) & (of >= 0))
    record, wait, to, of = record[there], wait[there], to[there], of[there]
    called = calls.events.start_ns
    waited = np.where(wait >= 0, called[wait], sync.start_ns[there])
    source, target = act.lane[of], act.lane[to]
    known = np.flatnonzero(calls.launch_ns != NULL)
    order = known[np.lexsort((calls.launch_ns[known], act.lane[known]))]
    launched = act.lane[order], calls.launch_ns[order]
    src = np.searchsorted(*paired(launched, (source, called[record]))) - 1
    dst = np.searchsorted(*paired(launched, (target, waited)))
    there = (src >= 0) & (dst < len(order))
    src, dst = order[src[there]], order[dst[there]]
    same = (act.lane[src] == source[there]) & (act.lane[dst] == target[there])
    return src[same], dst[same]


def _side_by_side(act: Activities, calls: Calls) -> tuple[np.ndarray, np.ndarray]:
    """Waits that an event record and a stream's wait side by side on a host thread show."""
    launched = np.full(len(calls.rank), -1, np.int64)
    known = np.flatnonzero(calls.of >= 0)[::-1]
    # Of several activities of a call the first counts.
    launched[calls.of[known]] = known
    rows = np.flatnonzero((launched >= 0) | calls.records | calls.waits)
    what = np.where(launched[rows] >= 0, 0, np.where(calls.records[rows], 1, 2))
    thread = distinct(calls.rank[rows] << 32 | (calls.events.thread[rows] + 1))[1]
    order, _ = grouped(thread, int(thread.max(initial=-1)) + 1)
    return streams.recorded_then_waited(thread[order], what[order], launched[rows[order]], act.lane)
