"""Reads the dictionary of tables, views and macros from the schema and the .sql files' comments.

The grammar of a module: a comment block right above `CREATE VIEW` or `CREATE MACRO` says what it
is (for a view: what a row is). In the list of columns or arguments in parentheses, a comment block
above each name gives its unit in square brackets, where it has one, then its meaning. Names that
begin with `_` are private and appear in no manual.
"""

from __future__ import annotations

import functools
import re
from typing import NamedTuple

from ..ingest.schema import TABLES
from .loader import connect, library, sql_type


class Field(NamedTuple):
    """A column of a table or view, or an argument of a macro."""

    name: str
    type: str
    """DuckDB type; "" for the argument of a macro, which takes what it is given."""
    unit: str
    """"" where it has none."""
    meaning: str


class Entry(NamedTuple):
    """A table, view or macro."""

    name: str
    kind: str
    """table, view or macro"""
    meaning: str
    fields: tuple[Field, ...]


JOB = Field("job", "VARCHAR", "", "job, as it was named at ingest")

_OBJECT = re.compile(
    r"(?P<comment>(?:^--[^\n]*\n)*)"
    r"^CREATE (?P<kind>VIEW|MACRO) (?P<name>\w+) ?\(\n(?P<fields>.*?)^\) AS",
    flags=re.MULTILINE | re.DOTALL,
)
_FIELD = re.compile(r"(?P<comment>(?:^ +--[^\n]*\n)*)^ +(?P<name>\w+),?\n", flags=re.MULTILINE)
_UNIT = re.compile(r"^\[([^\]]+)\] +")


def dictionary() -> list[Entry]:
    """Every table of the warehouse, then every public view and macro of the library, by name."""
    return [*tables(), *(e for e in objects() if not e.name.startswith("_"))]


def tables() -> list[Entry]:
    """The tables of the warehouse, from their schemas."""
    return [
        Entry(
            t.name,
            "table",
            t.row,
            (JOB, *(Field(c.name, sql_type(c.type), c.unit, c.meaning) for c in t.columns)),
        )
        for t in TABLES.values()
        if not t.made
    ]


def objects() -> list[Entry]:
    """The documented views and macros of the library, private ones too, by kind and name.

    The types of a view's columns are those that DuckDB gives them over empty tables.
    """
    return list(_objects())


@functools.cache
def _objects() -> tuple[Entry, ...]:
    """A second's work, of which nothing changes while a process runs."""
    found = [e for text in library() for e in parse(text)]
    con = connect({})
    typed = []
    for entry in found:
        if entry.kind == "view":
            types = {row[0]: row[1] for row in con.execute(f"DESCRIBE {entry.name}").fetchall()}
            fields = tuple(f._replace(type=types.get(f.name, "")) for f in entry.fields)
            entry = entry._replace(fields=fields)
        typed.append(entry)
    return tuple(sorted(typed, key=lambda e: (e.kind != "view", e.name)))


def parse(text: str) -> list[Entry]:
    """The views and macros of one module that list their columns or arguments; types are "".

    Objects without such a list (private views) are passed over.
    """
    entries = []
    for m in _OBJECT.finditer(text):
        fields = []
        for f in _FIELD.finditer(m["fields"] + "\n"):
            meaning = _prose(f["comment"])
            unit = _UNIT.match(meaning)
            fields.append(
                Field(f["name"], "", unit[1] if unit else "", _UNIT.sub("", meaning, count=1))
            )
        entries.append(Entry(m["name"], m["kind"].lower(), _prose(m["comment"]), tuple(fields)))
    return entries


def _prose(comment: str) -> str:
    """A comment block as one paragraph, without its marks."""
    lines = (line.strip().removeprefix("--").strip() for line in comment.splitlines())
    return " ".join(line for line in lines if line and not line.startswith("requires:"))
