"""What surrounds a trace's events: the metadata before and after the events array."""

from __future__ import annotations

import json
import re
from dataclasses import dataclass

from . import jsontext

LIMIT_BYTES = 16 << 20
"""The most that is kept of each side."""

_EVENTS_KEY = re.compile(rb'"traceEvents"[ \t\r\n]*:[ \t\r\n]*\[')
_TOP_KEY = re.compile(rb'(?:^|[,{\]}"0-9a-z])[ \t\r\n]*\n[ \t]*"([A-Za-z_]\w*)"[ \t]*:')


@dataclass
class Envelope:
    """The text around the events array.

    `head` ends before the array's `[`, `tail` begins after its `]`. `bare` where the file is the
    array alone. Offsets are bytes in the decompressed stream; `array_end` is None while the
    array's end was not seen.
    """

    head: bytes = b""
    tail: bytes = b""
    bare: bool = False
    array_start: int | None = None
    array_end: int | None = None
    broken: bool = False

    def parse(self) -> dict:
        """The top-level metadata without the events; values that cannot be read are left out.

        Integers stay exact. A value that is broken is looked for again by what looks like the
        next top-level key; its own key is listed under `"_unreadable"`.
        """
        if self.bare:
            return {}
        return parse_object(self.head + b"[]" + self.tail)


def parse_object(text: bytes) -> dict:
    """The top-level keys and values of an object's text, forgivingly (see `Envelope.parse`)."""
    try:
        out = json.loads(text)
        if isinstance(out, dict):
            out.pop("traceEvents", None)
            return out
    except (ValueError, RecursionError):
        pass
    out: dict = {}
    unreadable: list[str] = []
    pos = text.find(b"{") + 1
    end = len(text)
    while pos:
        try:
            at = jsontext.skip_space(text, pos, end)
            if text[at] in b",}":
                pos = at + 1
                continue
            stop = jsontext.string_end(text, at, end)
            key, _ = jsontext.decode_text(text[at + 1 : stop - 1])
            colon = jsontext.skip_space(text, stop, end)
            if text[colon] != 0x3A:
                raise jsontext.Broken
            at = jsontext.skip_space(text, colon + 1, end)
        except (jsontext.Unfinished, jsontext.Broken):
            following = _TOP_KEY.search(text, pos, end)
            if following is None:
                break
            pos = following.start(1) - 1
            continue
        try:
            pos = value_end(text, at, end)
            follows = jsontext.SPACE.match(text, pos, end).end()  # type: ignore[union-attr]
            if follows < end and text[follows] not in b",}":
                raise jsontext.Broken
            value = _loads(text[at:pos])
        except (jsontext.Unfinished, jsontext.Broken, ValueError, RecursionError):
            unreadable.append(key)
            following = _TOP_KEY.search(text, at, end)
            pos = following.start(1) - 1 if following else 0
            continue
        if key != "traceEvents":
            out[key] = value
    if unreadable:
        out["_unreadable"] = unreadable
    return out


def _loads(value: bytes) -> object:
    text = value.decode("utf-8", "replace")
    try:
        return json.loads(text, strict=False)
    except ValueError:
        # Trailing commas are the commonest defect of old writers.
        return json.loads(re.sub(r",(\s*[}\]])", r"\1", text), strict=False)


def value_end(buf, at: int, end: int) -> int:
    """One past the JSON value that begins at `at`. Raises `Unfinished` or `Broken`."""
    c = buf[at]
    if c == 0x22:
        return jsontext.string_end(buf, at, end)
    if c in b"[{":
        return jsontext.nested_end(buf, at, end)
    return jsontext.bare_word(buf, at, end)


def find_events(buf, pos: int, end: int) -> tuple[int, int]:
    """(position of the events array's `[` or -1, position to go on from with more bytes).

    `pos` is 0 at first, then what the last call gave. Walks the top-level keys, so the word
    traceEvents inside a string or a nested value is not taken. Raises `Broken` where the text
    cannot be walked.
    """
    try:
        if pos == 0:
            pos = jsontext.skip_space(buf, 3 if bytes(buf[:3]) == b"\xef\xbb\xbf" else 0, end)
            if buf[pos] == 0x5B:
                return pos, pos
            if buf[pos] != 0x7B:
                raise jsontext.Broken
            pos += 1
        while True:
            at = jsontext.skip_space(buf, pos, end)
            while buf[at] == 0x2C:
                at = jsontext.skip_space(buf, at + 1, end)
            if buf[at] != 0x22:
                raise jsontext.Broken
            stop = jsontext.string_end(buf, at, end)
            key = bytes(buf[at + 1 : stop - 1])
            colon = jsontext.skip_space(buf, stop, end)
            if buf[colon] != 0x3A:
                raise jsontext.Broken
            value = jsontext.skip_space(buf, colon + 1, end)
            if key == b"traceEvents" and buf[value] == 0x5B:
                return value, value
            after = value_end(buf, value, end)
            follows = jsontext.skip_space(buf, after, end)
            if buf[follows] not in b",}":
                raise jsontext.Broken
            pos = follows
    except jsontext.Unfinished:
        return -1, pos


def find_events_by_pattern(buf, end: int) -> int:
    """The first `[` after a `"traceEvents":`, for heads that cannot be walked; -1 if none."""
    m = _EVENTS_KEY.search(buf, 0, end)
    return m.end() - 1 if m else -1
