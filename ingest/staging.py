"""How a job's folder changes: unfinished work apart, then moved into place, its manifest last."""

from __future__ import annotations

import contextlib
import errno
import fcntl
import hashlib
import os
import re
import shutil
import socket
import stat
import tempfile
import time
import uuid
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import TYPE_CHECKING, TypeVar

from . import rooms, settings, store
from .detect import clash_group
from .errors import StoreRefused, UsageError, WarehouseError
from .keeping import packs, tombstone
from .manifest import (
    PACKED,
    BadManifest,
    Generation,
    Manifest,
    generation_id,
    generation_manifest_name,
    is_pack,
    manifest_name,
    read_generation,
    read_manifest,
    source_manifest_name,
    write_manifest,
)
from .store import Folder, Place
from .suggested import command

if TYPE_CHECKING:
    from .object_jobs import Look

T = TypeVar("T")

MANIFESTS = "_manifests"
INCOMING = "_incoming"
KEPT = "_kept"
SCRATCH = "retime-scratch-"
COMMIT_LOCK = "lock"
DERIVE_LOCK = "derive.lock"
ABANDONED_S = 24 * 3600.0
"""Unfinished work of another machine that nothing has touched for so long is given up."""

SUPERSEDED_S = 24 * 3600.0
"""So long after another took its place a derived generation stays, for those who read it."""

GENERATIONS_KEPT = 8
"""No more than these stay, the newest of them: a source a call must not fill the disk."""

STILL_READ_S = 3600.0
"""But one stays for so long after another took its place, however many came since ..."""

MOST_GENERATIONS = 64
"""... unless these did."""

_TRIES = 20

_FULL = (errno.ENOSPC, errno.EDQUOT, errno.EFBIG)
_REFUSED = (errno.EACCES, errno.EPERM, errno.EROFS)
_NO_LOCKS = (errno.ENOLCK, errno.EOPNOTSUPP, errno.ENOSYS, errno.EINVAL, errno.EBADF)


class RankClash(UsageError):
    """A rank of the job would get a second trace with other content."""


def _of_objects(place: Place) -> Folder | None:
    """The folder, where it lies in an object store; None where it is on a disk."""
    found = None if isinstance(place, Path) else store.folder(place)
    return found if found is not None and found.local is None else None


def _path(place: Place) -> Path:
    found = place if isinstance(place, Path) else store.folder(place).local
    assert found is not None
    return found


@contextlib.contextmanager
def writing(place: Place) -> Iterator[None]:
    """Turns OSErrors inside into a WarehouseError that says what to do about `place`."""
    try:
        yield
    except OSError as e:
        if e.errno in _FULL:
            raise WarehouseError(
                f"{place}: the disk (or quota) is full; what was unfinished has been removed, "
                "what was finished stays: free space and run the same command again"
            ) from e
        if e.errno in _REFUSED:
            raise WarehouseError(
                f"{place}: cannot be written ({os.strerror(e.errno)}); "
                "check its owner and mode, or name another with --warehouse"
            ) from e
        raise WarehouseError(f"{place}: writing failed: {e}") from e


@contextlib.contextmanager
def staging(place: Place) -> Iterator[Path]:
    """A local folder for unfinished work, removed at the end; folders left empty go with it.

    It lies in the job's folder; for a job in an object store among the temporary files, where
    what dead processes left of the kind is removed too.
    """
    if _of_objects(place) is not None:
        with writing(tempfile.gettempdir()):
            _remove_scratch()
            scratch = Path(tempfile.mkdtemp(prefix=f"{SCRATCH}{owner()}."))
        try:
            yield scratch
        finally:
            shutil.rmtree(scratch, ignore_errors=True)
        return
    job_folder = _path(place)
    rooms.check(job_folder)
    folder = job_folder / INCOMING / f"{owner()}.{uuid.uuid4().hex[:8]}"
    new = [p for p in (folder, *folder.parents) if not p.exists()]
    try:
        with writing(job_folder.parent):
            _make(folder)
        yield folder
    finally:
        shutil.rmtree(folder, ignore_errors=True)
        remove_if_unused(job_folder)
        for parent in (job_folder.parent, *job_folder.parent.parents):
            if parent not in new:
                break
            with contextlib.suppress(OSError):
                parent.rmdir()


def _remove_scratch() -> None:
    """Removes what this user's processes that are gone left among the temporary files."""
    for path in Path(tempfile.gettempdir()).glob(f"{SCRATCH}*"):
        with contextlib.suppress(OSError):
            if path.is_symlink() or path.stat().st_uid != os.getuid():
                continue
            if not alive(path.name.removeprefix(SCRATCH), path):
                shutil.rmtree(path, ignore_errors=True)


def _make(folder: Path) -> None:
    """Makes a folder; again where another process removed an empty parent in between."""
    for attempt in range(20):
        try:
            folder.mkdir(parents=True, exist_ok=True)
            return
        except FileNotFoundError:
            if attempt == 19:
                raise


def remove_if_unused(job_folder: Path) -> None:
    """Removes a job's folder that holds no manifest, no unfinished work and no other file."""
    manifests = job_folder / MANIFESTS
    if manifests.is_dir() and any(manifests.iterdir()):
        return
    with contextlib.suppress(OSError):
        locks = {COMMIT_LOCK, DERIVE_LOCK}
        if any(p.name not in locks for p in (job_folder / INCOMING).iterdir()):
            return
        with locked(job_folder):
            if manifests.is_dir() and any(manifests.iterdir()):
                return
            for here, _, files in os.walk(job_folder, topdown=False):
                if here == str(job_folder / INCOMING) and locks.issuperset(files):
                    for name in files:
                        os.unlink(os.path.join(here, name))
                os.rmdir(here)  # refuses a folder with anything in it


@contextlib.contextmanager
def locked(place: Place, name: str = COMMIT_LOCK) -> Iterator[bool]:
    """Holds one of the job's locks; gives False where the file system has no locks.

    The lock goes with the process, however that ends. Without locks two processes that bring
    different traces of one rank in the same instant may both be taken, and `readable_manifests`
    leaves the later one out; nothing else depends on it. In an object store the lock of short
    changes is a claim, and there is no other.
    """
    if (objects := _of_objects(place)) is not None:
        if name != COMMIT_LOCK:
            yield False
            return
        from .store.claims import claimed

        with claimed(objects, [name]):
            yield True
        return
    job_folder = _path(place)
    rooms.check(job_folder)
    fd, held = _take_lock(job_folder / INCOMING / name)
    try:
        yield held
    finally:
        os.close(fd)


def _take_lock(path: Path) -> tuple[int, bool]:
    while True:
        try:
            _make(path.parent)
            fd = os.open(path, os.O_RDWR | os.O_CREAT, 0o666)
        except FileNotFoundError:
            continue  # the folder went away in between
        try:
            fcntl.flock(fd, fcntl.LOCK_EX)
        except OSError as e:
            if e.errno in _NO_LOCKS:
                return fd, False
            os.close(fd)
            raise
        try:
            if os.fstat(fd).st_ino == os.stat(path).st_ino:
                return fd, True
        except FileNotFoundError:
            pass
        os.close(fd)  # whoever held it removed the file: a lock on it excludes nobody


def commit(
    place: Place,
    staged: Path,
    moves: list[tuple[str, str]],
    manifest: Manifest,
    known: dict[str, Manifest | None],
) -> bool:
    """Moves a finished source's files from `staged` into the job and lets its manifest stand.

    `moves` are (name in `staged`, path in the job's folder). `known` holds the manifests read so
    far by file name (None: unusable) and is brought up to date: a manifest never changes, so only
    new ones are read. Gives False, and does nothing, where the source is there already. Raises
    RankClash where another source has one of its ranks, WarehouseError where the disk refuses;
    the job then is as it was before.
    """

    def check(present: list[Manifest]) -> None:
        check_clash(place, manifest.name, manifest.format, manifest.ranks, present)

    if (objects := _of_objects(place)) is not None:
        from . import object_commits

        with writing(objects.parent):
            return object_commits.commit(objects, staged, moves, manifest, known, check)
    job_folder = _path(place)
    with writing(job_folder.parent), locked(job_folder):
        _remove_dead(job_folder)
        for name in _manifest_names(job_folder):
            if name not in known:
                try:
                    known[name] = read_manifest(job_folder / MANIFESTS / name)
                except BadManifest:
                    known[name] = None
        present = [s for m in known.values() if m is not None for s in packs.sources(m)]
        if any(m.id == manifest.id for m in present):
            return False
        check(present)
        name = manifest_name(manifest)
        _move_in(job_folder, staged, moves, manifest, name)
        known[name] = manifest
    return True


def _remove_dead(job_folder: Path) -> None:
    from .keeping import prune  # it locks as this does, and imports it

    prune.remove_dead(store.folder(job_folder))


def publish(
    place: Place, staged: Path, moves: list[tuple[str, str]], generation: Generation
) -> None:
    """Moves a derived generation into the job, then removes those out of use for long.

    The ones that it supersedes stay for a while (`SUPERSEDED_S`): a reader who took a snapshot
    before goes on reading their files.
    """
    if (objects := _of_objects(place)) is not None:
        from . import object_commits

        with writing(objects.parent):
            object_commits.publish(objects, staged, moves, generation, _out_of_use)
        return
    job_folder = _path(place)
    with writing(job_folder.parent), locked(job_folder) as held:
        name = generation_manifest_name(generation.id)
        if not _stands(job_folder, name, generation):
            _move_in(job_folder, staged, moves, generation, name)
        _remove_superseded(job_folder)
        _remove_kept(job_folder)
        standing = {p.stem for p in (job_folder / MANIFESTS).glob("derived-*.json")}
        read = _still_read(job_folder, SUPERSEDED_S)
        for path in job_folder.glob("*/derived-*.parquet"):
            if _generation_of(path) not in standing and (held or _old(job_folder, path)):
                with contextlib.suppress(FileNotFoundError):
                    if path.stat().st_mtime_ns > read:
                        path.unlink()


def _remove_superseded(job_folder: Path) -> list[Path]:
    """Removes the manifests of generations that nobody is to read any more; gives their paths.

    A generation is out of use from the making of the next one on, unless it is this version's
    of exactly the sources and settings that are there now.
    """
    present = _present(job_folder)
    said = settings.usable(job_folder).digest_derived
    found: list[tuple[int, Path, bool]] = []
    for path in (job_folder / MANIFESTS).glob("derived-*.json"):
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
    removed = _out_of_use(sorted(found, reverse=True), now_ns(job_folder)) if found[1:] else []
    for path in removed:
        path.unlink(missing_ok=True)
    return removed


def _out_of_use(found: list[tuple[int, T, bool]], now: int) -> list[T]:
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


def _present(job_folder: Path) -> set[str]:
    """The first 16 digits of each source's id, as far as names and packs tell."""
    names = _manifest_names(job_folder)
    found = {n.removesuffix(".json") for n in names if not is_pack(n)}
    for name in filter(is_pack, names):
        with contextlib.suppress(BadManifest, OSError):
            found |= {id[:16] for id in read_manifest(job_folder / MANIFESTS / name).ids}
    return found


def _generation_of(path: Path) -> str:
    """Whose a derived file is, as the name of its manifest has it: a token may follow."""
    return "-".join(path.stem.split("-")[:2])


def _remove_kept(job_folder: Path) -> list[Path]:
    """Removes what was computed from generations that stand no more (`kept`); gives the paths."""
    standing = {
        p.stem.removeprefix("derived-") for p in (job_folder / MANIFESTS).glob("derived-*.json")
    }
    removed = [p for p in (job_folder / KEPT).glob("*") if p.name.split(".")[0] not in standing]
    for path in removed:
        path.unlink(missing_ok=True)
    return removed


def _remove_packed(job_folder: Path, grace_s: float) -> list[Path]:
    """Removes manifests whose sources a pack has had for long; gives the paths.

    Their files go with what no manifest names.
    """
    names = _manifest_names(job_folder)
    if not any(map(is_pack, names)):
        return []
    units = standing(job_folder).units
    before = now_ns(job_folder) - grace_s * 1e9
    packed = []
    for m in units:
        if m.format == PACKED:
            with contextlib.suppress(FileNotFoundError):
                made_ns = (job_folder / MANIFESTS / manifest_name(m)).stat().st_mtime_ns
                packed += [m] if made_ns <= before else []
    ids = {id for m in packed for id in m.ids}
    single = {source_manifest_name(id) for id in ids}
    removed = []
    for name in {*names} - {manifest_name(m) for m in units}:
        path = job_folder / MANIFESTS / name
        with contextlib.suppress(BadManifest, OSError):
            if name in single or (is_pack(name) and ids.issuperset(read_manifest(path).ids)):
                path.unlink(missing_ok=True)
                removed.append(path)
    return removed


def standing_generation(
    place: Place, manifests: list[Manifest], seen: Look | None = None
) -> Generation | None:
    """The generation over exactly these sources and settings whose files stand, if any.

    `seen` is what a job in an object store was just seen to be, which saves a listing.
    """
    if (objects := _of_objects(place)) is not None:
        from . import object_jobs

        said = settings.usable(objects).digest_derived
        id = generation_id([m.id for m in manifests], said)
        seen = object_jobs.look(objects) if seen is None else seen
        if f"{MANIFESTS}/{generation_manifest_name(id)}" not in seen.entries:
            return None
        made = object_jobs.read_generation(objects, id)
        if made is None or made.sources != sorted(m.id for m in manifests):
            return None
        return made if seen.stands(objects, made) else None
    job_folder = _path(place)
    said = settings.usable(job_folder).digest_derived
    id = generation_id([m.id for m in manifests], said)
    path = job_folder / MANIFESTS / generation_manifest_name(id)
    try:
        found = read_generation(path)
    except (FileNotFoundError, BadManifest):
        return None
    same = found.sources == sorted(m.id for m in manifests)
    return found if same and missing_part(job_folder, found) is None else None


def _stands(job_folder: Path, name: str, generation: Generation) -> bool:
    """Whether it is there already, whole; one that lists other sources is not it."""
    try:
        there = read_generation(job_folder / MANIFESTS / name)
    except (FileNotFoundError, BadManifest):
        return False
    return there.sources == generation.sources and missing_part(job_folder, there) is None


def _move_in(
    job_folder: Path,
    staged: Path,
    moves: list[tuple[str, str]],
    manifest: Manifest | Generation,
    manifest_name: str,
) -> None:
    done: list[Path] = []
    try:
        (job_folder / MANIFESTS).mkdir(exist_ok=True)
        folders = {job_folder / MANIFESTS, job_folder}
        unfinished = staged / manifest_name
        write_manifest(unfinished, manifest)
        for source, target in moves:
            goal = job_folder / target
            goal.parent.mkdir(parents=True, exist_ok=True)
            folders.update((goal.parent, goal.parent.parent))
            done.append(goal)
            os.replace(staged / source, goal)
        with ThreadPoolExecutor(16) as pool:
            list(pool.map(_sync_folder, folders - {job_folder / MANIFESTS}))
        done.append(job_folder / MANIFESTS / manifest_name)
        os.replace(unfinished, done[-1])
        _sync_folder(job_folder / MANIFESTS)
    except BaseException:
        for path in reversed(done):  # the manifest first: without it nothing else counts
            with contextlib.suppress(OSError):
                path.unlink(missing_ok=True)
        raise


def _sync_folder(folder: Path) -> None:
    fd = os.open(folder, os.O_RDONLY)
    try:
        os.fsync(fd)
    except OSError as e:
        if e.errno not in _NO_LOCKS:  # some file systems do not sync folders
            raise
    finally:
        os.close(fd)


def check_clash(
    job_folder: Place, name: str, format: str, ranks: list[int], present: list[Manifest]
) -> None:
    """Raises RankClash where a present source that excludes this one has one of the ranks.

    Two timelines of a rank exclude each other, of whatever format; so do two sources of a format
    that gives one a rank. Sources that add to a timeline do not (see `detect.clash_group`).
    """
    group = clash_group(format)
    if group is None:
        return
    for other in present:
        if clash_group(other.format) != group:
            continue
        both = sorted(set(ranks).intersection(other.ranks))
        if both:
            raise clash(job_folder, both[0], name, other.name, stands=True)


def clash(
    job_folder: Place, rank: int, name: str, other: str, *, stands: bool = False
) -> RankClash:
    """The error for two different traces of one rank; `stands` where the job has the other."""
    folder = store.folder(job_folder)
    job = folder.name.removeprefix("job=")
    prune = command("prune", job, "--yes", warehouse=str(folder.parent))
    instead = (
        f"; or, where it is to replace what the job has (which was cut short, say), `{prune}` and "
        "all of the job's traces again"
    )
    return RankClash(
        f"rank {rank} of job {job} clashes: {name} and {other} differ, and a job takes one trace "
        "of a rank (one of each kind that adds to it); ingest the other into a job of its own "
        f"(--job NAME){instead if stands else ''}"
    )


def _manifest_names(job_folder: Path) -> list[str]:
    try:
        names = os.listdir(job_folder / MANIFESTS)
    except (FileNotFoundError, NotADirectoryError):
        return []
    return sorted(n for n in names if n.endswith(".json") and not n.startswith("derived-"))


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
    if (objects := _of_objects(place)) is not None:
        from . import object_jobs

        seen = object_jobs.look(objects)
        object_jobs.write_list(objects, seen)
        return _standing_in(objects, seen)
    for _ in range(_TRIES):
        stone = tombstone.read(folder)
        found = _standing(_path(place), stone)
        if found is not None and tombstone.read(folder) == stone:
            return found
    raise WarehouseError(f"{folder}: changes faster than it can be read; try again")


def readable_packs(place: Place) -> list[Manifest]:
    """All packs of a job whose files stand, those too that another took the place of."""
    good: list[Manifest] = []
    if (objects := _of_objects(place)) is not None:
        from . import object_jobs

        seen = object_jobs.look(objects)
        found = [m for m in seen.manifests.values() if isinstance(m, Manifest)]
        return [
            m for m in found if m.format == PACKED and not seen.missing(m) and packs.is_sound(m)
        ]
    job_folder, stone = _path(place), tombstone.read(store.folder(place))
    for name in filter(is_pack, _manifest_names(job_folder)):
        path = job_folder / MANIFESTS / name
        with contextlib.suppress(BadManifest, OSError):
            if not (name in stone.manifests and stone.has(name, path.read_bytes())):
                good.append(_whole(job_folder, path))
    return good


def _standing(job_folder: Path, stone: tombstone.Tombstone) -> packs.Standing | None:
    """The same on a disk; None where a manifest went away while others were read."""
    bad: list[BadManifest] = []
    names = _manifest_names(job_folder)

    def readable(names: list[str]) -> list[Manifest]:
        good = []
        for name in names:
            path = job_folder / MANIFESTS / name
            try:
                if name in stone.manifests and stone.has(name, path.read_bytes()):
                    continue
                good.append(_whole(job_folder, path))
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
    return packs.settled([*of_packs, *single], bad, str(job_folder / MANIFESTS))


def _standing_in(objects: Folder, seen: Look) -> packs.Standing:
    """The same in an object store, of what was seen."""
    good: list[Manifest] = []
    bad: list[BadManifest] = []
    for name, m in seen.manifests.items():
        address = objects.address(f"{MANIFESTS}/{name}")
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
    found = packs.settled(good, bad, objects.address(MANIFESTS))
    covered = {source_manifest_name(id) for id in found.covered}
    return found._replace(bad=[e for e in found.bad if e.file not in covered])


def _whole(job_folder: Path, path: Path) -> Manifest:
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
        path = f"{job_folder}/{MANIFESTS}/{source_manifest_name(m.id)}"
        what = f"{m.name} has rank {taken[1]} as {owners[taken].name} has, so the later is left out"
        bad.append(BadManifest(path, what))
    return sorted(kept, key=lambda m: m.id), bad


def missing_part(job_folder: Path, manifest: Manifest | Generation) -> str | None:
    """The first file of a manifest that is not there in its full size.

    A link is none: it may lead to any file of whoever reads the job.
    """
    for part in manifest.parts:
        try:
            found = os.lstat(job_folder / part.file)
        except FileNotFoundError:
            return part.file
        if found.st_size != part.bytes or not stat.S_ISREG(found.st_mode):
            return part.file
    return None


def remove_orphans(place: Place, grace_s: float | None = None) -> list[str]:
    """Removes what dead processes left: unfinished work, and files that no manifest names.

    Unfinished work goes when its process is gone (same machine) or when nothing touched it for
    `ABANDONED_S`; derived generations that are out of use go too, and single sources `grace_s`
    (`SUPERSEDED_S`) after a pack took their place. Returns the paths removed, relative to the job's
    folder.
    """
    removed: list[str] = []
    if (objects := _of_objects(place)) is not None:
        from . import object_commits, object_jobs

        seen = object_jobs.look(objects)
        grace_s = SUPERSEDED_S if grace_s is None else grace_s
        now = clock_ns(objects)
        return object_commits.sweep(objects, seen, _out_of_use, ABANDONED_S, grace_s, now)
    job_folder = _path(place)
    if not job_folder.is_dir():
        return removed
    rooms.check(job_folder)
    with writing(job_folder.parent):
        incoming = job_folder / INCOMING
        for token in sorted(incoming.iterdir()) if incoming.is_dir() else []:
            if token.is_dir() and not alive(token.name, token, lambda: now_ns(job_folder)):
                shutil.rmtree(token, ignore_errors=True)
                removed.append(str(token.relative_to(job_folder)))
        with locked(job_folder) as held:
            manifests = job_folder / MANIFESTS
            _remove_dead(job_folder)
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
    return removed


def _still_read(job_folder: Path, grace_s: float) -> int:
    """When (ns) the job was pruned, if that is no longer ago than `grace_s`; else -1.

    Files of before are no orphans yet: whoever read the job then goes on reading it.
    """
    try:
        pruned_ns = (job_folder / tombstone.FILE).stat().st_mtime_ns
    except OSError:
        return -1
    return pruned_ns if now_ns(job_folder) - pruned_ns < grace_s * 1e9 else -1


def _parts_there(job_folder: Path) -> list[Path]:
    """The Parquet files of tables and of `_staged`, in order.

    Others' unfinished work is not looked into: it may go at any moment.
    """
    found: list[Path] = []
    for here, folders, files in os.walk(job_folder):
        depth = len(Path(here).relative_to(job_folder).parts)
        if depth == 0:
            folders[:] = [f for f in folders if f not in (INCOMING, KEPT)]
        else:
            found += [Path(here) / name for name in files if name.endswith(".parquet")]
        if depth == 2:
            folders.clear()
    return sorted(found)


def _partial(job_folder: Path) -> list[Path]:
    """Files that a process was writing (`store.local`) when it died."""
    found: list[Path] = []
    for room in (job_folder, *(p for p in job_folder.glob("_*") if p.name != INCOMING)):
        for path in room.glob(".*"):
            parts = path.name.rsplit(".", 5)
            whose = ".".join(parts[1:])
            partial = len(parts) == 6 and path.is_file()
            if partial and not alive(whose, path, lambda: now_ns(job_folder)):
                found.append(path)
    return found


def now_ns(folder: Path) -> int:
    """The time by the clock of a folder's file system, by which all nodes' files there are dated.

    A node's own clock may be off by years, and what it then took for old be in the making. Where
    nothing can be written, nothing can be removed either, and its own clock will do.
    """
    try:
        with tempfile.TemporaryFile(dir=folder) as f:
            return os.fstat(f.fileno()).st_mtime_ns
    except OSError:
        return time.time_ns()


def clock_ns(folder: Folder) -> int:
    """The time by the clock of where a folder lies, on a disk or in an object store.

    In a store an object is made and removed for it; where that is refused this node's clock tells.
    Raises StoreBusy: a clock that may be off by years is no reason to remove anything.
    """
    if folder.local is not None:
        return now_ns(folder.local)
    file = f"_claims/clock-{uuid.uuid4().hex}"
    try:
        folder.put(file, b"")
        entry = folder.entry(file)
        folder.remove([file])
    except (StoreRefused, OSError):
        entry = None
    return time.time_ns() if entry is None else entry.modified_ns


def _old(job_folder: Path, path: Path) -> bool:
    try:
        return now_ns(job_folder) - path.stat().st_mtime_ns > ABANDONED_S * 1e9
    except FileNotFoundError:
        return False


def owner() -> str:
    """This process, as the name of its unfinished work: host, process space, number, start.

    In the name, because a folder and its name come into being in one moment.
    """
    host = re.sub(r"[^A-Za-z0-9-]", "-", socket.gethostname())[:60]
    space = hashlib.sha256(_process_space().encode()).hexdigest()[:12]
    return f"{host}.{space}.{os.getpid()}.{_born(os.getpid())}"


def _process_space() -> str:
    """Which process numbers compare: this boot of this machine, this container."""
    try:
        boot = Path("/proc/sys/kernel/random/boot_id").read_text().strip()
        return f"{socket.gethostname()} {boot} {os.readlink('/proc/self/ns/pid')}"
    except OSError:
        return socket.gethostname()


def _born(pid: int) -> str:
    """Start time of a process, so that a number used again is not taken for its owner."""
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[19]
    except (OSError, IndexError):
        return ""


def alive(name: str, token: Path, now: Callable[[], int] = time.time_ns) -> bool:
    """Whether somebody may still be working at unfinished work; `name` says who.

    `now` gives the time (ns) by which what is another machine's may be too old.
    """
    parts = name.split(".")
    if parts[:2] == owner().split(".")[:2] and len(parts) == 5 and parts[2].isdecimal():
        pid = int(parts[2])
        try:
            os.kill(pid, 0)
        except (ProcessLookupError, OverflowError):
            return False
        except PermissionError:
            pass
        return _born(pid) == parts[3]
    paths = [str(token)]
    for found, folders, files in os.walk(token):
        paths += [os.path.join(found, name) for name in (*folders, *files)]
    newest = 0
    for path in paths:
        with contextlib.suppress(OSError):
            newest = max(newest, os.stat(path).st_mtime_ns)
    return now() - newest < ABANDONED_S * 1e9
