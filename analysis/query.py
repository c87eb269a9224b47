"""One read-only query over a connection, as a Polars frame, with errors in one sentence."""

from __future__ import annotations

import contextlib
import re
from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

import duckdb

from ..ingest.errors import UsageError
from ..ingest.settings import check_text
from .limits import OutOfMemory

if TYPE_CHECKING:
    import polars as pl
    from duckdb import DuckDBPyConnection, DuckDBPyRelation

READ_ONLY = {"SELECT"}
"""Kinds of statement that may run or be explained (DESCRIBE, SHOW, FROM, VALUES are SELECTs)."""

_EXPLAIN = re.compile(
    r"(?:\s|--[^\n]*\n|/\*.*?\*/)*EXPLAIN(?:\s+ANALYZE\b|\s*\([^()]*\))?", re.IGNORECASE | re.DOTALL
)
"""The words before what is explained, which EXPLAIN ANALYZE runs."""

INT64 = (-(2**63), 2**63 - 1)

_NUMBERS = ("TINYINT", "SMALLINT", "INTEGER", "BIGINT", "UTINYINT", "USMALLINT", "UINTEGER",
            "UBIGINT", "FLOAT", "DOUBLE")  # fmt: skip
_PLAIN = {"BOOLEAN", "VARCHAR", "HUGEINT", *_NUMBERS, "VARCHAR[]", *(f"{n}[]" for n in _NUMBERS)}
"""Types whose values DuckDB gives as a Polars frame does."""


class BadQuery(UsageError):
    """SQL that DuckDB refuses, or that would do more than read."""


def run(con: DuckDBPyConnection, query: str) -> pl.DataFrame:
    """The rows of one SELECT-like statement.

    Raises BadQuery, in one sentence with DuckDB's own hint, for SQL that is wrong, is several
    statements, or is anything but a query; OutOfMemory for one that needs too much.
    """
    with _refusing():
        return frame(_asked(con, query))


def rows(con: DuckDBPyConnection, query: str) -> tuple[list[str], list[dict[str, Any]]]:
    """The names of the columns and the rows by name, as those of `run`'s frame; raises as that.

    Without Polars where all values are plain ones: its import takes longer than a small query.
    """
    with _refusing():
        relation = _asked(con, query)
        types = [str(t) for t in relation.types]
        if all(t in _PLAIN or (t.startswith("ENUM(") and t.endswith(")")) for t in types):
            names, found = _distinct(relation.columns), relation.fetchall()
            sums = [i for i, t in enumerate(types) if t == "HUGEINT"]
            if all(r[i] is None or INT64[0] <= r[i] <= INT64[1] for r in found for i in sums):
                return names, [dict(zip(names, r, strict=True)) for r in found]
        out = frame(relation)
        return out.columns, out.to_dicts()


@contextlib.contextmanager
def _refusing() -> Iterator[None]:
    """Raises BadQuery or OutOfMemory for what DuckDB, within it, says of a query."""
    try:
        yield
    except duckdb.OutOfMemoryException as e:
        raise OutOfMemory(e) from e
    except duckdb.Error as e:
        raise BadQuery(sentence(e)) from e


def _asked(con: DuckDBPyConnection, query: str) -> DuckDBPyRelation:
    """What one SELECT-like statement asks for. Raises BadQuery, and DuckDB's errors."""
    check_text(query, "the query")
    statements = con.extract_statements(query)
    if len(statements) != 1:
        raise BadQuery(
            "the query is empty: give one SELECT"
            if not statements
            else f"{len(statements)} statements were given: one query at a time"
        )
    kind = statements[0].type.name
    if kind == "EXPLAIN":
        kind = _explained(con, query)
    if kind not in READ_ONLY:
        raise BadQuery(f"only queries may run here, and this is {kind}: write a SELECT")
    return con.sql(query)


def _explained(con: DuckDBPyConnection, query: str) -> str:
    """The kind of the statement behind EXPLAIN; EXPLAIN itself where that cannot be told."""
    m = _EXPLAIN.match(query)
    try:
        inner = con.extract_statements(query[m.end() :]) if m else []
    except duckdb.Error:
        inner = []
    return inner[0].type.name if len(inner) == 1 else "EXPLAIN"


@contextlib.contextmanager
def within_memory() -> Iterator[None]:
    """Raises OutOfMemory where DuckDB, within it, runs out of what a connection may have."""
    try:
        yield
    except duckdb.OutOfMemoryException as e:
        raise OutOfMemory(e) from e


def tuples(con: DuckDBPyConnection, query: str) -> list[tuple[Any, ...]]:
    """The rows of a query of retime's own. Raises OutOfMemory."""
    with within_memory():
        return con.execute(query).fetchall()


def compute_once(con: DuckDBPyConnection, *views: str) -> None:
    """Computes views once and keeps their rows, see `materialise`. Raises OutOfMemory."""
    from ..queries.loader import materialise

    with within_memory():
        materialise(con, *views)


def frame(relation: DuckDBPyRelation) -> pl.DataFrame:
    """A relation as a Polars frame: sums of integers stay integers, what Polars lacks is text.

    DuckDB sums BIGINT to HUGEINT; such a column is Int64 here, or text where it does not fit.
    Raises OutOfMemory.
    """
    import polars as pl  # only now: `rows` does without, and saves its import

    names, types = _distinct(relation.columns), [str(t) for t in relation.types]
    casts = []
    for i, (name, kind) in enumerate(zip(names, types, strict=True)):
        source = f"#{i + 1}"
        if kind in ("INTERVAL", "BIT", "BLOB", "UHUGEINT", "TIME WITH TIME ZONE"):
            source = f"{source}::VARCHAR"
        elif kind.startswith("ENUM("):
            source = f"{source}::VARCHAR{kind[kind.rindex(')') + 1 :]}"  # or a list of them
        casts.append(f"{source} AS {quoted(name)}")
    with within_memory():
        out = relation.project(", ".join(casts)).pl()
    for i, kind in enumerate(types):
        column = out.to_series(i)
        if kind == "HUGEINT":
            low, high = column.min(), column.max()
            fits = low is None or (int(low) >= INT64[0] and int(high) <= INT64[1])  # type: ignore
            out = out.with_columns(column.cast(pl.Int64 if fits else pl.String))
    return out


def _distinct(names: list[str]) -> list[str]:
    """Names made unique: a, a, b -> a, a_1, b; a name of the query's own is nobody else's."""
    seen: dict[str, int] = {}
    taken = set(names)
    out = []
    for name in names:
        n = seen.get(name, 0)
        new = name
        while n and new in taken:
            new, n = f"{name}_{n}", n + 1
        seen[name] = max(n, 1)
        taken.add(new)
        out.append(new)
    return out


def quoted(name: str) -> str:
    """A SQL identifier."""
    return '"' + name.replace('"', '""') + '"'


def literal(value: Any) -> str:
    """A SQL literal of a string or an integer."""
    if isinstance(value, int):
        return str(value)
    return "'" + str(value).replace("'", "''") + "'"


def _public(line: str) -> str:
    """A line of DuckDB's message; of the names that it proposes those that users are to use."""
    if (m := re.fullmatch(r'(Did you mean|Candidate bindings:) "(.*)"(\??)', line)) is None:
        return line
    between = '", "' if '", "' in m[2] else " or "
    names = [n for n in m[2].split(between) if not n.startswith("_")]
    return f'{m[1]} "{between.join(names)}"{m[3]}' if names else ""


def sentence(error: Exception) -> str:
    """DuckDB's message as one sentence: its kind, what is wrong, and its hint."""
    lines = [s.strip() for s in str(error).splitlines()]
    if lines and lines[0].startswith("Traceback "):  # what reading a file raised, in Python
        return f"the query cannot run: {lines[-1].partition(': ')[2] or lines[-1]}"
    kept: list[str] = []
    for i, s in enumerate(lines):
        if re.match(r"LINE \d+:", s):
            break
        if s and not (i and s.startswith("^")) and (s := _public(s)):
            kept.append(s)
    head = re.sub(r"^(\w+) Error: ", lambda m: f"{m[1].lower()} error: ", kept[0] if kept else "")
    hints = " ".join(kept[1:])
    text = f"{head.rstrip('.!')}. {hints}" if hints else head
    return f"the query cannot run: {text}"
