"""The tables of a report whatever carries it: SQLite, a folder of Parquet or Arrow, JSON lines."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from typing import TYPE_CHECKING, Protocol

import pyarrow as pa

from .arrow import compute as pc
from .columns import ARROW, READ, is_bookkeeping
from .fit import OnOdd, fit
from .strings import Strings

if TYPE_CHECKING:
    from ..sources import Source


class Carrier(Protocol):
    """What each carrier gives."""

    columns: dict[str, list[str]]
    """the columns present, by table that is read"""
    other: list[str]
    """tables that are not read"""

    def batches(self, table: str, columns: dict[str, str]) -> Iterator[pa.RecordBatch]: ...

    def has_rows(self, table: str) -> bool: ...

    def close(self) -> None: ...


class Report:
    """A report's tables: always all declared columns, in the declared types."""

    def __init__(self, carrier: Carrier, odd: OnOdd):
        self._carrier = carrier
        self.odd = odd
        self._small: dict[str, pa.Table] = {}
        self._strings: Strings | None = None

    def has(self, table: str) -> bool:
        """Whether the table exists with any column that is read."""
        return bool(set(self._carrier.columns.get(table, ())) & set(READ[table]))

    def columns(self, table: str) -> set[str]:
        """The columns of the table that exist."""
        return set(self._carrier.columns.get(table, ()))

    def batches(self, table: str, *names: str) -> Iterator[pa.Table]:
        """The table's rows, some tens of thousands at a time; all columns where none is named."""
        declared = {c: k for c, k in READ[table].items() if not names or c in names}
        present = self.columns(table)
        wanted = {c: k for c, k in declared.items() if c in present}
        if not wanted:
            return
        for batch in self._carrier.batches(table, wanted):
            n = batch.num_rows
            yield pa.table(
                {
                    c: fit(batch.column(batch.schema.get_field_index(c)), k, self.odd,
                           f"{table}.{c}")
                    if c in wanted else pa.nulls(n, ARROW[k])
                    for c, k in declared.items()
                }
            )  # fmt: skip

    def table(self, table: str, *names: str) -> pa.Table:
        """The whole table; without rows where there is none."""
        parts = list(self.batches(table, *names))
        if parts:
            names_of, columns = parts[0].column_names, [p.columns for p in parts]
            parts.clear()  # a column at a time, so that no more than one is there twice
            whole = {}
            for name in reversed(names_of):
                whole[name] = _whole([c.pop() for c in columns])
            return pa.table({name: whole[name] for name in names_of})
        declared = {c: k for c, k in READ[table].items() if not names or c in names}
        return pa.schema([(c, ARROW[k]) for c, k in declared.items()]).empty_table()

    def small(self, table: str) -> pa.Table:
        """A table that is asked for more than once, kept."""
        if table not in self._small:
            self._small[table] = self.table(table)
        return self._small[table]

    def pairs(self, *tables: str) -> dict[str, str]:
        """name -> value over tables of such rows; of a name that repeats the first."""
        out: dict[str, str] = {}
        for table in tables:
            t = self.small(table)
            for name, value in zip(t["name"].to_pylist(), t["value"].to_pylist(), strict=True):
                if name is not None:
                    out.setdefault(name, value or "")
        return out

    @property
    def strings(self) -> Strings:
        """The report's table of strings."""
        if self._strings is None:
            self._strings = Strings(self.batches("StringIds"))
        return self._strings

    def not_read(self) -> list[str]:
        """Tables with rows that are not read and hold more than bookkeeping."""
        return sorted(
            t for t in self._carrier.other if not is_bookkeeping(t) and self._carrier.has_rows(t)
        )


def _whole(parts: list[pa.ChunkedArray]) -> pa.ChunkedArray:
    """One chunk of all, or as few as texts need."""
    found = pa.chunked_array([c for p in parts for c in p.chunks], parts[0].type)
    one = found.combine_chunks()
    return one if isinstance(one, pa.ChunkedArray) else pa.chunked_array([one])


def text_or_id(report: Report, text: pa.ChunkedArray, ids: pa.ChunkedArray) -> pa.Array:
    """The text where it stands in the row itself, else that of its id."""
    own = text.combine_chunks()
    if isinstance(own, pa.ChunkedArray):
        own = pa.concat_arrays(own.chunks) if own.num_chunks else pa.nulls(0, pa.string())
    if own.null_count == 0:
        return own
    return pc.coalesce(own, report.strings.of(ids))


@contextmanager
def open_report(source: Source, odd: OnOdd) -> Iterator[Report]:
    """The report of a source, of whatever carrier. Raises UnusableInput where it is none."""
    with ExitStack() as stack:
        carrier: Carrier
        if source.members:
            from .folder import FolderTables

            carrier = FolderTables({_stem(m.name): m for m in source.members}, source.name, odd)
        elif source.head(16).startswith(b"SQLite format 3\0"):
            from .sqlite import SqliteTables

            path = stack.enter_context(source.as_file())
            carrier = SqliteTables(path, source.name, odd)
        else:
            from .jsonlines import JsonLinesTables

            carrier = JsonLinesTables(source, odd)
        stack.callback(carrier.close)
        yield Report(carrier, odd)


def _stem(name: str) -> str:
    """The table that a member's file is named after."""
    return name.replace("!", "/").rsplit("/", 1)[-1].split(".", 1)[0]
