"""What rails carried in a job, worked out once by the SQL that the views of rails are made of."""

from __future__ import annotations

import re
import tempfile
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, TypeVar

import pyarrow as pa

from ..keeping import slices
from ..manifest import Manifest
from ..schema import TABLES
from ..writer import ROW_GROUP_ROWS, PartWriter
from . import SQL

if TYPE_CHECKING:
    import duckdb

T = TypeVar("T")

VIEWS = {
    "_made_rail_load": "_computed_rail_load",
    "_made_rail_left_out": "_computed_rail_left_out",
}
"""Table -> the view that gives its rows."""

MODULES = ("clocks", "sizes", "nics", "rails_derived", "rails_measured", "rail_traffic")
DERIVED = ("ranks", "steps", "comms", "collectives", "transfers")
SOURCES = ("topology", "counters", "routing")

TRAFFIC = ("collectives", "transfers", "counters", "routing")
"""Tables of what moved."""

LEAST_ROWS = 50_000
LEAST_FILES = 64
"""With fewer rows of these, and of the sources fewer files (a view opens each many times), a view
takes a second or two, and a job need not wait for DuckDB."""

HELD = {
    "_rank_clocks", "_step_windows", "_nics", "_rank_rails", "_rails", "_comm_members",
    "_link_nics", "_edges", "_crossings", "_derived_traffic", "_measured_traffic",
}  # fmt: skip
"""Views that others ask several times: computed and planned once here."""

INSERTED_ROWS = 65_536

_VIEW = re.compile(r"CREATE VIEW (\w+)")

MEMORY = ("512MB", "1GB", "2GB")
"""Beyond that DuckDB writes to files beside the tables that are made; where it cannot do with so
little, it is asked once more with the next."""


def write(
    writer: PartWriter,
    place: Path,
    opened: slices.Open,
    manifests: Sequence[Manifest],
    tables: Mapping[str, pa.Table],
) -> None:
    """Writes the rows of `VIEWS` where the job is large; scratch files are below `place`.

    Nothing is written where DuckDB cannot work it out or a file cannot be read: that is left to the
    views, and whoever asks those is told.
    """
    parts = {t: [p for m in manifests for p in m.tables.get(t, [])] for t in SOURCES}
    derived = {t: tables.get(t, TABLES[t].empty) for t in DERIVED}
    # What the machine is made of, and what its ranks are called, the views read at once.
    rows = sum(len(derived[t]) for t in DERIVED if t in TRAFFIC)
    rows += sum(p.rows for t in SOURCES if t in TRAFFIC for p in parts[t])
    files = sum(len(p) for p in parts.values())
    if not rows or (rows < LEAST_ROWS and files < LEAST_FILES) or len(derived["ranks"]) < 2:
        return
    import duckdb  # only large jobs need it

    with tempfile.TemporaryDirectory(prefix="rails-", dir=place) as scratch:
        con = duckdb.connect(str(Path(scratch) / "rows.duckdb"))
        try:
            # Sums of doubles depend on their order, and the same sources give the same files.
            con.execute("SET threads = 1")
            con.execute(f"SET memory_limit = '{MEMORY[0]}'")
            con.execute(f"SET temp_directory = '{scratch.replace(chr(39), chr(39) * 2)}'")
            con.execute("SET enable_progress_bar = false")
            for table, its_rows in derived.items():
                _show(con, table, its_rows)
            for table, its in parts.items():
                _keep(con, table, (piece for p in its for piece in slices.pieces(opened, p)))
            for module in MODULES:
                text = (SQL / f"{module}.sql").read_text(encoding="utf-8")
                for statement in con.extract_statements(text):
                    con.execute(statement)
                    if (made := _VIEW.search(statement.query)) and made[1] in HELD:
                        _within_memory(con, partial(_hold, con, made[1]))
            found = {t: _within_memory(con, partial(_rows, con, t, v)) for t, v in VIEWS.items()}
        except (duckdb.Error, pa.ArrowException, OSError):
            return
        finally:
            con.close()
    for table, of_it in found.items():
        for at in range(0, len(of_it), ROW_GROUP_ROWS):
            writer.write(table, of_it.slice(at, ROW_GROUP_ROWS))


def _columns(table: str) -> str:
    """All columns, of the types that the views have."""
    return ", ".join(f'"{f.name}"::{_kind(f.type)} AS "{f.name}"' for f in TABLES[table].schema)


def _kind(t: pa.DataType) -> str:
    kinds = {pa.int32(): "INTEGER", pa.int64(): "BIGINT", pa.float64(): "DOUBLE",
             pa.bool_(): "BOOLEAN"}  # fmt: skip
    return f"{_kind(t.value_type)}[]" if pa.types.is_list(t) else kinds.get(t, "VARCHAR")


def _show(con: duckdb.DuckDBPyConnection, table: str, rows: pa.Table) -> None:
    """A view of rows that are in memory."""
    con.register(f"_{table}", rows.unify_dictionaries())
    con.execute(f"CREATE TEMP VIEW {table} AS SELECT '' AS job, {_columns(table)} FROM _{table}")


def _keep(con: duckdb.DuckDBPyConnection, table: str, pieces: Iterable[pa.Table]) -> None:
    """A table of rows that are read piece by piece."""
    schema = TABLES[table].schema
    con.register("_piece", schema.empty_table())
    con.execute(f"CREATE TABLE {table} AS SELECT '' AS job, {_columns(table)} FROM _piece")
    for rows in _gathered(slices.completed(piece, schema) for piece in pieces):
        con.register("_piece", rows)
        con.execute(f"INSERT INTO {table} SELECT '' AS job, {_columns(table)} FROM _piece")
    con.unregister("_piece")


def _gathered(pieces: Iterable[pa.Table]) -> Iterator[pa.Table]:
    """The same rows in fewer tables: each that DuckDB is given costs milliseconds."""
    held: list[pa.Table] = []
    for piece in pieces:
        held.append(piece)
        if sum(map(len, held)) >= INSERTED_ROWS:
            yield pa.concat_tables(held).unify_dictionaries()
            held = []
    if held:
        yield pa.concat_tables(held).unify_dictionaries()


def _within_memory(con: duckdb.DuckDBPyConnection, ask: Callable[[], T]) -> T:
    """The answer, with the least memory that does. Raises duckdb's errors."""
    import duckdb

    for limit in MEMORY[:-1]:
        try:
            con.execute(f"SET memory_limit = '{limit}'")
            return ask()
        except duckdb.OutOfMemoryException:
            continue
    con.execute(f"SET memory_limit = '{MEMORY[-1]}'")
    return ask()


def _hold(con: duckdb.DuckDBPyConnection, view: str) -> None:
    con.execute(f"CREATE OR REPLACE TABLE _held{view} AS FROM {view}")
    con.execute(f"CREATE OR REPLACE VIEW {view} AS FROM _held{view}")


def _rows(con: duckdb.DuckDBPyConnection, table: str, view: str) -> pa.RecordBatch:
    found = con.sql(f"SELECT {_columns(table)} FROM {view} ORDER BY ALL").to_arrow_table()
    return TABLES[table].batch({n: found[n].combine_chunks() for n in found.column_names})
