"""Removes a job: for new readers at once, its files when those who read it have had their time."""

from __future__ import annotations

import contextlib
import os
from collections.abc import Iterable
from typing import TYPE_CHECKING

from .. import clock, labels, locks, owners, rooms, settings
from ..manifest import MAX_MANIFEST_BYTES, BadManifest
from ..store import TooLarge
from ..store.claims import FOLDER as CLAIMS
from . import manifests, tombstone

if TYPE_CHECKING:
    from ..store import Folder


def prune(job: Folder, author: str = "") -> None:
    """Makes a job be gone: nobody finds it from now on. Its other files are for `finish` to remove.

    What was killed in between is finished by the next call, or by `finish`. Raises OSError.
    """
    with job.locked(locks.COMMIT_LOCK):
        digests = {name: _digest(job, name) for name in _manifests(job)}
        parts = [f for n in digests for f in _parts(job, n)] if job.local is None else []
        tombstone.write(job, {n: d for n, d in digests.items() if d}, author, parts)
        _remove_manifests(job, tombstone.read(job))
        said = [f"{labels.FOLDER}/{n}" for n in job.names(labels.FOLDER)]
        job.remove([*said, settings.FILE])


def pending(job: Folder) -> bool:
    """Whether a prune of the job is still to be finished."""
    return job.entry(tombstone.FILE) is not None


def finish(job: Folder, grace_s: float) -> list[str]:
    """Removes what a pruned job left, `grace_s` after it was pruned; gives the files removed.

    A job that came anew under the same name stays, and of the pruned one go the files that nothing
    names. In an object store parts that the pruned job did not name, and claims, stay until they
    are a day old: they may be those of an upload that is going on. Does nothing for a job that was
    not pruned, and where the time is not over. Raises OSError.
    """
    stone = tombstone.read(job)
    if not stone.manifests and not stone.at_ns:
        return []
    with job.locked(locks.COMMIT_LOCK):
        removed = _remove_manifests(job, stone)
        found = job.entries()
        stood = found[tombstone.FILE].modified_ns if tombstone.FILE in found else 0
        # By the clock of where it lies, as the files are: that of a node may be off.
        now = clock.clock_ns(job)
        if now - stood < grace_s * 1e9:
            return removed
        rest = {f for f in stone.parts if f in found and f.endswith(".parquet")}
        if not _manifests(job) and not busy(job):
            # What is newer may be parts of a source whose manifest is still to come.
            unsure = _others(job, found, stone)
            rest |= {
                f
                for f, entry in found.items()
                if entry.modified_ns <= stood
                and f != tombstone.FILE
                and not f.startswith(f"{rooms.INCOMING}/")
                and (f not in unsure or now - entry.modified_ns > owners.ABANDONED_S * 1e9)
            }
        job.remove(sorted(rest))
        removed += sorted(rest)
        # The tombstone last: killed before, the next call goes on.
        job.remove([tombstone.FILE])
    if job.local is not None:
        _remove_empty(job.local)
        locks.remove_if_unused(job.local)
    return removed


def remove_dead(job: Folder) -> None:
    """Removes manifests that a prune was killed before it removed: their sources may come again."""
    if pending(job):
        _remove_manifests(job, tombstone.read(job))


def busy(job: Folder) -> bool:
    """Whether somebody may be writing into the job, as far as can be told (never in a store)."""
    if job.local is None:
        return False
    incoming = job.local / rooms.INCOMING
    tokens = [incoming / name for name in job.names(rooms.INCOMING)]
    local = job.local
    return any(t.is_dir() and owners.alive(t.name, t, lambda: clock.now_ns(local)) for t in tokens)


def _others(job: Folder, found: Iterable[str], stone: tombstone.Tombstone) -> set[str]:
    """Files in a store that may be those of who writes at this moment: it has no locks to tell."""
    if job.local is not None:
        return set()
    parts = {f for f in found if f.endswith(".parquet") and not f.startswith(f"{rooms.KEPT}/")}
    return (parts - set(stone.parts)) | {f for f in found if f.startswith(f"{CLAIMS}/")}


def _parts(job: Folder, name: str) -> list[str]:
    """Files that a manifest names; none where it cannot be read."""
    derived = name.startswith(manifests.DERIVED)
    try:
        found = (manifests.read_generation if derived else manifests.read)(job, name)
    except (BadManifest, OSError):
        return []
    return [p.file for p in found.parts]


def _manifests(job: Folder) -> list[str]:
    return [n for n in job.names(rooms.MANIFESTS) if n.endswith(".json")]


def _digest(job: Folder, name: str) -> str:
    """What a tombstone knows a manifest by; "" where it is gone."""
    try:
        return tombstone.digest(job.read(f"{rooms.MANIFESTS}/{name}", MAX_MANIFEST_BYTES))
    except FileNotFoundError:
        return ""
    except TooLarge:
        return "too large to be read"


def _remove_manifests(job: Folder, stone: tombstone.Tombstone) -> list[str]:
    """Removes the manifests of a tombstone that are still there as they were."""
    there = sorted(set(stone.manifests).intersection(_manifests(job)))
    gone = [f"{rooms.MANIFESTS}/{n}" for n in there if _digest(job, n) == stone.manifests[n]]
    job.remove(gone)
    return gone


def _remove_empty(place: os.PathLike[str]) -> None:
    for here, _, _ in os.walk(place, topdown=False):
        if os.path.basename(here) != rooms.INCOMING:
            with contextlib.suppress(OSError):
                os.rmdir(here)
