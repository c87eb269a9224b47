"""What communication kernels held of a rank's device beside compute: view `_sm_parts`."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from typing import NamedTuple

import numpy as np
import pyarrow as pa

from .. import memory
from ..keeping import slices
from ..manifest import Manifest
from ..matching.participations import codes, ints
from ..schema import EVENTS, TABLES, TEXT
from ..writer import PartWriter
from . import compared
from .aligned import UNKNOWN, Odd, clocks, within
from .events import GIVE_BACK_ROWS, Kept, Texts, _dictionary, coded
from .marks import Marks
from .segmented import LEAST, runs

TABLE = "_made_sm_parts"
"""`marks.TABLE` is complete where this one has rows: one pass makes both."""
COLUMNS = ("rank", "kind", "name", "category", "device", "grid_blocks", "block_threads",
           "start_ns", "dur_ns", "event_id")  # fmt: skip

LEAST_ROWS = 1_500_000
"""Of fewer events a view takes a second or so, and nobody need read them once more."""

MOST_KERNELS = 12_000_000
"""Kernels of a rank; a job with one that has more is left to the views."""

NULL = int(LEAST)


class Kernels(NamedTuple):
    """Kernels of a rank; arrays of one length, `LEAST` null, codes of names -1."""

    name: np.ndarray
    talks: np.ndarray
    """bool: communication"""
    device: np.ndarray
    grid_blocks: np.ndarray
    block_threads: np.ndarray
    start_ns: np.ndarray
    dur_ns: np.ndarray
    event: np.ndarray


_TYPES = (np.int64, np.bool_, *[np.int64] * 6)


class Named(NamedTuple):
    """What collectives say of the events that carry them, sorted by event."""

    event: np.ndarray
    comm: np.ndarray
    """code, -1 null"""
    comms: list[str]
    channels: np.ndarray

    def of(self, event: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """Communicator and channels of each event; -1 and `LEAST` where nothing says."""
        at = np.searchsorted(self.event, event)
        at = np.minimum(at, max(0, len(self.event) - 1))
        there = self.event[at] == event if len(self.event) else np.zeros(len(event), bool)
        if not len(self.event):
            return np.full(len(event), -1), np.full(len(event), LEAST)
        return np.where(there, self.comm[at], -1), np.where(there, self.channels[at], LEAST)


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


def write(
    writer: PartWriter,
    opened: slices.Open,
    manifests: Sequence[Manifest],
    tables: Mapping[str, pa.Table],
    stretches: Mapping[int, compared.Stretches],
) -> bool:
    """Writes the rows where the job is large, and those of `compared.KERNELS` in the ranks'
    `stretches`; gives whether it wrote these. Raises Odd for what is left to the views."""
    if not is_large(manifests):
        return False
    named, names, marks = _named(tables["collectives"]), Texts(), Marks()
    known, room = clocks(tables["ranks"]), compared.MOST_ROWS
    for rank, found in _by_rank(opened, manifests, names, marks):
        if rank in stretches and room >= 0:
            k = found.pop()
            works = np.flatnonzero(~k.talks & (k.dur_ns >= 0))
            start = known.get(rank, UNKNOWN).align(k.start_ns[works])
            work = compared.Work(k.name[works], start, k.dur_ns[works], k.grid_blocks[works])
            its = compared.kernels(rank, stretches[rank], work, names.all)
            room -= len(its)
            writer.write(compared.KERNELS, its)
            found.append(k)
            del k, works, start, work, its
        parts = list(of_rank(found.pop(), named))
        if not parts:
            continue
        whole = {c: np.concatenate([p[c] for p in parts]) for c in parts[0]}
        writer.write(TABLE, _batch(rank, whole, names.all, named.comms))
    marks.write(writer, known)
    return room >= 0


def is_large(manifests: Sequence[Manifest]) -> bool:
    """Whether the job has so many events that these rows are made."""
    rows = sum(p.rows for m in manifests for p in m.tables.get("events", []))
    return rows >= LEAST_ROWS


def _named(collectives: pa.Table) -> Named:
    event = ints(collectives, "event_id", NULL)
    comm, comms = codes(collectives["comm"])
    channels = ints(collectives, "channels", NULL)
    rows = np.flatnonzero(event != LEAST)
    by = runs(event[rows])
    said = np.where(comm[rows] < 0, len(rows), np.arange(len(rows)))
    first = by.least(said)
    its = comm[rows][np.minimum(first, max(0, len(rows) - 1))] if len(rows) else comm[:0]
    return Named(
        event[rows][by.order[by.first]], np.where(first < len(rows), its, -1), comms,
        by.most(channels[rows]),
    )  # fmt: skip


def _by_rank(
    opened: slices.Open, manifests: Sequence[Manifest], names: Texts, marks: Marks
) -> Iterator[tuple[int, list[Kernels]]]:
    """Each rank that has kernels, when the last source that names it was read.

    They are for the caller to take out of their list: nothing else holds them.
    """
    sources = sorted((m for m in manifests if m.tables.get("events")), key=lambda m: m.id)
    if any(not m.ranks for m in sources):
        raise Odd
    sources.sort(key=lambda m: min(m.ranks))
    left = Counter(r for m in sources for r in set(m.ranks))
    held = Kept(_TYPES)
    for m in sources:
        its, read = set(m.ranks), 0
        try:
            for part in m.tables["events"]:
                for piece in slices.pieces(opened, part, COLUMNS):
                    whole = slices.renumbered(_completed(piece))
                    _take(whole, its, names, held)
                    marks.take(whole)
                    read += len(whole)
                    del piece, whole
                    if read >= GIVE_BACK_ROWS:
                        memory.give_back()
                        read = 0
        except (pa.ArrowException, OSError) as e:
            raise Odd from e
        for rank in sorted(its):
            left[rank] -= 1
            if not left[rank] and held.rows(rank):
                found = list(held.pieces(rank))
                held.forget(rank)
                columns = [list(c) for c in zip(*found, strict=True)]
                found.clear()
                yield rank, [Kernels(*(np.concatenate(columns.pop(0)) for _ in Kernels._fields))]


def _completed(piece: pa.Table) -> pa.Table:
    """With all columns: one that an older version did not write is null."""
    for c in COLUMNS:
        if c not in piece.column_names:
            piece = piece.append_column(c, pa.nulls(len(piece), EVENTS.schema.field(c).type))
    return piece


def _take(piece: pa.Table, ranks: set[int], names: Texts, held: Kept) -> None:
    """Adds the kernels among these rows to those held of their ranks."""
    kind, kinds = _dictionary(piece["kind"])
    rows = np.flatnonzero(kind == (kinds.index("kernel") if "kernel" in kinds else -2))
    if not len(rows):
        return
    rank = ints(piece, "rank", NULL)[rows]
    name, texts = coded(piece["name"])
    category, categories = _dictionary(piece["category"])
    talks = category[rows] == (categories.index("comm") if "comm" in categories else -2)
    numbers = [ints(piece, c, NULL)[rows] for c in COLUMNS[4:]]
    start, dur, event = numbers[3:]
    if np.any(start == LEAST) or np.any(event == LEAST):
        raise Odd
    within(np.abs(start.astype(np.float64)) + np.maximum(dur, 0))
    columns = (names.of(name[rows], texts), talks, *numbers)
    if not np.all(np.isin(rank, list(ranks))):
        raise Odd
    held.add(rank, list(columns))
    if any(held.rows(r) > MOST_KERNELS for r in ranks):
        raise Odd


def of_rank(k: Kernels, named: Named) -> Iterator[dict[str, np.ndarray]]:
    """The view's rows of a rank's kernels, by column."""
    devices = runs(k.device)
    compute: list[dict[str, np.ndarray]] = []
    held: list[dict[str, np.ndarray]] = []
    for rows in np.split(devices.order, devices.first[1:]):
        talks = rows[k.talks[rows]]
        talks = talks[np.lexsort((k.event[talks], k.start_ns[talks]))]
        comm = Kernels(*(c[talks] for c in k))
        works = rows[~k.talks[rows] & (k.dur_ns[rows] > 0)]
        work = Kernels(*(c[works] for c in k))
        if len(rows) == len(k.device):
            k = comm  # the one device has all: the rest goes
        of, channels = named.of(comm.event)
        beside, spans = _beside(work, comm, of)
        compute.append(beside)
        held.append(_held(comm, of, channels, spans))
    groups = {c: np.concatenate([h[c] for h in held]) for c in held[0]} if held else {}
    if groups and len(groups["ns"]):
        yield _summed(groups)
    yield from (c for c in compute if len(c["ns"]))


def _union(start: np.ndarray, end: np.ndarray) -> tuple[Covered, np.ndarray]:
    """Intervals in order of start as stretches, one a start; and the last interval of each."""
    last = np.flatnonzero(np.append(start[1:] != start[:-1], True)) if len(start) else start[:0]
    at, until = start[last], np.maximum.accumulate(end)[last]
    following = np.append(at[1:], until[-1:])
    covers = np.maximum(0, np.minimum(following, until) - at)
    return Covered(at, until, np.cumsum(covers) - covers), last


def _beside(work: Kernels, comm: Kernels, of: np.ndarray) -> tuple[dict[str, np.ndarray], Covered]:
    """Rows of compute of one device, and when compute ran beside communication."""
    talk_end = comm.start_ns + np.maximum(comm.dur_ns, 0)
    talking, last = _union(comm.start_ns, talk_end)
    end = work.start_ns + work.dur_ns
    a, before = talking.until(work.start_ns, "right")
    b, until = talking.until(end, "left")
    overlap = until - before
    if len(last):
        own_end, began = talk_end[last], comm.start_ns[last]
        first = np.minimum(end, own_end[a]) - work.start_ns
        later = np.minimum(end, own_end[b]) - np.maximum(work.start_ns, began[b])
        which = np.where((a >= 0) & (first >= later), a, b)
        name = np.where(which < 0, -1, comm.name[last][which])
        comms = np.where(which < 0, -1, of[last][which])
    else:
        name = comms = np.full(len(end), -1)
    its = np.flatnonzero(overlap > 0)
    order = its[np.argsort(work.start_ns[its], kind="stable")]
    spans, _ = _union(work.start_ns[order], end[order])
    shape = (work.name, work.grid_blocks, work.block_threads)
    half = its[2 * overlap[its] >= work.dur_ns[its]]
    n, total, median, one = _medians(work.dur_ns[half], *(c[half] for c in (*shape, name, comms)))
    alone = np.flatnonzero(overlap == 0)
    alone_n, _, alone_median, other = _medians(work.dur_ns[alone], *(c[alone] for c in shape))
    # Both sides' shapes in one numbering, so that equal ones find each other.
    numbers = runs(*(np.concatenate([c[half[one]], c[alone[other]]]) for c in shape)).run
    at = np.full(numbers.max(initial=-1) + 1, -1)
    at[numbers[len(one) :]] = np.arange(len(other))
    there = np.where(work.name[half[one]] < 0, -1, at[numbers[: len(one)]])
    found = there >= 0
    nothing = np.full(len(one), LEAST)
    rows = {
        "beside": np.ones(len(one), bool), "name": name[half[one]], "comm": comms[half[one]],
        "blocks": nothing, "by_channels": nothing, "kernels": n, "ns": total,
        "overlapped_ns": nothing, "median_ns": median,
        "alone_kernels": np.where(found, np.append(alone_n, 0)[there], LEAST),
        "alone_median_ns": np.where(found, np.append(alone_median, 0)[there], np.nan),
    }  # fmt: skip
    return rows, spans


def _medians(
    dur_ns: np.ndarray, *keys: np.ndarray
) -> tuple[np.ndarray, np.ndarray, np.ndarray, np.ndarray]:
    """Of each group of equal keys: how many, their sum, their median, and one of its rows."""
    order = np.lexsort((dur_ns, *keys[::-1]))
    by = runs(*keys)  # the same groups, in the same order
    dur, n = dur_ns[order], by.length
    if not len(dur):
        return n, dur, dur.astype(np.float64), order
    low, high = dur[by.first + (n - 1) // 2], dur[by.first + n // 2]
    return n, np.add.reduceat(dur, by.first), low + (high - low) * 0.5, order[by.first]


def _held(
    comm: Kernels, of: np.ndarray, channels: np.ndarray, spans: Covered
) -> dict[str, np.ndarray]:
    """One row a communication kernel of a device."""
    end = comm.start_ns + np.maximum(comm.dur_ns, 0)
    _, before = spans.until(comm.start_ns, "right")
    _, until = spans.until(end, "right")
    by_channels = (comm.grid_blocks == LEAST) & (channels != LEAST)
    return {
        "name": comm.name, "comm": of, "blocks": np.where(by_channels, channels, comm.grid_blocks),
        "by_channels": by_channels.astype(np.int64), "ns": end - comm.start_ns,
        "overlapped_ns": until - before,
    }  # fmt: skip


def _summed(held: dict[str, np.ndarray]) -> dict[str, np.ndarray]:
    keys = ("name", "comm", "blocks", "by_channels")
    by = runs(*(held[c] for c in keys))
    one = by.order[by.first]
    nothing = np.full(len(one), LEAST)
    return {
        "beside": np.zeros(len(one), bool), **{c: held[c][one] for c in keys},
        "kernels": by.length, "ns": by.total(held["ns"]),
        "overlapped_ns": by.total(held["overlapped_ns"]),
        "median_ns": np.full(len(one), np.nan), "alone_kernels": nothing,
        "alone_median_ns": np.full(len(one), np.nan),
    }  # fmt: skip


def _batch(
    rank: int, rows: dict[str, np.ndarray], names: list[str], comms: list[str]
) -> pa.RecordBatch:
    n = len(rows["ns"])
    columns: dict[str, pa.Array | np.ndarray] = {"rank": pa.array(np.full(n, rank), pa.int64())}
    for c, values in rows.items():
        if c in ("name", "comm"):
            texts = names if c == "name" else comms
            found = [texts[v] if v >= 0 else None for v in values.tolist()]
            columns[c] = pa.array(found, pa.string()).cast(TEXT)
        elif c == "by_channels":
            columns[c] = pa.array(values > 0, mask=values == LEAST)
        elif values.dtype == np.float64:
            columns[c] = pa.array(values, mask=np.isnan(values))
        else:
            columns[c] = pa.array(values, mask=values == LEAST if values.dtype != bool else None)
    return TABLES[TABLE].batch(columns)
