"""Blocks of whole lines out of a source, for scanners that read many lines at a time."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING, BinaryIO, NamedTuple

import numpy as np

from .. import memory
from ..gunzip import stream_defect

if TYPE_CHECKING:
    from ..sources import Source

BLOCK_BYTES = 1 << 20
"""So few that a block is still in the processor's cache when it is hashed and scanned."""

PAD = 128
"""Bytes of room behind a block: what scanners may load beyond its end."""


class Block(NamedTuple):
    """Lines of a source: `data[:n]`, the first at byte `base` of the stream.

    With `whole` each of them ends in a newline; else it is the last line of all, which has none
    and may be cut. `data` has PAD bytes of room more, and is used again for the next block.
    """

    base: int
    data: np.ndarray
    n: int
    whole: bool = True


def line_of(block: Block, start: int, end: int, most: int) -> tuple[bytes, bool]:
    """(the line from start to its end, as `texts.lines` gives it; whether it was too long)."""
    line = block.data[start : min(end, start + most)].tobytes()
    if block.whole and line.endswith(b"\r"):
        line = line[:-1]
    return line, end - start > most


def blocks(
    source: Source, on_odd: Callable[..., None], most: int, hashed: bool = False
) -> Iterator[Block]:
    """The lines of a source, as blocks of BLOCK_BYTES, or of a line where that is longer.

    Of a line that outgrows the room its first `most + 1` bytes are given, as a block of its own:
    its reader sees that it is too long. Memory: a block, or two times `most`. A compressed stream
    that ends early is told as `truncated` to `on_odd(code, message, severity, offset=...)`. With
    `hashed` the source knows its digest once all was read.
    """
    room = max(BLOCK_BYTES, most + 2)
    held = memory.stretch(room + PAD)  # what no line is long enough for is never there
    view, data = memoryview(held), np.frombuffer(held, np.uint8)
    n, base, most_read = 0, 0, min(BLOCK_BYTES, room)
    long: Block | None = None
    with source.open_hashed() if hashed else source.open() as f:
        more = True
        while more:
            n += _fill(f, view[n:most_read])
            more = n == most_read
            if long is not None:
                begins = held.find(b"\n", 0, n) + 1
                if not begins:
                    base, n = base + n, 0
                    continue
                yield long
                long = None
                view[: n - begins] = view[begins:n]
                base, n = base + begins, n - begins
            end = held.rfind(b"\n", 0, n) + 1
            if end:
                yield Block(base, data, end)
                view[: n - end] = view[end:n]
                base, n = base + end, n - end
            elif n == most_read < room:
                most_read = min(2 * most_read, room)
            elif n == room:
                start = np.zeros(most + 2 + PAD, np.uint8)
                start[: most + 1], start[most + 1] = data[: most + 1], 10
                long = Block(base, start, most + 2)
                base, n = base + n, 0
        if long is not None:
            yield long._replace(n=most + 1, whole=False)
        elif n:
            data[n : n + PAD] = 0  # no word goes on into what stood there before
            yield Block(base, data, n, False)
        defect = stream_defect(f)
        if defect is not None:
            on_odd("truncated", f"{defect}; what came before is kept", "lost", offset=base + n)


def _fill(f: BinaryIO, room: memoryview) -> int:
    """Reads until the room is full or the source ends; the number of bytes."""
    n = 0
    while n < len(room):
        if hasattr(f, "readinto"):
            got = f.readinto(room[n:]) or 0  # type: ignore[attr-defined]
        else:
            part = f.read(len(room) - n)
            got = len(part)
            room[n : n + got] = part
        if not got:
            break
        n += got
    return n
