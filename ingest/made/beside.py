"""What communication kernels held of a rank's device beside compute: view `_sm_parts`."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import NamedTuple

import numpy as np
import pyarrow as pa

from ..keeping import slices
from ..manifest import Manifest
from ..matching.participations import codes, ints
from ..schema import TABLES, TEXT
from ..sorting import Sorted
from ..writer import PartWriter
from . import compared, device_kernels, overlap
from .aligned import UNKNOWN, clocks
from .compared_kernels import Compared
from .events import Texts
from .grouped import Grouped
from .marks import Marks
from .overlap import Beside, Block, Kernels, Sweep
from .segmented import LEAST, runs

TABLE = "_made_sm_parts"
"""`marks.TABLE` is complete where this one has rows: one pass makes both."""

LEAST_ROWS = 1_500_000
"""Of fewer events a view takes a second or so, and nobody need read them once more."""

NULL = int(LEAST)

_HELD = ("name", "comm", "blocks", "by_channels", "kernels", "ns", "overlapped_ns")
"""Of communication: four keys, and what is added up."""


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
    for rank, kernels in device_kernels.by_rank(opened, manifests, names, marks):
        its = None
        if rank in stretches and room >= 0:
            its = Compared(rank, stretches[rank], known.get(rank, UNKNOWN))
        parts = list(of_rank(kernels, named, its.add if its is not None else lambda k: None))
        if its is not None:
            found = its.rows(names.all)
            room -= len(found)
            writer.write(compared.KERNELS, found)
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


def of_rank(
    kernels: Sorted, named: Named, also: Callable[[Kernels], None]
) -> Iterator[dict[str, np.ndarray]]:
    """The view's rows of a rank's kernels (the columns of `Kernels`, sorted), by column.

    `also` takes all of them, some at a time.
    """
    held = np.zeros((len(_HELD), 0), np.int64)
    compute: list[dict[str, np.ndarray]] = []
    device = _Device(named)
    for block in overlap.blocks(kernels):
        also(block.kernels)
        held = np.concatenate([held, device.take(block)], axis=1)
        by = runs(*held[:4])
        one = by.order[by.first]
        held = np.stack([*held[:4, one], *(by.total(c) for c in held[4:])])
        if block.until_ns == overlap.END:
            compute.append(device.compute())
            device = _Device(named)
    if held.shape[1]:
        yield _of_communication(held)
    yield from (c for c in compute if len(c["ns"]))


class _Device:
    """The kernels of one device, of which blocks are taken one after another."""

    def __init__(self, named: Named):
        self._sweep = Sweep(named.of)
        self._beside, self._alone = Grouped(5), Grouped(3)

    def take(self, block: Block) -> np.ndarray:
        """What communication has held, int64[_HELD, kernels], of what ended in the block."""
        beside, held = self._sweep.take(block)
        self._add(beside)
        by_channels = (held.grid_blocks == LEAST) & (held.channels != LEAST)
        blocks = np.where(by_channels, held.channels, held.grid_blocks)
        one = np.ones(len(blocks), np.int64)
        return np.stack([held.name, held.comm, blocks, by_channels, one, held.ns,
                         held.overlapped_ns])  # fmt: skip

    def _add(self, b: Beside) -> None:
        """Keeps the compute that communication runs beside for at least half, or not at all."""
        shape = (b.name, b.grid_blocks, b.block_threads)
        half = np.flatnonzero((b.overlapped_ns > 0) & (2 * b.overlapped_ns >= b.dur_ns))
        self._beside.add(b.dur_ns[half], *(c[half] for c in (*shape, b.talk, b.comm)))
        alone = np.flatnonzero(b.overlapped_ns == 0)
        self._alone.add(b.dur_ns[alone], *(c[alone] for c in shape))

    def compute(self) -> dict[str, np.ndarray]:
        """The rows of compute, when all was taken."""
        keys, n, total, median = _medians(self._beside)
        alone, alone_n, _, alone_median = _medians(self._alone)
        place = {shape: i for i, shape in enumerate(map(tuple, alone.T.tolist()))}
        # A kernel without a name is like no other.
        at = np.array(
            [-1 if s[0] < 0 else place.get(tuple(s), -1) for s in keys[:3].T.tolist()], np.int64
        )
        nothing = np.full(len(n), LEAST)
        return {
            "beside": np.ones(len(n), bool), "name": keys[3], "comm": keys[4],
            "blocks": nothing, "by_channels": nothing, "kernels": n, "ns": total,
            "overlapped_ns": nothing, "median_ns": median,
            "alone_kernels": np.append(alone_n, LEAST)[at],
            "alone_median_ns": np.append(alone_median, np.nan)[at],
        }  # fmt: skip


def _medians(of: Grouped) -> tuple[np.ndarray, np.ndarray, np.ndarray, np.ndarray]:
    """Of each group its keys, how many there are, their sum and their median."""
    keys, (n, _, total) = of.groups()
    low, high = of.at((n - 1) // 2, n // 2)
    return keys, n, total, low + (high - low) * 0.5


def _of_communication(held: np.ndarray) -> dict[str, np.ndarray]:
    columns = dict(zip(_HELD, held, strict=True))
    nothing = np.full(held.shape[1], LEAST)
    return {
        "beside": np.zeros(held.shape[1], bool), **columns,
        "median_ns": np.full(held.shape[1], np.nan), "alone_kernels": nothing,
        "alone_median_ns": np.full(held.shape[1], np.nan),
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
