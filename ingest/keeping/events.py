"""Prunes the rows of `events` of a job, by far the most of it, and keeps all else as it is.

The sources go into a pack without them (`compact.pack`): one manifest, so that a reader has all
events or none. Steps that were told from events become the sources' own, so that tables derived
later still have them.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING

import numpy as np
import pyarrow as pa

from .. import counting
from ..errors import WarehouseError
from ..manifest import Manifest, part_of_source
from ..schema import COLLECTIVES, STEPS
from . import slices
from .compact import Instead, pack

if TYPE_CHECKING:
    from ..store import Folder
    from ..warehouse import Warehouse

TABLE = "events"

TRIES = 5
"""So often a pack that a larger one took the place of, which has the events, is made anew."""


def stored_bytes(job: Folder) -> int:
    """The bytes that a prune of a job's events would remove."""
    units = counting.standing(job).units
    return sum(p.bytes for m in units for p in m.tables.get(TABLE, []))


def prune(warehouse: Warehouse, job: str) -> Manifest | None:
    """Prunes the events of a job; gives the manifest that stands for it then, None where none was.

    Raises WarehouseError where the job cannot be read or written, and where a compaction came in
    between again and again; it is then as it was.
    """
    for _ in range(TRIES):
        packed = _packed(warehouse, job)
        folder = warehouse.folder(job)
        if packed is None or packed.id in {m.id for m in counting.standing(folder).units}:
            return packed
    raise WarehouseError(f"{folder}: is put together at the same time; try again")


def _packed(warehouse: Warehouse, job: str) -> Manifest | None:
    """A pack of all sources that have events, without them; a larger one may have come before."""
    made = warehouse.snapshot(job).generation
    folder = warehouse.folder(job)
    sources = [m for m in warehouse.manifests(job)[0] if not m.pruned]
    if not any(m.tables.get(TABLE) for m in sources) or set(made.sources) - {
        m.id for m in warehouse.manifests(job)[0]
    }:
        return None
    derived = {t: _rows(folder, t, made.tables.get(t, [])) for t in (STEPS.name, COLLECTIVES.name)}
    return pack(folder, sources, without=[TABLE], instead=_told(folder, sources, derived))


def _rows(folder: Folder, table: str, parts: Sequence) -> pa.Table:
    schema = {STEPS.name: STEPS, COLLECTIVES.name: COLLECTIVES}[table].schema
    opened = slices.of(folder)
    found = [slices.completed(slices.rows(opened, p, schema.names), schema) for p in parts]
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
    mine = steps.filter(_of(steps, [r for m in sources for r in m.ranks]))
    if _keys(mine) == _keys(marked):
        return {}
    told: dict[str, pa.Table] = {}
    seen: set[int] = set()
    for m in sorted(sources, key=lambda m: m.id):
        owned = [r for r in m.ranks if r not in seen] if m.tables.get(TABLE) else []
        seen |= set(owned)
        told[m.id] = mine.filter(_of(mine, owned))
    for m in sources:  # ranks without events keep what was marked
        rest = own[STEPS.name][m.id]
        others = rest.filter(_of(rest, sorted(seen), invert=True))
        told[m.id] = pa.concat_tables([told[m.id], others])
    known = derived[COLLECTIVES.name]
    by_event = dict(zip(known["event_id"].to_pylist(), known["step"].to_pylist(), strict=True))
    parts = {id: _stepped(rows, by_event) for id, rows in own[COLLECTIVES.name].items()}
    return {STEPS.name: told, COLLECTIVES.name: parts}


def _of(rows: pa.Table, ranks: Sequence[int], invert: bool = False) -> pa.Array:
    """bool: the rows of these ranks, or all others."""
    rank = rows["rank"].to_numpy(zero_copy_only=False)
    return pa.array(np.isin(rank, list(ranks), invert=invert))


def _keys(steps: pa.Table) -> list[tuple]:
    columns = (steps[c].to_pylist() for c in ("rank", "step", "start_ns", "end_ns"))
    return sorted(zip(*columns, strict=True), key=repr)


def _stepped(rows: pa.Table, steps: Mapping[int, int | None]) -> pa.Table:
    """The participations with the step of the derived one of the same event, where there is one."""
    events, own = rows["event_id"].to_pylist(), rows["step"].to_pylist()
    found = [own[i] if e is None else steps.get(e, own[i]) for i, e in enumerate(events)]
    field = rows.schema.field("step")
    return rows.set_column(rows.column_names.index("step"), field, pa.array(found, field.type))
