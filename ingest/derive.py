"""Derived tables: jobs, ranks, steps, comms, collectives, transfers over all sources of a job."""

from __future__ import annotations

import os
import time
from functools import partial
from pathlib import Path

import numpy as np
import pyarrow as pa

from .. import __version__
from . import counting, locks, memory, rooms, settings, staging, store
from .errors import WarehouseError
from .keeping import slices, summary
from .manifest import (
    REMARKS,
    Generation,
    Manifest,
    Part,
    generation_id,
    generation_part,
    part_of_source,
)
from .ordered import order_by
from .schema import TABLES, problem_rows
from .store import Folder, Place, reading
from .suggested import command
from .writer import ROW_GROUP_ROWS, PartWriter

_ORDER = {"ranks": ("rank", "source"), "steps": ("start_ns", "rank"),
          "collectives": ("start_ns", "rank", "event_id"),
          "transfers": ("start_ns", "rank")}  # fmt: skip


def derive(place: Place) -> Generation | None:
    """Makes the derived tables of a job's folder stand; gives what it made, else None.

    Repeats while sources come in. The same sources give the same files, so two processes may do
    it at once; where the file system has locks the second waits and finds it done. Raises
    WarehouseError where the job cannot be written or read.
    """
    made = None
    folder = store.folder(place)
    with (
        staging.staging(folder) as staged,
        rooms.writing(folder.parent),
        locks.locked(folder, locks.DERIVE_LOCK),
    ):
        while True:
            manifests, _ = counting.readable_manifests(folder)
            if not manifests or counting.standing_generation(folder, manifests) is not None:
                return made
            made = derive_into(staged, folder, manifests)
            staging.publish(folder, staged, [(p.file, p.file) for p in made.parts], made)


def derive_into(target: Path, place: Place, manifests: list[Manifest]) -> Generation:
    """Writes the derived tables over these sources below `target`; see `derive`.

    Raises WarehouseError where a source's file cannot be read or `target` cannot be written.
    """
    from . import dims, one_job, remarks, steps, transfers
    from .joining import join
    from .joining.ranks import one_a_rank, ranks_with_times
    from .made import make
    from .matching.communicators import world_size
    from .matching.resolution import resolve

    memory.give_back()  # what sources took that were read by this process
    job = store.folder(place)
    manifests = sorted(manifests, key=lambda m: m.id)
    views = {
        t: _rows(t, job, [p for m in manifests for p in part_of_source(m, t)])
        for t in ("collectives", "comms", "steps", "transfers")
    }
    of_ranks = [(m.format, p) for m in manifests for p in part_of_source(m, "ranks")]
    held = _each("ranks", job, [p for _, p in of_ranks])
    views["ranks"] = _together("ranks", held)
    # As many as the files have: a manifest may say anything.
    formats = [f for (f, _), rows in zip(of_ranks, held, strict=True) for _ in range(len(rows))]
    ranks, twice = one_a_rank(views["ranks"], formats, ranks_with_times(views["collectives"]))
    joined = join(views["collectives"], ranks, views["comms"])
    resolved = resolve(joined.collectives, joined.ranks, joined.comms, views["steps"])
    said, damaged, digest = settings.usable(job)
    stepped = steps.find(
        views["steps"], resolved.collectives,
        [([partial(slices.rows, slices.of(job), p) for p in m.tables.get("events", [])], m.ranks)
         for m in manifests],
        said.step_annotation,
    )  # fmt: skip
    comms, unclear = dims.decide(
        resolved.comms, stepped.collectives, resolved.ranks, stepped.steps,
        world_size(resolved.ranks), said,
    )  # fmt: skip
    moved, unmoved = transfers.derived(views["transfers"], joined, stepped.collectives)
    problems = [
        *one_job.contradictions(manifests, resolved.ranks), *twice, *joined.problems, *unmoved,
        *resolved.problems, *stepped.problems, *unclear, *damaged,
    ]  # fmt: skip
    tables = {
        "jobs": pa.Table.from_batches([_job_row(manifests, ranks, resolved.clocks)]),
        "ranks": resolved.ranks,
        "comms": comms,
        "collectives": stepped.collectives,
        "steps": stepped.steps,
        "transfers": moved,
        "problems": pa.Table.from_batches(
            [problem_rows([(None, p) for p in problems]), remarks.rows(manifests)]
        ),
    }
    generation = generation_id([m.id for m in manifests], digest)
    parts: dict[str, list[Part]] = {}
    with rooms.writing(target):
        writer = PartWriter(target)
        for name, table in tables.items():
            tables[name] = table = _sorted(name, table.select(TABLES[name].schema.names))
            for batch in table.cast(TABLES[name].schema).to_batches(max_chunksize=ROW_GROUP_ROWS):
                writer.write(name, batch)
        try:
            # While these are encoded: they are closed, which waits for the disk, after it.
            made = make.write(target, job, manifests, tables)
        except BaseException:
            writer.abort()
            raise
        for written in [*writer.close(), *made]:
            file = generation_part(written.table, generation)
            (target / file).parent.mkdir(exist_ok=True)
            os.replace(target / written.file, target / file)
            parts[written.table] = [Part(file, written.rows, written.bytes, written.sha256)]
    return Generation(
        id=generation,
        sources=[m.id for m in manifests],
        tables=parts,
        tool_version=__version__,
        created_at_ns=time.time_ns(),
        summary=summary.of_tables(
            tables, manifests, _lost(job, manifests), [p for of_it in parts.values() for p in of_it]
        ),
    )


def _lost(job: Folder, manifests: list[Manifest]) -> int:
    """Rows of the sources' own problems that say lost; sources that lost nothing are not read."""
    losing = [m for m in manifests if m.problems.get("lost")]
    rows = _rows("problems", job, [p for m in losing for p in m.tables.get("problems", [])])
    return rows["severity"].cast(pa.string()).to_pylist().count("lost")


def _rows(table: str, job: Folder, parts: list[Part]) -> pa.Table:
    """All rows of these parts, in their order, the same whichever files hold them."""
    return _together(table, _each(table, job, parts))


def _together(table: str, found: list[pa.Table]) -> pa.Table:
    return (
        slices.renumbered(pa.concat_tables(found)) if found else TABLES[table].schema.empty_table()
    )


def _each(table: str, job: Folder, parts: list[Part]) -> list[pa.Table]:
    """The rows of each of these parts. Raises WarehouseError for a file that cannot be read."""
    schema = TABLES[table].schema
    held: dict[str, pa.Table] = {}

    def whole(file: str) -> None:
        try:
            found = reading.whole(job.address(file)).read(schema.names)
            held[file] = slices.completed(found, schema)
        except (pa.ArrowException, OSError, KeyError) as e:
            raise WarehouseError(
                f"{job.address(file)}: cannot be read ({e}); `"
                f"{command('verify', job.name.removeprefix('job='), '--repair')}` sets it aside, "
                "then ingest the source again"
            ) from e

    reading.side_by_side(whole, list(dict.fromkeys(p.file for p in parts)), job.local is None)
    return [held[p.file] if p.first is None else held[p.file].slice(p.first, p.rows) for p in parts]


def _sorted(name: str, table: pa.Table) -> pa.Table:
    keys = _ORDER.get(name)
    if keys is None or not table.num_rows:
        return table
    columns = [table[k] for k in keys]
    if any(pa.types.is_dictionary(c.type) for c in columns):
        plain = {
            k: c.cast(pa.string()) if pa.types.is_dictionary(c.type) else c
            for k, c in zip(keys, columns, strict=True)
        }
        plain["row"] = pa.array(np.arange(table.num_rows))  # rows that tie keep their order
        order = pa.table(plain).sort_by([(k, "ascending") for k in (*keys, "row")])["row"]
        return table.take(order)
    found = order_by(columns)
    return table if found is None else table.take(pa.array(found))


def _job_row(manifests: list[Manifest], ranks: pa.Table, clocks: str) -> pa.RecordBatch:
    manifests = [m for m in manifests if m.format != REMARKS] or manifests
    worlds = [w for m in manifests for w in m.world_sizes]
    newest = max(manifests, key=lambda m: (m.created_at_ns, m.id))
    return TABLES["jobs"].batch(
        {
            "world_size": [max(worlds, default=None)],
            "ranks_seen": [len(set(ranks["rank"].to_pylist()))],
            "framework": [", ".join(sorted({m.format for m in manifests}))],
            "sources": [len(manifests)],
            "created_at_ns": [min(m.created_at_ns for m in manifests)],
            "tool_version": [newest.tool_version],
            "clocks": [clocks],
        }
    )
