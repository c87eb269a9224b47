"""Writes each notebook for marimo and for Jupyter: `python -m retime.analysis.notebooks.build`."""

from __future__ import annotations

import ast
import builtins
import json
import textwrap
from collections.abc import Iterable, Sequence
from pathlib import Path

from .source import NAMES, Cell, cells

READY = Path(__file__).parent / "ready"
"""Where the written files are, which are shipped."""

MADE_WITH = "0.25.2"
"""The version of marimo whose format the files are in; later ones read it, too."""


def marimo(of: Sequence[Cell]) -> str:
    """The text of a marimo notebook (a Python file) of these cells."""
    bodies = [("", "import marimo as mo", (), ("mo",)), *map(_marimo_cell, of)]
    defined = {name for _, _, _, names in bodies for name in names}
    parts = [f'import marimo\n\n__generated_with = "{MADE_WITH}"\napp = marimo.App({_OPTIONS})\n']
    for options, body, wanted, made in bodies:
        given = ", ".join(sorted(set(wanted) & defined - set(made)))
        back = f"({', '.join(sorted(made))}{',' if len(made) == 1 else ''})" if made else ""
        code = textwrap.indent(f"{body}\nreturn {back}".rstrip(), "    ")
        parts.append(f"@app.cell{options}\ndef _({given}):\n{code}\n")
    return "\n\n".join([*parts, 'if __name__ == "__main__":\n    app.run()\n'])


_OPTIONS = 'width="medium", sql_output="polars"'


def _marimo_cell(cell: Cell) -> tuple[str, str, Iterable[str], Iterable[str]]:
    """(options of the decorator, code, names that it reads, names that it makes)."""
    if cell.kind == "text":
        return "(hide_code=True)", f'mo.md(r"""\n{_quotable(cell.text)}\n""")', ("mo",), ()
    if cell.kind == "sql":
        query = textwrap.indent(_quotable(cell.text), "    ")
        if "{" in query:
            raise ValueError(f"braces in the query {cell.name!r}: marimo would read them as Python")
        code = f'{cell.name} = mo.sql(\n    f"""\n{query}\n    """,\n    engine=con\n)'
        return "", code, ("mo", "con"), (cell.name,)
    read, made = names(cell.text)
    return "", cell.text, read, made


def names(code: str) -> tuple[set[str], set[str]]:
    """(names that a Python cell reads, names that it makes for other cells)."""
    tree = ast.parse(code)
    inner = {
        n
        for node in ast.walk(tree)
        if isinstance(node, ast.Lambda | ast.FunctionDef | ast.comprehension)
        for n in _bound(node)
    }
    made: set[str] = set()
    for node in tree.body:
        if isinstance(node, ast.Import | ast.ImportFrom):
            made |= {(a.asname or a.name).partition(".")[0] for a in node.names}
        elif isinstance(node, ast.FunctionDef | ast.ClassDef):
            made.add(node.name)
        else:
            made |= _ids(node, ast.Store) - inner
    made = {n for n in made if not n.startswith("_")}
    return _ids(tree, ast.Load) - made - inner - set(dir(builtins)), made


def _ids(node: ast.AST, context: type) -> set[str]:
    return {n.id for n in ast.walk(node) if isinstance(n, ast.Name) and isinstance(n.ctx, context)}


def _bound(node: ast.AST) -> set[str]:
    if isinstance(node, ast.comprehension):
        return {n.id for n in ast.walk(node.target) if isinstance(n, ast.Name)}
    return {a.arg for a in ast.walk(node) if isinstance(a, ast.arg)}


def _quotable(text: str) -> str:
    if '"""' in text or text.endswith(("\\", '"')):
        raise ValueError(f"text that cannot stand in triple quotes: {text[:60]!r}")
    return text


def jupyter(of: Sequence[Cell]) -> str:
    """The text of a Jupyter notebook (format 4.5) of these cells; queries are `%%sql` cells."""
    found = []
    for cell in of:
        if cell.kind == "sql":
            found.append(("code", f"%%sql {cell.name}\n{cell.text}"))
        else:
            found.append(("markdown" if cell.kind == "text" else "code", cell.text))
        if cell.name == "settings":
            found.append(("code", "%load_ext retime.analysis.notebooks.magic"))
    document = {
        "cells": [_jupyter_cell(n, kind, text) for n, (kind, text) in enumerate(found)],
        "metadata": {
            "kernelspec": {"display_name": "Python 3", "language": "python", "name": "python3"},
            "language_info": {"name": "python"},
        },
        "nbformat": 4,
        "nbformat_minor": 5,
    }
    return json.dumps(document, indent=1, ensure_ascii=False) + "\n"


def _jupyter_cell(n: int, kind: str, text: str) -> dict:
    of_code = {"execution_count": None, "outputs": []} if kind == "code" else {}
    is_sql = text.startswith("%%sql")
    return {
        "cell_type": kind,
        "id": f"cell-{n}",
        "metadata": {"vscode": {"languageId": "sql"}} if is_sql else {},
        "source": text.splitlines(keepends=True),
        **of_code,
    }


def files(of: Sequence[Cell], name: str) -> dict[str, str]:
    """Both forms of a notebook: file name -> text."""
    return {f"{name}.py": marimo(of), f"{name}.ipynb": jupyter(of)}


def main() -> None:
    """Writes all files of READY anew."""
    READY.mkdir(exist_ok=True)
    for name in NAMES:
        for file, text in files(cells(name), name).items():
            (READY / file).write_text(text, encoding="utf-8")


if __name__ == "__main__":
    main()
