"""Whole lines of a text, some megabytes at once, as compiled code reads them."""

from __future__ import annotations

import itertools
from collections.abc import Iterator
from typing import TYPE_CHECKING, BinaryIO, NamedTuple

import numpy as np

from ..gunzip import BLOCK, stream_defect
from .plain_columns import PAD
from .plain_typed import Odd

if TYPE_CHECKING:
    from ..sources import Source

MAX_LINE_BYTES = 8 << 20
BLOCK_BYTES = 4 << 20

_NEAR_BYTES = 4096
"""So far before the end the last line's end is looked for first."""


class Lines(NamedTuple):
    """Whole lines, the last of which ends with a line's end."""

    bytes: np.ndarray
    """with PAD more of any kind behind them"""
    n: int
    """how many are lines"""

    def text(self) -> bytes:
        """The lines alone."""
        return self.bytes[: self.n].tobytes()


def lines_of(text: bytes) -> Lines:
    """The lines of a text, which may lack its end."""
    room = np.empty(len(text) + 1 + PAD, np.uint8)
    room[: len(text)] = np.frombuffer(text, np.uint8)
    return _ended(room, len(text))


def whole_lines(source: Source, odd: Odd, threads: int) -> Iterator[tuple[int, Lines]]:
    """(byte offset, lines) of some MB; the last may lack its end in the file.

    All is read once, into the place where it stays, and hashed on the way, by a thread of its own
    where there are several. Lines stay as they are until one block more than there are `threads`
    was asked for: then others take their place, as pages never touched cost more to get than to
    fill.
    """
    rooms = itertools.cycle([_room(BLOCK_BYTES) for _ in range(threads + 2)])
    room = next(rooms)
    n = start = at = 0
    dropping = False
    with source.open_hashed(threads > 1) as f:
        while got := _read(f, room.data[n : n + (BLOCK if dropping else _missing(n))]):
            at += got
            if dropping:
                end = room[:got].tobytes().find(b"\n") + 1
                if not end:
                    room = _room(BLOCK_BYTES)  # what hashes those bytes may be at it still
                    continue
                room, n, dropping = _moved(room, end, got), got - end, False
                start = at - n
            else:
                n += got
            if n < BLOCK_BYTES:
                continue
            if end := _last_end(room, n):
                whole, room = room, _moved(room, end, n, next(rooms))
                yield start, _ended(whole, end)
                start += end
                n -= end
            if n > MAX_LINE_BYTES:
                told = f"a line of more than {MAX_LINE_BYTES} bytes; left out"
                odd("long_line", told, "lost", offset=start)
                room, n, dropping = _room(BLOCK_BYTES), 0, True
            elif n >= BLOCK_BYTES:
                room = _moved(room, 0, n)
        if n:
            yield start, _ended(room, n)
        defect = stream_defect(f)
        if defect is not None:
            odd("truncated", f"{defect}; what came before is kept", "lost", offset=at)


def _missing(n: int) -> int:
    """Bytes that are read behind `n`: as many times BLOCK as make a block of lines, once at least.

    All at once, as what hashes them may be no more than two reads behind.
    """
    return BLOCK * max(1, -((n - BLOCK_BYTES) // BLOCK))


def _room(n: int) -> np.ndarray:
    """Room for a piece after up to `n` bytes, for a line's end and PAD."""
    return np.empty(n + BLOCK + 1 + PAD, np.uint8)


def _moved(room: np.ndarray, first: int, last: int, to: np.ndarray | None = None) -> np.ndarray:
    """Room that begins with the bytes from `first` to `last` of another: `to` where they fit, so
    that a block can be read behind them; else it is new."""
    n = last - first
    new = to if to is not None and n <= BLOCK_BYTES else _room(max(n, BLOCK_BYTES))
    new[:n] = room[first:last]
    return new


def _read(f: BinaryIO, to: memoryview) -> int:
    """Bytes read; fewer than there is room for at the end alone."""
    n = 0
    while n < len(to) and (got := f.readinto(to[n:])):  # type: ignore[attr-defined]
        n += got
    return n


def _last_end(room: np.ndarray, n: int) -> int:
    """One past the last line's end of the first `n` bytes, 0 where there is none."""
    near = _NEAR_BYTES
    while True:
        first = max(0, n - near)
        end = room[first:n].tobytes().rfind(b"\n") + 1
        if end or not first:
            return first + end if end else 0
        near *= 16


def _ended(room: np.ndarray, n: int) -> Lines:
    """The first `n` bytes as lines."""
    if not n or room[n - 1] != 0x0A:
        room[n] = 0x0A
        n += 1
    return Lines(room, n)
