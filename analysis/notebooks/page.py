"""Runs a notebook's cells without a server and writes what they show as one HTML file."""

from __future__ import annotations

import ast
import html
import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any, NamedTuple

import altair as alt
import polars as pl
import vl_convert
from markdown_it import MarkdownIt

from .. import query
from ..names import apart
from ..screen import clean
from .session import GREY, Said
from .source import Cell

MOST_LINES = 40
"""Rows of a table on the page."""

LONGEST = 200
"""Characters of a cell of a table."""


class Shown(NamedTuple):
    """A cell after its run."""

    cell: Cell
    value: Any
    """What it shows; None for nothing."""
    error: str | None
    """What went wrong, in one line."""


def run(cells: Sequence[Cell], names: dict[str, Any] | None = None) -> list[Shown]:
    """Runs the cells from top to bottom in one namespace; a cell that fails does not end the run.

    Queries are asked of `con`, as the notebook's own code makes it. `names`, if given, is the
    namespace, and has what the cells left in it.
    """
    names = {} if names is None else names
    found = []
    for cell in cells:
        value, error = None, None
        try:
            if cell.kind == "sql":
                value = names[cell.name] = query.run(names["con"], cell.text)
            elif cell.kind == "python":
                value = _execute(cell.text, names)
        except Exception as e:
            error = f"{type(e).__name__}: {e}"
        found.append(Shown(cell, value, error))
    return found


def _execute(code: str, names: dict[str, Any]) -> Any:
    """The value of the last line, where that is an expression."""
    tree = ast.parse(code)
    last = tree.body[-1] if tree.body else None
    if not isinstance(last, ast.Expr):
        exec(compile(tree, "<cell>", "exec"), names)
        return None
    exec(compile(ast.Module(tree.body[:-1], []), "<cell>", "exec"), names)
    return eval(compile(ast.Expression(last.value), "<cell>", "eval"), names)


def page(shown: Sequence[Shown], title: str) -> str:
    """The HTML of a run: text, queries with their rows, charts as pictures; nothing is fetched."""
    style = (Path(__file__).parent / "page.css").read_text(encoding="utf-8")
    body = "\n".join(map(_block, shown))
    return (
        '<!doctype html>\n<html lang="en">\n<meta charset="utf-8">\n'
        '<meta name="viewport" content="width=device-width">\n'
        f'<meta http-equiv="Content-Security-Policy" content="default-src \'none\'; '
        f"style-src 'unsafe-inline'; img-src data:\">\n"
        f"<title>{html.escape(clean(title))}</title>\n<style>\n{style}</style>\n"
        f"<main>\n{body}\n</main>\n</html>\n"
    )


def _block(shown: Shown) -> str:
    if shown.cell.kind == "text":
        return _markdown(shown.cell.text)
    head = {"sql": f"SQL: {shown.cell.name}", "python": "Python"}[shown.cell.kind]
    code = html.escape(shown.cell.text)
    parts = [f"<details><summary>{html.escape(head)}</summary><pre>{code}</pre></details>"]
    if shown.error is not None:
        parts.append(f'<p class="error">{html.escape(clean(shown.error))}</p>')
    elif shown.value is not None:
        parts.append(_output(shown.value))
    return f"<section>{''.join(parts)}</section>"


def _output(value: Any) -> str:
    if isinstance(value, pl.DataFrame):
        return _table(value)
    if isinstance(value, Said):
        return f'<div class="said">{_markdown(value.text)}</div>'
    if isinstance(value, alt.TopLevelMixin):
        return f"<figure>{picture(value)}</figure>"
    return f"<pre>{html.escape(clean(repr(value)))}</pre>"


def picture(chart: Any) -> str:
    """A chart as SVG, its grey words in the colour of the text around it."""
    return vl_convert.vegalite_to_svg(json.loads(chart.to_json())).replace(GREY, "currentColor")


def _markdown(text: str) -> str:
    return MarkdownIt("commonmark", {"html": False}).render(text)


def _table(rows: pl.DataFrame) -> str:
    if not rows.height:
        return '<p class="none">no rows</p>'
    head = "".join(f"<th>{html.escape(clean(name))}</th>" for name in rows.columns)
    shown = rows.head(MOST_LINES)
    columns = [_cells(shown[name].to_list()) for name in shown.columns]
    lines = [f"<tr>{''.join(row)}</tr>" for row in zip(*columns, strict=True)]
    rest = rows.height - len(lines)
    more = f'<p class="none">and {rest:,} more</p>' if rest else ""
    return f"<div class=scroll><table><tr>{head}</tr>{''.join(lines)}</table></div>{more}"


def _cells(values: Sequence[Any]) -> list[str]:
    """The cells of a column; long texts that differ do so still."""
    numbers = [isinstance(v, int | float) and not isinstance(v, bool) for v in values]
    texts = [
        f"{v:,}" if number and isinstance(v, int) else clean(str(v))
        for v, number in zip(values, numbers, strict=True)
    ]
    return [
        '<td class="none">-</td>'
        if value is None
        else f"<td{' class=number' if number else ''}>{html.escape(text)}</td>"
        for value, number, text in zip(values, numbers, apart(texts, LONGEST), strict=True)
    ]


def errors(shown: Sequence[Shown]) -> list[str]:
    """What went wrong, one line a cell."""
    return [f"cell {n}: {s.error}" for n, s in enumerate(shown, 1) if s.error is not None]
