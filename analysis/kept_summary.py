"""What `retime show` said of a job before its events were pruned, kept in the job."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING, Any

import msgspec

from .screen import to_json

if TYPE_CHECKING:
    from ..ingest.store import Folder
    from .job import Job

FILE = "_shown.json"
"""Name in the job's folder; hive readers skip what begins with an underscore."""

MOST_BYTES = 16 << 20
"""A larger file is not read: it is an input like any other."""


class Shown(msgspec.Struct, frozen=True):
    """The facts of `Job.show`, of which sources (ids), and when."""

    facts: dict[str, Any]
    sources: list[str]
    at_ns: int


def keep(job: Job) -> None:
    """Keeps what the job looks like now. Raises OSError."""
    sources = sorted(m.id for m in job.snapshot.manifests)
    shown = {"facts": job.show(), "sources": sources, "at_ns": time.time_ns()}
    _folder(job).put(FILE, to_json(shown).encode())


def read(job: Job) -> dict[str, Any] | None:
    """What is kept of the sources that the job has now; None where nothing is."""
    try:
        found = msgspec.json.decode(_folder(job).read(FILE, MOST_BYTES), type=Shown)
    except (OSError, msgspec.MsgspecError, UnicodeDecodeError, RecursionError):
        return None
    here = sorted(m.id for m in job.snapshot.manifests)
    return found.facts if found.sources == here else None


def _folder(job: Job) -> Folder:
    return job.warehouse.store.folder(job.id)
