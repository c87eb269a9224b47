"""Numbers written into a text of fixed width, thousands at once."""

from __future__ import annotations

import numpy as np

TS, DUR, ID, SEQ, STEP, ROWS, COUNT = range(1, 8)
"""What a byte of a template stands for: times, durations, ids, ..., each one character of it."""
WIDTH = {TS: 17, DUR: 12, ID: 8, SEQ: 7, STEP: 4, ROWS: 6, COUNT: 10}


def hole(kind: int) -> bytes:
    """Where a number of this kind will stand in a template."""
    return bytes([kind]) * WIDTH[kind]


class Template:
    """A text with holes, filled again and again."""

    def __init__(self, text: bytes):
        self._text = np.frombuffer(bytearray(text), np.uint8)
        self._places = {
            kind: np.flatnonzero(self._text == kind).reshape(-1, width)
            for kind, width in WIDTH.items()
        }

    def count(self, kind: int) -> int:
        """How many holes of a kind there are."""
        return len(self._places[kind])

    def fill(self, kind: int, values: np.ndarray) -> None:
        """Writes values (int64, in the order of the holes; TS and DUR in ns, written as us)."""
        places, width = self._places[kind], WIDTH[kind]
        if len(values) != len(places):
            raise ValueError(f"{len(values)} values for {len(places)} holes of kind {kind}")
        decimals = 3 if kind in (TS, DUR) else 0
        digits = width - 1 if decimals else width
        power = 10 ** np.arange(digits - 1, -1, -1, dtype=np.int64)
        if len(values) and (values.min() < 0 or values.max() >= 10**digits):
            raise ValueError(f"a number that has no {digits} digits in a hole of kind {kind}")
        ahead = values[:, None] // power
        text = (ahead % 10 + 48).astype(np.uint8)
        # Blanks, not zeros, before a number; its last digit (before the point) stays.
        text[(ahead == 0) & (power > 10**decimals)] = 32
        if decimals:
            self._text[places[:, : -decimals - 1]] = text[:, :-decimals]
            self._text[places[:, -decimals - 1]] = 46
            self._text[places[:, -decimals:]] = text[:, -decimals:]
        else:
            self._text[places] = text

    def bytes(self) -> bytes:
        """The text as it is filled now."""
        return self._text.tobytes()
