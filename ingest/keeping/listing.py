"""Every job of a warehouse in one line, from small files: no source's manifest, no Parquet."""

from __future__ import annotations

import contextlib
from collections.abc import Iterable
from concurrent.futures import ThreadPoolExecutor
from typing import TYPE_CHECKING, NamedTuple

import msgspec

from .. import labels, rooms
from ..manifest import BadManifest, Generation, is_pack
from . import manifests, tombstone
from .summary import Summary

if TYPE_CHECKING:
    from ..warehouse import Warehouse

AT_ONCE = 32
"""Jobs looked at side by side: an object store answers many questions as fast as one."""


class Listed(NamedTuple):
    """A job, its summary (None where none stands for what is there now), and what is said of it.

    `pruned` are the tables whose rows were removed for their age.
    """

    job: str
    summary: Summary | None
    labels: labels.Labels
    pruned: tuple[str, ...]


def jobs(warehouse: Warehouse, chosen: Iterable[str] | None = None) -> list[Listed]:
    """The warehouse's jobs, or those chosen, by id. Raises WarehouseError where there is none.

    A summary stands where derived tables cover exactly the sources that are there, whichever
    version made them; whether their files are whole is not looked at (`verify` does).
    """
    # In a store `jobs` would ask of each whether it was pruned, which `_listed` sees anyway.
    there = warehouse.jobs if warehouse.root.local is not None else warehouse.folders
    found = sorted(there() if chosen is None else chosen)
    with ThreadPoolExecutor(AT_ONCE) as pool:
        listed = pool.map(lambda job: _listed(warehouse, job), found)
        return [one for one in listed if one is not None]


def _listed(warehouse: Warehouse, job: str) -> Listed | None:
    """The job; None for one without sources: pruned, or its first is still on its way."""
    folder = warehouse.folder(job)
    names = tombstone.alive(folder, rooms.MANIFESTS, manifests.names(folder))
    present = {n.removesuffix(".json") for n in names if not n.startswith(manifests.DERIVED)}
    pruned: set[str] = set()
    packed: set[str] = set()
    packed_bytes = 0
    for name in filter(is_pack, names):
        with contextlib.suppress(BadManifest, OSError):
            pack = manifests.read(folder, name)
            present.discard(name.removesuffix(".json"))
            present |= {id[:16] for id in pack.ids}
            pruned |= set(pack.pruned)
            packed |= {id[:16] for id in pack.ids}
            packed_bytes += sum(p.bytes for p in pack.parts)
    if not present:
        return None
    made: list[Generation] = []
    for name in names:
        if name.startswith(manifests.DERIVED):
            with contextlib.suppress(BadManifest, OSError):
                found = manifests.read_generation(folder, name)
                if {s[:16] for s in found.sources} == present and found.summary is not None:
                    made.append(found)
    newest = max(made, key=lambda g: (g.created_at_ns, g.id), default=None)
    summary = None if newest is None else newest.summary
    if newest is not None and summary is not None and packed == present:
        derived_bytes = sum(p.bytes for p in newest.parts)
        summary = msgspec.structs.replace(summary, stored_bytes=packed_bytes + derived_bytes)
    return Listed(job, summary, labels.read(folder), tuple(sorted(pruned)))
