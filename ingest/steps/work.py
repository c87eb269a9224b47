"""What a rank did, as far as its steps can be told from it: device work, launches, annotations."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Sequence
from typing import NamedTuple

import numpy as np
import pyarrow as pa

from ..keeping.slices import completed
from ..kineto.launches import launch_times, launches
from ..kineto.rawbatch import NULL
from ..matching.participations import codes, ints
from ..schema import EVENTS

DEVICE = ("kernel", "memcpy", "memset")
LAUNCHED = 0.5
"""Share of the device work whose launch must be known for the host's order to be taken."""

_OPTIMIZER_RANGE = re.compile(r"Optimizer\.step#")
"""What PyTorch calls the range around an optimizer's step."""
_OF_LISTS = "multi_tensor_apply"
"""PyTorch's kernels over lists of tensors: optimizers built of single operations, and norms."""
_COLUMNS = ["rank", "event_id", "kind", "name", "thread", "start_ns", "dur_ns", "correlation",
            "category"]  # fmt: skip


class Annotation(NamedTuple):
    """A range that the program marked on the host; times in the host's clock."""

    name: str
    thread: str
    start_ns: int
    end_ns: int


class Work(NamedTuple):
    """One rank's device work in the order in which it was asked for; times in the host's clock."""

    rank: int
    name: np.ndarray
    """codes of names, the same for the same name"""
    comm: np.ndarray
    """bool: a communication kernel"""
    start_ns: np.ndarray
    end_ns: np.ndarray
    when_ns: np.ndarray
    """launch on the host; start on the device where launches are not known"""
    event_id: np.ndarray
    by_launch: bool
    """`when_ns` are launches; what was launched before the trace began is NULL"""
    optimizer: list[tuple[int, int]]
    """start and end of each of the optimizer's pieces, on the clock of `when_ns`"""
    annotations: list[Annotation]


Read = Callable[[Sequence[str]], pa.Table]
"""Reads the rows of a part with these columns."""


def of_parts(parts: Sequence[Read], ranks: Sequence[int]) -> Iterator[Work]:
    """The work of some ranks from the `events` of one source, rank by rank."""
    schema = pa.schema([EVENTS.schema.field(c) for c in _COLUMNS])
    read = [completed(part(_COLUMNS), schema) for part in parts] if ranks else []
    rows = pa.concat_tables([_of_kinds(t, ranks) for t in read]) if read else None
    if rows is None or not len(rows):
        return
    rank = ints(rows, "rank")
    for r in np.unique(rank).tolist():
        yield _work(r, rows.filter(pa.array(rank == r)))


def _of_kinds(rows: pa.Table, ranks: Sequence[int]) -> pa.Table:
    kinds = _is(rows, "kind", *DEVICE, "runtime", "annotation")
    timed = ints(rows, "start_ns", int(NULL)) != NULL
    return rows.filter(pa.array(kinds & timed & np.isin(ints(rows, "rank"), list(ranks))))


def _is(rows: pa.Table, column: str, *words: str) -> np.ndarray:
    """bool[rows]: the column has one of these words."""
    code, texts = codes(rows.column(column))
    return np.isin(code, [i for i, t in enumerate(texts) if t in words])


def _work(rank: int, rows: pa.Table) -> Work:
    calls = rows.filter(pa.array(_is(rows, "kind", "runtime")))
    known = launches(
        ints(calls, "correlation", int(NULL)), ints(calls, "start_ns"), np.zeros(len(calls))
    )
    device = rows.filter(pa.array(_is(rows, "kind", *DEVICE)))
    start = ints(device, "start_ns")
    launched = launch_times(known, ints(device, "correlation", int(NULL)))
    by_launch = bool(np.count_nonzero(launched != NULL) >= LAUNCHED * len(device))
    when = launched if by_launch else start
    event = ints(device, "event_id")
    order = np.lexsort((event, start, when))
    name, names = codes(device.column("name"))
    ranges = _annotations(rows.filter(pa.array(_is(rows, "kind", "annotation"))))
    optimizer = [(a.start_ns, a.end_ns) for a in ranges if _OPTIMIZER_RANGE.match(a.name)]
    if not optimizer or not by_launch:
        kernels = _is(device, "kind", "kernel") & (when != NULL)
        optimizer = _kernels(device, kernels, when, name, names)
    return Work(
        rank,
        name[order] + 1,
        _is(device, "category", "comm")[order],
        start[order],
        (start + np.maximum(ints(device, "dur_ns", 0), 0))[order],
        when[order],
        event[order],
        by_launch,
        sorted(set(optimizer)),
        ranges,
    )


def _annotations(rows: pa.Table) -> list[Annotation]:
    start, dur = ints(rows, "start_ns"), ints(rows, "dur_ns", 0)
    columns = (
        rows.column(c).cast(pa.string()).fill_null("").to_pylist() for c in ("name", "thread")
    )
    return [
        Annotation(*row)
        for row in zip(*columns, start.tolist(), (start + dur).tolist(), strict=True)
    ]


def _kernels(
    device: pa.Table, kernels: np.ndarray, when: np.ndarray, name: np.ndarray, names: list[str]
) -> list[tuple[int, int]]:
    """The optimizer's kernels; those over lists of tensors where none is known as one."""
    lists = np.isin(name, [i for i, n in enumerate(names) if _OF_LISTS in n])
    for these in (kernels & _is(device, "category", "optimizer"), kernels & lists):
        if these.any():
            return [(w, w) for w in when[these].tolist()]
    return []
