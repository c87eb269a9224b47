"""Rows of any tables, collected by parsers of small formats and given out as batches."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

import pyarrow as pa

from .ordered import order_by, taken
from .schema import TABLES, TEXT, Problem, Table, problem_rows

if TYPE_CHECKING:
    from .sources import Source

BATCH_ROWS = 65536

_I64 = (-(1 << 63), (1 << 63) - 1)
_I32 = (-(1 << 31), (1 << 31) - 1)


class Collector:
    """Rows by table and oddities by code, of one source.

    Values come from strangers: what does not fit its column (a number beyond its bits, another
    type, half a character) becomes null and is counted as `value_out_of_range` or `wrong_type`.
    """

    def __init__(self, source: Source):
        self.source = source
        self._rows: dict[str, dict[str, list]] = {}
        self._count: dict[str, int] = {}
        self._odd: dict[tuple[str, int | None], Problem] = {}

    def add(self, table: str, **values: Any) -> None:
        """One row; columns not given are null. Raises KeyError for a column that is not there."""
        columns = self._rows.get(table)
        if columns is None:
            columns = self._rows[table] = {c.name: [] for c in TABLES[table].columns}
            self._count[table] = 0
        n = self._count[table]
        for name, value in values.items():
            column = columns[name]
            if len(column) < n:
                column.extend([None] * (n - len(column)))
            column.append(value)
        self._count[table] = n + 1

    def odd(
        self,
        code: str,
        message: str,
        severity: str = "warning",
        *,
        offset: int | None = None,
        rank: int | None = None,
        count: int = 1,
    ) -> None:
        """Notes an oddity; one problem a code and rank, with the first's message and offset."""
        old = self._odd.get((code, rank))
        if old is None:
            self._odd[(code, rank)] = Problem(code, message, severity, count, offset, rank)
        else:
            self._odd[(code, rank)] = old._replace(count=old.count + count)

    def told(self, code: str, rank: int | None = None) -> bool:
        """Whether there is a problem of this code and rank."""
        return (code, rank) in self._odd

    def n(self, table: str) -> int:
        """Rows of a table that wait for a batch."""
        return self._count.get(table, 0)

    def full(self) -> Iterator[tuple[str, pa.RecordBatch]]:
        """Batches of the tables that have many rows by now: to be asked now and then."""
        for table in [t for t, n in self._count.items() if n >= BATCH_ROWS]:
            yield table, self._batch(table)

    def rest(self) -> Iterator[tuple[str, pa.RecordBatch]]:
        """Everything that is left, and the problems at the end."""
        for table in list(self._rows):
            if self._count[table]:
                yield table, self._batch(table)
        problems = list(self._odd.values())
        if problems:
            yield "problems", problem_rows([(self.source.name, p) for p in problems])
            self._odd = {}

    def _batch(self, table: str) -> pa.RecordBatch:
        declared = TABLES[table]
        n, columns = self._count.pop(table), self._rows.pop(table)
        arrays = [self._array(declared, c.name, c.type, columns[c.name], n) for c in
                  declared.columns]  # fmt: skip
        return in_order(declared, pa.RecordBatch.from_arrays(arrays, schema=declared.schema))

    def _array(self, table: Table, name: str, kind: pa.DataType, values: list, n: int) -> pa.Array:
        if len(values) < n:
            values.extend([None] * (n - len(values)))
        if kind == TEXT:
            return self._text(table, name, values)
        try:
            return pa.array(values, kind)
        except (pa.ArrowException, OverflowError, TypeError, ValueError, UnicodeError):
            return pa.array([self._fitting(table, name, kind, v) for v in values], kind)

    def _text(self, table: Table, name: str, values: list) -> pa.Array:
        if {*map(type, values)} <= {str, type(None)}:
            with contextlib.suppress(UnicodeEncodeError):
                return pa.array(values, pa.string()).dictionary_encode()
        codes: dict[Any, int] = {}
        indices: list[int | None] = []
        for v in values:
            if v is not None and not isinstance(v, str):
                v = self._fitting(table, name, pa.string(), v)
            indices.append(None if v is None else codes.setdefault(v, len(codes)))
        words = [_sound(w) for w in codes]
        return pa.DictionaryArray.from_arrays(
            pa.array(indices, pa.int32()), pa.array(words, pa.string())
        )

    def _fitting(self, table: Table, name: str, kind: pa.DataType, value: Any) -> Any:
        """The value where it fits the column, else None and a problem."""
        if value is None:
            return None
        code = "wrong_type"
        if pa.types.is_integer(kind):
            low, high = _I32 if kind == pa.int32() else _I64
            if isinstance(value, float) and value.is_integer() and low <= value <= high:
                return int(value)
            if isinstance(value, int) and not isinstance(value, bool):
                if low <= value <= high:
                    return value
                code = "value_out_of_range"
        elif pa.types.is_floating(kind):
            if isinstance(value, int | float) and not isinstance(value, bool):
                try:
                    return float(value)
                except OverflowError:
                    code = "value_out_of_range"
        elif pa.types.is_boolean(kind):
            if isinstance(value, bool):
                return value
        elif pa.types.is_string(kind):
            if isinstance(value, str):
                return _sound(value)
        elif pa.types.is_list(kind) and isinstance(value, list | tuple):
            inner = [self._fitting(table, name, kind.value_type, v) for v in value]
            return None if any(a is None and b is not None for a, b in zip(inner, value,
                               strict=True)) else inner  # fmt: skip
        self.odd(
            code,
            f"a value that does not fit the column {table.name}.{name} "
            f"({_shown(value)}); null is kept",
        )
        return None


def in_order(table: Table, batch: pa.RecordBatch) -> pa.RecordBatch:
    """The rows in the order that the table's files have; equal ones as they come."""
    keys = [k for k in table.sort if batch.schema.field(k).type in (pa.int64(), pa.int32())]
    order = order_by([batch[k] for k in keys])
    if order is None:
        return batch
    rows = pa.array(order)
    return pa.RecordBatch.from_arrays([taken(c, rows) for c in batch.columns], schema=batch.schema)


def _sound(text: str) -> str:
    """The text where it can be stored as UTF-8, else with what cannot be replaced."""
    try:
        text.encode()
        return text
    except UnicodeEncodeError:
        return text.encode("utf-8", "replace").decode()


def _shown(value: Any) -> str:
    """A stranger's value for a message: short, printable, never a huge number spelt out."""
    if isinstance(value, int) and value.bit_length() > 200:
        return f"an integer of {value.bit_length()} bits"
    text = repr(value) if isinstance(value, int | float | str) else type(value).__name__
    clean = "".join(c if c.isprintable() else "?" for c in text[:80])
    return clean
