"""JSON text that may be broken: where values end, and what their text says.

Everything here works on bytes and positions, never recurses, and raises `Unfinished` instead of
guessing when the buffer ends before the answer is certain: a longer buffer with the same beginning
gives the same answer, which is what lets a file be read in blocks.
"""

from __future__ import annotations

import json
import re
from contextlib import suppress
from typing import NamedTuple


class Unfinished(Exception):
    """The buffer ended before the value did."""


class Broken(Exception):
    """The text breaks JSON's rules in a way that this reading cannot mend."""


class Num(str):
    """A number or bare word as it stands in the file; never turned into a float here."""

    __slots__ = ()


class Span(NamedTuple):
    """A nested value that was stepped over: its first byte and one past its last."""

    start: int
    end: int


SPACE = re.compile(rb"[ \t\r\n]*")
STRING = re.compile(rb'"[^"\\]*(?:\\.[^"\\]*)*"', re.DOTALL)
_NESTED = re.compile(rb'"[^"\\]*(?:\\.[^"\\]*)*(?:"|\\?\Z)|[\[\]{}]', re.DOTALL)
_WORD = re.compile(rb'[^\s,{}\[\]":]+')
_STRAY = re.compile(rb"[ \t\r\n,]*")
_BAD_ESCAPE = re.compile(r'\\(?!["\\/bfnrt]|u[0-9a-fA-F]{4})')
_ESCAPE_PAIRS = re.compile(r"\\\\|" + _BAD_ESCAPE.pattern)


def decode_text(raw: bytes) -> tuple[str, bool]:
    """The text between a JSON string's quotes, and whether it was valid.

    Bad UTF-8 and lone surrogates become U+FFFD, control characters stay, an escape that JSON does
    not know stays as it is written.
    """
    good = True
    try:
        text = raw.decode()
    except UnicodeDecodeError:
        text, good = raw.decode("utf-8", "replace"), False
    if not text.isprintable() and any(c < " " for c in text):
        good = False
    if "\\" in text:
        try:
            text = json.loads(f'"{_quoted(text)}"', strict=False)
        except ValueError:
            good = False
            mended = _ESCAPE_PAIRS.sub(lambda m: "\\\\" if m[0] == "\\" else m[0], text)
            with suppress(ValueError):
                text = json.loads(f'"{_quoted(mended)}"', strict=False)
        text, whole = whole_characters(text)
        good = good and whole
    return text, good


def _quoted(text: str) -> str:
    """The text with quotes that nothing escapes (inner ones of a mended string) escaped."""
    return re.sub(r'(\\.)|"', lambda m: m[1] or '\\"', text, flags=re.DOTALL)


def whole_characters(text: str) -> tuple[str, bool]:
    """The text with lone surrogates replaced by U+FFFD, and whether there were none."""
    if text.isascii():
        return text, True
    try:
        text.encode()
    except UnicodeEncodeError:
        return text.encode("utf-16-le", "surrogatepass").decode("utf-16-le", "replace"), False
    return text, True


def skip_space(buf, pos: int, end: int) -> int:
    """The first byte at or after `pos` that is not white space; raises `Unfinished` at the end."""
    pos = SPACE.match(buf, pos, end).end()  # type: ignore[union-attr]
    if pos >= end:
        raise Unfinished
    return pos


def string_end(buf, pos: int, end: int) -> int:
    """One past the closing quote of the string that opens at `pos`."""
    m = STRING.match(buf, pos, end)
    if m is None:
        raise Unfinished
    return m.end()


def nested_end(buf, pos: int, end: int) -> int:
    """One past the bracket that closes the one at `pos`; the kinds of brackets may differ."""
    depth = 0
    for m in _NESTED.finditer(buf, pos, end):
        c = buf[m.start()]
        if c == 0x22:
            if m.end() == end:
                raise Unfinished
            # What follows tells a string from the gap between two strings.
            if buf[m.end()] not in b" ,:]}\r\n\t":
                raise Broken
        elif c in b"[{":
            depth += 1
        else:
            depth -= 1
            if depth == 0:
                return m.end()
    raise Unfinished


def bare_word(buf, pos: int, end: int) -> int:
    """One past the number or word that begins at `pos`."""
    m = _WORD.match(buf, pos, end)
    if m is None:
        raise Broken
    if m.end() >= end:
        raise Unfinished
    return m.end()


_WORDS = {b"true": True, b"false": False, b"null": None}
_NO_NUMBER = {b"nan", b"inf", b"infinity"}


def word_value(word: bytes) -> bool | Num | None:
    """true, false and null as themselves, NaN and infinities as None, all else as `Num`."""
    if word in _WORDS:
        return _WORDS[word]
    if word.lstrip(b"+-").lower() in _NO_NUMBER:
        return None
    return Num(word.decode("utf-8", "replace"))


def object_pairs(
    buf, pos: int, end: int, repairs: set[str]
) -> tuple[list[tuple[str, object]], int]:
    """Keys and values of the object whose `{` is at `pos`, and one past its `}`.

    Forgives trailing and doubled commas, a missing value, bare words, control characters and bad
    escapes, and names what it forgave in `repairs`. Strings must be quoted properly. Nested values
    come back as `Span`. Raises `Broken` or `Unfinished`.
    """
    pairs: list[tuple[str, object]] = []
    pos += 1
    first = True
    while True:
        at = skip_space(buf, pos, end)
        stray = _STRAY.match(buf, at, end).end()  # type: ignore[union-attr]
        if stray != at:
            if stray >= end:
                raise Unfinished
            commas = bytes(buf[at:stray]).count(b",")
            closing = buf[stray] == 0x7D
            if first or commas > 1 or closing:
                repairs.add("stray comma")
            at = stray
        elif not first and buf[at] != 0x7D:
            raise Broken
        if buf[at] == 0x7D:
            return pairs, at + 1
        if buf[at] != 0x22:
            raise Broken
        first = False
        stop = string_end(buf, at, end)
        key, good = decode_text(bytes(buf[at + 1 : stop - 1]))
        if not good:
            repairs.add("bad text")
        at = skip_space(buf, stop, end)
        if buf[at] != 0x3A:
            raise Broken
        at = skip_space(buf, at + 1, end)
        value, pos = _value(buf, at, end, repairs)
        pairs.append((key, value))
        after = skip_space(buf, pos, end)
        if buf[after] not in b",}":
            raise Broken


def _value(buf, at: int, end: int, repairs: set[str]) -> tuple[object, int]:
    c = buf[at]
    if c == 0x22:
        stop = string_end(buf, at, end)
        text, good = decode_text(bytes(buf[at + 1 : stop - 1]))
        if not good:
            repairs.add("bad text")
        return text, stop
    if c in b"[{":
        stop = nested_end(buf, at, end)
        return Span(at, stop), stop
    if c in b",}":
        repairs.add("missing value")
        return None, at
    stop = bare_word(buf, at, end)
    word = bytes(buf[at:stop])
    value = word_value(word)
    if (value is None and word != b"null") or (word not in _WORDS and _ODD.search(word)):
        repairs.add("not a number")
    return value, stop


_ODD = re.compile(rb"[A-DF-Za-df-z]")
"""What no number has, exponents included."""


_AFTER_VALUE = re.compile(
    rb'[ \t\r\n]*(?:\}|,[ \t\r\n]*(?:\}|"[^"\\]*"[ \t\r\n]*:[ \t\r\n]*[",\[{}0-9tfnNI-]))'
)
_AFTER_KEY = re.compile(rb"[ \t\r\n]*:")
_AFTER_ITEM = re.compile(rb'[ \t\r\n]*(?:\]|,[ \t\r\n]*["\[{0-9-])')


def escape_inner_quotes(text: bytes) -> bytes:
    """An object's text with the quotes inside its strings escaped, judged by what follows them.

    A quote closes a value only where a brace or a member follows, a key only where a colon
    follows, an array's item only where another item or the array's end follows.
    """
    out = bytearray()
    pos = 0
    while (opening := text.find(b'"', pos)) >= 0:
        before = text[:opening].rstrip(b" \t\r\n")[-1:]
        if before == b":":
            closers = (_AFTER_VALUE,)
        elif before == b"{":
            closers = (_AFTER_KEY,)
        elif before == b"[":
            closers = (_AFTER_ITEM,)
        else:
            closers = (_AFTER_KEY, _AFTER_ITEM)
        out += text[pos : opening + 1]
        pos = scan = opening + 1
        while (quote := text.find(b'"', scan)) >= 0:
            slashes = len(text[pos:quote]) - len(text[pos:quote].rstrip(b"\\"))
            if slashes % 2 == 0:
                out += text[pos:quote]
                pos = quote
                if any(c.match(text, quote + 1) for c in closers):
                    out += b'"'
                    pos += 1
                    break
                out += b"\\"
            scan = quote + 1
        else:
            break
    return bytes(out + text[pos:])
