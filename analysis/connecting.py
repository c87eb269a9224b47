"""What a connection may read, and what users said of kernels in the jobs behind it."""

from __future__ import annotations

from typing import TYPE_CHECKING

from ..ingest.store import is_address

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
    sizes = _sizes(snapshots)
    # A snapshot may hold a temporary folder that its files are in.
    files_read = served.ReadOnlyFiles(places, sizes, keep=snapshots)
    con = loader.connect(
        names,
        categories=categories(snapshots),
        older={s.job: getattr(s, "older", ()) for s in snapshots},
        memory_limit=f"{memory_bytes}B",
        threads=threads,
        filesystem=files_read,
    )
    if sizes:
        _keep_what_was_fetched(con, sorted(sizes.values()))
    return con


LEAST_BLOCK_BYTES = 256 << 10
MOST_BLOCK_BYTES = 2 << 20


def _keep_what_was_fetched(con: DuckDBPyConnection, sizes: list[int]) -> None:
    """Lets DuckDB keep what it fetched of objects in its memory, within the limit of that.

    It keeps blocks, and fetches no more at once than one. Were a block as large as an object, it
    would fetch all of that for a column: a quarter of what most have is enough and still few
    requests.
    """
    block = min(MOST_BLOCK_BYTES, max(LEAST_BLOCK_BYTES, sizes[len(sizes) // 2] // 4))
    con.execute("SET cache_local_files = true")
    con.execute(f"SET external_file_cache_local_max_block_size = {1 << (block.bit_length() - 1)}")


def _sizes(snapshots: list[Snapshot]) -> dict[str, int]:
    """Bytes of the files in object stores, from the manifests: nothing is asked of the store."""
    found = {}
    for s in snapshots:
        paths = [p for of_table in s.files.values() for p in of_table if is_address(p)]
        if paths:
            parts = [p for m in (*s.manifests, s.generation) for p in m.parts]
            known = {part.file: part.bytes for part in parts}
            ends = ((path, "/".join(path.rsplit("/", 2)[1:])) for path in paths)
            found |= {path: known[end] for path, end in ends if end in known}
    return found


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
