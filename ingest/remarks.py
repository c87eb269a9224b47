"""What was odd about inputs that became no source: kept in the job, so that it is not forgotten."""

from __future__ import annotations

import hashlib
import time
from collections.abc import Iterable

import msgspec
import pyarrow as pa

from .. import __version__
from . import staging
from .manifest import REMARKS, Manifest, Remark
from .roster import Roster
from .schema import Problem, problem_rows
from .stage import source_id
from .store import Place


def remember(
    folder: Place, odd: Iterable[tuple[str, Problem]], roster: Roster | None = None
) -> bool:
    """Keeps (place, problem) pairs in a job's folder, as a manifest without files.

    Those it knows already, and those of places that are sources by now, are left out; gives
    whether any were new. `roster` is what is known of the job's sources. Raises WarehouseError
    where the disk refuses.
    """
    odd = list(odd)
    if not odd:
        return False  # reading all manifests takes time in a job of a thousand ranks
    roster = Roster.read(folder) if roster is None else roster
    known, sources = roster.remarks(), roster.names
    new = sorted(
        {
            Remark(_sound(place), p.severity, p.code, _sound(p.message), p.count, p.offset)
            for place, p in odd
            if place not in sources
        }
        - known,
        key=lambda r: (r.place, r.code, r.message),
    )
    if not new:
        return False
    digest = hashlib.sha256(msgspec.json.encode(new)).hexdigest()
    counts: dict[str, int] = {}
    for r in new:
        counts[r.severity] = counts.get(r.severity, 0) + r.count
    manifest = Manifest(
        id=source_id(digest, REMARKS),
        name=REMARKS,
        sha256=digest,
        size_bytes=0,
        format=REMARKS,
        ranks=[],
        world_sizes=[],
        tables={},
        views={},
        problems=counts,
        tool_version=__version__,
        created_at_ns=time.time_ns(),
        remarks=new,
    )
    with staging.staging(folder) as staged:
        return staging.commit(folder, staged, [], manifest, roster)


def rows(manifests: list[Manifest]) -> pa.RecordBatch:
    """Rows of `problems` for what is remembered, but of places that became sources since."""
    sources = {m.name for m in manifests if m.format != REMARKS}
    kept = sorted(
        {r for m in manifests for r in m.remarks if r.place not in sources},
        key=lambda r: (r.place, r.code, r.message),
    )
    return problem_rows(
        [(r.place, Problem(r.code, r.message, r.severity, r.count, r.offset)) for r in kept]
    )


def _sound(text: str) -> str:
    """A file's name as text that can be stored: names need not be UTF-8."""
    return text.encode("utf-8", "replace").decode()
