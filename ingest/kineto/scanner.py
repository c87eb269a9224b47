"""The fast reader: events through the compiled byte scan of `bytescan`, a block at a time.

Its machine code is loaded from the user's cache where it is kept, and compiled by numba where not.
"""

from __future__ import annotations

import contextlib
import os
from collections.abc import Callable, Generator
from typing import Any

import numpy as np

from .. import machine_code
from ..schema import Problem
from . import jsontext, lenient, scan_tables
from .blocks import (
    BATCH_ROWS,
    BLOCK_BYTES,
    ByteStream,
    Steps,
    Window,
    prefetch,
    read_array,
)
from .bytescan_code import CODE, check
from .call_texts import keeping
from .rawbatch import SYM_COLUMNS, BatchBuilder, Envelope, ProblemTally, RawBatch, Symbols

__all__ = ["prefetch", "read_events", "steps"]


def _functions() -> machine_code.Functions:
    kept = machine_code.load(CODE)
    if kept is None and not machine_code.plain():
        # Compiled here anyhow: the next process need not.
        with contextlib.suppress(OSError, RuntimeError, ValueError, ImportError):
            machine_code.make(CODE, check=check)
        kept = machine_code.load(CODE)
    if kept is not None:
        return kept
    from . import bytescan

    return {f.name: getattr(bytescan, f.name) for f in CODE.functions}


class SymbolTable:
    """Raw bytes of distinct strings, by the scan's own codes, and their codes in `symbols`."""

    def __init__(self, symbols: Symbols, rebuild_slots: Callable[..., Any]) -> None:
        self.symbols = symbols
        self._rebuild_slots = rebuild_slots
        self.slots = np.full(1 << 13, -1, np.int32)
        self.offsets = np.zeros(1 << 12, np.int64)
        self.hashes = np.zeros(1 << 12, np.uint64)
        self.arena = np.zeros(1 << 18, np.uint8)
        self._remap = np.full(1, -1, np.int32)
        self._bad: set[int] = set()

    def __len__(self) -> int:
        """How many codes there is room for."""
        return len(self.offsets) - 1

    def text(self, code: int) -> str:
        """The text of one of the scan's codes."""
        raw = self.arena[self.offsets[code] : self.offsets[code + 1]]
        return jsontext.decode_text(raw.tobytes())[0]

    def grow(self, count: int) -> None:
        """Twice the room of whatever is more than half full; `count` codes are in use."""
        if 2 * (count + 2) > len(self.offsets) or 4 * (count + 1) > len(self.slots):
            self.offsets = np.concatenate([self.offsets, np.zeros_like(self.offsets)])
            self.hashes = np.concatenate([self.hashes, np.zeros_like(self.hashes)])
            self.slots = np.full(2 * len(self.offsets), -1, np.int32)
            self._rebuild_slots(self.slots, self.hashes, count)
        # The string that did not fit may be longer than all before it.
        self.arena = np.concatenate([self.arena, np.zeros_like(self.arena)])

    def remap(self, count: int, tally: ProblemTally, builder: BatchBuilder) -> np.ndarray:
        """The code in `symbols` by the scan's code, for this batch; the last entry is -1."""
        known = len(self._remap) - 1
        if count > known:
            new = np.empty(count + 1, np.int32)
            new[:known] = self._remap[:known]
            ends = self.offsets[known : count + 1].tolist()
            raw = self.arena[ends[0] : ends[-1]].tobytes()
            for i in range(known, count):
                start, end = ends[i - known] - ends[0], ends[i - known + 1] - ends[0]
                text, good = jsontext.decode_text(raw[start:end])
                if not good:
                    self._bad.add(i)
                new[i] = self.symbols.code(text)
            new[count] = -1
            self._remap = new
        if self._bad:
            # Those of an event that was lost are in no row.
            used = np.zeros(count + 1, bool)
            for codes in builder.codes():
                used[codes] = True
            told = {i for i in self._bad if used[i]}
            if told:
                tally.add("bad_text", int(builder.ints[-1, 0]), count=len(told))
            self._bad -= told
        return self._remap


def read_events(
    stream: ByteStream,
    envelope: Envelope,
    on_problem: Callable[[Problem], None],
    *,
    batch_rows: int = BATCH_ROWS,
    block_bytes: int = BLOCK_BYTES,
    call_texts: bool = False,
) -> Generator[RawBatch]:
    """The events of a trace as batches of up to `batch_rows` rows, in file order.

    Fills `envelope` (its head before the first batch, its tail after the last). Tells each kind of
    problem once, at the end. Memory: a block, a batch and the distinct strings. The scan does not
    hold the GIL: `prefetch(read_events(...))` runs it beside its consumer. Raises UnusableInput
    where there is no events array. With `call_texts` the batches have the text of calls.
    """
    symbols = Symbols()
    builder = BatchBuilder(batch_rows, call_texts)
    tally = ProblemTally()
    scan, take = steps(symbols, builder, tally)
    return read_array(stream, envelope, on_problem, scan, builder, take, tally, block_bytes)


def steps(
    symbols: Symbols,
    builder: BatchBuilder,
    tally: ProblemTally,
    functions: machine_code.Functions | None = None,
) -> Steps:
    """What `read_array` scans with, and takes batches with: from an empty builder on.

    `functions` are the compiled ones, where not those that are kept or made now.
    """
    functions = functions or _functions()
    scan_events = functions["scan_events"]
    table = SymbolTable(symbols, functions["rebuild_slots"])
    state = np.zeros(scan_tables.STATE_SIZE, np.int64)
    state[scan_tables.SEED] = int.from_bytes(os.urandom(7), "little")
    state[scan_tables.N_GAPS] = 1
    gaps = np.zeros((scan_tables.MAX_GAPS, scan_tables.GAP_PAST), np.int64)
    gap_texts = np.zeros(scan_tables.MAX_GAPS * scan_tables.GAP_BYTES, np.uint8)
    counters = np.zeros((builder.capacity, 3), np.int64)

    def scan(window: Window, pos: int) -> tuple[int, int]:
        first = builder.n
        rare = builder.with_rare()
        state[scan_tables.N_RARE] = rare.n
        state[scan_tables.POS] = pos
        state[scan_tables.ROWS] = first
        state[scan_tables.N_COUNTERS] = 0
        state[scan_tables.DUPLICATES] = state[scan_tables.ODD] = 0
        while True:
            why = scan_events(
                window.data, window.n, state, builder.ph, builder.ints, builder.syms,
                rare.at, rare.ints, rare.syms, builder.capacity,
                table.slots, table.offsets, table.hashes, table.arena, counters, gaps, gap_texts,
                *scan_tables.KEYS, scan_tables.KIND_OF, scan_tables.ROW_OF, scan_tables.SYM_ROW_OF,
                scan_tables.FILLED_INTS, scan_tables.FILLED_SYMS,
            )  # fmt: skip
            if why != scan_tables.SYMBOLS_FULL:
                break
            table.grow(int(state[scan_tables.N_SYMBOLS]))
        builder.n = int(state[scan_tables.ROWS])
        rare.n = int(state[scan_tables.N_RARE])
        builder.ints[-1, first : builder.n] += window.base
        for row, start, end in counters[: state[scan_tables.N_COUNTERS]].tolist():
            extra = lenient.counter_args(bytes(window.view[start:end]))
            if extra is not None:
                builder.extras[row] = extra
        for code, what, count, at in (
            ("duplicate_key", "", scan_tables.DUPLICATES, scan_tables.DUPLICATE_AT),
            ("malformed_event", "not a number", scan_tables.ODD, scan_tables.ODD_AT),
        ):
            if state[count]:
                tally.add(code, window.base + int(state[at]), what, int(state[count]))
        return int(state[scan_tables.POS]), why

    def take() -> RawBatch:
        state[scan_tables.CLEARED] = 0
        remap = table.remap(int(state[scan_tables.N_SYMBOLS]), tally, builder)
        return builder.take(symbols, remap)

    return Steps(keeping(scan, builder, table, SYM_COLUMNS.index("name")), take)
