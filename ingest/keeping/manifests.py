"""One manifest of a job by its name, wherever the job lies."""

from __future__ import annotations

from typing import TYPE_CHECKING

from ..manifest import (
    MAX_MANIFEST_BYTES,
    BadManifest,
    Generation,
    Manifest,
    parse_generation,
    parse_manifest,
)
from ..rooms import MANIFESTS
from ..store import TooLarge

if TYPE_CHECKING:
    from ..store import Folder

DERIVED = "derived-"
"""Begins the names of derived generations' manifests."""


def names(job: Folder) -> list[str]:
    """Names of all manifests of a job, those of derived generations too."""
    return [n for n in job.names(MANIFESTS) if n.endswith(".json")]


def data(job: Folder, name: str) -> bytes:
    """A manifest's bytes. Raises BadManifest, FileNotFoundError, OSError."""
    try:
        return job.read(f"{MANIFESTS}/{name}", MAX_MANIFEST_BYTES)
    except TooLarge as e:
        address = job.address(f"{MANIFESTS}/{name}")
        raise BadManifest(address, f"it has more than {MAX_MANIFEST_BYTES} bytes") from e


def read(job: Folder, name: str) -> Manifest:
    """A source's or a pack's manifest. Raises BadManifest, FileNotFoundError, OSError."""
    return parse_manifest(job.address(f"{MANIFESTS}/{name}"), data(job, name))


def read_generation(job: Folder, name: str) -> Generation:
    """A derived generation's manifest. Raises BadManifest, FileNotFoundError, OSError."""
    return parse_generation(job.address(f"{MANIFESTS}/{name}"), data(job, name))
