"""Characters that act on a screen or deceive its reader, written out by their code points."""

from __future__ import annotations

import re
import unicodedata

_ALWAYS = (
    "\x00-\x1f\x7f-\xa0\xad\u034f\u0600-\u0605\u061c\u06dd\u070f\u0890\u0891\u08e2\u115f\u1160"
    "\u1680\u17b4\u17b5\u180b-\u180f\u2000-\u200f\u2028-\u202f\u2044\u205f-\u206f\u2215\u2800"
    "\u3000\u3164\ud800-\udfff\ufdd0-\ufdef\ufe00-\ufe0f\ufeff\uffa0\ufff0-\ufffb\ufffe\uffff"
    "\U00013430-\U0001343f\U0001bca0-\U0001bca3\U0001d173-\U0001d17a\U0001d400-\U0001d7ff"
    "\U000e0000-\U000e0fff"
)
"""Controls, directions, what has no width or no ink, blanks and slashes that pass for others,
letters of formulas, surrogates, what is no character. (No emoji's own joiners either: a name is no
place for them.)"""

_UNSAFE = re.compile(f"[{_ALWAYS}]")

_LIKE_ASCII = (
    "АВЕКМНОРСТУХІЈЅԌԚԜаеорсухіјѕһԁԛԝѵӏүԍɡɑıοΟνΑΒΕΖΗΙΚΜΝΡΤΥΧϲϳօսոհցႽᎠᎡᎢᎪᎫᎬᎳᎷᎻᏃᏀᏔᏚᏢᏞᏟ"
    "\uff01-\uff5e\u2100-\u214f\u2160-\u217f\u212a"
)
"""Letters that look like ASCII's: Cyrillic, Greek, Armenian, Cherokee, wide and Roman ones."""

_LIKE = re.compile(f"[{_LIKE_ASCII}]")
_WORD = re.compile(r"\w+")

MOST_MARKS = 3
"""Marks above and below one letter; no script that people write needs more of a name's letters."""


def act(text: str) -> bool:
    """Whether a character in it acts or hides."""
    return _UNSAFE.search(text) is not None


def escaped(text: str) -> str:
    """`text` with what acts, hides or passes for another character written out (`\\u202e`).

    Letters that look like ASCII's are written out where they stand beside ASCII's in a word, or
    make the whole of one; marks where they are many, begin the text, or could be one character
    with their letter: names that differ do not look alike.
    """
    if text.isascii() and text.isprintable():
        return text
    text = _UNSAFE.sub(_written, text)
    if text.isascii():
        return text
    if _LIKE.search(text):
        text = _WORD.sub(_told_apart, text)
    return _few_marks(text)


def python(value: object) -> str:
    """The value as a literal of Python's, `repr` with what acts or hides as escapes."""
    return _UNSAFE.sub(_written, repr(value))


def one_for_one(text: str) -> str:
    """`text` with a replacement character for each that acts or hides, except ends of lines."""
    if text.isascii() and text.isprintable():
        return text
    return _UNSAFE.sub(lambda c: c[0] if c[0] == "\n" else "\ufffd", text)


def json_escaped(text: str) -> str:
    """The text of a JSON document, with what acts or hides escaped as JSON does: the same values.

    Line ends and tabs, which stand between values only, stay.
    """
    return _UNSAFE.sub(lambda c: c[0] if c[0] in "\n\t\r" else _as_json(c[0]), text)


def _as_json(c: str) -> str:
    units = c.encode("utf-16-be", "surrogatepass")
    return "".join(f"\\u{units[i] << 8 | units[i + 1]:04x}" for i in range(0, len(units), 2))


def _written(found: re.Match[str]) -> str:
    return _code(found[0])


def _code(c: str) -> str:
    n = ord(c)
    return f"\\x{n:02x}" if n < 0x100 else f"\\u{n:04x}" if n < 0x10000 else f"\\U{n:08x}"


def _told_apart(found: re.Match[str]) -> str:
    word = found[0]
    if word.isascii() or not _LIKE.search(word):
        return word
    whole = len(word) > 1 and not any(c.isalpha() for c in _LIKE.sub("", word))
    if whole or any(c.isascii() and c.isalpha() for c in word):
        return _LIKE.sub(_written, word)
    return word


def _few_marks(text: str) -> str:
    composed = not unicodedata.is_normalized("NFC", text)
    out, run = [], MOST_MARKS  # a mark at the beginning would stand on what is before the text
    for c in text:
        if c.isascii() or unicodedata.category(c) not in ("Mn", "Me"):
            run = 0 if c != " " else MOST_MARKS
            out.append(c)
            continue
        run += 1
        out.append(_code(c) if composed or run > MOST_MARKS else c)
    return "".join(out)
