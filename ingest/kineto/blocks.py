"""A stream as a moving window of bytes, and the walk over the events array inside it."""

from __future__ import annotations

import re
from collections.abc import Callable, Generator, Iterator
from typing import BinaryIO, NamedTuple

import numpy as np

from ..ahead import prefetch
from ..errors import UnusableInput
from ..gunzip import piece
from ..schema import Problem
from . import jsontext
from .envelope import (
    LIMIT_BYTES,
    Envelope,
    find_events,
    find_events_by_pattern,
    value_end,
)
from .rawbatch import BatchBuilder, ProblemTally, RawBatch
from .roles import may_be_read_again

BLOCK_BYTES = 4 << 20
BATCH_ROWS = 130_000
MAX_EVENT_BYTES = 16 << 20
"""An event longer than this is not believed to be one."""

PAD = 64
"""Zero bytes kept after the window's end: no token goes on into them, no load leaves the buffer."""

MORE, END, FULL, MALFORMED = 0, 1, 2, 3
"""Why a scan stopped: bytes used up, array closed, batch full, or an item it will not take."""

ByteStream = BinaryIO | bytes | bytearray | memoryview | np.ndarray
"""What readers read: a binary file, or anything that lies in memory as bytes (an mmap too)."""

Scan = Callable[["Window", int], tuple[int, int]]
"""(window, position between events) -> (position between events, why it stopped).

For END the position is the array's `]`, for MALFORMED the `{` (or other item) not taken.
"""


class Steps(NamedTuple):
    """A reader as `read_array` uses it: how it scans, and how it takes what it has as a batch."""

    scan: Scan
    take: Callable[[], RawBatch]


class Window:
    """Bytes `base` to `base + n` of a stream, followed by PAD zero bytes.

    `data` is the array, `view` the same as a memoryview. Both are replaced when the window grows,
    and each time where the stream hashes beside: then two arrays are filled by turns.
    """

    def __init__(self, stream: ByteStream, block_bytes: int) -> None:
        is_file = hasattr(stream, "readinto") or hasattr(stream, "read")
        self._source = stream if is_file else _Memory(stream)
        self._by_turns = getattr(stream, "beside", False)
        self._other: np.ndarray | None = None
        self._block = max(1, block_bytes)
        self._room(self._block)
        self.n = 0
        self.base = 0
        self.eof = False

    def _room(self, capacity: int) -> None:
        self._capacity = capacity
        self.data = np.zeros(capacity + PAD, np.uint8)
        self.view = memoryview(self.data)  # type: ignore[arg-type]

    def advance(self, keep: int) -> None:
        """Drops the bytes before `keep`, which becomes position 0, and reads a block more."""
        rest = self.n - keep
        old, end = self.data, self.n
        # Twice what is carried over, so that a long event costs a few rescans and not thousands.
        wanted = max(self._block, 2 * rest)
        if not self._capacity // 4 <= wanted <= self._capacity:
            self._room(wanted)
        elif self._by_turns:
            self._swap()
        self.base += keep
        self.n = rest
        if not self._by_turns:
            self.data[:rest] = old[keep:end]
        while self.n < self._capacity:
            # Short reads (a pipe, a compressed member) are not the end; nothing read is.
            got = _read_into(self._source, self.view[self.n : self._capacity])
            if not got:
                self.eof = True
                break
            self.n += got
        if self._by_turns:
            # Only now is what this array held before no longer looked at.
            self.data[:rest] = old[keep:end]
        self.data[self.n : self.n + PAD] = 0

    def _swap(self) -> None:
        """Takes the other array of the same size."""
        self._other, other = self.data, self._other
        if other is None or len(other) != len(self.data):
            other = np.zeros(len(self.data), np.uint8)
        self.data = other
        self.view = memoryview(self.data)  # type: ignore[arg-type]


class _Memory:
    """Bytes in memory with a file's `readinto`."""

    def __init__(self, buffer) -> None:
        self._view = memoryview(buffer).cast("B")
        self._pos = 0

    def readinto(self, target) -> int:
        part = self._view[self._pos : self._pos + len(target)]
        target[: len(part)] = part
        self._pos += len(part)
        return len(part)


def _read_into(source, target) -> int:
    if hasattr(source, "readinto"):
        return source.readinto(target) or 0
    part = source.read(len(target))
    target[: len(part)] = part
    return len(part)


def _open_array(window: Window, envelope: Envelope, tally: ProblemTally) -> int:
    """Finds the events array, keeps what stands before it, and gives the position after its `[`."""
    pos = 0
    walk = True
    while True:
        window.advance(0)
        found = -1
        if walk:
            try:
                found, pos = find_events(window.view, pos, window.n)
            except jsontext.Broken:
                walk = False
        if not walk:
            found = find_events_by_pattern(window.view, window.n)
        if found >= 0:
            break
        if window.eof or window.n > LIMIT_BYTES:
            raise UnusableInput(_why_unusable(window), offset=0)
    if not walk:
        envelope.broken = True
        tally.add("malformed_envelope", 0)
    envelope.head = bytes(window.view[:found])
    envelope.bare = not envelope.head.strip(b" \t\r\n\xef\xbb\xbf")
    envelope.array_start = found
    return found + 1


def _why_unusable(window: Window) -> str:
    start = bytes(window.view[: min(window.n, 64)]).strip()
    if not start:
        return "empty; expected a JSON trace"
    if not window.eof:
        return f'no "traceEvents" array in the first {LIMIT_BYTES >> 20} MiB'
    if start[:1] not in b"{[":
        return f"not JSON: begins with {start[:16]!r}, expected {{ or ["
    return 'JSON without a "traceEvents" array (cut off before it, or another format)'


def _close_array(window: Window, pos: int, envelope: Envelope, tally: ProblemTally) -> None:
    """Keeps what stands after the array, up to a limit."""
    envelope.array_end = window.base + pos
    parts: list[bytes] = []
    size = 0
    pos += 1
    while True:
        part = bytes(window.view[pos : window.n])
        if size + len(part) > LIMIT_BYTES:
            part = part[: LIMIT_BYTES - size]
            tally.add("envelope_too_large", window.base + pos + len(part))
            parts.append(part)
            break
        parts.append(part)
        size += len(part)
        if window.eof:
            break
        window.advance(window.n)
        pos = 0
    envelope.tail = b"".join(parts)
    if not envelope.bare and not _closed(envelope.tail):
        envelope.broken = True
        tally.add("truncated", envelope.array_end + 1 + size, "after the events")


_CLOSED = re.compile(rb"\}[ \t\r\n\x00]*\Z")


def _closed(tail: bytes) -> bool:
    """Whether the tail ends with the envelope's brace (and not one of a nested value)."""
    if not _CLOSED.search(tail[-65536:]):
        return False
    try:
        end = jsontext.nested_end(b"{" + tail, 0, len(tail) + 1)
    except (jsontext.Unfinished, jsontext.Broken):
        return False
    return end > 0


def read_array(
    stream: ByteStream,
    envelope: Envelope,
    on_problem: Callable[[Problem], None],
    scan: Scan,
    builder: BatchBuilder,
    take: Callable[[], RawBatch],
    tally: ProblemTally,
    block_bytes: int,
) -> Generator[RawBatch]:
    """Walks the events array of a stream with `scan`, which adds rows to `builder`.

    Items that the scan will not take are read by `lenient.parse_event`. `take` turns the builder
    into a batch. Problems are counted in `tally` and told once each at the end. Raises
    UnusableInput where there is no events array.
    """
    # Not at the top: lenient's own reader is built on this walk.
    from . import lenient

    try:
        window = Window(stream, block_bytes)
        pos = _open_array(window, envelope, tally)
        while True:
            pos, why = scan(window, pos)
            if why == MORE and window.eof and pos < window.n:
                # Cut off, or broken so that it only looks it.
                why = MALFORMED
            if why == MALFORMED:
                if builder.n == builder.capacity:
                    why = FULL
                else:
                    pos, why = _reread(window, pos, builder, tally, lenient.parse_event)
            if why == FULL:
                yield take()
                builder.renew()  # only now: whoever takes batches is done with some
            elif why == END:
                _close_array(window, pos, envelope, tally)
                break
            elif why == MORE:
                if window.eof:
                    tally.add("truncated", window.base + pos)
                    break
                window.advance(pos)
                pos = 0
        if builder.n:
            yield take()
    finally:
        tally.report(on_problem)


_BETWEEN = re.compile(rb"[ \t\r\n,]*")
_RESUME = re.compile(
    rb'\{[ \t\r\n]*"(?:ph|name|cat|pid|tid|ts|dur|id|args|s|bp)"[ \t\r\n]*:'
    rb'|\][ \t\r\n]*(?:,[ \t\r\n]*"\w+"[ \t\r\n]*:|\})'
)
_LAST_RESUME = re.compile(rb"\][ \t\r\n]*\Z")


def _skip_item(view, pos: int, n: int, final: bool) -> int:
    """One past the item at `pos`, which is no object; where nothing ends it, where events resume.

    Raises `Unfinished` where that takes more bytes.
    """
    stop = min(n, pos + MAX_EVENT_BYTES)
    try:
        end = value_end(view, pos, stop)
        if view[jsontext.skip_space(view, end, stop)] in b",]":
            return end
    except jsontext.Broken:
        pass
    except jsontext.Unfinished:
        if not final and stop == n:
            raise
    m = _RESUME.search(view, pos + 1, stop)
    if m is None and final and stop == n:
        m = _LAST_RESUME.search(view, pos + 1, n)
    if m is not None:
        return m.start()
    if stop == n:
        raise jsontext.Unfinished
    return stop


def _reread(window: Window, pos: int, builder: BatchBuilder, tally: ProblemTally, parse):
    """Reads the one item at `pos` forgivingly: (position after it, MALFORMED) or why it cannot."""
    view, n = window.view, window.n
    pos = _BETWEEN.match(view, pos, n).end()  # type: ignore[union-attr]
    if pos >= n:
        return pos, MORE
    if view[pos] == 0x5D:
        return pos, END
    start = window.base + pos
    try:
        if view[pos] != 0x7B:
            end = _skip_item(view, pos, n, window.eof)
            tally.add("not_an_event", start)
            return end, MALFORMED
        event = parse(view, pos, n, final=window.eof)
    except jsontext.Unfinished:
        return pos, MORE
    for code, detail in event.notes:
        tally.add(code, start, detail)
    if event.values is not None:
        builder.append(start, event.values, event.extra)
        if builder.texts is not None and may_be_read_again(str(event.values.get("name"))):
            builder.texts.keep(builder.n - 1, view, pos, event.end)
    return event.end, MALFORMED


class Ahead:
    """A stream whose pieces a thread reads, some ahead of the caller: what inflates, mostly."""

    def __init__(self, raw: BinaryIO, block_bytes: int = 4 << 20):
        self._blocks = prefetch(_blocks(raw, block_bytes))
        self._pieces: Iterator[bytes] = iter(())
        self._rest = memoryview(b"")

    def readinto(self, buffer: object) -> int:
        """Fills a buffer; less than that, or nothing, is the end."""
        view = memoryview(buffer).cast("B")  # type: ignore[arg-type]
        done = 0
        while done < len(view):
            if not self._rest:
                self._rest = memoryview(self._piece())
                if not self._rest:
                    break
            n = min(len(view) - done, len(self._rest))
            view[done : done + n], self._rest = self._rest[:n], self._rest[n:]
            done += n
        return done

    def _piece(self) -> bytes:
        while (found := next(self._pieces, None)) is None:
            block = next(self._blocks, None)
            if block is None:
                return b""
            self._pieces = iter(block)
        return found

    def close(self) -> None:
        """Stops the thread; the stream itself is its owner's to close."""
        self._blocks.close()


def _blocks(raw: BinaryIO, block_bytes: int) -> Iterator[list[bytes]]:
    """The pieces of a stream, together as many as fill a block: handing over has its price."""
    block: list[bytes] = []
    n = 0
    while part := piece(raw):
        block.append(part)
        n += len(part)
        if n >= block_bytes:
            yield block
            block, n = [], 0
    if block:
        yield block
