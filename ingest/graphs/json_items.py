"""Objects of one large JSON array, one at a time, of a document that may be broken or cut."""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING

import msgspec

from ..errors import UnusableInput
from ..gunzip import BLOCK, stream_defect
from ..kineto.jsontext import Broken, Unfinished

if TYPE_CHECKING:
    from ..sources import Source

MAX_ITEM_BYTES = 16 << 20
MAX_HEAD_BYTES = 1 << 20
MAX_TAIL_BYTES = 1 << 16
OVERLAP_BYTES = 1 << 16

MAX_DEPTH = 100
MAX_TOKENS = 1 << 19
"""Strings and brackets of one object; those of an operator on thousands of tensors are far less."""

MAX_WASTED = 1 << 21
"""Tokens looked at for objects that turned out to have no end, before the rest is given up."""

_MEMBER = re.compile(
    rb'"(\w{1,40})"[ \t\r\n]*:[ \t\r\n]*("[^"\\]{0,200}"|-?\d{1,30}|true|false)(?=[ \t\r\n]*[,}])'
)
_BETWEEN = re.compile(rb"[ \t\r\n,]*")

_TOKEN = re.compile(rb'"(?:[^"\\]++|\\.)*+(?:"|\\?\Z)|[\[\]{}]', re.DOTALL)

OnOdd = Callable[..., None]


class Items:
    """The objects of an array, in order; memory is bounded by the largest.

    `opens` finds the array's `[` at the end of its match, `starts` the beginning of an object where
    the ones before it are broken. `beside` has the document's own short members: those before the
    array at once, those after it when the array has ended. `closed` tells whether its `]` was seen.
    """

    def __init__(
        self,
        source: Source,
        opens: re.Pattern[bytes],
        starts: re.Pattern[bytes],
        on_odd: OnOdd,
        only: re.Pattern[bytes] | None = None,
    ):
        self._source, self._opens, self._starts, self._odd = source, opens, starts, on_odd
        self._only = only
        self._buf = b""
        self._base = 0
        self._tokens = self._wasted = self._hopeless = 0
        self.beside: dict[str, object] = {}
        self.closed = False

    def __iter__(self) -> Iterator[tuple[int, dict]]:
        """(byte offset, object) of each; objects that cannot be read are counted as `lost_node`.

        Raises UnusableInput where there is no such array.
        """
        with self._source.open() as stream:
            self._stream = stream
            at = self._array()
            yield from self._objects(at)
            defect = stream_defect(stream)
            if defect is not None and not self.closed:
                end = self._base + len(self._buf)
                self._odd("truncated", f"{defect}; what came before is kept", "lost", offset=end)

    def _more(self, keep: int) -> bool:
        """Reads on (as much again as is kept), forgetting what is before `keep`."""
        want = max(BLOCK, len(self._buf) - keep)
        parts, got = [self._buf[keep:]], 0
        while got < want and (block := self._stream.read(min(BLOCK, want - got))):
            parts.append(block)
            got += len(block)
        if got:
            self._base += keep
            self._buf = b"".join(parts)
        return got > 0

    def _array(self) -> int:
        while True:
            found = self._opens.search(self._buf)
            if found is not None:
                self._beside(self._buf[: found.end()])
                return found.end()
            if len(self._buf) > MAX_HEAD_BYTES or not self._more(0):
                raise UnusableInput("has no array of nodes", path=self._source.name)

    def _beside(self, text: bytes) -> None:
        for key, value in _MEMBER.findall(text):
            try:
                self.beside.setdefault(key.decode(), json.loads(value.decode()))
            except ValueError:
                continue

    def _objects(self, at: int) -> Iterator[tuple[int, dict]]:
        while True:
            at = _BETWEEN.match(self._buf, at).end()  # type: ignore[union-attr]
            if at >= len(self._buf):
                if self._more(at):
                    at = 0
                    continue
                self._cut(self._base + len(self._buf))
                return
            c = self._buf[at]
            if c == 0x5D:
                self.closed = True
                while len(self._buf) - at < MAX_TAIL_BYTES and self._more(at):
                    at = 0
                self._beside(self._buf[at : at + MAX_TAIL_BYTES].replace(b"\n", b" ") + b"}")
                return
            end = None
            if c == 0x7B:
                quick = self._quick(at)
                if quick is not None:
                    end, node = quick
                    if node is not None:
                        yield self._base + at, node
                    at = end
                    continue
                try:
                    end = self._end(at)
                except Unfinished:
                    if len(self._buf) - at < MAX_ITEM_BYTES and self._more(at):
                        at = 0
                        continue
                    self._wasted += self._tokens
                except Broken:
                    self._wasted += self._tokens
            if end is not None:
                node = self._read(at, end)
                if node is not None:
                    yield self._base + at, node
                at = end
                continue
            after = self._next(at, self._hopeless if c == 0x7B else at + 1)
            if after is None:
                return
            at = after

    def _end(self, at: int) -> int:
        """One past the `}` of the object at a place.

        Raises Unfinished where the text ends before, Broken where it cannot be an object; what
        stands before `self._hopeless` is no object's beginning then.
        """
        self._hopeless = at + 1
        buf, depth, n = self._buf, 0, 0
        stop = min(len(buf), at + MAX_ITEM_BYTES)
        for m in _TOKEN.finditer(buf, at, stop):
            n += 1
            c = buf[m.start()]
            if c == 0x22:
                end = m.end()
                if end == stop:
                    break
                # What follows tells a string from the gap between two strings.
                if buf[end] not in b" ,:]}\r\n\t":
                    self._tokens = n
                    raise Broken
            elif c in b"[{":
                depth += 1
            else:
                depth -= 1
                if not depth:
                    return m.end()
            if depth > MAX_DEPTH or n > MAX_TOKENS:
                if depth > MAX_DEPTH:
                    self._hopeless = m.start()
                self._tokens = n
                raise Broken
        self._tokens = n
        raise Unfinished

    def _quick(self, at: int) -> tuple[int, dict | None] | None:
        """The object at a place and its end, where it is sound and another one follows at once.

        What stands before the next object's beginning is either one whole JSON object, or no guide.
        """
        found = self._starts.search(self._buf, at + 1)
        if found is None:
            return None
        end = found.start()
        if self._only is not None and self._only.search(self._buf, at, end) is None:
            return end, None
        try:
            node = msgspec.json.decode(self._buf[at:end].rstrip(b", \t\r\n"))
        except (msgspec.MsgspecError, RecursionError, ValueError):
            return None
        return (end, node) if isinstance(node, dict) else None

    def _read(self, at: int, end: int) -> dict | None:
        """The object at a place; None where it is not wanted or cannot be read."""
        text = self._buf[at:end]
        if self._only is not None and self._only.search(text) is None:
            return None
        try:
            node = msgspec.json.decode(text)
        except (msgspec.MsgspecError, RecursionError, ValueError):
            try:
                node = json.loads(text.decode("utf-8", "replace"), strict=False)
            except (ValueError, RecursionError):
                self._lost(self._base + at)
                return None
            self._odd(
                "malformed_node", "a node that is not valid JSON; read forgivingly", "warning",
                offset=self._base + at,
            )  # fmt: skip
        return node if isinstance(node, dict) else None

    def _next(self, at: int, after: int) -> int | None:
        """Where an object begins, at or behind `after`, past a broken one; None where none does.

        A broken object with nothing behind it is the end of a file that was cut.
        """
        broken = self._base + at
        if self._wasted > MAX_WASTED:
            self._odd(
                "gave_up", "too many nodes without an end: the rest is left out", "lost",
                offset=broken,
            )  # fmt: skip
            return None
        at = after
        while True:
            found = self._starts.search(self._buf, at)
            if found is not None:
                self._lost(broken)
                return found.start()
            keep = max(at, len(self._buf) - OVERLAP_BYTES)
            if not self._more(keep):
                self._cut(broken)
                return None
            at = 0

    def _lost(self, offset: int) -> None:
        self._odd("lost_node", "a node that cannot be read; left out", "lost", offset=offset)

    def _cut(self, offset: int) -> None:
        self._odd(
            "truncated",
            "the file ends before its nodes do (a crash of the job, or a copy cut short); every "
            "whole node before this byte is kept",
            "lost",
            offset=offset,
        )
