"""Curves on a terminal: both axes logarithmic, a marker and a colour a curve."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING

import numpy as np

if TYPE_CHECKING:
    from rich.text import Text

MARKERS = "●▲■◆○△□◇"
ASCII = "ox#*+%@&"
COLOURS = ("blue", "red", "green", "magenta", "cyan", "yellow", "white", "bright_blue")


def marker(i: int, utf8: bool) -> tuple[str, str]:
    """The i-th curve's marker and style."""
    marks = MARKERS if utf8 else ASCII
    return marks[i % len(marks)], COLOURS[i % len(COLOURS)]


def lines(
    x: Sequence[float],
    curves: Mapping[str, Sequence[float]],
    *,
    width: int,
    height: int,
    x_word: Callable[[float], str],
    y_word: Callable[[float], str],
    utf8: bool = True,
) -> list[Text]:
    """The chart as `height` + 2 lines of at most `width` columns, then those of its legend.

    All numbers are above 0; a NaN is a gap. Where curves meet, the earlier one is drawn.
    """
    from rich.text import Text

    at = np.log2(np.asarray(x, np.float64))
    y = {name: np.log2(np.asarray(v, np.float64)) for name, v in curves.items()}
    every = np.concatenate([v[np.isfinite(v)] for v in y.values()])
    low, high = float(every.min()), float(every.max())
    high = max(high, low + 1)
    words = _ticks(low, high, height, y_word)
    margin = max(map(len, words.values())) + 2
    room = max(20, width - margin)
    cells: dict[tuple[int, int], tuple[str, str]] = {}
    columns = np.linspace(at[0], at[-1], room)
    for i, values in enumerate(y.values()):
        mark = marker(i, utf8)
        for column, value in enumerate(np.interp(columns, at, values)):
            if np.isfinite(value):
                row = round((value - low) / (high - low) * (height - 1))
                cells.setdefault((row, column), mark)
    tick, bar, corner, dash = ("┤", "│", "└", "─") if utf8 else ("+", "|", "+", "-")
    out = []
    for row in range(height - 1, -1, -1):
        word = words.get(row, "")
        text = Text(f"{word:>{margin - 2}} {tick if word else bar}", no_wrap=True)
        for column in range(room):
            mark, style = cells.get((row, column), (" ", ""))
            text.append(mark, style=style)
        out.append(text)
    out.append(Text(" " * (margin - 1) + corner + dash * room, no_wrap=True))
    out.append(Text(" " * margin + _axis(at, room, x_word), no_wrap=True))
    legend = Text(" " * margin, no_wrap=True)
    for i, name in enumerate(curves):
        mark, style = marker(i, utf8)
        if len(legend) + len(name) + 2 > width and len(legend) > margin:
            out.append(legend)
            legend = Text(" " * margin, no_wrap=True)
        legend.append(mark, style=style)
        legend.append(f" {name}   ")
    out.append(legend)
    return out


def _ticks(low: float, high: float, height: int, word: Callable[[float], str]) -> dict[int, str]:
    """Words of the rows at powers of ten (of both ends where no power is between them)."""
    first, last = np.ceil(low / np.log2(10)), np.floor(high / np.log2(10))
    at = [power * np.log2(10) for power in np.arange(first, last + 1)] or [low, high]
    step = max(1, -(-len(at) // height))
    return {
        round((value - low) / (high - low) * (height - 1)): word(2.0**value) for value in at[::step]
    }


def _axis(at: np.ndarray, room: int, word: Callable[[float], str]) -> str:
    """Words under the axis at whole powers, as many as have room."""
    text = [" "] * room
    free = 0
    for power in range(int(np.ceil(at[0])), int(at[-1]) + 1):
        said = word(2.0**power)
        column = round((power - at[0]) / (at[-1] - at[0]) * (room - 1))
        start = min(max(0, column - len(said) // 2), room - len(said))
        if power % 4 == 2 and start >= free:
            text[start : start + len(said)] = said
            free = start + len(said) + 2
    return "".join(text).rstrip()
