"""The library's catalogue in a file, made once: a connection copies it instead of binding views."""

from __future__ import annotations

import contextlib
import hashlib
import os
import sys
import tempfile
import time
from collections.abc import Callable, Iterable
from pathlib import Path

import duckdb

KEPT_DAYS = 30
"""Files of other versions that nobody wrote for so long go when a new one is written."""


def create(
    con: duckdb.DuckDBPyConnection,
    texts: Iterable[str],
    make: Callable[[duckdb.DuckDBPyConnection], None],
) -> None:
    """Does to a new in-memory connection what `make` does, from a file where it was done before.

    `make` creates views and macros and nothing else, and `texts` is all that it depends on.
    DuckDB binds a view that is created, and all below it; one that it reads from a file only when
    it is asked. Where no file can be read or written `make` runs.
    """
    try:
        path = folder() / f"library-{_digest(texts)}.duckdb"
    except RuntimeError:  # a user without a home
        make(con)
        return
    if _copied(path, con):
        return
    make(con)
    # Whatever is wrong with the folder, the connection stands.
    with contextlib.suppress(OSError, duckdb.Error):
        _write(path, con)


def folder() -> Path:
    """Where this user's caches are: nothing in it is missed."""
    if sys.platform == "win32":
        base = os.environ.get("LOCALAPPDATA") or Path.home() / "AppData" / "Local"
    else:
        base = os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache"
    return Path(base) / "retime"


def _digest(texts: Iterable[str]) -> str:
    found = hashlib.sha256(duckdb.__version__.encode())
    for text in texts:
        found.update(text.encode() + b"\0")
    return found.hexdigest()[:24]


def _copied(path: Path, con: duckdb.DuckDBPyConnection) -> bool:
    if not os.path.isfile(path):  # also where the folder may not be looked into
        return False
    try:
        con.execute(f"ATTACH '{_quoted(path)}' AS _prepared (READ_ONLY)")
    except duckdb.Error:
        return False
    try:
        con.execute("COPY FROM DATABASE _prepared TO memory")
    except duckdb.Error:
        return False
    finally:
        con.execute("DETACH _prepared")
    return True


def _write(path: Path, con: duckdb.DuckDBPyConnection) -> None:
    path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(dir=path.parent) as scratch:
        unfinished = Path(scratch) / path.name
        con.execute(f"ATTACH '{_quoted(unfinished)}' AS _prepared")
        try:
            con.execute("COPY FROM DATABASE memory TO _prepared")
        finally:
            con.execute("DETACH _prepared")
        os.replace(unfinished, path)
    for other in path.parent.glob("library-*.duckdb"):
        if time.time() - other.stat().st_mtime > KEPT_DAYS * 86_400:
            other.unlink(missing_ok=True)


def _quoted(path: Path) -> str:
    return str(path).replace("'", "''")
