"""The end of a job's upload: its derived tables made once, by whoever brings the last rank."""

from __future__ import annotations

from ..derive import derive
from ..errors import RetimeError
from ..manifest import REMARKS, Manifest
from ..warehouse import Warehouse


def finish(to: str, job: str, *, force: bool, notes: list[str]) -> bool:
    """Makes a job's derived tables where all its ranks are there (or by `force`); gives whether.

    An error is a note only: what is delivered is delivered, and the first reader derives.
    """
    try:
        warehouse = Warehouse(to)
        manifests, _ = warehouse.manifests(job)
        if not manifests or not (force or is_whole(manifests)):
            return False
        return derive(warehouse.job_folder(job)) is not None
    except (RetimeError, OSError) as e:
        notes.append(f"job {job} in {to}: derived tables are left to the first reader: {e}")
        return False


def is_whole(manifests: list[Manifest]) -> bool:
    """Whether there is a source of every rank of the world that the job's sources state."""
    worlds = {w for m in manifests if m.format != REMARKS for w in m.world_sizes}
    ranks = {r for m in manifests for r in m.ranks}
    return bool(worlds) and ranks.issuperset(range(max(worlds)))
