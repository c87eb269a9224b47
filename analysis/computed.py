"""Tables that only a replay gives, in a connection: computed when a query first scans one."""

from __future__ import annotations

import threading
from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, Any, NamedTuple

import pyarrow as pa

from ..ingest import kept
from ..ingest.errors import WarehouseError
from ..ingest.schema import PROBLEMS, TABLES, Problem, Table, problem_rows

if TYPE_CHECKING:
    from duckdb import DuckDBPyConnection

    from ..ingest.store import Place
    from ..ingest.warehouse import Snapshot

TABLES_COMPUTED = tuple(t.name for t in TABLES.values() if t.computed)

NOT_REPLAYED = "not_replayed"
"""Code of the row of `problems` that says why a job has no computed rows."""

BYTES_AN_EVENT = 450
"""What replaying ranks that are looked at together takes, as measured of some with millions."""

BATCH_ROWS = 1 << 16

PASSING = (OSError, MemoryError, WarehouseError)
"""What may be otherwise another time: a disk, memory, a store, a file that is read in once more."""


def attach(con: DuckDBPyConnection, jobs: Sequence[tuple[Snapshot, Place]]) -> None:
    """Gives the computed tables of a connection their rows, from each job's snapshot and folder.

    Nothing is read or computed before a query scans one of them. In a connection over one job the
    first scan reads what is kept in the job, else replays it, and keeps the rows, in the job where
    that can be written and in the connection. Over several jobs only what is kept is read: a fleet
    of jobs must not start a replay of each. A job that cannot be replayed has no rows, and from
    then on one in `problems` that says why.
    """
    source = _Only(*jobs[0]) if len(jobs) == 1 else _Several(jobs)
    for name in TABLES_COMPUTED:
        con.from_arrow(_Stream(TABLES[name], source)).create_view(f"_computed_{name}")
        con.execute(f"CREATE OR REPLACE VIEW {name} AS FROM _computed_{name}")
    con.execute("ALTER VIEW problems RENAME TO _stored_problems")
    con.from_arrow(_Stream(PROBLEMS, source)).create_view("_computed_problems")
    con.execute("CREATE VIEW problems AS FROM _stored_problems UNION ALL FROM _computed_problems")


class Made(NamedTuple):
    """What is kept of a job: rows by computed table, or the reason why there are none."""

    rows: dict[str, int]
    reason: str
    already: bool
    """It was kept before."""
    stands: bool
    """It is kept now; False where the job cannot be written."""


def keep(snapshot: Snapshot, folder: Place) -> Made:
    """Computes the tables of a job that only a replay gives and keeps them, unless they are."""
    key = kept.key(folder, snapshot.generation)
    listed = kept.find(folder, key)
    if listed is not None:
        read = {t: kept.rows(folder, listed, t) for t in TABLES_COMPUTED}
        rows = {t: len(found) for t, found in read.items() if found is not None}
        if len(rows) == len(TABLES_COMPUTED):
            return Made(rows, listed.reason, True, True)
    made, reason, stays = _computed(snapshot)
    tables = {t: made.get(t, TABLES[t].schema.empty_table()) for t in TABLES_COMPUTED}
    stands = stays and kept.keep(folder, key, tables if not reason else {}, reason)
    return Made({t: len(found) for t, found in tables.items()}, reason, False, stands)


def left(snapshot: Snapshot, folder: Place) -> Problem | None:
    """What to say of a job whose rows would take an ingest too much memory; None to `keep` them."""
    from ..ingest.suggested import command
    from ..replay.findings import computed
    from . import tracking, units

    if kept.find(folder, kept.key(folder, snapshot.generation)) is not None:
        return None
    try:
        events = computed.too_many_at_once(snapshot)
    except Exception:  # a file that cannot be read, whose reason `keep` tells
        events = 0
    if not events:
        return None
    return Problem(
        tracking.NOT_YET_REPLAYED,
        f"{', '.join(TABLES_COMPUTED)} are not computed yet: {events:,} events of one rank, or of "
        f"ranks in one file, are replayed together, in some {units.size(events * BYTES_AN_EVENT)} "
        f"of memory; `{command('analyse', snapshot.job)}` does it, else the first query of them",
        "info",
    )


class _Stream:
    """An Arrow stream that is asked for its schema without being computed (PyCapsule interface)."""

    def __init__(self, table: Table, source: _Only | _Several):
        self._table = table
        self._source = source
        self._schema = pa.schema(
            [("job", pa.string()), *((f.name, _plain(f.type)) for f in table.schema)]
        )

    def __arrow_c_schema__(self) -> Any:
        return self._schema.__arrow_c_schema__()

    def __arrow_c_stream__(self, requested_schema: Any = None) -> Any:
        reader = pa.RecordBatchReader.from_batches(self._schema, self._batches())
        return reader.__arrow_c_stream__(requested_schema)

    def _batches(self) -> Iterator[pa.RecordBatch]:
        asked = self._source.reasons if self._table is PROBLEMS else self._source.rows
        for job, rows in asked(self._table.name):
            name = pa.scalar(job, pa.string())
            # Texts are written out batch by batch: of all rows at once they are several times as
            # much as what is held.
            for part in rows.to_batches(max_chunksize=BATCH_ROWS):
                columns = [pa.repeat(name, part.num_rows), *part.columns]
                named = pa.RecordBatch.from_arrays(columns, names=["job", *part.schema.names])
                yield named.cast(self._schema)


def _plain(kind: pa.DataType) -> pa.DataType:
    return kind.value_type if pa.types.is_dictionary(kind) else kind


Rows = Iterator[tuple[str, pa.Table]]
"""Jobs with rows of one table."""


class _Only:
    """The computed rows of one job: read or computed once a connection, whichever thread asks."""

    def __init__(self, snapshot: Snapshot, folder: Place):
        self._snapshot = snapshot
        self._folder = folder
        self._lock = threading.Lock()
        self._rows: dict[str, pa.Table] = {}
        self._reason: str | None = None
        """None while nothing has been asked for; "" where there are rows."""

    def rows(self, table: str) -> Rows:
        with self._lock:
            if table not in self._rows:
                self._fill(table)
            found = self._rows[table]
        yield self._snapshot.job, found

    def _fill(self, table: str) -> None:
        key = kept.key(self._folder, self._snapshot.generation)
        listed = kept.find(self._folder, key)
        read = None if listed is None else kept.rows(self._folder, listed, table)
        if listed is not None and read is not None:
            self._rows[table], self._reason = read, listed.reason
            return
        made, self._reason, stays = _computed(self._snapshot)
        self._rows = {t: made.get(t, TABLES[t].schema.empty_table()) for t in TABLES_COMPUTED}
        if stays:
            kept.keep(self._folder, key, self._rows if not self._reason else {}, self._reason)

    def reasons(self, _: str) -> Rows:
        yield from _told(self._snapshot)
        reason = self._reason
        if reason is None:
            reason = _kept_reason(self._snapshot, self._folder)
        if reason:
            yield self._snapshot.job, _problem(reason)


class _Several:
    """The rows that are kept in each of several jobs, read anew for each scan."""

    def __init__(self, jobs: Sequence[tuple[Snapshot, Place]]):
        self._jobs = jobs

    def rows(self, table: str) -> Rows:
        for snapshot, folder in self._jobs:
            listed = kept.find(folder, kept.key(folder, snapshot.generation))
            found = None if listed is None else kept.rows(folder, listed, table)
            if found is not None:
                yield snapshot.job, found

    def reasons(self, _: str) -> Rows:
        for snapshot, folder in self._jobs:
            yield from _told(snapshot)
            if reason := _kept_reason(snapshot, folder):
                yield snapshot.job, _problem(reason)


def _computed(snapshot: Snapshot) -> tuple[dict[str, pa.Table], str, bool]:
    """The computed tables of a job and why there are none; a query on other things goes on.

    And whether it would be the same another time: what is `PASSING` is no matter of the job.
    """
    from ..replay.findings import computed

    try:
        return computed.tables(snapshot), "", True
    except Exception as e:
        return {}, computed.why_none(e), not isinstance(e, PASSING)


def _kept_reason(snapshot: Snapshot, folder: Place) -> str:
    listed = kept.find(folder, kept.key(folder, snapshot.generation))
    return "" if listed is None else listed.reason


def _told(snapshot: Snapshot) -> Rows:
    """What of the job could not be used, or is no longer there."""
    if problems := getattr(snapshot, "problems", ()):
        rows = problem_rows([(None, p) for p in problems])
        yield snapshot.job, pa.Table.from_batches([rows])


def _problem(reason: str) -> pa.Table:
    return pa.Table.from_batches([problem_rows([(None, Problem(NOT_REPLAYED, reason))])])
