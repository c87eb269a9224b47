"""Pieces of the page that panels share: escaped text, tables, stacked bars, legends, sections."""

from __future__ import annotations

import html
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from ..columns import Cells, cells
from ..screen import clean, to_json

MOST_ROWS = 512
"""Rows of one table; where there are more, the first stay and the page says so."""


@dataclass(frozen=True)
class Panel:
    """A panel of the page: its HTML, and what its chart is drawn from (None without one).

    `empty` is true of a panel that only says why it has nothing.
    """

    html: str
    data: Any = None
    empty: bool = False


@dataclass(frozen=True)
class Bars:
    """A column of stacked bars in a table: rows are scaled by `total`, parts are columns in ns.

    `parts` maps a column of the rows to the class of its colour; `narrow` ones leave room.
    """

    title: str
    parts: Mapping[str, str]
    longest: float
    narrow: bool = False


def script_json(value: Any) -> str:
    """JSON that can stand inside a script element: nothing in it ends the element or the line."""
    text = to_json(value)
    for c in "<>&\u2028\u2029":
        text = text.replace(c, f"\\u{ord(c):04x}")
    return text


def text(value: Any) -> str:
    """Text from a trace, safe in HTML: control characters written out, markup escaped."""
    return html.escape(clean(str(value)))


def note(words: str, kind: str = "note") -> str:
    """A paragraph of plain words."""
    return f'<p class="{kind}">{text(words)}</p>'


EVERYONE = '<p class="note everyone">Of all ranks, whichever are picked.</p>'
"""Shown while ranks are picked, by what cannot be told rank by rank."""


def section(id: str, title: str, *parts: str) -> str:
    """A panel with its heading; empty parts are left out."""
    inner = "\n".join(p for p in parts if p)
    return (
        f'<section id="{id}" aria-labelledby="{id}-title">'
        f'<h2 id="{id}-title">{text(title)}</h2>\n{inner}</section>'
    )


def absent(id: str, title: str, why: str) -> Panel:
    """A panel without data: one sentence says why, and how to get it."""
    return Panel(section(id, title, note(why, "note absent")), empty=True)


def chart(name: str, label: str) -> str:
    """The place of a drawn chart; the page's script fills it from the data of that name."""
    return (
        f'<div class="chart" data-chart="{name}" aria-label="{text(label)}">'
        '<p class="note unscripted">This chart is drawn by the page\'s script.</p></div>'
    )


def legend(entries: Mapping[str, str]) -> str:
    """Words with the class of their colour, as a list that wraps."""
    items = "".join(
        f'<li><span class="dot {kind}"></span>{text(words)}</li>' for words, kind in entries.items()
    )
    return f'<ul class="legend">{items}</ul>'


def items(texts: Sequence[str], kind: str = "") -> str:
    """A list of plain sentences."""
    inner = "".join(f"<li>{text(t)}</li>" for t in texts)
    return f'<ul class="{kind}">{inner}</ul>' if inner else ""


def bar(row: Mapping[str, Any], bars: Bars) -> str:
    """One stacked bar, its parts as shares of the longest bar of the table."""
    if not bars.longest:
        return '<span class="bar"></span>'
    out = []
    for column, kind in bars.parts.items():
        value = row.get(column)
        if value:
            width = 100 * value / bars.longest
            out.append(f'<i class="{kind}" style="width:{width:.2f}%"></i>')
    return f'<span class="bar">{"".join(out)}</span>'


def table(
    rows: Sequence[Mapping[str, Any]],
    columns: Mapping[str, str],
    *,
    bars: Bars | None = None,
    right: Sequence[str] = (),
    fold: str | None = None,
) -> str:
    """An HTML table of formatted cells; numbers, and columns in `right`, stand to the right.

    Rows with a `rank` can be picked, and go while others are picked; `bars` adds a column of bars
    behind the first. `fold` closes the table under a title.
    """
    shown = rows[:MOST_ROWS]
    made: Cells = cells(shown, columns)
    kinds = ["num" if n or k in right else "" for n, k in zip(made.numeric, columns, strict=True)]
    head = [
        f'<th{_class(c)} scope="col">{text(n)}</th>' for n, c in zip(made.names, kinds, strict=True)
    ]
    narrow = " narrow" if bars is not None and bars.narrow else ""
    if bars is not None:
        head.insert(1, f'<th class="bars{narrow}" scope="col">{text(bars.title)}</th>')
    picks = "rank" in columns
    lines = []
    for row, texts in zip(shown, made.rows, strict=True):
        tds = [f"<td{_class(c)}>{text(v)}</td>" for v, c in zip(texts, kinds, strict=True)]
        rank = row.get("rank") if picks else None
        if picks:
            at = list(columns).index("rank")
            what = "mean" if rank is None else rank_button(rank)
            tds[at] = f"<td{_class(kinds[at])}>{what}</td>"
        if bars is not None:
            tds.insert(1, f'<td class="bars{narrow}">{bar(row, bars)}</td>')
        of = "" if rank is None else f' data-rank="{int(rank)}"'
        lines.append(f"<tr{of}>{''.join(tds)}</tr>")
    more = ""
    if len(rows) > len(shown):
        more = note(f"The first {len(shown):,} of {len(rows):,} rows; the warehouse has all.")
    tall = " tall" if len(shown) > 24 else ""
    made_table = (
        f'<div class="scroll{tall}" tabindex="0" role="group" aria-label="table"><table>'
        f"<thead><tr>{''.join(head)}</tr></thead>"
        f"<tbody>{''.join(lines)}</tbody></table></div>{more}"
    )
    if fold is None:
        return made_table
    return f"<details><summary>{text(fold)}</summary>{made_table}</details>"


def rank_button(rank: int) -> str:
    """A rank's number that picks the rank, by mouse and by key."""
    return f'<button type="button" class="rank" aria-pressed="false">{int(rank)}</button>'


def _class(name: str) -> str:
    return f' class="{name}"' if name else ""
