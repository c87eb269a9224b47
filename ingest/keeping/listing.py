"""Every job of a warehouse in one line, from small files: no source's manifest, no Parquet."""

from __future__ import annotations

from collections.abc import Iterable
from concurrent.futures import ThreadPoolExecutor
from typing import TYPE_CHECKING, NamedTuple

from .. import labels
from ..manifest import BadManifest, Generation, read_generation
from .summary import Summary

if TYPE_CHECKING:
    from ..store import Folder
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
    found = sorted(warehouse.jobs() if chosen is None else chosen)
    with ThreadPoolExecutor(AT_ONCE) as pool:
        return list(pool.map(lambda job: _listed(warehouse, job), found))


def _listed(warehouse: Warehouse, job: str) -> Listed:
    folder = warehouse.folder(job)
    raise NotImplementedError
