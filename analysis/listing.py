"""The files that a job's tables are made of at this moment, for engines that read Parquet."""

from __future__ import annotations

from typing import TYPE_CHECKING

import polars as pl

from ..ingest import kept
from ..ingest import store as stores
from ..ingest.errors import UsageError, WarehouseError
from ..ingest.schema import TABLES

if TYPE_CHECKING:
    from ..ingest.warehouse import Snapshot, Warehouse

LISTED = tuple(t.name for t in TABLES.values() if not t.made)
"""Tables whose files are listed: what views have stored is for them alone."""

COLUMNS = {
    "job": pl.String,
    "table": pl.String,
    "file": pl.String,
    "rows": pl.Int64,
    "bytes": pl.Int64,
}


def check_table(name: str | None) -> None:
    """Raises UsageError for what is not a table; a view has no files of its own."""
    if name is not None and name not in LISTED:
        raise UsageError(f"no table {name!r} has files; there are {', '.join(LISTED)}")


def of_jobs(store: Warehouse, jobs: list[str]) -> pl.DataFrame:
    """One row a file of each job's snapshot: `COLUMNS`, by job, table and file.

    What only a replay gives is there where it was kept. Raises WarehouseError for a job whose
    derived tables are not in the warehouse and cannot be written to it.
    """
    rows = [row for job in jobs for row in _of_snapshot(store, store.snapshot(job))]
    return pl.DataFrame(sorted(rows), schema=COLUMNS, orient="row")


def _of_snapshot(store: Warehouse, snapshot: Snapshot) -> list[tuple[str, str, str, int, int]]:
    if snapshot.keep is not None:
        raise WarehouseError(
            f"job {snapshot.job}: its derived tables are not made yet, and its folder cannot be "
            "written: list its files once as somebody who may write there"
        )
    place = store.job_folder(snapshot.job)
    folder = stores.folder(place)
    listed = kept.find(place, kept.key(place, snapshot.generation))
    computed = listed.tables if listed is not None else {}
    parts = [p for m in (*snapshot.manifests, snapshot.generation) for p in m.parts]
    known = {folder.address(p.file): p for p in (*parts, *computed.values())}
    files = {t: list(paths) for t, paths in snapshot.files.items()}
    for table, part in computed.items():
        files[table] = [folder.address(part.file)]
    return [
        (snapshot.job, table, path, known[path].rows, known[path].bytes)
        for table in LISTED
        for path in files.get(table, [])
    ]
