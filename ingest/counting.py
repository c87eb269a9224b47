"""What counts of a job: manifests whose files all stand, one source of a rank."""

from __future__ import annotations

import contextlib
import os
import stat
from pathlib import Path
from typing import TYPE_CHECKING

from . import rooms, settings, store
from .detect import clash_group
from .errors import WarehouseError
from .keeping import packs, tombstone
from .manifest import (
    PACKED,
    BadManifest,
    Generation,
    Manifest,
    generation_id,
    generation_manifest_name,
    is_pack,
    read_generation,
    read_manifest,
    source_manifest_name,
)
from .store import Folder, Place

if TYPE_CHECKING:
    from .object_jobs import Look

_TRIES = 20


def readable_manifests(place: Place) -> tuple[list[Manifest], list[BadManifest]]:
    """The job's sources whose files all stand, by id, and what is wrong with other manifests.

    Those of packs are given one by one. Raises WarehouseError where the job changes faster than it
    can be read.
    """
    return _counted(place, standing(place))


def readable_in(objects: Folder, seen: Look) -> tuple[list[Manifest], list[BadManifest]]:
    """The same of a job in an object store, as it was seen."""
    return _counted(objects, _standing_in(objects, seen))


def _counted(place: Place, found: packs.Standing) -> tuple[list[Manifest], list[BadManifest]]:
    sources = [s for m in found.units for s in packs.sources(m)]
    return _one_source_each(store.folder(place), sources, found.bad, found.covered)


def standing(place: Place) -> packs.Standing:
    """Which of a job's manifests count, as they lie there: packs, and sources that are in none.

    What is pruned meanwhile is either seen whole or not at all (`keeping.tombstone`).
    """
    folder = store.folder(place)
    if (objects := store.in_objects(place)) is not None:
        from . import object_jobs

        seen = object_jobs.look(objects)
        object_jobs.write_list(objects, seen)
        return _standing_in(objects, seen)
    for _ in range(_TRIES):
        stone = tombstone.read(folder)
        found = _standing(store.on_disk(place), stone)
        if found is not None and tombstone.read(folder) == stone:
            return found
    raise WarehouseError(f"{folder}: changes faster than it can be read; try again")


def readable_packs(place: Place) -> list[Manifest]:
    """All packs of a job whose files stand, those too that another took the place of."""
    good: list[Manifest] = []
    if (objects := store.in_objects(place)) is not None:
        from . import object_jobs

        seen = object_jobs.look(objects)
        found = [m for m in seen.manifests.values() if isinstance(m, Manifest)]
        return [
            m for m in found if m.format == PACKED and not seen.missing(m) and packs.is_sound(m)
        ]
    job_folder, stone = store.on_disk(place), tombstone.read(store.folder(place))
    for name in filter(is_pack, manifest_names(job_folder)):
        path = job_folder / rooms.MANIFESTS / name
        with contextlib.suppress(BadManifest, OSError):
            if not (name in stone.manifests and stone.has(name, path.read_bytes())):
                good.append(whole(job_folder, path))
    return good


def manifest_names(job_folder: Path) -> list[str]:
    """Names of the manifests of a job's sources and packs, in order."""
    try:
        names = os.listdir(job_folder / rooms.MANIFESTS)
    except (FileNotFoundError, NotADirectoryError):
        return []
    return sorted(n for n in names if n.endswith(".json") and not n.startswith("derived-"))


def _standing(job_folder: Path, stone: tombstone.Tombstone) -> packs.Standing | None:
    """The same on a disk; None where a manifest went away while others were read."""
    bad: list[BadManifest] = []
    names = manifest_names(job_folder)

    def readable(names: list[str]) -> list[Manifest]:
        good = []
        for name in names:
            path = job_folder / rooms.MANIFESTS / name
            try:
                if name in stone.manifests and stone.has(name, path.read_bytes()):
                    continue
                good.append(whole(job_folder, path))
            except FileNotFoundError:
                raise
            except OSError as e:
                bad.append(BadManifest(path, f"cannot be read: {e.strerror}"))
            except BadManifest as e:
                bad.append(e)
        return good

    try:
        of_packs = readable([n for n in names if is_pack(n)])
        counted = packs.counted(of_packs)
        covered = {source_manifest_name(id) for id in counted.covered}
        # What a pack took the place of need not be read; it stays for those who read it already.
        single = readable([n for n in names if not is_pack(n) and n not in covered])
    except FileNotFoundError:
        return None
    return packs.settled([*of_packs, *single], bad, str(job_folder / rooms.MANIFESTS))


def _standing_in(objects: Folder, seen: Look) -> packs.Standing:
    """The same in an object store, of what was seen."""
    good: list[Manifest] = []
    bad: list[BadManifest] = []
    for name, m in seen.manifests.items():
        address = objects.address(f"{rooms.MANIFESTS}/{name}")
        if isinstance(m, BadManifest):
            bad.append(m)
        elif missing := seen.missing(m):
            bad.append(_missing(address, m, missing))
        else:
            try:
                packs.check(address, m)
                good.append(m)
            except BadManifest as e:
                bad.append(e)
    found = packs.settled(good, bad, objects.address(rooms.MANIFESTS))
    covered = {source_manifest_name(id) for id in found.covered}
    return found._replace(bad=[e for e in found.bad if e.file not in covered])


def whole(job_folder: Path, path: Path) -> Manifest:
    """A manifest whose files stand. Raises BadManifest, FileNotFoundError, OSError."""
    manifest = read_manifest(path)
    packs.check(path, manifest)
    missing = missing_part(job_folder, manifest)
    if missing:
        raise _missing(path, manifest, missing)
    return manifest


def _missing(path: Path | str, manifest: Manifest, part: str) -> BadManifest:
    return BadManifest(
        path, f"{part} is missing or cut, so {manifest.name} is left out; ingest it again"
    )


def missing_part(job_folder: Path, manifest: Manifest | Generation) -> str | None:
    """The first file of a manifest that is not there in its full size.

    A link is none: it may lead to any file of whoever reads the job.
    """
    for part in manifest.parts:
        try:
            found = os.lstat(os.path.join(job_folder, part.file))
        except FileNotFoundError:
            return part.file
        if found.st_size != part.bytes or not stat.S_ISREG(found.st_mode):
            return part.file
    return None


def _one_source_each(
    job_folder: Folder, good: list[Manifest], bad: list[BadManifest], packed: set[str]
) -> tuple[list[Manifest], list[BadManifest]]:
    """Leaves out a source with a rank that an earlier one has: its rows would count twice.

    Sources that do not exclude each other (`detect.clash_group`) all stay, and those that are in a
    pack (ids `packed`), which were alone when they came into it.
    """
    owners: dict[tuple[str, int], Manifest] = {}
    kept: list[Manifest] = []
    for m in sorted(good, key=lambda m: (m.id not in packed, m.created_at_ns, m.id)):
        group = clash_group(m.format)
        mine = [] if group is None else [(group, r) for r in m.ranks]
        taken = next((key for key in mine if key in owners), None)
        if taken is None or m.id in packed:
            kept.append(m)
            owners |= dict.fromkeys(mine, m)
            continue
        path = f"{job_folder}/{rooms.MANIFESTS}/{source_manifest_name(m.id)}"
        what = f"{m.name} has rank {taken[1]} as {owners[taken].name} has, so the later is left out"
        bad.append(BadManifest(path, what))
    return sorted(kept, key=lambda m: m.id), bad


def standing_generation(
    place: Place, manifests: list[Manifest], seen: Look | None = None
) -> Generation | None:
    """The generation over exactly these sources and settings whose files stand, if any.

    `seen` is what a job in an object store was just seen to be, which saves a listing.
    """
    if (objects := store.in_objects(place)) is not None:
        from . import object_jobs

        said = settings.usable(objects).digest_derived
        id = generation_id([m.id for m in manifests], said)
        seen = object_jobs.look(objects) if seen is None else seen
        if f"{rooms.MANIFESTS}/{generation_manifest_name(id)}" not in seen.entries:
            return None
        made = object_jobs.read_generation(objects, id)
        if made is None or made.sources != sorted(m.id for m in manifests):
            return None
        return made if seen.stands(objects, made) else None
    job_folder = store.on_disk(place)
    said = settings.usable(job_folder).digest_derived
    id = generation_id([m.id for m in manifests], said)
    path = job_folder / rooms.MANIFESTS / generation_manifest_name(id)
    try:
        found = read_generation(path)
    except (FileNotFoundError, BadManifest):
        return None
    same = found.sources == sorted(m.id for m in manifests)
    return found if same and missing_part(job_folder, found) is None else None


def stands(job_folder: Path, name: str, generation: Generation) -> bool:
    """Whether it is there already, whole; one that lists other sources is not it."""
    try:
        there = read_generation(job_folder / rooms.MANIFESTS / name)
    except (FileNotFoundError, BadManifest):
        return False
    return there.sources == generation.sources and missing_part(job_folder, there) is None
