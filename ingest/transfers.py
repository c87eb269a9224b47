"""The derived `transfers`: those of all sources, on the clocks of their ranks, by collective."""

from __future__ import annotations

import numpy as np
import pyarrow as pa

from . import schema
from .joining import Joined
from .joining.shifts import OWN
from .matching.hosts import replace_column
from .matching.participations import codes, ints, texts
from .schema import Problem


def derived(transfers: pa.Table, joined: Joined, collectives: pa.Table) -> tuple[
    pa.Table, list[Problem]
]:  # fmt: skip
    """The rows given, same order, with `collective_id` and times on the clock of the rank.

    `collective_id` is filled from `event_id`, by what that participation is joined to; where
    several collectives share it none is meant. Times on another clock than the rank's move to that
    where a shift is known, else they are null.
    """
    if not transfers.num_rows:
        return transfers, []
    transfers = _with_collectives(transfers, joined, collectives)
    return _on_clocks(transfers, joined)


def _with_collectives(transfers: pa.Table, joined: Joined, collectives: pa.Table) -> pa.Table:
    if transfers.column("event_id").null_count == len(transfers):
        return transfers
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
    clock, words = _coded(transfers.column("clock"))
    rank = ints(transfers, "rank")
    source, sources = _coded(transfers.column("source"))
    own, strange = _own_clocks(rank, clock, source, sources, words, joined)
    if not strange.any():
        return transfers, []
    move = np.zeros(len(rank), dtype=np.int64)
    moved = np.zeros(len(rank), dtype=bool)
    for (r, kind), shift in joined.shifts.items():
        if kind in sources:
            mine = strange & (rank == r) & (source == sources.index(kind))
            mine &= clock == (words.index(shift.word) if shift.word in words else -2)
            move[mine], moved[mine] = shift.offset_ns, True
    lost = strange & ~moved
    for name in ("start_ns", "end_ns"):
        there = transfers.column(name).is_valid().to_numpy() & ~lost
        values = pa.array(ints(transfers, name, 0) + move, mask=~there)
        transfers = replace_column(transfers, schema.TRANSFERS, name, values)
    code = np.where(lost, -1, np.where(moved, own, clock))
    transfers = replace_column(transfers, schema.TRANSFERS, "clock", texts(code, words))
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


def _coded(column: pa.ChunkedArray) -> tuple[np.ndarray, list[str]]:
    """`codes` of a column of dictionaries, of which only the texts are looked at, not each row."""
    whole = column.unify_dictionaries().combine_chunks()
    chunks = whole.chunks if isinstance(whole, pa.ChunkedArray) else [whole]
    if len(chunks) != 1:  # no rows, or too many for one
        return codes(column)
    (chunk,) = chunks
    assert isinstance(chunk, pa.DictionaryArray)
    code, words = codes(pa.chunked_array([chunk.dictionary]))
    rows = chunk.indices.fill_null(len(code)).to_numpy(zero_copy_only=False)
    return np.append(code, -1)[rows], words


def _own_clocks(
    rank: np.ndarray, clock: np.ndarray, source: np.ndarray, sources: list[str], words: list[str],
    joined: Joined,
) -> tuple[np.ndarray, np.ndarray]:  # fmt: skip
    """The word of each row's rank (an index in `words`, which grows), and rows on another clock.

    Rows of ranks without a clock are on none other; nor are those that name no clock.
    """
    place = {w: i for i, w in enumerate(words)}
    ordered = sorted(joined.clocks)
    word, kind = np.full(len(ordered) + 1, -1), np.full(len(ordered) + 1, -1)
    for i, r in enumerate(ordered):
        its = joined.clocks[r]
        if its.word not in place:
            place[its.word] = len(words)
            words.append(its.word)
        word[i] = place[its.word]
        if its.kind is not None:
            kind[i] = sources.index(its.kind) if its.kind in sources else len(sources)
    at = np.searchsorted(np.array(ordered, dtype=np.int64), rank)
    at = np.where(np.append(np.array(ordered, dtype=np.int64), -2)[at] == rank, at, len(ordered))
    own = word[at]
    other_process = (own == place.get(OWN, -2)) & (kind[at] >= 0) & (kind[at] != source)
    return own, (own >= 0) & (clock >= 0) & ((own != clock) | other_process)
