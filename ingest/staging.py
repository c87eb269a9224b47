"""How a job's folder changes: unfinished work apart, then moved into place, its manifest last."""

from __future__ import annotations

import contextlib
import itertools
import os
import shutil
import tempfile
import uuid
from collections.abc import Iterator
from pathlib import Path

from . import clashes, counting, locks, owners, rooms, store, syncing, tidying
from .keeping import prune
from .manifest import (
    Generation,
    Manifest,
    generation_manifest_name,
    manifest_name,
    write_manifest,
)
from .roster import Roster
from .store import Place


@contextlib.contextmanager
def staging(place: Place) -> Iterator[Path]:
    """A local folder for unfinished work, removed at the end; folders left empty go with it.

    It lies in the job's folder; for a job in an object store among the temporary files, where
    what dead processes left of the kind is removed too.
    """
    if store.in_objects(place) is not None:
        with rooms.writing(tempfile.gettempdir()):
            _remove_scratch()
            scratch = Path(tempfile.mkdtemp(prefix=f"{owners.SCRATCH}{owners.owner()}."))
        try:
            yield scratch
        finally:
            shutil.rmtree(scratch, ignore_errors=True)
        return
    job_folder = store.on_disk(place)
    rooms.check(job_folder)
    folder = job_folder / rooms.INCOMING / f"{owners.owner()}.{uuid.uuid4().hex[:8]}"
    new = list(itertools.takewhile(lambda p: not p.exists(), (folder, *folder.parents)))
    try:
        with rooms.writing(job_folder.parent):
            rooms.make(folder)
        yield folder
    finally:
        shutil.rmtree(folder, ignore_errors=True)
        locks.remove_if_unused(job_folder)
        for parent in (job_folder.parent, *job_folder.parent.parents):
            if parent not in new:
                break
            with contextlib.suppress(OSError):
                parent.rmdir()


def _remove_scratch() -> None:
    """Removes what this user's processes that are gone left among the temporary files."""
    for path in Path(tempfile.gettempdir()).glob(f"{owners.SCRATCH}*"):
        with contextlib.suppress(OSError):
            if path.is_symlink() or path.stat().st_uid != os.getuid():
                continue
            if not owners.alive(path.name.removeprefix(owners.SCRATCH), path):
                shutil.rmtree(path, ignore_errors=True)


def commit(
    place: Place,
    staged: Path,
    moves: list[tuple[str, str]],
    manifest: Manifest,
    roster: Roster,
) -> bool:
    """Moves a finished source's files from `staged` into the job and lets its manifest stand.

    `moves` are (name in `staged`, path in the job's folder). `roster` is what is known of
    the job's sources, and is brought up to date: a manifest never changes, so only new ones are
    read. Gives False, and does nothing, where the source is there already. Raises
    RankClash where another source has one of its ranks, WarehouseError where the disk refuses;
    the job then is as it was before.
    """

    def check(present: list[Manifest]) -> None:
        clashes.check_clash(place, manifest.name, manifest.format, manifest.ranks, present)

    if (objects := store.in_objects(place)) is not None:
        from . import object_commits

        with rooms.writing(objects.parent):
            return object_commits.commit(objects, staged, moves, manifest, roster, check)
    job_folder = store.on_disk(place)
    with rooms.writing(job_folder.parent), locks.locked(job_folder):
        prune.remove_dead(store.folder(job_folder))
        roster.refresh()
        if roster.has(manifest.id) is not None:
            return False
        check(roster.rivals(manifest.format, manifest.ranks))
        name = manifest_name(manifest)
        _move_in(job_folder, staged, moves, manifest, name)
        roster.put(name, manifest)
    return True


def publish(
    place: Place, staged: Path, moves: list[tuple[str, str]], generation: Generation
) -> None:
    """Moves a derived generation into the job, then removes those out of use for long.

    The ones that it supersedes stay for a while (`tidying.SUPERSEDED_S`): a reader who took a
    snapshot before goes on reading their files.
    """
    if (objects := store.in_objects(place)) is not None:
        from . import object_commits

        with rooms.writing(objects.parent):
            object_commits.publish(objects, staged, moves, generation, tidying.out_of_use)
        return
    job_folder = store.on_disk(place)
    with rooms.writing(job_folder.parent), locks.locked(job_folder) as held:
        name = generation_manifest_name(generation.id)
        if not counting.stands(job_folder, name, generation):
            _move_in(job_folder, staged, moves, generation, name)
        tidying.remove_out_of_use(job_folder, held)


def _move_in(
    job_folder: Path,
    staged: Path,
    moves: list[tuple[str, str]],
    manifest: Manifest | Generation,
    manifest_name: str,
) -> None:
    done: list[Path] = []
    try:
        (job_folder / rooms.MANIFESTS).mkdir(exist_ok=True)
        folders = {job_folder / rooms.MANIFESTS, job_folder}
        unfinished = staged / manifest_name
        write_manifest(unfinished, manifest)
        for source, target in moves:
            goal = job_folder / target
            goal.parent.mkdir(parents=True, exist_ok=True)
            folders.update((goal.parent, goal.parent.parent))
            done.append(goal)
            os.replace(staged / source, goal)
        syncing.side_by_side(_sync_folder, folders - {job_folder / rooms.MANIFESTS})
        done.append(job_folder / rooms.MANIFESTS / manifest_name)
        os.replace(unfinished, done[-1])
        _sync_folder(job_folder / rooms.MANIFESTS)
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
        if e.errno not in locks.NO_LOCKS:  # some file systems do not sync folders
            raise
    finally:
        os.close(fd)
