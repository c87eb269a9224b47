"""Rows in the columns of a screen: they fit without wrapping, and no number is ever cut."""

from __future__ import annotations

import textwrap
from collections.abc import Collection, Mapping, Sequence
from datetime import date, time, timedelta
from decimal import Decimal
from typing import TYPE_CHECKING, Any

from . import units
from .names import apart, shorter, width
from .screen import clean, to_json

if TYPE_CHECKING:
    from rich.console import Console
    from rich.text import Text

NARROWEST = 12
"""Cells of text are cut no shorter than this, in columns of the screen, before others go."""

NARROWEST_NAME = 24
NAMES = ("name", "what", "op", "kernel", "policy")
"""Columns of names, which are what a row is about: they are cut no shorter than that."""

LONG_NUMBER = 10**15
"""Columns of larger whole numbers are ids and moments since 1970, which nobody reads: they go
first, as those do that are called ids."""

MOST_TOLD = 40
"""Columns of the screen for a value that all rows share, where it is told below the table."""


def cell(name: str, value: Any, raw: bool = False) -> str:
    """One value of a column: by the unit in the column's name, or `raw` as stored."""
    if value is None:
        return units.NOTHING
    if isinstance(value, list | tuple):
        inner = [cell("", v, raw) for v in value]
        return "[" + ", ".join(inner) + "]"
    if isinstance(value, Mapping):
        return clean(to_json(value))
    if raw and isinstance(value, float):
        return f"{value:.6g}"
    if raw:
        return clean(str(value))
    return clean(units.of(name, value))


class Cells:
    """A table as text: titles, rows of cells, which columns are numbers, how narrow others get.

    `go` are the columns in the order in which they are left out where there is no room, `most`
    the width that each has at most (None: any).
    """

    def __init__(
        self,
        names: Sequence[str],
        rows: list[list[str]],
        numeric: Sequence[bool],
        least: Sequence[int] = (),
        go: Sequence[int] = (),
        most: Sequence[int | None] = (),
    ):
        self.names = list(names)
        self.rows = rows
        self.numeric = list(numeric)
        self.least = list(least) or [NARROWEST] * len(names)
        self.most = list(most) or [None] * len(names)
        self.go = [*go, *(i for i in reversed(range(len(names))) if i not in go)]

    def widths(self) -> list[int]:
        """Columns of the screen that each column of the table wants."""
        return [
            max([width(n), *(width(r[i]) for r in self.rows)]) for i, n in enumerate(self.names)
        ]

    def without(self, columns: Collection[int]) -> Cells:
        """The table without some of its columns."""
        kept = [i for i in range(len(self.names)) if i not in columns]
        return Cells(
            [self.names[i] for i in kept],
            [[row[i] for i in kept] for row in self.rows],
            [self.numeric[i] for i in kept],
            [self.least[i] for i in kept],
            [kept.index(i) for i in self.go if i in kept],
            [self.most[i] for i in kept],
        )


def cells(
    rows: Sequence[Mapping[str, Any]],
    columns: Mapping[str, str] | None = None,
    *,
    names: Sequence[str] | None = None,
    raw: bool = False,
    numbers: Collection[str] = (),
    first_to_go: Sequence[str] = (),
    longest_name: int | None = None,
) -> Cells:
    """Rows as text; `columns` picks and titles them, `names` lists them where rows may be empty.

    `numbers` are columns whose texts are numbers already, `first_to_go` those that are left out
    first where there is no room; then go ids and moments (`LONG_NUMBER`), then the last ones.
    `longest_name` bounds the columns of `NAMES` however much room there is.
    """
    keys = list(columns) if columns else list(names or (rows[0] if rows else ()))
    titles = [columns[k] for k in keys] if columns else [clean(k) for k in keys]
    whole = int | float | Decimal | date | time | timedelta
    numeric = [
        k in numbers
        or (
            any(isinstance(r[k], whole) for r in rows)
            and all(r[k] is None or isinstance(r[k], whole) for r in rows)
        )
        for k in keys
    ]
    least = [NARROWEST_NAME if k in NAMES else NARROWEST for k in keys]
    unread = [k for k in reversed(keys) if raw and _is_unread(k, [r[k] for r in rows])]
    go = [keys.index(k) for k in dict.fromkeys([*first_to_go, *unread]) if k in keys]
    most = [longest_name if k in NAMES else None for k in keys]
    texts = [[cell(k, r[k], raw) for k in keys] for r in rows]
    return Cells(titles, texts, numeric, least, go, most)


def _is_unread(name: str, values: Sequence[Any]) -> bool:
    return name.endswith("_id") or any(isinstance(v, int) and v > LONG_NUMBER for v in values)


def fit(table: Cells, room: int) -> tuple[list[int], list[int]]:
    """Columns that fit in `room` and the width of each: text is cut first, then columns go.

    Returns (indices kept, their widths); two spaces part columns. Numbers are never cut.
    """
    want = [w if m is None else min(w, m) for w, m in zip(table.widths(), table.most, strict=True)]
    floor = [
        w if n else min(w, least)
        for w, n, least in zip(want, table.numeric, table.least, strict=True)
    ]
    kept = list(range(len(want)))
    go = iter(table.go)
    while len(kept) > 1 and sum(floor[i] + 2 for i in kept) - 2 > room:
        kept.remove(next(go))
    for most in range(min(max(want, default=0), room), NARROWEST - 1, -1):
        widths = [want[i] if table.numeric[i] else max(floor[i], min(want[i], most)) for i in kept]
        if sum(widths) + 2 * (len(widths) - 1) <= room:
            return kept, widths
    return kept, [floor[i] for i in kept]


def lines(table: Cells, room: int) -> list[Text]:
    """The table as lines of at most `room` columns; says which columns had no room.

    Texts that are cut lose their middle, and those of a column that differ still do.
    """
    from rich.text import Text

    kept, widths = fit(table, room)
    if not kept:
        return []
    columns = [
        [row[i] for row in table.rows] if table.numeric[i] else apart([r[i] for r in table.rows], w)
        for i, w in zip(kept, widths, strict=True)
    ]

    def line(texts: Sequence[str], style: str = "") -> Text:
        parts = []
        for text, i, w in zip(texts, kept, widths, strict=True):
            pad = " " * (w - width(text))
            parts.append(pad + text if table.numeric[i] else text + pad)
        return Text("  ".join(parts).rstrip(), style=style, no_wrap=True, overflow="crop")

    titles = [shorter(table.names[i], w) for i, w in zip(kept, widths, strict=True)]
    out = [line(titles, "bold"), *map(line, zip(*columns, strict=True))]
    left = [table.names[i] for i in range(len(table.names)) if i not in kept]
    if left:
        what = "1 more column does" if len(left) == 1 else f"{len(left)} more columns do"
        has = "it" if len(left) == 1 else "them"
        note = f"({what} not fit: {', '.join(left)}; --json has {has})"
        out += [Text(text, style="dim") for text in _wrapped(note, room)]
    return out


def show_table(
    out: Console,
    rows: Sequence[Mapping[str, Any]],
    columns: Mapping[str, str] | None = None,
    *,
    names: Sequence[str] | None = None,
    raw: bool = False,
    limit: int | None = None,
    empty: str = "no rows",
    numbers: Collection[str] = (),
    first_to_go: Sequence[str] = (),
    longest_name: int | None = None,
) -> None:
    """Prints rows, at most `limit` of them, with a note where some were left out.

    Rows that are `raw` and do not fit lose the columns that say the same in each, which are told
    below; one row alone is a line a column. For the rest see `cells`.
    """
    if not rows:
        out.print(empty, style="dim")
        return
    shown = rows if limit is None else rows[:limit]
    table = cells(
        shown, columns, names=names, raw=raw, numbers=numbers, first_to_go=first_to_go,
        longest_name=longest_name,
    )  # fmt: skip
    same: list[str] = []
    if raw and len(fit(table, out.width)[0]) < len(table.names):
        if len(shown) == 1:
            _show_one(out, table)
            table = None
        else:
            table, same = _without_the_same(table)
    for line in lines(table, out.width) if table else ():
        out.print(line)
    for text in same and _wrapped(f"(in all rows: {'; '.join(same)})", out.width):
        out.print(text, style="dim")
    if len(shown) < len(rows):
        out.print(
            f"({len(shown)} of {len(rows):,} rows; --limit N or --json for more)", style="dim"
        )


def _show_one(out: Console, table: Cells) -> None:
    """One row, a line a column: values are wrapped beside their names, not cut."""
    from rich.text import Text

    most = max(map(width, table.names))
    room = max(NARROWEST, out.width - most - 2)
    for name, value in zip(table.names, table.rows[0], strict=True):
        for n, text in enumerate(_wrapped(value, room) or [""]):
            head = name if n == 0 else ""
            line = Text(head + " " * (most + 2 - width(head)), style="bold", no_wrap=True)
            line.append(text, style="not bold")
            out.print(line, soft_wrap=True)


def _without_the_same(table: Cells) -> tuple[Cells, list[str]]:
    """The table without the columns whose rows are all alike, and what these say."""
    alike = [i for i in range(len(table.names)) if len({row[i] for row in table.rows}) == 1]
    if len(alike) == len(table.names):
        alike = alike[1:]
    said = [f"{table.names[i]} {shorter(table.rows[0][i], MOST_TOLD)}" for i in alike]
    return table.without(alike), said


def _wrapped(text: str, room: int) -> list[str]:
    return textwrap.wrap(text, room, break_on_hyphens=False)
