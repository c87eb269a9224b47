"""`retime tables` on a terminal: the dictionary, and terms with their meanings beside them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

from .screen import clean

if TYPE_CHECKING:
    from rich.console import Console


def show_terms(
    out: Console,
    rows: Sequence[Sequence[str]],
    *,
    indent: str = "  ",
    style: str = "bold",
    rest: str = "",
    gap: int = 2,
) -> None:
    """Terms and their meaning: the last text of a row is wrapped beside the columns before it.

    `style` is the first column's, `rest` the wrapped text's; `gap` is between columns.
    """
    from textwrap import wrap

    from rich.cells import cell_len
    from rich.text import Text

    rows = [[clean(t) for t in row] for row in rows]
    n = len(rows[0]) - 1 if rows else 0
    room = [max(cell_len(row[i]) for row in rows) for i in range(n)]
    used = [i for i in range(n) if room[i]]
    left = len(indent) + sum(room[i] + gap for i in used)
    for row in rows:
        parts = [row[i] + " " * (room[i] - cell_len(row[i]) + gap) for i in used]
        texts = wrap(row[-1], max(24, out.width - left), break_on_hyphens=False) or [""]
        line = Text(indent, no_wrap=True, overflow="crop")
        line.append(parts[0], style=style)
        line.append("".join(parts[1:]), style="dim")
        line.append(texts[0], style=rest)
        out.print(line, soft_wrap=True)
        for text in texts[1:]:
            out.print(Text(" " * left + text, style=rest), soft_wrap=True)


def show_tables(out: Console, rows: Sequence[Mapping[str, Any]], name: str | None) -> None:
    """`retime tables`: a line each by kind, or the columns of one with their units."""
    if name is None:
        for kind, title in (
            ("table", "Tables: a row is"),
            ("view", "Views: a row is"),
            ("macro", "Macros"),
        ):
            found = [r for r in rows if r["kind"] == kind]
            if found:
                out.print(title, style="bold")
                show_terms(out, [(r["name"], first_sentence(r["meaning"])) for r in found])
        out.print("retime tables NAME has the columns and units", style="dim")
        return
    for r in rows:
        out.print(f"{r['kind']} {r['name']}", style="bold")
        out.print(clean(r["meaning"]))
        if r["columns"]:
            out.print()
            show_terms(out, [(c["name"], c["type"], c["unit"], c["meaning"]) for c in r["columns"]])


def first_sentence(text: str) -> str:
    """The text up to its first full stop that ends a sentence."""
    head, stop, _ = text.partition(". ")
    return head.rstrip(".") if stop else text.rstrip(".")
