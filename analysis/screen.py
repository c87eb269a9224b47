"""A screen: its console, text that cannot act on it, and JSON instead."""

from __future__ import annotations

import json
import math
import re
import sys
from collections.abc import Iterable, Mapping
from decimal import Decimal
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from rich.console import Console

UNLIMITED = 100_000
"""Width of a console that is not a terminal: nothing is cut where a program reads."""

UNSAFE = {
    *range(0x00, 0x20),
    *range(0x7F, 0xA0),
    0x061C,
    *range(0x200B, 0x2010),
    *range(0x2028, 0x202F),
    *range(0x2060, 0x2070),
    0xFEFF,
}
"""Code points that move the cursor, hide text or turn its direction."""


LONGEST_WORD = 2_000
"""Characters: Rich wraps a word in time that grows with its square, and no path is longer."""

_LONG_WORD = re.compile(rf"\S{{{LONGEST_WORD + 1},}}")


def clean(text: str) -> str:
    """`text` with control and direction characters written out: what a trace named cannot act.

    Words beyond LONGEST_WORD lose their middle.
    """
    if len(text) > LONGEST_WORD:
        half = LONGEST_WORD // 2
        text = _LONG_WORD.sub(lambda word: f"{word[0][:half]}…{word[0][-half:]}", text)
    if text.isascii() and text.isprintable():
        return text
    return "".join(
        (f"\\x{ord(c):02x}" if ord(c) < 256 else f"\\u{ord(c):04x}")
        if ord(c) in UNSAFE or 0xD800 <= ord(c) < 0xE000
        else c
        for c in text
    )


def console(stderr: bool = False) -> Console:
    """A console as wide as the terminal; unlimited and colourless where there is none."""
    from rich.console import Console

    stream = sys.stderr if stderr else sys.stdout
    width = None if stream.isatty() else UNLIMITED
    return Console(file=stream, width=width, highlight=False, emoji=False, markup=False)


def to_json(value: Any) -> str:
    """JSON of rows or of one object: NaN and infinities are null, decimals and dates text."""
    return json.dumps(_plain(value), ensure_ascii=False, allow_nan=False, default=str)


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
