"""Rows that were computed from a job, kept in its folder so that the next query only reads.

`_kept/<key>.json` lists the files `_kept/<key>-<table>.parquet` with their digests and is written
last; both go with the derived generation that they were computed from (`tidying`).
"""

from __future__ import annotations

import contextlib
import hashlib
import os
import time
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING

import msgspec
import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from .. import __version__
from . import locks, parquet_in, regular, rooms, settings, staging, store
from .errors import WarehouseError
from .manifest import LAYOUT, Generation, Part
from .schema import TABLES
from .store import Folder, Place

if TYPE_CHECKING:
    from .schema import Table

REVISION = 1
"""Raised whenever the same job would give other computed rows."""

LARGE_EVENTS = 5_000_000
"""The rows of a job with so many are computed when it is ingested: who asks shall not wait."""

MOST_BYTES = 1 << 20
"""A larger list is not read: it is an input like any other."""

MOST_FETCHED_BYTES = 2 << 30
"""A larger file of an object store is not fetched: its rows are computed again."""


class Kept(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """What was computed from one state of a job; `reason` says why where there are no tables."""

    key: str
    tables: dict[str, Part]
    reason: str
    tool_version: str
    created_at_ns: int
    layout: int = LAYOUT


def key(job_folder: Place, generation: Generation) -> str:
    """Names what is computed from a job's derived generation under its settings, by this code."""
    said = settings.digest(settings.usable(job_folder).said)
    text = f"{generation.id}\n{said}\n{REVISION}\n{__version__}"
    return f"{generation.id}.{hashlib.sha256(text.encode()).hexdigest()[:8]}"


def find(place: Place, key: str) -> Kept | None:
    """What is kept under a key; None where nothing is, or it cannot be read."""
    try:
        text = store.folder(place).read(_list(key), MOST_BYTES)
        found = msgspec.json.decode(text, type=Kept)
    except (OSError, msgspec.MsgspecError, UnicodeDecodeError, RecursionError):
        return None
    if found is None or found.key != key or found.layout != LAYOUT:
        return None
    # A name is a function of key and table: nothing else is ever opened, whatever the list says.
    sound = all(
        name in TABLES and TABLES[name].computed and part.file == _file(key, name)
        for name, part in found.tables.items()
    )
    return found if sound else None


def rows(place: Place, kept: Kept, table: str) -> pa.Table | None:
    """The kept rows of a table; None where its file is missing or not as it was written."""
    part = kept.tables.get(table)
    if part is None:
        return TABLES[table].schema.empty_table() if kept.reason else None
    folder = store.folder(place)
    try:
        with contextlib.ExitStack() as opened:
            if folder.local is None:
                data = _fetched(folder, part)
                file = (
                    None if data is None else parquet_in.Parquet(pa.BufferReader(data), len(data))
                )
            else:
                file = _opened(folder.local / part.file, part, opened)
            if file is None:
                return None
            schema = TABLES[table].schema
            found = file.table(schema.names).cast(schema)
            if found.num_rows != part.rows:
                return None
            return _one_a_rank(found) if table == "replay_scores" else found
    except parquet_in.TROUBLE:
        return None


def _opened(path: Path, part: Part, opened: contextlib.ExitStack) -> parquet_in.Parquet | None:
    with regular.opened(path) as f:
        if os.fstat(f.fileno()).st_size != part.bytes:
            return None
        if hashlib.file_digest(f, "sha256").hexdigest() != part.sha256:
            return None
    return opened.enter_context(parquet_in.opened(path))


def _fetched(folder: Folder, part: Part) -> bytes | None:
    if part.bytes > MOST_FETCHED_BYTES:
        return None
    data = folder.read(part.file, part.bytes)
    sound = len(data) == part.bytes and hashlib.sha256(data).hexdigest() == part.sha256
    return data if sound else None


def _one_a_rank(found: pa.Table) -> pa.Table:
    """The first row of each rank: a list that is not ours might hold a rank several times."""
    ranks = found["rank"].to_numpy()
    first = np.unique(ranks, return_index=True)[1]
    return found if len(first) == len(ranks) else found.take(pa.array(np.sort(first)))


def keep(place: Place, key: str, tables: Mapping[str, pa.Table], reason: str = "") -> bool:
    """Keeps computed rows, or why there are none, in the place of what was kept before.

    Gives False, and leaves nothing behind, where the job cannot be written or is no longer there.
    """
    folder = store.folder(place)
    try:
        if folder.local is not None and not (folder.local / rooms.MANIFESTS).is_dir():
            return False
        with staging.staging(folder) as staged, rooms.writing(folder.parent):
            parts = {t: _written(staged, key, TABLES[t], rows) for t, rows in tables.items()}
            listed = Kept(key, parts, reason, __version__, time.time_ns())
            text = msgspec.json.format(msgspec.json.encode(listed), indent=1) + b"\n"
            if folder.local is None:
                _put(folder, staged, parts, key, text)
            else:
                _move_in(folder.local, staged, parts, key, text)
        return True
    except (WarehouseError, OSError):
        return False


def _move_in(
    job_folder: Path, staged: Path, parts: Mapping[str, Part], key: str, text: bytes
) -> None:
    unfinished = staged / "kept.json"
    with open(unfinished, "wb") as f:
        f.write(text)
        f.flush()
        os.fsync(f.fileno())
    with locks.locked(job_folder):
        (job_folder / rooms.KEPT).mkdir(exist_ok=True)
        _forget(job_folder, key.split(".")[0])
        for part in parts.values():
            os.replace(staged / Path(part.file).name, job_folder / part.file)
        os.replace(unfinished, job_folder / _list(key))


def _put(folder: Folder, staged: Path, parts: Mapping[str, Part], key: str, text: bytes) -> None:
    """Into an object store. Of two at once the digests in the list tell whose parts are there."""
    old = [f"{rooms.KEPT}/{n}" for n in folder.names(rooms.KEPT)]
    own = {_list(key), *(p.file for p in parts.values())}
    generation = f"{rooms.KEPT}/{key.split('.')[0]}."
    for part in parts.values():
        folder.put(part.file, staged / Path(part.file).name)
    folder.put(_list(key), text)
    folder.remove([n for n in old if n.startswith(generation) and n not in own])


def _forget(job_folder: Path, generation: str) -> None:
    """Removes what was kept of a generation: under other settings, or damaged."""
    for path in (job_folder / rooms.KEPT).glob(f"{generation}.*"):
        with contextlib.suppress(FileNotFoundError):
            path.unlink()


def _written(staged: Path, key: str, table: Table, rows: pa.Table) -> Part:
    file = _file(key, table.name)
    path = staged / Path(file).name
    pq.write_table(rows.cast(table.schema), path, compression="zstd")
    with open(path, "rb+") as f:
        os.fsync(f.fileno())
        digest = hashlib.file_digest(f, "sha256").hexdigest()
    return Part(file, rows.num_rows, path.stat().st_size, digest)


def _file(key: str, table: str) -> str:
    return f"{rooms.KEPT}/{key}-{table}.parquet"


def _list(key: str) -> str:
    return f"{rooms.KEPT}/{key}.json"
