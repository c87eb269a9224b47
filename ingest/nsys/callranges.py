"""NVTX ranges that are NCCL calls: put away as they are read, and given back by process and time.

They come in blocks that end where no call runs and no group of calls is open, so that what lies in
one owes nothing to the others.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import NamedTuple

import numpy as np

from ..classify import Dtype
from ..scratch import Scratch
from ..sorting import NULL, Sorted
from .payload import INTEGERS
from .who import TID_MASK, process_key

HELD_ROWS = 1 << 15
"""Calls that are held; of more all wait on a disk."""
BLOCK_ROWS = 1 << 14
"""Calls of a block; it has more where calls never rest."""
MOST_BLOCK_ROWS = 1 << 17
"""So many are cut where no call runs, though a group be open: its end was not captured."""

MOST_RANKS = 1 << 23
"""No communicator has more."""

OPS = {
    "allreduce": "all_reduce", "allgather": "all_gather", "reducescatter": "reduce_scatter",
    "alltoall": "all_to_all", "broadcast": "broadcast", "bcast": "broadcast", "reduce": "reduce",
    "gather": "gather", "scatter": "scatter", "send": "send", "recv": "recv",
}  # fmt: skip
"""Calls that move data, by name without prefix in lower case."""
GROUP_START, GROUP_END = "groupstart", "groupend"
_NAMES = (*OPS, GROUP_START, GROUP_END, None)
_NUMBER = {name: i for i, name in enumerate(_NAMES)}
_MARKS = np.array([(n == GROUP_START) - (n == GROUP_END) for n in _NAMES])
"""1 and -1 of calls that open and close a group."""

ALWAYS = np.iinfo(np.int64).max
_START, _THREAD, _END, _ROW, _NAME, _DTYPE = 1, 3, 4, 2, 5, 6
"""Rows of what is sorted, behind the process; the integers of payloads follow."""


class CallRanges(NamedTuple):
    """Calls of a process in the order of the table; times in raw ns. Arrays of one length."""

    thread: np.ndarray
    start: np.ndarray
    end: np.ndarray
    row: np.ndarray
    name: list[str | None]
    """of `OPS`, or of a group's start or end; None any other"""
    said: dict[str, list[int | None]]
    """what payloads say in numbers, by name; None absent"""
    dtype: list[Dtype | None]


class Block(NamedTuple):
    """Calls of a process, and the moment before which what they launched was launched."""

    calls: CallRanges
    until_ns: int


class Calls:
    """The calls of a report. Raises ScratchError."""

    def __init__(self) -> None:
        self._sorted = Sorted(3, HELD_ROWS)
        self._scratch = Scratch()
        self._blocks: dict[int, list[tuple[np.ndarray | tuple[int, int], int]]] | None = None
        self._dtypes: dict[Dtype, int] = {}
        self._joins: list[np.ndarray] = []

    def add(
        self, tid: np.ndarray, start: np.ndarray, end: np.ndarray, row: np.ndarray,
        names: list[str], integers: dict[str, np.ndarray], dtypes: list[Dtype | None],
    ) -> None:  # fmt: skip
        """Takes calls in the order of the table: with their names without prefix, and what payloads
        say, `INTEGERS` by name (`NULL` absent) and element types."""
        other = len(_NAMES) - 1
        name = np.array([_NUMBER.get(n.lower(), other) for n in names], np.int64)
        known = self._dtypes
        dtype = np.array(
            [-1 if d is None else known.setdefault(d, len(known)) for d in dtypes], np.int64
        )
        key = process_key(tid)
        self._sorted.add(key, start, row, tid & TID_MASK, end, name, dtype,
                         *(integers[c] for c in INTEGERS))  # fmt: skip
        size, place = integers["size"], integers["place"]
        joins = (integers["comm"] != NULL) & (place >= 0) & (place < size)
        its = np.flatnonzero(joins & (size < MOST_RANKS))
        if len(its):
            self._joins.append(np.stack([key, integers["comm"], size, place])[:, its])

    def joins(self) -> list[list[int]]:
        """Process, communicator, its size and the place there of each call by which a process
        joined one, in the order of the table."""
        return [joined for part in self._joins for joined in part.T.tolist()]

    def any_of(self, key: int) -> bool:
        """Whether a process has any."""
        return key in self._settled()

    def of(self, key: int) -> Iterator[Block]:
        """The calls of a process, block by block of time; one without calls where it has none."""
        for held, until in self._settled().get(key, [(self._nothing(), ALWAYS)]):
            if isinstance(held, tuple):
                at, n = held
                held = self._scratch.get(at, n).reshape(self._width, -1)
            yield Block(self._ranges(held[:, np.argsort(held[_ROW], kind="stable")]), until)

    @property
    def _width(self) -> int:
        return _DTYPE + 1 + len(INTEGERS)

    def _nothing(self) -> np.ndarray:
        return np.empty((self._width, 0), np.int64)

    def _ranges(self, rows: np.ndarray) -> CallRanges:
        dtypes = [*self._dtypes, None]
        return CallRanges(
            rows[_THREAD], rows[_START], rows[_END], rows[_ROW],
            [_NAMES[c] for c in rows[_NAME].tolist()],
            {c: _numbers(its) for c, its in zip(INTEGERS, rows[_DTYPE + 1 :], strict=True)},
            [dtypes[c] for c in rows[_DTYPE].tolist()],
        )  # fmt: skip

    def _settled(self) -> dict[int, list[tuple[np.ndarray | tuple[int, int], int]]]:
        if self._blocks is None:
            self._blocks = {}
            few = self._sorted.rows <= HELD_ROWS
            for rows, until in self._cut():
                held = rows if few else (self._scratch.put(rows), rows.size)
                self._blocks.setdefault(int(rows[0, 0]), []).append((held, until))
        return self._blocks

    def _cut(self) -> Iterator[tuple[np.ndarray, int]]:
        """The calls of each process in order of start, cut where all rests."""
        held, more = self._nothing(), []
        for piece in self._sorted.pieces(BLOCK_ROWS):
            more.append(piece.copy())
            if sum(rows.shape[1] for rows in more) < held.shape[1]:
                continue  # of what never rests all is looked at again: that once for twice as much
            whole, more = np.concatenate([held, *more], axis=1), []
            edges = np.flatnonzero(whole[0, 1:] != whole[0, :-1]) + 1
            *done, held = np.split(whole, edges, axis=1)
            yield from ((rows, ALWAYS) for rows in done)
            at = _rest(held)
            if at:
                yield held[:, :at], int(held[_START, at])
            held = held[:, at:].copy()
        whole = np.concatenate([held, *more], axis=1)
        edges = np.flatnonzero(whole[0, 1:] != whole[0, :-1]) + 1
        yield from ((rows, ALWAYS) for rows in np.split(whole, edges, axis=1) if rows.shape[1])


def _numbers(values: np.ndarray) -> list[int | None]:
    there = values != NULL
    if not there.any():
        return [None] * len(values)
    return [v if t else None for v, t in zip(values.tolist(), there.tolist(), strict=True)]


def _rest(rows: np.ndarray) -> int:
    """The last of a process's calls before which nothing runs and no group is open; 0 none."""
    # What is no call that is known may last as long as the run: nothing is launched in it.
    ends = np.where(rows[_NAME] < len(_NAMES) - 1, rows[_END], NULL)
    before = np.append(NULL, np.maximum.accumulate(ends)[:-1])
    rests = before < rows[_START]
    still = rests & (_open(rows[_THREAD], _MARKS[rows[_NAME]]) == 0)
    still[0] = rests[0] = False
    if not still.any() and len(rests) > MOST_BLOCK_ROWS:
        still = rests
    return int(np.flatnonzero(still)[-1]) if still.any() else 0


def _open(thread: np.ndarray, marks: np.ndarray) -> np.ndarray:
    """How many groups are open before each call, of all threads."""
    changes = np.zeros(len(thread), np.int64)
    for t in np.unique(thread[marks != 0]).tolist():
        its = np.flatnonzero((thread == t) & (marks != 0))
        depth = np.cumsum(marks[its])
        depth -= np.minimum(0, np.minimum.accumulate(depth))  # an end without a start closes all
        changes[its] = np.diff(depth, prepend=0)
    return np.cumsum(changes) - changes
