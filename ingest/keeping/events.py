"""Prunes the rows of `events` of a job, by far the most of it, and keeps all else as it is.

The sources go into a pack without them (`compact.pack`): one manifest, so that a reader has all
events or none. Steps that were told from events become the sources' own, so that tables derived
later still have them.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING

import pyarrow as pa
import pyarrow.compute as pc

from .. import staging
from ..manifest import Manifest, part_of_source
from ..schema import COLLECTIVES, STEPS
from . import slices
from .compact import Instead, pack

if TYPE_CHECKING:
    from ..store import Folder
    from ..warehouse import Warehouse

TABLE = "events"

def stored_bytes(job: Folder) -> int:
    """The bytes that a prune of a job's events would remove."""
    units = staging.standing(job).units
    return sum(p.bytes for m in units for p in m.tables.get(TABLE, []))


def prune(warehouse: Warehouse, job: str) -> Manifest | None:
    """Prunes the events of a job; gives the manifest that stands for it then, None where none was.

    Raises WarehouseError where the job cannot be read or written; it is then as it was.
    """
    made = warehouse.snapshot(job).generation
    folder = warehouse.folder(job)
    sources = [m for m in warehouse.manifests(job)[0] if not m.pruned]
    if not any(m.tables.get(TABLE) for m in sources) or set(made.sources) - {
        m.id for m in warehouse.manifests(job)[0]
    }:
        return None
    derived = {
        t: _rows(folder, t, made.tables.get(t, [])) for t in (STEPS.name, COLLECTIVES.name)
    }
    return pack(folder, sources, without=[TABLE], instead=_told(folder, sources, derived))


def _rows(folder: Folder, table: str, parts: Sequence) -> pa.Table:
    schema = {STEPS.name: STEPS, COLLECTIVES.name: COLLECTIVES}[table].schema
    found = [slices.completed(t, schema) for t in slices.tables(folder.open, parts, schema.names)]
    return pa.concat_tables(found) if found else schema.empty_table()


def _told(folder: Folder, sources: Sequence[Manifest], derived: Mapping[str, pa.Table]) -> Instead:
    """The steps of these sources as derived, and the step of each of their participations.

    Nothing where all steps are marked by the sources themselves.
    """
    own = {
        t: {m.id: _rows(folder, t, part_of_source(m, t)) for m in sources}
        for t in (STEPS.name, COLLECTIVES.name)
    }
    steps = derived[STEPS.name]
    marked = pa.concat_tables([*own[STEPS.name].values(), STEPS.schema.empty_table()])
    ranks = pa.array(sorted({r for m in sources for r in m.ranks}), pa.int32())
    mine = steps.filter(pc.is_in(steps["rank"], ranks))
    if _keys(mine) == _keys(marked):
        return {}
    told: dict[str, pa.Table] = {}
    seen: set[int] = set()
    for m in sorted(sources, key=lambda m: m.id):
        owned = [r for r in m.ranks if r not in seen] if m.tables.get(TABLE) else []
        seen |= set(owned)
        told[m.id] = mine.filter(pc.is_in(mine["rank"], pa.array(owned, pa.int32())))
    for m in sources:  # ranks without events keep what was marked
        rest = own[STEPS.name][m.id]
        others = pc.invert(pc.is_in(rest["rank"], pa.array(sorted(seen), pa.int32())))
        told[m.id] = pa.concat_tables([told[m.id], rest.filter(others)])
    known = derived[COLLECTIVES.name]
    known = known.filter(pc.is_valid(known["event_id"]))
    events = known["event_id"].combine_chunks()
    parts = {id: _stepped(rows, events, known["step"]) for id, rows in own["collectives"].items()}
    return {STEPS.name: told, COLLECTIVES.name: parts}


def _keys(steps: pa.Table) -> list[tuple]:
    columns = (steps[c].to_pylist() for c in ("rank", "step", "start_ns", "end_ns"))
    return sorted(zip(*columns, strict=True), key=repr)


def _stepped(rows: pa.Table, events: pa.Array, steps: pa.ChunkedArray) -> pa.Table:
    """The participations with the step of the derived one of the same event, where there is one."""
    at = pc.index_in(rows["event_id"], events)
    step = pc.if_else(pc.is_valid(at), pc.take(steps, at), rows["step"])
    return rows.set_column(rows.column_names.index("step"), rows.schema.field("step"), step)
