"""Text sources read in bounded pieces: lines with their byte offsets, and whole small files."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING

from .errors import UnusableInput
from .gunzip import BLOCK, stream_defect

if TYPE_CHECKING:
    from .sources import Source

MAX_LINE_BYTES = 64 << 20
MAX_WHOLE_BYTES = 256 << 20


def lines(
    source: Source,
    on_odd: Callable[..., None],
    most: int = MAX_LINE_BYTES,
    hashed: bool = False,
) -> Iterator[tuple[int, bytes, bool]]:
    """(byte offset, line without its end, complete) of each line of a source, streaming.

    `complete` is false for a last line without a newline (it may be cut). Of a line of more than
    `most` bytes only so many are given, and `on_odd(code, message, severity, offset=...)` is told
    (`long_line`); a compressed stream that ends early is told as `truncated`.
    With `hashed` the source's digest is known afterwards (`Source.open_hashed`).
    """

    def long(offset: int) -> None:
        told = f"a line of more than {most} bytes; the rest of it is left out"
        on_odd("long_line", told, "lost", offset=offset)

    at, kept, start, over = 0, bytearray(), 0, False
    with source.open_hashed() if hashed else source.open() as f:
        while block := f.read(BLOCK):
            at += len(block)
            first, *middle = block.split(b"\n")
            if len(kept) + len(first) > most and not over:
                over = True
                long(start)
            kept += first[: max(most - len(kept), 0)]
            if not middle:
                continue
            yield start, bytes(kept[:-1] if kept.endswith(b"\r") else kept), True
            last = middle.pop()
            start = at - len(last) - sum(map(len, middle)) - len(middle)
            for line in middle:
                n = len(line) + 1
                if n > most + 1:
                    long(start)
                    line = line[:most]
                yield start, line[:-1] if line.endswith(b"\r") else line, True
                start += n
            over = len(last) > most
            if over:
                long(start)
            kept = bytearray(last[:most])
        if kept:
            yield start, bytes(kept), False
        defect = stream_defect(f)
        if defect is not None:
            on_odd("truncated", f"{defect}; what came before is kept", "lost", offset=at)


def whole(source: Source, on_odd: Callable[..., None], most: int = MAX_WHOLE_BYTES) -> bytes:
    """All bytes of a source. Raises UnusableInput where there are more than `most`."""
    parts: list[bytes] = []
    n = 0
    with source.open() as f:
        while block := f.read(BLOCK):
            parts.append(block)
            n += len(block)
            if n > most:
                raise UnusableInput(
                    f"has more than {most >> 20} MiB, which no file of this kind should",
                    path=source.name,
                )
        defect = stream_defect(f)
        if defect is not None:
            on_odd("truncated", f"{defect}; what came before is kept", "lost", offset=n)
    return b"".join(parts)
