"""The derived `transfers`: those of all sources, on the clocks of their ranks, by collective."""

from __future__ import annotations

import numpy as np
import pyarrow as pa

from . import schema
from .joining import Joined
from .matching.hosts import replace_column
from .matching.participations import codes, ints, texts
from .schema import Problem


def derived(transfers: pa.Table, joined: Joined, collectives: pa.Table) -> tuple[
    pa.Table, list[Problem]
]:  # fmt: skip
    """The rows given, same order, with `collective_id` and times on the clock of the rank.

    `collective_id` is filled from `event_id`, by what that participation is joined to; where
    several collectives share it none is meant. Times of a process's own clock move to the rank's
    where a shift is known, else (if the rank has another clock) they are null.
    """
    if not transfers.num_rows:
        return transfers, []
    transfers = _with_collectives(transfers, joined, collectives)
    return _on_clocks(transfers, joined)


def _with_collectives(transfers: pa.Table, joined: Joined, collectives: pa.Table) -> pa.Table:
    event, whole = ints(collectives, "event_id"), ints(collectives, "collective_id")
    told = np.unique(np.stack([event, whole], 1)[(event >= 0) & (whole >= 0)], axis=0)
    known, first, count = np.unique(told[:, 0], return_index=True, return_counts=True)
    single = count == 1
    known, id_of = known[single], told[first[single], 1]
    asked = _renamed(ints(transfers, "event_id"), joined.gone, joined.stands)
    found = _looked_up(asked, known, id_of)
    old = ints(transfers, "collective_id")
    new = np.where(old >= 0, old, found)
    return replace_column(transfers, schema.TRANSFERS, "collective_id", pa.array(new, mask=new < 0))


def _renamed(ids: np.ndarray, gone: np.ndarray, stands: np.ndarray) -> np.ndarray:
    order = np.argsort(gone, kind="stable")
    new = _looked_up(ids, gone[order], stands[order])
    return np.where(new >= 0, new, ids)


def _looked_up(ids: np.ndarray, keys: np.ndarray, values: np.ndarray) -> np.ndarray:
    """Values by sorted key; -1 where there is none."""
    if not len(keys):
        return np.full(len(ids), -1, dtype=np.int64)
    at = np.minimum(np.searchsorted(keys, ids), len(keys) - 1)
    return np.where((keys[at] == ids) & (ids >= 0), values[at], -1)


def _on_clocks(transfers: pa.Table, joined: Joined) -> tuple[pa.Table, list[Problem]]:
    clock, words = codes(transfers.column("clock"))
    own = clock == (words.index("process") if "process" in words else -2)
    rank = ints(transfers, "rank")
    of_process = np.isin(rank, np.array(sorted(joined.process_ranks), dtype=np.int64))
    strange = own & ~of_process
    strange &= np.isin(rank, np.array(sorted(joined.timed_ranks), dtype=np.int64))
    if not strange.any():
        return transfers, []
    source, sources = codes(transfers.column("source"))
    move = np.zeros(len(rank), dtype=np.int64)
    moved = np.zeros(len(rank), dtype=bool)
    for (r, kind), shift in joined.shifts.items():
        if kind in sources:
            mine = strange & (rank == r) & (source == sources.index(kind))
            move[mine], moved[mine] = shift.offset_ns, True
    lost = strange & ~moved
    for name in ("start_ns", "end_ns"):
        there = transfers.column(name).is_valid().to_numpy() & ~lost
        values = pa.array(ints(transfers, name, 0) + move, mask=~there)
        transfers = replace_column(transfers, schema.TRANSFERS, name, values)
    code = np.where(lost, -1, np.where(moved, len(words), clock))
    values = texts(code, [*words, "host"])
    transfers = replace_column(transfers, schema.TRANSFERS, "clock", values)
    if not lost.any():
        return transfers, []
    return transfers, [
        Problem(
            "transfer_clock_unknown",
            "transfers are timed on a clock that nothing ties to the timeline of their rank "
            f"(rank {int(rank[lost].min())}): their times are left out",
            count=int(lost.sum()),
        )
    ]
