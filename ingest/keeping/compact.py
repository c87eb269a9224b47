"""Compaction: the small files of many sources become few, under one manifest that names them all.

The sources stay what they are, with their ids, so derived tables stand as they are. The manifest of
the pack is written last: until then the sources count as before, from then on the pack does. What
it takes the place of stays for a while, for those who read it (`superseded`).
"""

from __future__ import annotations

import hashlib
import time
import uuid
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

import pyarrow as pa

from ... import __version__
from .. import counting, rooms, staging
from ..errors import WarehouseError
from ..manifest import (
    PACK_LAYOUT,
    PACKED,
    Manifest,
    Packed,
    Part,
    manifest_name,
    pack_part,
    part_of_source,
)
from ..roster import Roster
from ..schema import TABLES
from ..suggested import command
from ..writer import PartWriter, Written
from . import packs, slices, tombstone

if TYPE_CHECKING:
    from ..roster import Roster
from ..store import Folder

SMALL_BYTES = 64 << 20
"""Sources and packs with less are put together; what is larger gains nothing from it."""

BATCH_ROWS = 65_536

Instead = Mapping[str, Mapping[str, pa.Table]]
"""table -> source's id -> rows that take the place of its own."""


class Plan(NamedTuple):
    """What would be put together: packs and single sources as they lie there, and their sources."""

    units: list[Manifest]
    sources: list[Manifest]


def plan(job: Folder, small_bytes: int = SMALL_BYTES) -> Plan:
    """What there is to put together in a job; no units where nothing is gained."""
    counted = {m.id: m for m in counting.readable_manifests(job)[0]}
    units = [
        m
        for m in counting.standing(job).units
        if not m.pruned
        and sum(p.bytes for p in m.parts) < small_bytes
        and counted.keys() >= set(m.ids)
    ]
    if len(units) < 2:
        return Plan([], [])
    return Plan(units, [counted[id] for m in units for id in m.ids])


def compact(job: Folder, small_bytes: int = SMALL_BYTES) -> Manifest | None:
    """Puts a job's small sources together; gives the pack's manifest, None where nothing was done.

    Raises WarehouseError where a file cannot be read or the job cannot be written; the job is then
    as it was.
    """
    found = plan(job, small_bytes)
    return pack(job, found.sources) if found.units else None


def pack(
    job: Folder,
    sources: Sequence[Manifest],
    *,
    without: Sequence[str] = (),
    instead: Instead | None = None,
) -> Manifest | None:
    """Writes one pack of these sources; gives its manifest, None where another came before it.

    Tables in `without` are left out, and the pack says that they were pruned; `instead` are rows
    that take the place of sources' own.
    """
    token = uuid.uuid4().hex
    said = "\n".join([PACKED, token, *sorted(s.id for s in sources)])
    id = hashlib.sha256(said.encode()).hexdigest()
    now, stone = time.time_ns(), tombstone.read(job)
    with staging.staging(job) as staged, rooms.writing(job.parent):
        place = staged / "pack"
        place.mkdir()
        files, rows = _written(job, place, sources, without, instead or {})
        tables: dict[str, list[Part]] = {}
        views: dict[str, list[Part]] = {}
        moves: list[tuple[str, str]] = []
        for w in files:
            of_it = (views if TABLES[w.table].derived else tables).setdefault(w.table, [])
            goal = pack_part(w.table, id, len(of_it))
            of_it.append(Part(goal, w.rows, w.bytes, w.sha256))
            moves.append((f"pack/{w.file}", goal))
        manifest = Manifest(
            id=id,
            name=PACKED,
            sha256=hashlib.sha256(said.encode()).hexdigest(),
            size_bytes=sum(s.size_bytes for s in sources),
            format=PACKED,
            ranks=[],
            world_sizes=[],
            tables=tables,
            views=views,
            problems={},
            tool_version=__version__,
            created_at_ns=now,
            layout=PACK_LAYOUT,
            packed=[Packed(**packs.own(s), rows=rows[s.id]) for s in sources],
            pruned=dict.fromkeys(without, now),
            columns={t: TABLES[t].fingerprint for t in tables},
        )
        roster = Roster(job)
        if not staging.commit(job, staged, moves, manifest, roster):
            return None
        name = manifest_name(manifest)
        if tombstone.read(job) != stone or _brings_back(job, manifest):
            # Pruned meanwhile: its rows must not come back with the pack.
            job.remove([f"{rooms.MANIFESTS}/{name}"])
            return None
        return roster.unit(name)  # in an object store its files have other names


def _brings_back(job: Folder, pack: Manifest) -> bool:
    """Whether a pack that came meanwhile was pruned of a table that this one has of its sources."""
    return any(
        set(m.ids).intersection(pack.ids) and not m.pruned.keys() <= pack.pruned.keys()
        for m in counting.readable_packs(job)
    )


def _written(
    job: Folder,
    place: Path,
    sources: Sequence[Manifest],
    without: Sequence[str],
    instead: Instead,
) -> tuple[list[Written], dict[str, dict[str, list[tuple[int, int, int]]]]]:
    """The finished files in `place`, and for each source and table which rows are its own."""
    writer = PartWriter(place)
    counts: dict[str, list[tuple[str, int]]] = {}
    try:
        for table in TABLES:
            for source in _in_order(table, sources) if table not in without else ():
                n, other = 0, instead.get(table, {}).get(source.id)
                for found in _rows(job, table, source) if other is None else [other]:
                    for batch in found.to_batches(BATCH_ROWS):
                        writer.write(table, batch)
                    n += len(found)
                if n:
                    counts.setdefault(table, []).append((source.id, n))
        files = writer.close()
    except BaseException:
        writer.abort()
        raise
    rows: dict[str, dict[str, list[tuple[int, int, int]]]] = {s.id: {} for s in sources}
    for table, of_it in counts.items():
        left = [[n, 0, w.rows] for n, w in enumerate(w for w in files if w.table == table)]
        for id, n in of_it:
            rows[id][table] = list(_taken(left, n))
    return files, rows


def _taken(left: list[list[int]], n: int) -> Iterator[tuple[int, int, int]]:
    """The next n rows of [file, first row that is free, rows left] as (file, first, rows)."""
    while n:
        file, first, there = left[0]
        took = min(n, there)
        yield file, first, took
        left[0] = [file, first + took, there - took]
        if not left[0][2]:
            left.pop(0)
        n -= took


def _in_order(table: str, sources: Sequence[Manifest]) -> list[Manifest]:
    """Sources in the order of a table's rows: what is queried lies by rank, the rest by source."""
    if TABLES[table].derived:
        return sorted(sources, key=lambda s: s.id)
    return sorted(sources, key=lambda s: (s.ranks or [-1], s.id))


def _rows(job: Folder, table: str, source: Manifest) -> Iterator[pa.Table]:
    """A source's rows of a table, with every column that it has by now, some at a time."""
    schema = TABLES[table].schema
    name = job.name.removeprefix("job=")
    for part in part_of_source(source, table):
        n = 0
        try:
            for found in slices.pieces(slices.of(job), part, schema.names):
                n += len(found)
                yield slices.completed(found, schema)
        except (pa.ArrowException, OSError, KeyError) as e:
            raise WarehouseError(
                f"{job}/{part.file}: cannot be read ({e}); see "
                f"`{command('verify', name, '--deep')}`"
            ) from e
        if n != part.rows:
            raise WarehouseError(
                f"{job}/{part.file}: {n} rows, and its manifest says {part.rows}; see "
                f"`{command('verify', name)}`"
            )
