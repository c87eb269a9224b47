"""What a connection may read, and what users said of kernels in the jobs behind it."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any
from weakref import WeakKeyDictionary

if TYPE_CHECKING:
    from duckdb import DuckDBPyConnection

    from ..ingest.warehouse import Snapshot


def categories(snapshots: list[Snapshot]) -> dict[str, dict[str, str]]:
    """What users said of kernels, by job; nothing is read for jobs of which they said nothing."""
    if not any(s.kernels for s in snapshots):
        return {}
    from ..ingest import kernel_rules

    return {s.job: kernel_rules.categories(s.files, s.kernels) for s in snapshots if s.kernels}


_IN_USE: WeakKeyDictionary[DuckDBPyConnection, Any] = WeakKeyDictionary()
"""Snapshots by connection: one may hold a temporary folder that its files are in."""


def confine(con: DuckDBPyConnection, snapshots: list[Snapshot]) -> None:
    """Lets a connection read its files and nothing else, for good.

    DuckDB allows writing where it allows reading: an ordinary COPY fails for want of its temporary
    file, one that is told to do without and names a part of the warehouse does not.

    Object stores are left open: their reader needs the network.
    """
    from ..queries.loader import pattern
    from .query import literal

    _IN_USE[con] = snapshots
    paths = [p for s in snapshots for of_table in s.files.values() for p in of_table]
    if any("://" in p for p in paths):
        return
    allowed = sorted({*paths, *map(pattern, paths)})
    con.execute(f"SET allowed_paths = [{', '.join(map(literal, allowed))}]")
    con.execute("SET enable_external_access = false")
    con.execute("SET lock_configuration = true")
