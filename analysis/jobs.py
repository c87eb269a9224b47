"""The jobs of a warehouse as rows, with tags and notes, and those of them that fit a condition."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any

import polars as pl
import pyarrow as pa

from ..ingest.errors import RetimeError, UsageError
from ..ingest.settings import check_text

if TYPE_CHECKING:
    from ..ingest.keeping.listing import Listed
    from .warehouse import Warehouse

UNREADABLE = "unreadable"
"""Stands in `clocks` of a job that cannot be read; `retime verify` says why."""

MEMORY = "1GB"
"""Of a condition."""

MOST_KEYS, MOST_VALUES, MOST_VALUE = 12, 5, 40
"""Keys of tags, values of each and characters of a value that a hint names."""

_TAG = "tags['cluster'] = 'a'"

_UTC = pa.timestamp("us")

SCHEMA = pa.schema(
    [
        ("job", pa.string()),
        ("ranks_seen", pa.int64()),
        ("world_size", pa.int64()),
        ("hosts", pa.int64()),
        ("framework", pa.string()),
        ("sources", pa.int64()),
        ("steps", pa.int64()),
        ("participations", pa.int64()),
        ("clocks", pa.string()),
        ("problems", pa.int64()),
        ("lost", pa.int64()),
        ("started", _UTC),
        ("ended", _UTC),
        ("created", _UTC),
        ("created_utc", pa.string()),
        ("newest", _UTC),
        ("stored_bytes", pa.int64()),
        ("pruned", pa.string()),
        ("tags", pa.map_(pa.string(), pa.string())),
        ("notes", pa.int64()),
        ("note", pa.string()),
    ]
)
"""Columns of `retime jobs`: times in UTC; `started` and `ended` are null where the traces' clocks
do not count from the epoch; `created` and `newest` say when the first and the newest source came,
`pruned` which table's rows were removed for their age, `note` is the last of the `notes`."""


def frame(warehouse: Warehouse, where: str | None = None) -> pl.DataFrame:
    """One row a job, by first ingest; with `where` (SQL over the columns) those that it is true of.

    Reads small files only, unless a job's derived tables are still to be made. Raises UsageError,
    with the columns that there are, for a condition that is none.
    """
    rows = table(warehouse)
    if where is not None:
        rows = rows.take(pa.array(fitting(rows, where), pa.int64()))
    found = pl.from_arrow(rows)
    assert isinstance(found, pl.DataFrame)
    return found


def table(warehouse: Warehouse) -> pa.Table:
    """One row a job, of `SCHEMA`, by first ingest."""
    from ..ingest.keeping import listing

    rows = [_row(warehouse, one) for one in listing.jobs(warehouse.store)]
    rows.sort(key=lambda r: (r.get("created") or datetime.min, r["job"]))
    return pa.Table.from_pylist(rows, SCHEMA)


def _row(warehouse: Warehouse, one: Listed) -> dict[str, Any]:
    said, s = one.labels, one.summary
    row: dict[str, Any] = {
        "job": one.job,
        "tags": sorted(said.values.items()),
        "notes": len(said.notes),
        "note": said.notes[-1].text if said.notes else None,
        "pruned": ", ".join(one.pruned),
    }
    if s is None:
        return {**row, **_read(warehouse, one.job)}
    return {
        **row,
        **{n: getattr(s, n) for n in SCHEMA.names if hasattr(s, n)},
        "started": _time(s.started_ns),
        "ended": _time(s.ended_ns),
        "created": _time(s.created_at_ns),
        "created_utc": _text(_time(s.created_at_ns)),
        "newest": _time(s.newest_at_ns),
    }


def _read(warehouse: Warehouse, job: str) -> dict[str, Any]:
    """The same from the tables of a job whose derived tables an older version made."""
    from . import frames

    try:
        found = frames.jobs(warehouse.connect(job)).to_dicts()
    except RetimeError:
        return {"clocks": UNREADABLE}  # one job must not hide the others
    row = {k: v for k, v in (found[0] if found else {}).items() if k in SCHEMA.names}
    manifests, _ = warehouse.store.manifests(job)
    times = [m.created_at_ns for m in manifests]
    return {**row, "created": _time(min(times, default=None)),
            "newest": _time(max(times, default=None)),
            "stored_bytes": sum(p.bytes for m in manifests for p in m.parts)}  # fmt: skip


def _time(ns: int | None) -> datetime | None:
    if ns is None:
        return None
    try:
        return datetime.fromtimestamp(ns // 1000 / 1e6, UTC).replace(tzinfo=None)
    except (ValueError, OverflowError, OSError):
        return None


def _text(at: datetime | None) -> str | None:
    return None if at is None else at.strftime("%Y-%m-%d %H:%M:%S")


def fitting(rows: pa.Table, where: str) -> list[int]:
    """Places of the rows of which a condition is true: SQL that can read them and nothing else.

    Raises UsageError, in one sentence with the columns that there are, for one that is none.
    """
    import duckdb

    from .query import sentence

    check_text(where, "the condition")
    con = duckdb.connect()
    try:
        con.execute("SET TimeZone = 'UTC'")
        con.register("_rows", rows)
        con.execute("CREATE TABLE jobs AS SELECT row_number() OVER () - 1 AS _place, * FROM _rows")
        con.unregister("_rows")
        con.execute(f"SET memory_limit = '{MEMORY}'")
        con.execute("SET enable_external_access = false")
        con.execute("SET lock_configuration = true")
        kinds = [str(t) for t in con.table("jobs").project(where).types]
        if kinds not in (["BOOLEAN"], ['"NULL"'], ["NULL"]):
            raise UsageError(
                f"--where {where[:200]!r}: it is {kinds[0]}, no condition that is true or false; "
                f"compare it (ranks_seen > 8, {_TAG}); columns: {', '.join(SCHEMA.names)}"
            )
        fits = con.table("jobs").filter(where).project("_place").fetchall()
    except duckdb.Error as e:
        said = sentence(e).removeprefix("the query cannot run: ").rstrip(".")
        hint = "; text stands in single quotes" if '"' in where else ""
        raise UsageError(
            f"--where {where[:200]!r}: {said}{hint}; columns: {', '.join(SCHEMA.names)}"
        ) from e
    finally:
        con.close()
    return sorted(place for (place,) in fits)


def tags_in_use(rows: Iterable[Mapping[str, Any]]) -> str:
    """The tags of jobs (rows of `frame`) in words, `cluster=a|b, keep`: bounded, for a hint."""
    values: dict[str, list[str]] = {}
    for row in rows:
        for key, value in dict(row["tags"] or ()).items():
            found = values.setdefault(key, [])
            if value not in found:
                found.append(value)
    said = []
    for key in sorted(values)[:MOST_KEYS]:
        some = [" ".join(v.split())[:MOST_VALUE] for v in sorted(values[key]) if v]
        more = "|…" if len(some) > MOST_VALUES else ""
        said.append(f"{key}={'|'.join(some[:MOST_VALUES])}{more}" if some else key)
    return ", ".join(said) + (", …" if len(values) > MOST_KEYS else "")


def ids(rows: pa.Table, places: Sequence[int]) -> list[str]:
    """Ids of the jobs at these places."""
    return rows["job"].take(pa.array(places, pa.int64())).to_pylist()
