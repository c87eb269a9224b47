"""One source to finished, not yet committed Parquet parts and the manifest for them."""

from __future__ import annotations

import hashlib
import os
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

from .. import __version__
from . import detect, moments, remote_sources, rooms
from .errors import UnusableInput
from .manifest import Manifest, Part, source_part
from .schema import TABLES, Problem, problem_rows
from .sources import Source
from .writer import PartWriter

if TYPE_CHECKING:
    from .made.picked import Picked

HASH_BESIDE_BYTES = 8 << 20
"""Larger sources are hashed by a thread of its own while they are parsed, if parsing does not."""

REPORTED_PROBLEMS = 1000
TYPICAL_RATIO = 12
"""Guess of how far gzip shrinks a trace; only the progress bar depends on it."""

_OFFSET_BITS = (1 << 40) - 1
_TICK_S = 0.1


class Staged(NamedTuple):
    """A source's parts in a folder: `moves` are (name there, path in the job's folder)."""

    manifest: Manifest
    moves: list[tuple[str, str]]
    problems: list[Problem]
    picked: Picked | None = None
    """what deriving looks at of its events"""


def source_id(sha256: str, format: str) -> str:
    """Identity of a source: what it holds and how that was read."""
    return hashlib.sha256(f"{sha256}\n{format}".encode()).hexdigest()


def stage_source(
    source: Source,
    format: str,
    parser: str,
    rank: int | None,
    threads: int,
    process_bytes: int,
    folder: str,
    progress: Callable[[int], None],
    picked: Picked | None = None,
) -> Staged:
    """Parses a source of this format and writes its parts into `folder`, which is made.

    `parser` is the module that reads it, `process_bytes` what this process will read in all
    (decompressed, a guess); `progress` gets the stored bytes done so far. Events are `picked` from
    as they are written where this process is to derive the job. Raises UnusableInput
    where the source gives nothing or changes meanwhile, WarehouseError where the disk refuses.
    """
    place = Path(folder)
    with rooms.writing(place):
        place.mkdir()
        fetched = remote_sources.here(source, place / "source")
    with fetched as source:
        return _stage(source, format, parser, rank, threads, process_bytes, place, progress, picked)


def _stage(
    source: Source,
    format: str,
    parser: str,
    rank: int | None,
    threads: int,
    process_bytes: int,
    place: Path,
    progress: Callable[[int], None],
    picked: Picked | None,
) -> Staged:
    before = _fingerprint(source)
    module = detect.module(parser)
    prepare = getattr(module, "prepare", None)
    if prepare is not None:
        prepare(process_bytes)
    with ThreadPoolExecutor(1) as beside:
        hashes = getattr(module, "HASHES", False) or (
            threads == 1 and getattr(module, "HASHES_ALONE", False)
        )
        if source.size_bytes >= HASH_BESIDE_BYTES and not hashes:
            beside.submit(lambda: source.sha256)
        ranks, world_sizes, problems, written = _write_parts(
            source, parser, rank, threads, place, progress, picked
        )
    try:
        digest = source.sha256
    except OSError as e:
        raise UnusableInput(f"cannot be read: {e.strerror or e}", path=source.name) from e
    if _fingerprint(source) != before:
        raise UnusableInput(
            "changed while it was read; ingest it again when its writer has finished",
            path=source.name,
        )
    identity = source_id(digest, format)
    tables: dict[str, list[Part]] = {}
    views: dict[str, list[Part]] = {}
    moves: list[tuple[str, str]] = []
    for w in written:
        parts = (views if TABLES[w.table].derived else tables).setdefault(w.table, [])
        goal = source_part(w.table, identity, len(parts))
        parts.append(Part(goal, w.rows, w.bytes, w.sha256))
        moves.append((w.file, goal))
    counts: dict[str, int] = {}
    for p in problems:
        counts[p.severity] = counts.get(p.severity, 0) + p.count
    manifest = Manifest(
        id=identity,
        name=source.name,
        sha256=digest,
        size_bytes=source.size_bytes,
        format=format,
        ranks=sorted(ranks),
        world_sizes=sorted(world_sizes),
        tables=tables,
        views=views,
        problems=counts,
        tool_version=__version__,
        created_at_ns=time.time_ns(),
        columns={t: TABLES[t].fingerprint for t in tables},
    )
    return Staged(manifest, moves, problems[:REPORTED_PROBLEMS], picked)


def _write_parts(source, parser, rank, threads, place, progress, picked):
    ranks: set[int] = set()
    world_sizes: set[int] = set()
    problems: list[Problem] = []
    damaged: dict[tuple[str, int | None], Problem] = {}
    done, told = 0, time.monotonic()
    shrunk = TYPICAL_RATIO if source.compressed else 1
    writer = PartWriter(place, None if picked is None else picked.take)
    try:
        batches = detect.module(parser).parse(source, rank=rank, threads=threads)
        for table, batch in batches:
            batch, odd = moments.sound(table, batch)
            if odd is not None:
                damaged[table, odd.rank] = _added(damaged.get((table, odd.rank)), odd)
            with rooms.writing(place):
                writer.write(table, batch)
            if table == "ranks":
                ranks.update(r for r in batch["rank"].to_pylist() if r is not None)
                world_sizes.update(w for w in batch["world_size"].to_pylist() if w is not None)
            elif table == "problems":
                problems += _problems(batch)
            elif table == "events" and batch.num_rows and time.monotonic() - told > _TICK_S:
                at = (batch["event_id"][-1].as_py() or 0) & _OFFSET_BITS
                done, told = max(done, min(at // shrunk, source.size_bytes)), time.monotonic()
                progress(done)
        if damaged:
            problems += damaged.values()
            with rooms.writing(place):
                rows = problem_rows([(source.name, p) for p in damaged.values()])
                writer.write("problems", rows)
    except OSError as e:
        writer.abort()
        raise UnusableInput(f"cannot be read: {e.strerror or e}", path=source.name) from e
    except UnusableInput as e:
        writer.abort()
        if e.path is not None:
            raise
        # Readers of streams do not know whose they are.
        what = str(e).removeprefix(f" at byte {e.offset}: ").removeprefix(f"at byte {e.offset}: ")
        raise UnusableInput(what, path=source.name, offset=e.offset) from e
    except BaseException:
        writer.abort()
        raise
    with rooms.writing(place):
        written = writer.close()
    return ranks, world_sizes, problems, written


def _added(old: Problem | None, new: Problem) -> Problem:
    return new if old is None else old._replace(count=old.count + new.count)


def _problems(batch) -> list[Problem]:
    return [
        Problem(
            code=r["code"] or "",
            message=r["message"] or "",
            severity=r["severity"] or "warning",
            count=1 if r["count"] is None else r["count"],
            offset=r["offset"],
            rank=r["rank"],
        )
        for r in batch.to_pylist()
    ]


def _fingerprint(source: Source) -> tuple[int, ...] | None:
    """Size and time of the file (files) behind a source; None where there is none to look at."""
    if source.members:
        return tuple(n for m in source.members for n in _fingerprint(m) or ())
    opened = source.open_stored
    while (archive := getattr(opened, "archive", None)) is not None:
        opened = archive.open_stored
    path = getattr(opened, "path", None)
    if path is None:
        return None
    try:
        found = os.stat(path)
    except OSError:
        return (-1, -1)
    return found.st_size, found.st_mtime_ns
