"""The kernels of a job's ranks, rank by rank, and the marks of its hosts: one pass over events."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence

import numpy as np
import pyarrow as pa

from .. import memory
from ..keeping import slices
from ..manifest import Manifest
from ..matching.participations import ints
from ..schema import EVENTS
from ..sorting import Sorted
from .aligned import Odd, within
from .events import GIVE_BACK_ROWS, Kept, Texts, _dictionary, coded
from .marks import Marks
from .overlap import Kernels
from .segmented import LEAST

COLUMNS = ("rank", "kind", "name", "category", "device", "grid_blocks", "block_threads",
           "start_ns", "dur_ns", "event_id")  # fmt: skip

KEYS = 3
"""Kernels of a rank are sorted by so many of their columns: device, start and event."""

_NUMBERS = ("device", "start_ns", "event_id", "dur_ns", "grid_blocks", "block_threads")
_TYPES = (*[np.int64] * 5, np.int8, *[np.int64] * 2)
NULL = int(LEAST)


def by_rank(
    opened: slices.Open, manifests: Sequence[Manifest], names: Texts, marks: Marks
) -> Iterator[tuple[int, Sorted]]:
    """The columns of `Kernels` of each rank that has any, sorted, when the last source that names
    it was read.

    Raises Odd for what is left to the views.
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
                yield rank, _sorted(held, rank)


def _sorted(held: Kept, rank: int) -> Sorted:
    rows = Sorted(KEYS)
    for columns in held.pieces(rank):
        rows.add(*columns)
    held.forget(rank)
    return rows


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
    if not np.all(np.isin(rank, list(ranks))):
        raise Odd
    name, texts = coded(piece["name"])
    category, categories = _dictionary(piece["category"])
    talks = category[rows] == (categories.index("comm") if "comm" in categories else -2)
    numbers = {c: ints(piece, c, NULL)[rows] for c in _NUMBERS}
    start, dur = numbers["start_ns"], numbers["dur_ns"]
    if np.any(start == LEAST) or np.any(numbers["event_id"] == LEAST):
        raise Odd
    within(np.abs(start.astype(np.float64)) + np.maximum(dur, 0))
    k = Kernels(
        numbers["device"], start, numbers["event_id"], dur, names.of(name[rows], texts), talks,
        numbers["grid_blocks"], numbers["block_threads"],
    )  # fmt: skip
    held.add(rank, list(k))
