"""Opens a DuckDB connection in which every table and every view of the library is there."""

from __future__ import annotations

import functools
import re
from collections.abc import Container, Iterable, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

import duckdb
import pyarrow as pa

from .. import __version__
from ..ingest.kernels import class_of_category
from ..ingest.made import OF_EVENTS, SQL
from ..ingest.schema import TABLES, Table
from . import prepared

if TYPE_CHECKING:
    from fsspec import AbstractFileSystem

Files = Mapping[str, Mapping[str, Sequence[str]]]
"""job -> table -> its Parquet files."""

LIBRARY = (Path(__file__).parent, SQL)
"""Folders of modules: those that jobs are derived with are where that is done."""


def connect(
    files: Files,
    *,
    jobs: Iterable[str] | None = None,
    categories: Mapping[str, Mapping[str, str]] | None = None,
    older: Mapping[str, Container[str]] | None = None,
    memory_limit: str | None = None,
    threads: int | None = None,
    filesystem: AbstractFileSystem | None = None,
) -> duckdb.DuckDBPyConnection:
    """A connection to an in-memory DuckDB with all tables and views over `files`.

    Every table of the schema is a view with `job` as its first column; a table without files is
    there too, typed and empty. `jobs` keeps only those jobs; `memory_limit` is DuckDB's ("8GB").
    `categories` (job -> kernel's name -> category) takes the place of what `events` has stored.
    `older` (job -> tables) are those of which some file may lack columns, as an older version wrote
    it: these are null there. Nothing is read until a query asks for it, apart from the footer of a
    table's first file; of an older table all footers.
    `filesystem` opens the files where their names are its addresses (`served.ReadOnlyFiles`).

    Raises KeyError for a job or a table that does not exist.
    """
    chosen = list(files) if jobs is None else list(jobs)
    if missing := [j for j in chosen if j not in files]:
        raise KeyError(f"no job {missing[0]!r}; there are {sorted(files)}")
    for job in chosen:
        if strange := set(files[job]) - set(TABLES):
            raise KeyError(f"job {job!r} has files of unknown tables {sorted(strange)}")
    con = duckdb.connect()
    # In Jupyter without ipywidgets there is no bar, and DuckDB refuses to be told so.
    if con.execute("SELECT current_setting('enable_progress_bar')").fetchall() != [(False,)]:
        con.execute("SET enable_progress_bar = false")
    # Joins over several columns are guessed to have few rows, and then DuckDB compares each row
    # with each: that grows with the square of a job.
    con.execute("SET asof_loop_join_threshold = 0")
    con.execute("SET nested_loop_join_threshold = 0")
    if memory_limit is not None:
        con.execute(f"SET memory_limit = {_text(memory_limit)}")
    if threads is not None:
        con.execute(f"SET threads = {int(threads)}")
    if filesystem is None:
        files, filesystem = _served(files)
    if filesystem is not None:
        con.register_filesystem(filesystem)
    prepared.create(con, _library_texts(), _create_library)
    con.execute(_job_numbers(chosen))
    said = {j: names for j, names in (categories or {}).items() if names and j in chosen}
    if said:
        _keep_categories(con, said)
    for table in TABLES.values():
        if by_job := {j: files[j][table.name] for j in chosen if files[j].get(table.name)}:
            lacking = {j for j, tables in (older or {}).items() if table.name in tables}
            con.execute(_view(table, by_job, said if table.name == "events" else (), lacking))
    for view, table in (STORED | SPARED).items():
        its = [j for j in chosen if files[j].get(table) and not (j in said and table in OF_EVENTS)]
        if its:
            con.execute(_reading_stored(view, its, [j for j in chosen if j not in its]))
    return con


STORED = {
    "participations": "_made_participations",
    "lateness": "_made_lateness",
    "instances": "_made_instances",
    "arrivals": "_made_participations",
    "late_ranks": "_made_late_ranks",
    "class_times": "_made_breakdown",
    "gaps": "_made_gaps",
    "composition": "_made_composition",
    "kernels": "_made_kernels",
    "device_ranks": "_made_kernels",
    "rail_load": "_made_rail_load",
    "sm_parts": "_made_sm_parts",
}
"""Views `_<name>` whose rows a job may have stored (`_stored_<name>`, of which table), so that they
need not be computed (`_computed_<name>`)."""

SPARED = {
    "spent": "_made_covered",
    "covered": "_made_covered",
    "rail_left_out": "_made_rail_load",
    "host_marks": "_made_sm_parts",
    "compared": "_made_compared",
    "compared_kernels": "_made_compared",
    "work_events": "_made_compared",
    "followed": "_made_stretches",
    "read_parts": "_made_stretches",
    "late_stretches": "_made_stretches",
    "longest_gaps": "_made_stretches",
}
"""Views that have other rows where a job has this table: `_stored_spent` without work, as
`_stored_covered` says what all the work came to; and those of which there may be nothing to store,
where what is made beside them is stored. `_stored_compared` and those below it have what
`straggler_causes.sql` works out in one go, so nothing is computed of them."""

_OF_ACCOUNTS = frozenset(
    v
    for v, table in (STORED | SPARED).items()
    if table in OF_EVENTS
    and table not in ("_made_compared", "_made_stretches")
    and v not in ("sm_parts", "host_marks", "device_ranks")
)
"""Those of them that follow from accounts of events."""


def _reading_stored(view: str, stored: Sequence[str], others: Sequence[str]) -> str:
    """The statement that makes `_<view>` read what is stored of jobs and compute that of others."""
    text = f"CREATE OR REPLACE VIEW _{view} AS FROM _stored_{view}"
    if not others:
        return text
    listed = ", ".join(map(_text, others))
    its = ", ".join(map(_text, stored))
    return (
        f"{text} WHERE job IN ({its}) "
        f"UNION ALL BY NAME FROM _computed_{view} WHERE job IN ({listed})"
    )


@functools.cache
def library() -> tuple[str, ...]:
    """The library's modules as SQL text, each after those that it requires.

    A module says what it needs in lines of the form `-- requires: name, name`.
    Raises ValueError where a module requires one that does not exist, or itself in a ring.
    """
    places = [p for folder in LIBRARY for p in folder.glob("*.sql")]
    text = {p.stem: p.read_text(encoding="utf-8") for p in sorted(places, key=lambda p: p.stem)}
    needs = {m: requirements(t) for m, t in text.items()}
    order: list[str] = []

    def visit(module: str, path: tuple[str, ...]) -> None:
        if module in order:
            return
        if module in path:
            raise ValueError(f"modules require each other: {' -> '.join((*path, module))}")
        if module not in text:
            raise ValueError(f"module {path[-1]!r} requires {module!r}, which does not exist")
        for needed in needs[module]:
            visit(needed, (*path, module))
        order.append(module)

    for module in text:
        visit(module, ())
    return tuple(text[m] for m in order)


def _library_texts() -> list[str]:
    """All that `_create_library` depends on, this module's text too."""
    tables = (_view(table, {}) for table in TABLES.values())
    own = Path(__file__).read_text(encoding="utf-8")
    return [__version__, own, _classes(), _job_numbers(()), *tables, *library()]


def _create_library(con: duckdb.DuckDBPyConnection) -> None:
    """Creates all macros and views, over tables that are typed and empty.

    DuckDB binds a view when it is created, and with it everything below: file footers, and the
    views it is built from, again and again. So each view is created while all that it reads are
    empty stand-ins of the same name and types, and these are replaced afterwards.
    """
    con.execute(_classes())
    con.execute(_job_numbers(()))
    for table in TABLES.values():
        con.execute(_view(table, {}))
    stand_ins = _stand_ins()
    for stand_in in stand_ins.values():
        con.execute(stand_in)
    macros = [s for name, s in _statements() if name not in stand_ins]
    views = [s for name, s in _statements() if name in stand_ins]
    for statement in (*macros, *reversed(views)):
        con.execute(statement.replace("CREATE VIEW", "CREATE OR REPLACE VIEW", 1))


@functools.cache
def _stand_ins() -> dict[str, str]:
    """For each view of the library a statement that makes an empty one of the same columns."""
    con = duckdb.connect()
    con.execute(_classes())
    con.execute(_job_numbers(()))
    for table in TABLES.values():
        con.execute(_view(table, {}))
    found = {}
    for name, statement in _statements():
        con.execute(statement)
        columns = con.execute(
            "SELECT column_name, data_type FROM duckdb_columns() WHERE table_name = ? "
            "ORDER BY column_index",
            [name],
        ).fetchall()
        if columns:
            nulls = ", ".join(f"NULL::{type_} AS {_name(column)}" for column, type_ in columns)
            found[name] = f"CREATE OR REPLACE VIEW {name} AS SELECT {nulls} WHERE false"
            con.execute(found[name])
    return found


@functools.cache
def _statements() -> tuple[tuple[str, str], ...]:
    """The name of each macro and view with the statement that creates it, in order of need."""
    found = []
    for text in library():
        for statement in duckdb.extract_statements(re.sub(r"--[^\n]*", "", text)):
            name = re.search(r"CREATE (?:VIEW|MACRO) (\w+)", statement.query)
            if name is None:
                raise ValueError(f"not a view or macro: {statement.query.strip()[:80]!r}")
            found.append((name[1], statement.query.strip()))
    return tuple(found)


def _classes() -> str:
    """The statement that makes `_class_of_category()`, a map, from the table of kernel classes."""
    pairs = class_of_category().items()
    entries = ", ".join(f"{_text(category)}: {_text(of_it)}" for category, of_it in pairs)
    return f"CREATE MACRO _class_of_category() AS MAP {{{entries}}}"


def _job_numbers(jobs: Iterable[str]) -> str:
    """The statement that makes the view `_job_numbers` (job, number): integers sort fast."""
    rows = ", ".join(f"({_text(job)}, {n}::BIGINT)" for n, job in enumerate(sorted(jobs)))
    rows = rows or "(NULL::VARCHAR, NULL::BIGINT)"
    return (
        "CREATE OR REPLACE VIEW _job_numbers AS "
        f"SELECT * FROM (VALUES {rows}) AS t(job, number) WHERE job IS NOT NULL"
    )


def requirements(text: str) -> list[str]:
    """The modules named in a module's `-- requires:` lines."""
    lines = re.findall(r"^-- requires:(.*)$", text, flags=re.MULTILINE)
    return [name.strip() for line in lines for name in line.split(",")]


def materialise(con: duckdb.DuckDBPyConnection, *views: str) -> None:
    """Computes `views` once and keeps their rows: later queries of them only read.

    For a notebook or a report that asks the same connection many times. Views that others are
    built from (`waits`, `_accounts`) speed those up too. Without names: the views that cost most
    and that what is stored of the jobs does not spare.
    Raises duckdb.CatalogException where there is no such view.
    """
    for view in views or _costly(con):
        kept = _name(f"_kept_{view}")
        con.execute(f"CREATE OR REPLACE TABLE {kept} AS FROM {_name(view)}")
        con.execute(f"CREATE OR REPLACE VIEW {_name(view)} AS FROM {kept}")


def _costly(con: duckdb.DuckDBPyConnection) -> list[str]:
    """What many views of this connection compute again and again, in order of need.

    Where their rows are stored for all jobs they are only read, and intervals of work are asked
    for by so few that they would fill memory for little.
    """
    definitions = con.execute("SELECT view_name, sql FROM duckdb_views()").fetchall()
    computed = {v for v in STORED for name, sql in definitions
                if name == f"_{v}" and f"_computed_{v}" in sql}  # fmt: skip
    found = ["waits"] if "participations" in computed else []
    return [*found, "_activity", "_accounts"] if computed & _OF_ACCOUNTS else found


def _keep_categories(con: duckdb.DuckDBPyConnection, said: Mapping[str, Mapping[str, str]]) -> None:
    rows = [(job, name, category) for job, of in said.items() for name, category in of.items()]
    columns = zip(("job", "name", "category"), zip(*rows, strict=True), strict=True)
    con.register("_rows", pa.table({name: pa.array(values) for name, values in columns}))
    con.execute("CREATE TABLE _said_categories AS FROM _rows")
    con.unregister("_rows")


def _view(
    table: Table,
    by_job: Mapping[str, Sequence[str]],
    said: Container[str] = (),
    older: Container[str] = (),
) -> str:
    """The statement that makes one table a view, `job` first, over the files of each job.

    Of the jobs in `said`, kernels have the category of `_said_categories` where that has one. Of
    those in `older` columns that a file lacks are null.
    """
    columns = ", ".join(f"{_name(c.name)}::{sql_type(c.type)} AS {c.name}" for c in table.columns)
    parts = []
    for job, paths in by_job.items():
        listed = ", ".join(_text(pattern(p)) for p in paths)
        rows = f"read_parquet([{listed}], hive_partitioning = false)"
        if job in older:
            none = ", ".join(f"NULL::{sql_type(c.type)} AS {_name(c.name)}" for c in table.columns)
            rows = (
                f"(FROM read_parquet([{listed}], hive_partitioning = false, union_by_name = true) "
                f"UNION ALL BY NAME SELECT {none} WHERE false)"
            )
        if job in said:
            rows = (
                "(SELECT e.* REPLACE (coalesce(s.category, e.category) AS category) "
                f"FROM {rows} AS e LEFT JOIN _said_categories AS s "
                f"ON s.job = {_text(job)} AND s.name = e.name AND e.kind = 'kernel')"
            )
        parts.append(f"SELECT {_text(job)} AS job, {columns} FROM {rows}")
    if not parts:
        nulls = ", ".join(f"NULL::{sql_type(c.type)} AS {c.name}" for c in table.columns)
        parts = [f"SELECT NULL::VARCHAR AS job, {nulls} WHERE false"]
    return f"CREATE OR REPLACE VIEW {table.name} AS {' UNION ALL '.join(parts)}"


def pattern(path: str) -> str:
    """The pattern that means just this path: DuckDB takes every path to read for a pattern."""
    return re.sub(r"[*?\[]", r"[\g<0>]", path)


def sql_type(t: pa.DataType) -> str:
    """The DuckDB name of an Arrow type. Raises TypeError for one that the schema does not use."""
    if pa.types.is_dictionary(t):
        return sql_type(t.value_type)
    if pa.types.is_list(t):
        return f"{sql_type(t.value_type)}[]"
    names = {
        pa.int32(): "INTEGER",
        pa.int64(): "BIGINT",
        pa.float64(): "DOUBLE",
        pa.bool_(): "BOOLEAN",
        pa.string(): "VARCHAR",
    }
    if t not in names:
        raise TypeError(f"no DuckDB type is declared for {t}")
    return names[t]


def _served(files: Files) -> tuple[Files, AbstractFileSystem | None]:
    """Objects under the addresses that they are served by, and the file system that does it."""
    from ..ingest.store import is_address
    from . import served

    if not any(is_address(p) for of in files.values() for paths in of.values() for p in paths):
        return files, None
    names = served.addresses(files)
    places = {
        name: path
        for job, tables in files.items()
        for table, paths in tables.items()
        for name, path in zip(names[job][table], paths, strict=True)
    }
    return names, served.ReadOnlyFiles(places)


def _text(value: str) -> str:
    return "'" + str(value).replace("'", "''") + "'"


def _name(value: str) -> str:
    return '"' + value.replace('"', '""') + '"'
