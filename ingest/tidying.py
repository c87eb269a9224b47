"""What is removed of a job: generations out of use, packed sources, what dead processes left."""

from __future__ import annotations

import contextlib
import os
import shutil
from pathlib import Path
from typing import TypeVar

from . import clock, counting, locks, owners, rooms, settings, store
from .keeping import prune, tombstone
from .manifest import (
    PACKED,
    BadManifest,
    generation_id,
    is_pack,
    manifest_name,
    read_generation,
    read_manifest,
    source_manifest_name,
)
from .store import Place

T = TypeVar("T")

SUPERSEDED_S = 24 * 3600.0
"""So long after another took its place a derived generation stays, for those who read it."""

GENERATIONS_KEPT = 8
"""No more than these stay, the newest of them: a source a call must not fill the disk."""

STILL_READ_S = 3600.0
"""But one stays for so long after another took its place, however many came since ..."""

MOST_GENERATIONS = 64
"""... unless these did."""


def remove_out_of_use(job_folder: Path, held: bool) -> None:
    """Removes the generations that nobody is to read any more, and the files of none.

    The caller has the job's lock, or `held` is False: the file system has none.
    """
    _remove_superseded(job_folder)
    _remove_kept(job_folder)
    standing = {p.stem for p in (job_folder / rooms.MANIFESTS).glob("derived-*.json")}
    read = _still_read(job_folder, SUPERSEDED_S)
    for path in job_folder.glob("*/derived-*.parquet"):
        if _generation_of(path) not in standing and (held or _old(job_folder, path)):
            with contextlib.suppress(FileNotFoundError):
                if path.stat().st_mtime_ns > read:
                    path.unlink()


def out_of_use(found: list[tuple[int, T, bool]], now: int) -> list[T]:
    """Of generations (made at, name, whether it is of what is there now), the newest first: those
    that nobody is to read any more. Times (ns) are by the clock of where they lie."""
    removed = []
    for n, (_, name, current) in enumerate(found):
        if n == 0 or current:
            continue
        superseded_s = (now - found[n - 1][0]) / 1e9
        grace_s = STILL_READ_S if n >= GENERATIONS_KEPT else SUPERSEDED_S
        if n >= MOST_GENERATIONS or superseded_s >= grace_s:
            removed.append(name)
    return removed


def remove_orphans(place: Place, grace_s: float | None = None) -> list[str]:
    """Removes what dead processes left: unfinished work, and files that no manifest names.

    Unfinished work goes when its process is gone (same machine) or when nothing touched it for
    `owners.ABANDONED_S`; derived generations that are out of use go too, and single sources
    `grace_s` (`SUPERSEDED_S`) after a pack took their place. Returns the paths removed, relative to
    the job's folder.
    """
    removed: list[str] = []
    if (objects := store.in_objects(place)) is not None:
        from . import object_commits, object_jobs

        seen = object_jobs.look(objects)
        grace_s = SUPERSEDED_S if grace_s is None else grace_s
        now = clock.clock_ns(objects)
        return object_commits.sweep(objects, seen, out_of_use, owners.ABANDONED_S, grace_s, now)
    job_folder = store.on_disk(place)
    if not job_folder.is_dir():
        return removed
    rooms.check(job_folder)
    with rooms.writing(job_folder.parent):
        with locks.locked(job_folder) as held:
            manifests = job_folder / rooms.MANIFESTS
            prune.remove_dead(store.folder(job_folder))
            gone = [
                *_remove_superseded(job_folder),
                *_remove_kept(job_folder),
                *_remove_packed(job_folder, SUPERSEDED_S if grace_s is None else grace_s),
            ]
            removed += [str(p.relative_to(job_folder)) for p in gone]
            stems = {p.stem for p in manifests.glob("*.json")}
            read = _still_read(job_folder, SUPERSEDED_S if grace_s is None else grace_s)
            for path in _parts_there(job_folder):
                derived = path.stem.startswith("derived-")
                stem = _generation_of(path) if derived else path.stem.split("-")[0]
                # A commit holds the lock from its first file to its manifest.
                if stem not in stems and (held or _old(job_folder, path)):
                    with contextlib.suppress(FileNotFoundError):
                        if path.stat().st_mtime_ns > read:
                            path.unlink()
                            removed.append(str(path.relative_to(job_folder)))
            for path in _partial(job_folder):
                path.unlink(missing_ok=True)
                removed.append(str(path.relative_to(job_folder)))
        # Last: they say that there may be something to remove (`remove_left_behind`).
        for token in _abandoned(job_folder):
            shutil.rmtree(token, ignore_errors=True)
            removed.append(str(token.relative_to(job_folder)))
    return removed


def remove_left_behind(place: Place) -> None:
    """`remove_orphans`, where a writer's unfinished work says that it died; else nothing is read.

    A writer has a folder for it from before its first file until after its last manifest, so the
    next of a thousand that write one job needs not look at what those before brought.
    """
    job_folder = store.on_disk(place)
    if job_folder.is_dir() and _abandoned(job_folder):
        remove_orphans(job_folder)


def _abandoned(job_folder: Path) -> list[Path]:
    """Unfinished work of those who are gone."""
    incoming = job_folder / rooms.INCOMING
    found = sorted(incoming.iterdir()) if incoming.is_dir() else []
    return [
        t
        for t in found
        if t.is_dir() and not owners.alive(t.name, t, lambda: clock.now_ns(job_folder))
    ]


def _remove_superseded(job_folder: Path) -> list[Path]:
    """Removes the manifests of generations that nobody is to read any more; gives their paths.

    A generation is out of use from the making of the next one on, unless it is this version's
    of exactly the sources and settings that are there now.
    """
    present = _present(job_folder)
    said = settings.usable(job_folder).digest_derived
    found: list[tuple[int, Path, bool]] = []
    for path in (job_folder / rooms.MANIFESTS).glob("derived-*.json"):
        try:
            g = read_generation(path)
            current = {s[:16] for s in g.sources} == present
            current = current and g.id == generation_id(g.sources, said)
        except FileNotFoundError:
            continue
        except BadManifest:
            current = False
        with contextlib.suppress(FileNotFoundError):
            found.append((path.stat().st_mtime_ns, path, current))
    removed = out_of_use(sorted(found, reverse=True), clock.now_ns(job_folder)) if found[1:] else []
    for path in removed:
        path.unlink(missing_ok=True)
    return removed


def _present(job_folder: Path) -> set[str]:
    """The first 16 digits of each source's id, as far as names and packs tell."""
    names = counting.manifest_names(job_folder)
    found = {n.removesuffix(".json") for n in names if not is_pack(n)}
    for name in filter(is_pack, names):
        with contextlib.suppress(BadManifest, OSError):
            found |= {id[:16] for id in read_manifest(job_folder / rooms.MANIFESTS / name).ids}
    return found


def _generation_of(path: Path) -> str:
    """Whose a derived file is, as the name of its manifest has it: a token may follow."""
    return "-".join(path.stem.split("-")[:2])


def _remove_kept(job_folder: Path) -> list[Path]:
    """Removes what was computed from generations that stand no more (`kept`); gives the paths."""
    standing = {
        p.stem.removeprefix("derived-")
        for p in (job_folder / rooms.MANIFESTS).glob("derived-*.json")
    }
    removed = [
        p for p in (job_folder / rooms.KEPT).glob("*") if p.name.split(".")[0] not in standing
    ]
    for path in removed:
        path.unlink(missing_ok=True)
    return removed


def _remove_packed(job_folder: Path, grace_s: float) -> list[Path]:
    """Removes manifests whose sources a pack has had for long; gives the paths.

    Their files go with what no manifest names.
    """
    names = counting.manifest_names(job_folder)
    if not any(map(is_pack, names)):
        return []
    units = counting.standing(job_folder).units
    before = clock.now_ns(job_folder) - grace_s * 1e9
    packed = []
    for m in units:
        if m.format == PACKED:
            with contextlib.suppress(FileNotFoundError):
                made_ns = (job_folder / rooms.MANIFESTS / manifest_name(m)).stat().st_mtime_ns
                packed += [m] if made_ns <= before else []
    ids = {id for m in packed for id in m.ids}
    single = {source_manifest_name(id) for id in ids}
    removed = []
    for name in {*names} - {manifest_name(m) for m in units}:
        path = job_folder / rooms.MANIFESTS / name
        with contextlib.suppress(BadManifest, OSError):
            if name in single or (is_pack(name) and ids.issuperset(read_manifest(path).ids)):
                path.unlink(missing_ok=True)
                removed.append(path)
    return removed


def _still_read(job_folder: Path, grace_s: float) -> int:
    """When (ns) the job was pruned, if that is no longer ago than `grace_s`; else -1.

    Files of before are no orphans yet: whoever read the job then goes on reading it.
    """
    try:
        pruned_ns = (job_folder / tombstone.FILE).stat().st_mtime_ns
    except OSError:
        return -1
    return pruned_ns if clock.now_ns(job_folder) - pruned_ns < grace_s * 1e9 else -1


def _parts_there(job_folder: Path) -> list[Path]:
    """The Parquet files of tables and of `_staged`, in order.

    Others' unfinished work is not looked into: it may go at any moment.
    """
    found: list[Path] = []
    for here, folders, files in os.walk(job_folder):
        depth = len(Path(here).relative_to(job_folder).parts)
        if depth == 0:
            folders[:] = [f for f in folders if f not in (rooms.INCOMING, rooms.KEPT)]
        else:
            found += [Path(here) / name for name in files if name.endswith(".parquet")]
        if depth == 2:
            folders.clear()
    return sorted(found)


def _partial(job_folder: Path) -> list[Path]:
    """Files that a process was writing (`store.local`) when it died."""
    found: list[Path] = []
    for room in (job_folder, *(p for p in job_folder.glob("_*") if p.name != rooms.INCOMING)):
        for path in room.glob(".*"):
            parts = path.name.rsplit(".", 5)
            whose = ".".join(parts[1:])
            partial = len(parts) == 6 and path.is_file()
            if partial and not owners.alive(whose, path, lambda: clock.now_ns(job_folder)):
                found.append(path)
    return found


def _old(job_folder: Path, path: Path) -> bool:
    try:
        return clock.now_ns(job_folder) - path.stat().st_mtime_ns > owners.ABANDONED_S * 1e9
    except FileNotFoundError:
        return False
