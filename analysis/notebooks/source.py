"""The notebooks as they are kept: Markdown with fenced cells, from which every form is written.

A source file is what a reader sees: text, and cells between fences. ```` ```sql name ```` is a
query whose rows get that name, ```` ```python ```` is code, ```` ```python settings ```` the cell
that says which warehouse and which job.
"""

from __future__ import annotations

import re
from functools import cache
from pathlib import Path
from typing import NamedTuple

from ...ingest.errors import UsageError
from .. import escaping

FOLDER = Path(__file__).parent / "source"

NAMES = (
    "why-is-this-step-slow",
    "who-is-late",
    "is-it-the-network",
    "rails-and-experts",
    "before-and-after",
    "fleet",
)
"""In the order in which one asks."""


class Cell(NamedTuple):
    """One cell; `name` is that of a query's rows, or "settings"."""

    kind: str
    """text, sql or python."""
    text: str
    name: str = ""


def named(name: str) -> str:
    """The name of a notebook, whether typed with spaces, underscores or its suffix.

    Raises UsageError, with the names that there are.
    """
    wanted = re.sub(r"[ _]+", "-", name.strip().lower()).removesuffix(".py").removesuffix(".ipynb")
    if wanted not in NAMES:
        raise UsageError(f"no notebook {name!r}; there are {', '.join(NAMES)}")
    return wanted


@cache
def cells(name: str) -> tuple[Cell, ...]:
    """The cells of a notebook, in order."""
    return tuple(parse((FOLDER / f"{named(name)}.md").read_text(encoding="utf-8")))


def title(name: str) -> str:
    """The first line of a notebook."""
    return cells(name)[0].text.splitlines()[0].lstrip("# ")


def parse(text: str) -> list[Cell]:
    """Markdown as cells. Raises ValueError for a fence of another language, or one left open."""
    found: list[Cell] = []
    pieces = re.split(r"^```(.*)\n", text, flags=re.MULTILINE)
    if len(pieces) % 4 != 1:
        raise ValueError("a fence was left open")
    for at in range(0, len(pieces), 4):
        if said := pieces[at].strip():
            found.append(Cell("text", said))
        if at + 2 < len(pieces):
            language, _, name = pieces[at + 1].partition(" ")
            if language not in ("sql", "python") or (language == "sql" and not name.isidentifier()):
                raise ValueError(f"a fence says {pieces[at + 1]!r}, not `sql NAME` or `python`")
            found.append(Cell(language, pieces[at + 2].rstrip("\n"), name))
    return found


def pointed(of: tuple[Cell, ...], values: dict[str, str | None]) -> tuple[Cell, ...]:
    """The cells with other settings: `values` by their names (WAREHOUSE, JOB, BASELINE)."""

    def with_values(cell: Cell) -> Cell:
        if cell.name != "settings":
            return cell
        text = cell.text
        for name, value in values.items():
            line = f"{name} = {escaping.python(value)}"
            text = re.sub(rf"^{name} = \S+", lambda _, to=line: to, text, flags=re.MULTILINE)
        return cell._replace(text=text)

    return tuple(map(with_values, of))
