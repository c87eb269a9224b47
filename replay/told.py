"""Sentences as they are told: names of strangers, however long, have their middle left out."""

from __future__ import annotations

import re
from collections.abc import Iterable

LONGEST_WORD = 100
"""Characters: no name that a person gave a communicator is longer; a made-up one may be 1 MB."""

LONGEST = 1_500
"""Characters of a sentence, whose names may have spaces."""

_LONG_WORD = re.compile(rf"\S{{{LONGEST_WORD + 1},}}")


_POWER = re.compile(
    r"(?<![\w.])\d(?:\.\d+)?e[+-]\d+(?= (?:ns|us|ms|s|bytes|[kMGT]B|[kMGT]B/s)(?!\w))"
)
"""A quantity as a power of ten, which formats of so many digits make of large numbers."""


def told(texts: Iterable[str]) -> list[str]:
    """The sentences in their order, each once, none longer than LONGEST, no power of ten."""
    return [_POWER.sub(_plain, short(text)) for text in dict.fromkeys(texts)]


def _plain(power: re.Match[str]) -> str:
    value = float(power[0])
    return f"{value:,.0f}" if value >= 1 else f"{value:.12f}".rstrip("0")


def short(text: str) -> str:
    """`text` with the middle left out of long words, and of itself."""
    if len(text) <= LONGEST_WORD:
        return text
    return _middle(_LONG_WORD.sub(lambda word: _middle(word[0], LONGEST_WORD), text), LONGEST)


def _middle(text: str, longest: int) -> str:
    tail = (longest - 1) // 3
    head = longest - 1 - tail
    return text if len(text) <= longest else f"{text[:head]}…{text[-tail:]}"
