"""Tables of a SQLite export, from its pages or through ADBC; views and tricks are refused."""

from __future__ import annotations

import contextlib
import sys
import urllib.parse
from collections.abc import Iterator
from pathlib import Path

import adbc_driver_manager
import adbc_driver_sqlite
import pyarrow as pa

from ..errors import Damaged, UnusableInput, line_of
from .btree import NotPlain, Pages, Stored, batches
from .columns import BYTES, INT, READ, REAL
from .damage import until_damage
from .fit import OnOdd

BATCH_ROWS = 16384
SMALL_BYTES = 16 << 20
"""The pages of a smaller file are left to SQLite: compiled code takes a second to load."""

_TROUBLE = (adbc_driver_manager.Error, pa.ArrowException, OSError, ValueError)

_GUARDS = {
    # A column's type is guessed by the driver from its first rows: each guard gives one type only.
    INT: "CASE typeof({c}) WHEN 'integer' THEN {c} "
    "WHEN 'real' THEN CASE WHEN abs({c}) < 4e18 AND CAST({c} AS INTEGER) = {c} "
    "THEN CAST({c} AS INTEGER) END END",
    REAL: "CASE WHEN typeof({c}) IN ('integer', 'real') THEN CAST({c} AS REAL) ELSE 9e999 END",
    # Of a text no more than any name or payload has.
    BYTES: "CASE WHEN typeof({c}) IN ('text', 'blob') THEN substr(CAST({c} AS BLOB), 1, 4194304) "
    "ELSE x'' END",
}


class SqliteTables:
    """The real tables of a database, by name. Raises UnusableInput where it cannot be read."""

    def __init__(self, path: Path, name: str, odd: OnOdd):
        self._odd = odd
        self._open = contextlib.ExitStack()
        self._under_way: list[contextlib.ExitStack] = []
        uri = f"file:{urllib.parse.quote(str(path))}?mode=ro&immutable=1"
        try:
            # Not by its `dbapi`, which imports polars and pyarrow's data sets: 50 MB of memory.
            database = self._open.enter_context(adbc_driver_sqlite.connect(uri))
            self._connection = self._open.enter_context(
                adbc_driver_manager.AdbcConnection(database)
            )
            self._open.callback(self._close_asked)
            for pragma in ("trusted_schema=0", "query_only=1", "cell_size_check=1"):
                self._rows(f"PRAGMA {pragma}")
            try:
                found = self._schema()
            except _TROUBLE:
                # With this a definition that is damaged hides its own table only. Nothing is
                # written: the file is open for reading, as one that cannot change.
                self._rows("PRAGMA writable_schema=1")
                found = self._schema()
                odd("damaged_schema", "the list of tables is damaged: some may be missing", "lost")
        except _TROUBLE as e:
            self._open.close()
            told = f"not a SQLite database that can be read ({line_of(e)})"
            raise Damaged(told, path=name) from e
        self.other: list[str] = []
        self.columns: dict[str, list[str]] = {}
        self._stored: dict[str, tuple[int, list[Stored]]] = {}
        self._pages: Pages | None = None
        if path.stat().st_size >= SMALL_BYTES or f"{__package__}.leaves" in sys.modules:
            with contextlib.suppress(NotPlain, OSError):
                self._pages = Pages(path)
                self._open.callback(self._pages.close)
        for table, kind, root in found:
            if kind == "table" and root:
                if table in READ:
                    self.columns[table] = self._columns(table, root)
                elif isinstance(table, str):
                    self.other.append(table)
            elif table in READ and kind in ("view", "table"):
                odd(
                    "view_refused",
                    f"{table} is a {'view' if kind == 'view' else 'virtual table'}, which no "
                    "export has: not read",
                    "lost",
                )
        if not self.columns:
            self._open.close()
            raise UnusableInput(
                "a SQLite database without any table of an Nsight Systems export", path=name
            )

    def close(self) -> None:
        """Lets go of the file."""
        self._open.close()

    def _rows(self, query: str) -> list[tuple]:
        with self._asked(query) as reader:
            found = reader.read_all()
        return list(zip(*(c.to_pylist() for c in found.columns), strict=True))

    @contextlib.contextmanager
    def _asked(self, query: str, **options: str) -> Iterator[pa.RecordBatchReader]:
        with contextlib.ExitStack() as held:
            statement = held.enter_context(adbc_driver_manager.AdbcStatement(self._connection))
            self._under_way.append(held)
            held.callback(self._under_way.remove, held)
            statement.set_options(**options)
            statement.set_sql_query(query)
            reader = pa.RecordBatchReader.from_stream(statement.execute_query()[0])
            held.callback(reader.close)
            yield reader

    def _close_asked(self) -> None:
        """Ends what was asked and not read to its end: a connection does not close before."""
        for held in tuple(self._under_way):
            held.close()

    def _schema(self) -> list[tuple]:
        # Guarded as well: a damaged list may hold anything.
        return self._rows(
            "SELECT CASE typeof(name) WHEN 'text' THEN name ELSE '' END, "
            "CASE typeof(type) WHEN 'text' THEN type ELSE '' END, "
            "CASE typeof(rootpage) WHEN 'integer' THEN rootpage ELSE 0 END FROM sqlite_master"
        )

    def _columns(self, table: str, root: int) -> list[str]:
        """Its stored columns: what a generated one computes is the file's code, not its data."""
        try:
            found = self._rows(f"PRAGMA table_xinfo({_quoted(table)})")
        except _TROUBLE as e:
            self._odd("damaged_table", f"{table} cannot be read ({line_of(e)})", "lost")
            return []
        with contextlib.suppress(TypeError, AttributeError):  # of a damaged list
            stored = [Stored(r[1], r[2] + "", bool(r[5]), r[6] != 0) for r in found]
            # Of a table that is listed twice SQLite knows which is meant.
            self._stored[table] = (0 if table in self._stored else root, stored)
        return [r[1] for r in found if r[6] in (0, 1)]

    def has_rows(self, table: str) -> bool:
        """Whether a table that is not read has any row."""
        try:
            return bool(self._rows(f"SELECT 1 FROM {_quoted(table)} NOT INDEXED LIMIT 1"))
        except _TROUBLE:
            return False

    def batches(self, table: str, columns: dict[str, str]) -> Iterator[pa.RecordBatch]:
        """Batches with these columns (name to kind), in the order of the table's rows.

        Where a page cannot be read the table ends there, and a problem says so.
        """
        yield from until_damage(self._rows_of(table, columns), table, _TROUBLE, self._odd)

    def _rows_of(self, table: str, columns: dict[str, str]) -> Iterator[pa.RecordBatch]:
        """From the pages themselves as far as they are ordinary, else from SQLite."""
        n = 0
        if self._pages is not None and table in self._stored:
            root, stored = self._stored[table]
            try:
                for batch in batches(self._pages, root, stored, columns, BATCH_ROWS):
                    yield batch
                    n += batch.num_rows
                return
            except (NotPlain, OSError):
                pass
        for batch in self._by_sqlite(table, columns):
            # The same rows come again before the others.
            skip = min(n, batch.num_rows)
            n -= skip
            if skip < batch.num_rows:
                yield batch.slice(skip)

    def _by_sqlite(self, table: str, columns: dict[str, str]) -> Iterator[pa.RecordBatch]:
        chosen = ", ".join(
            f"{_GUARDS.get(kind, _GUARDS[BYTES]).format(c=_quoted(c))} AS {_quoted(c)}"
            for c, kind in columns.items()
        )
        query = f"SELECT {chosen} FROM {_quoted(table)} NOT INDEXED"
        with self._asked(query, **{"adbc.sqlite.query.batch_rows": str(BATCH_ROWS)}) as reader:
            yield from reader


def _quoted(name: str) -> str:
    return '"' + name.replace('"', '""') + '"'
