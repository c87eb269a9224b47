"""What a connection may read, and what users said of kernels in the jobs behind it."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from duckdb import DuckDBPyConnection

    from ..ingest.warehouse import Snapshot


def categories(snapshots: list[Snapshot]) -> dict[str, dict[str, str]]:
    """What users said of kernels, by job; nothing is read for jobs of which they said nothing."""
    if not any(s.kernels for s in snapshots):
        return {}
    from ..ingest import kernel_rules

    return {s.job: kernel_rules.categories(s.files, s.kernels) for s in snapshots if s.kernels}


SETTINGS = {
    "temp_directory": "''",  # what DuckDB may spill to, SQL may write to
    "http_proxy": "''",  # from the environment, where it may hold a password
    "secret_directory": "''",
    "allow_persistent_secrets": "false",
    "allow_community_extensions": "false",
    "autoinstall_known_extensions": "false",
    "autoload_known_extensions": "false",
    "python_enable_replacements": "false",
}
"""What is said before the configuration is locked, beside the files that may be read."""


def open_snapshots(
    snapshots: list[Snapshot], memory_bytes: int, threads: int
) -> DuckDBPyConnection:
    """A connection over these jobs that reads their files under `retime://` addresses.

    It is not confined yet: `confine` it when everything in it is made.
    """
    from ..queries import loader, served

    files = {s.job: s.files for s in snapshots}
    names = served.addresses(files)
    places = {
        name: path
        for job, tables in files.items()
        for table, paths in tables.items()
        for name, path in zip(names[job][table], paths, strict=True)
    }
    # A snapshot may hold a temporary folder that its files are in.
    files_read = served.ReadOnlyFiles(places, keep=snapshots)
    return loader.connect(
        names,
        categories=categories(snapshots),
        older={s.job: s.older for s in snapshots if s.older},
        memory_limit=f"{memory_bytes}B",
        threads=threads,
        filesystem=files_read,
    )


def confine(con: DuckDBPyConnection, snapshots: list[Snapshot]) -> None:
    """Lets a connection read the files of its snapshots and nothing else, for good.

    DuckDB allows writing where it allows reading. All that it is allowed here are addresses of
    `served.ReadOnlyFiles`, which has no way to write; no path of the machine, no other scheme, and
    no folder for temporary files. Queries that need more memory than they may have fail.
    """
    from ..queries import served
    from .query import literal

    names = served.addresses({s.job: s.files for s in snapshots})
    allowed = sorted(a for tables in names.values() for of in tables.values() for a in of)
    for name, value in SETTINGS.items():
        con.execute(f"SET {name} = {value}")
    con.execute(f"SET allowed_paths = [{', '.join(map(literal, allowed))}]")
    con.execute("SET allowed_directories = []")
    con.execute("SET enable_external_access = false")
    con.execute("SET lock_configuration = true")
