"""A screen: its console, text that cannot act on it, and JSON instead."""

from __future__ import annotations

import json
import math
import os
import re
import sys
from collections.abc import Iterable, Mapping
from decimal import Decimal
from functools import cached_property
from typing import TYPE_CHECKING, Any, TextIO, cast

from . import escaping

if TYPE_CHECKING:
    from rich.console import Console

UNLIMITED = 100_000
"""Width of a console that is not a terminal: nothing is cut where a program reads."""

LONGEST_WORD = 2_000
"""Characters: Rich wraps a word in time that grows with its square, and no path is longer."""

LONGEST = 20_000
"""Characters of a text: a screen or a page is no place for more of one name."""

_LONG_WORD = re.compile(rf"\S{{{LONGEST_WORD + 1},}}")


def clean(text: str) -> str:
    """`text` with what acts or deceives written out (`escaping.escaped`): no name can act.

    Words beyond LONGEST_WORD lose their middle, and so does what is beyond LONGEST.
    """
    # Before, as a megabyte takes long to write out; after, as that makes it up to ten times longer.
    return _cut(escaping.escaped(_cut(text)))


def _cut(text: str) -> str:
    if len(text) <= LONGEST_WORD:
        return text
    half = LONGEST_WORD // 2
    text = _LONG_WORD.sub(lambda word: f"{word[0][:half]}…{word[0][-half:]}", text)
    if len(text) > LONGEST:
        text = f"{text[: LONGEST // 2]}…{text[-LONGEST // 2 :]}"
    return text


def console(stderr: bool = False) -> Console:
    """A console as wide as the terminal; unlimited and colourless where there is none.

    What is printed is text that was cleaned; should some not have been, it does not act either.
    """
    stream = sys.stderr if stderr else sys.stdout
    if stream.isatty() or any(os.environ.get(name) for name in _COLOURS_ANYWAY):
        return _console(stream)
    return cast("Console", _Plain(stream))


_COLOURS_ANYWAY = ("FORCE_COLOR", "TTY_COMPATIBLE")
"""What makes Rich treat a stream as a terminal."""


class _Plain:
    """A console for what is no terminal: lines go out as they are, and all else through Rich.

    Rich is a twentieth of a second to import.
    """

    def __init__(self, stream: TextIO) -> None:
        self._stream = stream

    def print(self, *objects: Any, **options: Any) -> None:
        """As a console's."""
        if options.keys() <= {"style", "soft_wrap"} and all(
            isinstance(o, str) and len(o) < UNLIMITED and o.isprintable() for o in objects
        ):
            words = " ".join(map(escaping.one_for_one, objects))
            if len(words) < UNLIMITED // 2:  # some characters take two columns
                self._stream.write(words + "\n")
                return
        self._rich.print(*objects, **options)

    @cached_property
    def _rich(self) -> Console:
        return _console(self._stream)

    def __getattr__(self, name: str) -> Any:
        if name.startswith("_"):
            raise AttributeError(name)
        return getattr(self._rich, name)


def _console(stream: TextIO) -> Console:
    from rich.console import Console
    from rich.text import Text

    class Harmless(Console):
        def print(self, *objects: Any, **options: Any) -> None:
            super().print(*map(_harmless, objects), **options)

    def _harmless(value: Any) -> Any:
        if isinstance(value, str):
            return escaping.one_for_one(value)
        if isinstance(value, Text) and (safe := escaping.one_for_one(value.plain)) != value.plain:
            value = value.copy()
            value.plain = safe
        return value

    width = None if stream.isatty() else UNLIMITED
    return Harmless(file=stream, width=width, highlight=False, emoji=False, markup=False)


def to_json(value: Any) -> str:
    """JSON of rows or of one object: NaN and infinities are null, decimals and dates text.

    What could act on a terminal or hide in it is escaped: the values are the same.
    """
    text = json.dumps(_plain(value), ensure_ascii=False, allow_nan=False, default=str)
    return text if text.isascii() and text.isprintable() else escaping.json_escaped(text)


def _plain(value: Any) -> Any:
    if isinstance(value, float):
        return value if math.isfinite(value) else None
    if isinstance(value, Mapping):
        return {str(k): _plain(v) for k, v in value.items()}
    if isinstance(value, str):
        return value.encode("utf-8", "backslashreplace").decode()
    if isinstance(value, Iterable) and not isinstance(value, bytes):
        return [_plain(v) for v in value]
    item = getattr(value, "item", None)
    if item is not None:
        return _plain(item())
    if isinstance(value, Decimal):
        return int(value) if value == value.to_integral_value() else str(value)
    return value
