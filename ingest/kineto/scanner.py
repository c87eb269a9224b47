"""The fast reader: events through the compiled byte scan of `bytescan`, a block at a time."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator

import numpy as np

from ..schema import Problem
from . import bytescan, jsontext, lenient
from .blocks import BATCH_ROWS, BLOCK_BYTES, ByteStream, Window, prefetch, read_array
from .rawbatch import BatchBuilder, Envelope, ProblemTally, RawBatch, Symbols

__all__ = ["prefetch", "read_events"]


class _SymbolTable:
    """Raw bytes of distinct strings, by the scan's own codes, and their codes in `symbols`."""

    def __init__(self, symbols: Symbols) -> None:
        self.symbols = symbols
        self.slots = np.full(1 << 13, -1, np.int32)
        self.offsets = np.zeros(1 << 12, np.int64)
        self.hashes = np.zeros(1 << 12, np.uint64)
        self.arena = np.zeros(1 << 18, np.uint8)
        self._remap = np.full(1, -1, np.int32)

    def grow(self, count: int) -> None:
        """Twice the room of whatever is more than half full; `count` codes are in use."""
        if 2 * (count + 2) > len(self.offsets) or 4 * (count + 1) > len(self.slots):
            self.offsets = np.concatenate([self.offsets, np.zeros_like(self.offsets)])
            self.hashes = np.concatenate([self.hashes, np.zeros_like(self.hashes)])
            self.slots = np.full(2 * len(self.offsets), -1, np.int32)
            bytescan.rebuild_slots(self.slots, self.hashes, count)
        # The string that did not fit may be longer than all before it.
        self.arena = np.concatenate([self.arena, np.zeros_like(self.arena)])

    def remap(self, count: int, tally: ProblemTally, offset: int) -> np.ndarray:
        """The code in `symbols` by the scan's code; the last entry is -1."""
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
                    tally.add("bad_text", offset)
                new[i] = self.symbols.code(text)
            new[count] = -1
            self._remap = new
        return self._remap


def read_events(
    stream: ByteStream,
    envelope: Envelope,
    on_problem: Callable[[Problem], None],
    *,
    batch_rows: int = BATCH_ROWS,
    block_bytes: int = BLOCK_BYTES,
) -> Iterator[RawBatch]:
    """The events of a trace as batches of up to `batch_rows` rows, in file order.

    Fills `envelope` (its head before the first batch, its tail after the last). Tells each kind of
    problem once, at the end. Memory: a block, a batch and the distinct strings. The scan does not
    hold the GIL: `prefetch(read_events(...))` runs it beside its consumer. Raises UnusableInput
    where there is no events array.
    """
    symbols = Symbols()
    table = _SymbolTable(symbols)
    builder = BatchBuilder(batch_rows)
    tally = ProblemTally()
    state = np.zeros(bytescan.STATE_SIZE, np.int64)
    state[bytescan.SEED] = int.from_bytes(os.urandom(7), "little")
    counters = np.zeros((batch_rows, 3), np.int64)

    def scan(window: Window, pos: int) -> tuple[int, int]:
        first = builder.n
        state[bytescan.POS] = pos
        state[bytescan.ROWS] = first
        state[bytescan.N_COUNTERS] = 0
        state[bytescan.DUPLICATES] = state[bytescan.ODD] = 0
        while True:
            why = bytescan.scan_events(
                window.data, window.n, state, builder.ph, builder.ints, builder.syms,
                builder.capacity, table.slots, table.offsets, table.hashes, table.arena, counters,
                *bytescan.KEYS, bytescan.KIND_OF, bytescan.ROW_OF, bytescan.SYM_ROW_OF,
            )  # fmt: skip
            if why != bytescan.SYMBOLS_FULL:
                break
            table.grow(int(state[bytescan.N_SYMBOLS]))
        builder.n = int(state[bytescan.ROWS])
        builder.ints[-1, first : builder.n] += window.base
        for row, start, end in counters[: state[bytescan.N_COUNTERS]].tolist():
            extra = lenient.counter_args(bytes(window.view[start:end]))
            if extra is not None:
                builder.extras[row] = extra
        for code, count, at in (
            ("duplicate_key", bytescan.DUPLICATES, bytescan.DUPLICATE_AT),
            ("malformed_event", bytescan.ODD, bytescan.ODD_AT),
        ):
            if state[count]:
                tally.add(code, window.base + int(state[at]), "", int(state[count]))
        return int(state[bytescan.POS]), why

    def take() -> RawBatch:
        state[bytescan.CLEARED] = 0
        offset = int(builder.ints[-1, 0])
        remap = table.remap(int(state[bytescan.N_SYMBOLS]), tally, offset)
        return builder.take(symbols, remap)

    return read_array(stream, envelope, on_problem, scan, builder, take, tally, block_bytes)
