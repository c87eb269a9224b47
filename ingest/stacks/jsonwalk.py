"""A large JSON document as a stream of its parts, opened as far as the caller says."""

from __future__ import annotations

import codecs
import json
import re
from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING, Any, NamedTuple

from ..gunzip import stream_defect

if TYPE_CHECKING:
    from ..sources import Source

MAX_VALUE_CHARS = 16 << 20
"""A value that is not opened may have this many characters."""

_READ_BYTES = 1 << 20
_NEAR_END = 16
_SPACE = re.compile(r"[ \t\r\n]*")
_BETWEEN = re.compile(r"[ \t\r\n,]*")
_NEXT_ITEM = re.compile(r"\}[ \t\r\n]{0,64},[ \t\r\n]{0,64}(?=\{)")

Path = tuple[str, ...]


class Opened(NamedTuple):
    """Stands for a container that was opened: its members follow."""

    bracket: str


class _Broken(Exception):
    """What is next is no JSON, or too much of it."""


class _End(Exception):
    """The text is at its end."""


class _Text:
    """The text of a stream, read as far as it is asked for."""

    def __init__(self, stream: Any):
        self._stream = stream
        self._decode = codecs.getincrementaldecoder("utf-8")("replace").decode
        # Fractions stay text: a float of a time in microseconds has lost its nanoseconds.
        self._json = json.JSONDecoder(
            strict=False, parse_float=str, parse_constant=lambda _: None
        ).raw_decode
        self.buffer, self.at, self.gone, self.ended = "", 0, 0, False

    @property
    def offset(self) -> int:
        """Characters before the next one."""
        return self.gone + self.at

    def more(self) -> bool:
        """Reads on, letting go of what was passed; as much again as is held. False at the end."""
        if self.ended:
            return False
        self.gone += self.at
        self.buffer, self.at = self.buffer[self.at :], 0
        want = max(_READ_BYTES, len(self.buffer))
        parts = [self.buffer]
        while want > 0:
            block = self._stream.read(_READ_BYTES)
            if not block:
                self.ended = True
                parts.append(self._decode(b"", True))
                break
            parts.append(self._decode(block))
            want -= len(block)
        self.buffer = "".join(parts)
        return True

    def peek(self) -> str:
        """The next character that is no white space; raises _End."""
        while True:
            self.at = _SPACE.match(self.buffer, self.at).end()  # type: ignore[union-attr]
            if self.at < len(self.buffer):
                return self.buffer[self.at]
            if not self.more():
                raise _End

    def value(self) -> Any:
        """The next value, whole; raises _Broken or _End."""
        self.peek()
        while True:
            try:
                value, end = self._json(self.buffer, self.at)
            except json.JSONDecodeError as e:
                certain = e.pos < len(self.buffer) - _NEAR_END and not e.msg.startswith("Unterm")
                if certain:
                    raise _Broken from None
                end = -1
            except (ValueError, RecursionError):
                raise _Broken from None
            # A number or word at the end of what was read may go on.
            if end >= 0 and (end < len(self.buffer) or self.buffer[end - 1] in '"]}'):
                self.at = end
                return value
            if len(self.buffer) - self.at > MAX_VALUE_CHARS:
                raise _Broken
            if not self.more():
                raise _End

    def items(self) -> Iterator[Any]:
        """The values of the array that is open, as far as they are plain objects at hand."""
        while True:
            at = _BETWEEN.match(self.buffer, self.at).end()  # type: ignore[union-attr]
            if not self.buffer.startswith("{", at):
                return
            try:
                value, end = self._json(self.buffer, at)
            except (ValueError, RecursionError):
                return  # `value` finds out why
            self.at = end
            yield value

    def next_item(self) -> None:
        """Goes to the next `{` that follows `},`; raises _End where there is none."""
        self.at = min(self.at + 1, len(self.buffer))
        while True:
            found = _NEXT_ITEM.search(self.buffer, self.at)
            if found:
                self.at = found.end()
                return
            if self.ended:
                self.at = len(self.buffer)
                raise _End
            self.at = max(self.at, len(self.buffer) - 256)
            self.more()


def walk(
    source: Source,
    opens: Callable[[Path], bool],
    on_odd: Callable[..., None],
) -> Iterator[tuple[Path, Any]]:
    """(path, value) of each member of the containers that are opened, in order, streaming.

    A path is the keys down to the value, `*` for an item of an array. `opens(path)` says whether
    the container there is opened (the outermost, at `()`, always is): then its path comes with
    `Opened`, its members after it; a container not opened comes as a value. Fractions come as
    text, NaN and infinities as None. Memory is bounded by MAX_VALUE_CHARS.

    `on_odd(code, message, severity, offset=...)` is told of `truncated`, of `unclosed` (all that is
    missing is the bracket that closes an array of everything) and of `malformed`. A broken item of
    an array is left out (`lost_event`); broken text elsewhere ends the walk. Nothing is raised but
    what reading the stream raises.
    """
    with source.open() as stream:
        text = _Text(stream)
        try:
            yield from _members(text, opens, on_odd)
        except _Broken:
            on_odd(
                "malformed",
                "not valid JSON from here (or one value of more than "
                f"{MAX_VALUE_CHARS >> 20} MiB); what came before is kept",
                "lost",
                offset=text.offset,
            )
        defect = stream_defect(stream)
        if defect is not None:
            on_odd("damaged_compression", defect, "lost", offset=text.offset)


def _members(
    text: _Text, opens: Callable[[Path], bool], on_odd: Callable[..., None]
) -> Iterator[tuple[Path, Any]]:
    stack: list[tuple[str, Path]] = []
    whole = True
    """Whether the text so far could end here but for closing brackets."""
    try:
        if text.peek() == "\ufeff":
            text.at += 1
        if text.peek() not in "{[":
            raise _Broken
        while True:
            path: Path = ()
            if stack:
                bracket, inside = stack[-1]
                c = text.peek()
                if c in "]}":
                    text.at += 1
                    stack.pop()
                    if not stack:
                        return
                    continue
                if c == ",":
                    text.at += 1
                    continue
                whole = False
                if bracket == "{":
                    if c != '"':
                        raise _Broken
                    key = text.value()
                    if text.peek() != ":":
                        raise _Broken
                    text.at += 1
                    path = (*inside, key)
                else:
                    path = (*inside, "*")
                    if c == "{" and not opens(path):
                        for value in text.items():
                            whole = True
                            yield path, value
                        c = text.peek()
                        if c in ",]}":
                            continue
                        whole = False
            c = text.peek()
            if c in "{[" and (not stack or opens(path)):
                text.at += 1
                stack.append((c, path))
                whole = True
                yield path, Opened(c)
                continue
            try:
                value = text.value()
            except _Broken:
                if not stack or stack[-1][0] != "[":
                    raise
                what = "an item that is not valid JSON, or too large; left out"
                on_odd("lost_event", what, "lost", offset=text.offset)
                text.next_item()
                whole = True
                continue
            whole = True
            yield path, value
    except _End:
        if not stack:
            on_odd("truncated", "there is nothing in it", "lost", offset=text.offset)
        elif whole and [bracket for bracket, _ in stack] == ["["]:
            what = "the closing bracket at the end is missing: the writer was not done, or stopped"
            on_odd("unclosed", what, "info", offset=text.offset)
        else:
            what = "the file ends before its text does; what came before is kept"
            on_odd("truncated", what, "lost", offset=text.offset)
