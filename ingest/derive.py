"""Derived tables: jobs, ranks, steps, comms, collectives, transfers over all sources of a job."""

from __future__ import annotations

import os
import time
from collections.abc import Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from pathlib import Path
from types import MappingProxyType
from typing import TYPE_CHECKING

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

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
from .ordered import order_by, taken
from .schema import TABLES, Problem, problem_rows
from .store import Folder, Place, reading
from .suggested import command
from .writer import ROW_GROUP_ROWS, PartWriter

if TYPE_CHECKING:
    from .made.picked import Picked

NOTHING: Mapping[str, Picked] = MappingProxyType({})

_ORDER = {"ranks": ("rank", "source"), "steps": ("start_ns", "rank"),
          "collectives": ("start_ns", "rank", "event_id"),
          "transfers": ("start_ns", "rank")}  # fmt: skip


def derive(place: Place, picked: Mapping[str, Picked] = NOTHING) -> Generation | None:
    """Makes the derived tables of a job's folder stand; gives what it made, else None.

    What was `picked` of sources' events as they were written, by the source's id, need not be read.

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
            made = derive_into(staged, folder, manifests, picked)
            staging.publish(folder, staged, [(p.file, p.file) for p in made.parts], made)


def derive_into(
    target: Path,
    place: Place,
    manifests: list[Manifest],
    picked: Mapping[str, Picked] = NOTHING,
) -> Generation:
    """Writes the derived tables over these sources below `target`; see `derive`.

    Raises WarehouseError where a source's file cannot be read or `target` cannot be written.
    """
    from .made import make

    memory.give_back()  # what sources took that were read by this process
    job = store.folder(place)
    manifests = sorted(manifests, key=lambda m: m.id)
    said, damaged, digest = settings.usable(job)
    tables = _resolved(job, manifests, said, damaged)
    memory.give_back()
    generation = generation_id([m.id for m in manifests], digest)
    parts: dict[str, list[Part]] = {}
    with rooms.writing(target):
        writer = PartWriter(target)
        for name in tuple(tables):
            tables[name] = table = _sorted(name, tables)
            if not table.schema.equals(TABLES[name].schema):
                table = table.cast(TABLES[name].schema)
            for batch in table.to_batches(max_chunksize=ROW_GROUP_ROWS):
                writer.write(name, batch)
        with ThreadPoolExecutor(1, "retime-close") as beside:
            closed = beside.submit(writer.close)  # which encodes them and waits for the disk
            made = make.write(target, job, manifests, tables, picked)
        for written in [*closed.result(), *made]:
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


def _resolved(
    job: Folder, manifests: list[Manifest], said: settings.Settings, damaged: Sequence[Problem]
) -> dict[str, pa.Table]:
    """The derived tables, but for those that are made of them; rows in no order.

    What they were made of goes when this ends: of a large job it is as large as they are.
    """
    from . import dims, one_job, remarks, steps, transfers
    from .joining import join
    from .joining.ranks import one_a_rank, ranks_with_times
    from .matching.communicators import world_size
    from .matching.resolution import resolve

    views = {
        t: _rows(t, job, [p for m in manifests for p in part_of_source(m, t)])
        for t in ("collectives", "comms", "steps")
    }
    of_ranks = [(m.format, p) for m in manifests for p in part_of_source(m, "ranks")]
    held = _each("ranks", job, [p for _, p in of_ranks])
    views["ranks"] = _together("ranks", [*held])
    # As many as the files have: a manifest may say anything.
    formats = [f for (f, _), rows in zip(of_ranks, held, strict=True) for _ in range(len(rows))]
    ranks, twice = one_a_rank(views["ranks"], formats, ranks_with_times(views["collectives"]))
    joined = join(views["collectives"], ranks, views["comms"])
    resolved = resolve(joined.collectives, joined.ranks, joined.comms, views["steps"])
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
    views.clear()
    joined = joined._replace(collectives=TABLES["collectives"].empty)
    # There may be more of them than of all else: they come when that has let go of its memory.
    memory.give_back()
    moved = _rows("transfers", job, [p for m in manifests for p in part_of_source(m, "transfers")])
    memory.give_back()
    moved, unmoved = transfers.derived(moved, joined, stepped.collectives)
    problems = [
        *one_job.contradictions(manifests, resolved.ranks), *twice, *joined.problems, *unmoved,
        *resolved.problems, *stepped.problems, *unclear, *damaged,
    ]  # fmt: skip
    return {
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


def _lost(job: Folder, manifests: list[Manifest]) -> int:
    """Rows of the sources' own problems that say lost; sources that lost nothing are not read."""
    losing = [m for m in manifests if m.problems.get("lost")]
    rows = _rows("problems", job, [p for m in losing for p in m.tables.get("problems", [])])
    return rows["severity"].cast(pa.string()).to_pylist().count("lost")


def _rows(table: str, job: Folder, parts: list[Part]) -> pa.Table:
    """All rows of these parts, in their order, the same whichever files hold them."""
    return _together(table, _each(table, job, parts))


def _together(table: str, found: list[pa.Table]) -> pa.Table:
    """The rows of these tables, which are taken out of their list: column after column, so that a
    large table is not there twice; columns of nulls share one memory."""
    schema, rows = TABLES[table].schema, sum(map(len, found))
    if not found:
        return TABLES[table].empty
    parts = [t.select(schema.names).columns for t in found]
    found.clear()
    columns = []
    for i, field in enumerate(schema):
        chunks = [c for part in parts for c in part[i].chunks]
        for part in parts:
            part[i] = None
        column = pa.chunked_array(chunks, field.type)
        del chunks
        if column.null_count < rows:
            its = slices.renumbered(pa.table([column], schema=pa.schema([field])))
            column = its.column(0)
        columns.append(column)
    return _lean(pa.table(columns, schema=schema))


def _lean(table: pa.Table) -> pa.Table:
    """The same rows; columns of nulls share one memory, which takes none until it is written to."""
    n = len(table)
    nothing = pa.py_buffer(np.zeros(8 * n, np.uint8))
    columns = [
        none if c.null_count == n and (none := _nulls(c.type, n, nothing)) is not None else c
        for c in table.columns
    ]
    return pa.table(columns, schema=table.schema)


def _nulls(kind: pa.DataType, n: int, nothing: pa.Buffer) -> pa.Array | None:
    """So many nulls over a buffer of zeros; None of a type that has other buffers."""
    if isinstance(kind, pa.DictionaryType):
        codes = pa.Array.from_buffers(kind.index_type, n, [nothing, nothing])
        return pa.DictionaryArray.from_arrays(codes, pa.array([], kind.value_type))
    if pa.types.is_integer(kind) or pa.types.is_floating(kind):
        return pa.Array.from_buffers(kind, n, [nothing, nothing])
    return None


def _each(table: str, job: Folder, parts: list[Part]) -> list[pa.Table]:
    """The rows of each of these parts. Raises WarehouseError for a file that cannot be read."""
    schema = TABLES[table].schema
    held: dict[str, pa.Table] = {}

    def whole(file: str) -> None:
        try:
            opened = reading.whole(job.address(file))
            several = opened.metadata.num_rows > slices.FEW_ROWS
            found = opened.read(schema.names, use_threads=several)
            held[file] = _lean(slices.completed(found, schema))
        except (pa.ArrowException, OSError, KeyError) as e:
            raise WarehouseError(
                f"{job.address(file)}: cannot be read ({e}); `"
                f"{command('verify', job.name.removeprefix('job='), '--repair')}` sets it aside, "
                "then ingest the source again"
            ) from e

    reading.side_by_side(whole, list(dict.fromkeys(p.file for p in parts)), job.local is None)
    return [held[p.file] if p.first is None else held[p.file].slice(p.first, p.rows) for p in parts]


def _sorted(name: str, tables: dict[str, pa.Table]) -> pa.Table:
    """Takes a table out of these and gives its rows in order, with the columns of its schema.

    One column after another: a large table is not there twice.
    """
    table, keys = tables.pop(name).select(TABLES[name].schema.names), _ORDER.get(name)
    if keys is None or not table.num_rows:
        return table
    order = _order([table[k] for k in keys])
    if order is None:
        return table
    schema, columns = table.schema, table.columns
    del table
    for i in range(len(columns)):
        columns[i] = taken(columns[i], order)
    return pa.table(columns, schema=schema)


def _order(columns: list[pa.ChunkedArray]) -> pa.Array | None:
    """The rows in order of these; None where they are."""
    if not any(pa.types.is_dictionary(c.type) for c in columns):
        found = order_by(columns)
        return None if found is None else pa.array(found)
    plain = {
        str(k): c.cast(pa.string()) if pa.types.is_dictionary(c.type) else c
        for k, c in enumerate(columns)
    }
    plain["row"] = pa.array(np.arange(len(columns[0])))  # rows that tie keep their order
    return pc.sort_indices(pa.table(plain), [(k, "ascending") for k in plain])  # pyright: ignore


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
