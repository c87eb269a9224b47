"""Derived tables: jobs, ranks, steps, comms, collectives, transfers over all sources of a job."""

from __future__ import annotations

import os
import time
from pathlib import Path

import numpy as np
import pyarrow as pa

from .. import __version__
from . import settings, staging, store
from .errors import WarehouseError
from .manifest import REMARKS, Generation, Manifest, Part, generation_id, generation_part
from .schema import TABLES, problem_rows
from .store import Folder, Place, reading
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
        staging.writing(folder.parent),
        staging.locked(folder, staging.DERIVE_LOCK),
    ):
        while True:
            manifests, _ = staging.readable_manifests(folder)
            if not manifests or staging.standing_generation(folder, manifests) is not None:
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
    from .matching.communicators import world_size
    from .matching.resolution import resolve

    job_folder = store.folder(place)
    manifests = sorted(manifests, key=lambda m: m.id)
    views = {
        t: _rows(t, job_folder, [p.file for m in manifests for p in _parts(m, t)])
        for t in ("collectives", "ranks", "comms", "steps", "transfers")
    }
    formats = [m.format for m in manifests for p in _parts(m, "ranks") for _ in range(p.rows)]
    ranks, twice = one_a_rank(views["ranks"], formats, ranks_with_times(views["collectives"]))
    joined = join(views["collectives"], ranks, views["comms"])
    resolved = resolve(joined.collectives, joined.ranks, joined.comms, views["steps"])
    said, damaged, digest = settings.usable(job_folder)
    stepped = steps.find(
        views["steps"], resolved.collectives,
        [([job_folder.address(p.file) for p in m.tables.get("events", [])], m.ranks)
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
    with staging.writing(target):
        writer = PartWriter(target)
        for name, table in tables.items():
            table = _sorted(name, table.select(TABLES[name].schema.names))
            for batch in table.cast(TABLES[name].schema).to_batches(max_chunksize=ROW_GROUP_ROWS):
                writer.write(name, batch)
        for written in writer.close():
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
    )


def _parts(manifest: Manifest, table: str) -> list[Part]:
    # Before steps were derived a source's own were a table of their own.
    return (manifest.views if TABLES[table].derived else manifest.tables).get(
        table, manifest.tables.get(table, [])
    )


def _rows(table: str, folder: Folder, files: list[str]) -> pa.Table:
    """All rows of these files, in their order, with one dictionary a column."""
    schema = TABLES[table].schema

    def rows(file: str) -> pa.Table:
        try:
            return _completed(reading.whole(folder.address(file)).read(schema.names), schema)
        except (pa.ArrowException, OSError, KeyError) as e:
            raise WarehouseError(
                f"{folder.address(file)}: cannot be read ({e}); remove the manifest of the same "
                "name and ingest the source again"
            ) from e

    read = reading.side_by_side(rows, files, folder.local is None)
    if not read:
        return schema.empty_table()
    return pa.concat_tables(read).unify_dictionaries().combine_chunks()


def _completed(rows: pa.Table, schema: pa.Schema) -> pa.Table:
    """The rows with every column of the schema: one that an older version did not write is null."""
    columns = [
        rows[f.name] if f.name in rows.column_names else pa.nulls(len(rows), f.type) for f in schema
    ]
    return pa.table(dict(zip(schema.names, columns, strict=True))).cast(schema)


def _sorted(name: str, table: pa.Table) -> pa.Table:
    keys = _ORDER.get(name)
    if keys is None or not table.num_rows:
        return table
    plain = {k: table[k] for k in keys}
    for k, column in plain.items():
        if pa.types.is_dictionary(column.type):
            plain[k] = column.cast(pa.string())
    plain["row"] = pa.array(np.arange(table.num_rows))  # rows that tie keep their order
    order = pa.table(plain).sort_by([(k, "ascending") for k in (*keys, "row")])["row"]
    return table.take(order)


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
