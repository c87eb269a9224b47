"""Repairs a job after a verification: garbage goes, what lies is set aside, no row is lost.

Set aside means moved below `_quarantine/<name>/`, so that the source can be ingested again.
"""

from __future__ import annotations

import os
import shutil
import time
from collections.abc import Iterable
from typing import TYPE_CHECKING

from .. import labels, locks, owners, rooms, settings, store, tidying
from . import files, tombstone
from .findings import Finding
from .verify import QUARANTINE

if TYPE_CHECKING:
    from pathlib import Path

    from ..store import Folder

_SETS_ASIDE = ("manifest_damaged", "part_damaged", "rank_twice", "packs_contradict")
_GARBAGE = ("orphan", "kept_damaged", "kept_orphan")
_SMALL = {"settings_damaged": settings.FILE, "tombstone_damaged": tombstone.FILE}


def repair(job: Folder, found: Iterable[Finding]) -> list[Finding]:
    """Does what a verification found to do; gives the findings with what was done.

    Only what a repair can do is done: what needs a newer version or a person stays as it is.
    Raises WarehouseError where the job cannot be written.
    """
    done: dict[str, str] = {}
    out = []
    with rooms.writing(job.parent):
        tidying.remove_orphans(job.local or job)
        with job.locked(locks.COMMIT_LOCK) as held:
            for one in found:
                key = f"{one.code} {one.file}"
                if key not in done:
                    done[key] = _done(job, one, held)
                out.append(one._replace(done=done[key]))
    return out


def _done(job: Folder, one: Finding, held: bool) -> str:
    if one.code in _SMALL or one.code == "labels_damaged":
        said = _SMALL.get(one.code)
        names = [said] if said else [f"{labels.FOLDER}/{n}" for n in job.names(labels.FOLDER)]
        return _set_aside(job, "said", names)
    if one.code == "unfinished":
        return "removed"  # by `remove_orphans`
    if one.code == "derived_damaged" or (
        one.code == "manifest_damaged" and "/derived-" in one.file
    ):
        stem = files.stem(one.file.removesuffix(".json"))
        # The manifest first: without it nothing else counts.
        job.remove([f"{rooms.MANIFESTS}/{stem}.json"])
        job.remove([f for f in job.sizes() if files.stem(f) == stem])
        return "removed; the first to read the job makes it anew"
    if one.code in _SETS_ASIDE:
        stem = files.stem(one.file.removesuffix(".json"))
        return _set_source_aside(job, stem)
    if one.code in _GARBAGE:
        # Without locks another may be about to write its manifest: a day is enough for that.
        entry = job.entry(one.file)
        if not held and entry is not None and not _old(entry.modified_ns):
            return "left: it is younger than a day, and may be somebody's who writes now"
        job.remove([one.file])
        return "removed"
    return ""


def _old(modified_ns: int) -> bool:
    return time.time_ns() - modified_ns > owners.ABANDONED_S * 1e9


def _set_source_aside(job: Folder, stem: str) -> str:
    """Sets aside a source's or a pack's manifest and files, the manifest first."""
    names = [f"{rooms.MANIFESTS}/{stem}.json"]
    names += [f for f in sorted(job.sizes()) if f.endswith(".parquet") and files.stem(f) == stem]
    names = [n for n in names if not n.startswith((f"{QUARANTINE}/", f"{rooms.INCOMING}/"))]
    return _set_aside(job, stem, names)


def _set_aside(job: Folder, name: str, moved: list[str]) -> str:
    place = f"{QUARANTINE}/{name}-{time.time_ns()}"
    for file in moved:
        _move(job, file, f"{place}/{file}")
    return f"set aside in {place}"


def _move(job: Folder, file: str, goal: str) -> None:
    if job.local is not None:
        to: Path = job.local / goal
        to.parent.mkdir(parents=True, exist_ok=True)
        try:
            os.replace(job.local / file, to)
        except FileNotFoundError:
            return
        return
    with store.scratch() as place:
        copy = place / "copy"
        try:
            with job.open(file) as data, copy.open("wb") as out:
                shutil.copyfileobj(data, out)
        except FileNotFoundError:
            return
        job.put(goal, copy)
    job.remove([file])
