"""Sums of ordinary blocks of the plain form, by compiled code; what is not ordinary is left.

Every function gives the sums of a block's rows, or None where the forgiving way has to read it: it
tells what is odd. None, too, while the compiled code is not there.
"""

from __future__ import annotations

import os
import threading
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import pyarrow as pa

from ..machine_code import Functions
from .counted import MAX_EXPERTS
from .kept_code import functions
from .plain_arrow import NotPlain, Words, fill
from .plain_blocks_code import CODE
from .plain_columns import (
    CHUNK_ROWS,
    DONE,
    GROUP_KEYS,
    GROW,
    MOST_FIELDS,
    MOST_WORDS,
    NULL,
    PLACE,
    PLACE_KEYS,
    SKIPPED,
    STATE,
    Columns,
    room,
)
from .plain_frames import Sums
from .plain_lines import Lines

MOST_KEPT_BYTES = 64 << 20
"""A room that has grown beyond is not kept for the next file."""

_SEED = int.from_bytes(os.urandom(8), "little") >> 1


def csv_sums(lines: Lines, names: list[str], rank: int | None) -> Sums | None:
    """Of lines of CSV under a header of these names."""
    fast = functions(CODE, lines.n)
    if fast is None:
        return None
    block = _begun(fast, rank)
    fields = np.array([PLACE.get(n, SKIPPED) for n in names], np.int64)
    block.columns.used[fields[fields < SKIPPED]] = 1
    return block.sums_of_text("sum_csv", lines, fields)


def json_sums(lines: Lines, rank: int | None) -> Sums | None:
    """Of lines, a JSON object each."""
    fast = functions(CODE, lines.n)
    if fast is None:
        return None
    block = _begun(fast, rank)
    return block.sums_of_text("sum_json", lines, block.order, block.begins)


def batch_sums(batches: Sequence[pa.RecordBatch], rank: int | None) -> Sums | None:
    """Of batches of the plain form's columns and no others, all of them alike."""
    fast = functions(CODE, sum(b.nbytes for b in batches))
    return None if fast is None else _begun(fast, rank).sums_of_batches(batches)


class _Block:
    """Room for the sums of a block, and for a chunk of its rows: for one block after another."""

    def __init__(self) -> None:
        self.columns = room(CHUNK_ROWS, CHUNK_ROWS)
        self.order = np.full(MOST_FIELDS, SKIPPED, np.int64)
        self.begins = np.zeros(MOST_FIELDS, np.int64)
        self._words = np.zeros((MOST_WORDS, 3), np.int64)
        self._state = np.zeros(len(STATE), np.int64)
        self._places = np.empty((64, len(PLACE_KEYS)), np.int64)
        self._place_slots = np.empty(256, np.int64)
        self._groups = np.full((1024, len(GROUP_KEYS)), -1, np.int64)
        self._slots = np.empty(4096, np.int64)
        self._sums = np.zeros(1024)
        self._met = np.zeros(MAX_EXPERTS, np.uint32)

    @property
    def nbytes(self) -> int:
        arrays = (*self.columns, self._places, self._place_slots, self._groups, self._slots,
                  self._sums)  # fmt: skip
        return sum(a.nbytes for a in arrays)

    def begin(self, fast: Functions, rank: int | None) -> None:
        """Forgets the block before."""
        self._fast = fast
        experts = self._groups[1 : self._state[STATE.n_groups], GROUP_KEYS.index("expert")]
        self._met[experts[experts >= 0]] = 0
        self.columns.used[:] = 0
        self.order[:] = SKIPPED
        self._place_slots[:] = self._slots[:] = -1
        self._state[:] = 0
        self._state[[STATE.lists, STATE.counted, STATE.place]] = -1
        self._state[STATE.n_groups] = 1  # the first is none
        self._state[STATE.rank] = NULL if rank is None else rank
        self._state[STATE.seed] = _SEED

    def sums_of_text(self, name: str, lines: Lines, *more: np.ndarray) -> Sums | None:
        """By a function that is given the lines, what is `more`, and room for words."""
        self._make_room(CHUNK_ROWS, lines.n // 2 + 2)
        if not self._summed(name, lines.bytes, lines.n, *more, self._words):
            return None
        n_words = int(self._state[STATE.n_words])
        words = self._words[:n_words].tolist()
        return self._found([lines.bytes[a:b].tobytes().decode("ascii") for _, a, b in words])

    def sums_of_batches(self, batches: Sequence[pa.RecordBatch]) -> Sums | None:
        """By `fold`, a batch after another."""
        words: Words = {}
        for batch in batches:
            try:
                fill(batch, self._make_room, words)
            except (pa.ArrowException, NotPlain):
                return None
            self._state[STATE.rows], self._state[STATE.row] = batch.num_rows, 0
            if not self._summed("fold"):
                return None
        return self._found([word for _, word in words])

    def _make_room(self, n_rows: int, n_elements: int) -> Columns:
        """Columns of that size at least; what was in them is gone where they are new."""
        if n_rows > len(self.columns.sums) or n_elements > len(self.columns.ids):
            new = room(max(n_rows, len(self.columns.sums)), max(n_elements, len(self.columns.ids)))
            new.used[:], new.class_of[:] = self.columns.used, self.columns.class_of
            self.columns = new
        return self.columns

    def _summed(self, name: str, *given: Any) -> bool:
        """Whether all rows were summed, in as much room as that takes."""
        call: Callable[..., int] = self._fast[name]
        while True:
            found = call(
                *given, *self.columns, self._state, self._places, self._place_slots, self._groups,
                self._slots, self._sums, self._met,
            )  # fmt: skip
            if found != GROW:
                return found == DONE
            self._grow()

    def _grow(self) -> None:
        n = int(self._state[STATE.n_places])
        if n == len(self._places) or 2 * n >= len(self._place_slots):
            self._places = _longer(self._places, 2 * n)
            self._place_slots = self._rehashed(self._places, 0, n, len(PLACE_KEYS))
        needed = int(self._state[STATE.needed])
        if needed >= len(self._groups) or 2 * needed > len(self._slots):
            self._groups = _longer(self._groups, 2 * needed)
            self._sums = _longer(self._sums, 2 * needed)
            self._slots = self._rehashed(self._groups, 1, int(self._state[STATE.n_groups]), 4)

    def _rehashed(self, rows: np.ndarray, first: int, n: int, width: int) -> np.ndarray:
        slots = np.full(4 << len(rows).bit_length(), -1, np.int64)
        self._fast["rehash"](rows, first, n, width, slots, self._state)
        return slots

    def _found(self, words: list[str]) -> Sums | None:
        n, n_groups = (int(self._state[i]) for i in (STATE.n_places, STATE.n_groups))
        if not n:
            return None
        return Sums(
            self._places[:n].copy(), self._groups[1:n_groups].copy(), self._sums[1:n_groups].copy(),
            words,
        )  # fmt: skip


def _longer(rows: np.ndarray, n: int) -> np.ndarray:
    out = np.empty((n, *rows.shape[1:]), rows.dtype)
    out[: len(rows)] = rows[:n]
    return out


class _Rooms(threading.local):
    block: _Block | None = None


_rooms = _Rooms()


def _begun(fast: Functions, rank: int | None) -> _Block:
    """This thread's room, ready for a block: pages that were never touched cost more to get than a
    block's rows to sum."""
    if _rooms.block is None:
        _rooms.block = _Block()
    _rooms.block.begin(fast, rank)
    return _rooms.block


def end_of_file() -> None:
    """Lets go of this thread's room where that file has made it large."""
    if _rooms.block is not None and _rooms.block.nbytes > MOST_KEPT_BYTES:
        _rooms.block = None
