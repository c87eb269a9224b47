"""The warehouse: jobs in a folder of hive-partitioned Parquet, read through snapshots."""

from __future__ import annotations

import os
import re
import tempfile
import time
from collections.abc import Iterable
from dataclasses import dataclass, field
from pathlib import Path

from . import counting, rooms, settings, store, tidying
from .errors import NoSources, StoreBusy, UsageError, WarehouseError
from .keeping import tombstone
from .made import OF_EVENTS
from .manifest import BadManifest, Generation, Manifest
from .schema import TABLES, Problem
from .store import Folder, reading

_JOB_ID = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,127}")
_HARMLESS = ("lost+found",)
_TRIES = 20


@dataclass(frozen=True)
class Snapshot:
    """A job at one moment: exactly the files that belong together.

    `files` maps every table's name to the Parquet files with its rows (absolute paths, or
    addresses in an object store; an empty list where there are none). `problems` says what of the
    job could not be used. `keep` holds a temporary folder for as long as the snapshot lives, where
    the job could not be written to. `kernels` are the user's rules for `events.category`, which
    apply where events are read. `pruned` are the tables whose rows were removed from some sources
    for their age, and when (ns since the epoch); `older` those of which some file may lack columns,
    as older versions wrote it.
    """

    job: str
    files: dict[str, list[str]]
    manifests: list[Manifest]
    generation: Generation
    problems: list[Problem] = field(default_factory=list)
    keep: object = None
    kernels: tuple[settings.KernelRule, ...] = ()
    older: frozenset[str] = frozenset()
    pruned: dict[str, int] = field(default_factory=dict)


class Warehouse:
    """A folder with `job=<id>` folders in it; it need not exist before the first ingest."""

    def __init__(self, url: str | os.PathLike[str]):
        """Takes a path, a file:// URL or an object store's address (s3://bucket/folder).

        Raises UsageError for what is no address of a folder.
        """
        text = os.fspath(url)
        if not text.removeprefix("file://"):
            raise UsageError("the warehouse's address is empty")
        self.root: Folder = store.folder(text)

    def __repr__(self) -> str:
        return f"Warehouse({str(self.root)!r})"

    @property
    def path(self) -> Path:
        """Where a warehouse on a disk is. Raises UsageError for one in an object store."""
        if self.root.local is None:
            raise UsageError(f"{self.root} is not a folder on a disk")
        return self.root.local

    def job_folder(self, job: str) -> Path | Folder:
        """Where a job lives: a path on a disk, else a Folder (`store.folder` takes both).

        Raises UsageError for an id that cannot be one.
        """
        name = f"job={check_job_id(job)}"
        return self.root / name if self.root.local is None else self.root.local / name

    def folder(self, job: str) -> Folder:
        """A job's folder, wherever it lies. Raises UsageError for an id that cannot be one."""
        return store.folder(self.job_folder(job))

    def check_readable(self) -> None:
        """Raises WarehouseError where there is no warehouse to read."""
        if self.root.local is None:
            if not self._checked(self.root.names()):
                raise WarehouseError(f"no warehouse at {self.root}: ingest something into it first")
            return
        if not os.path.lexists(self.path):
            raise WarehouseError(f"no warehouse at {self.path}: ingest something into it first")
        self._check_folder()

    def check_writable(self) -> bool:
        """Raises WarehouseError where an ingest could not write; makes nothing.

        In an object store it only tells that it can be listed and holds nothing else. Gives
        whether there is no job in it yet: a path or an address with a slip in it is as good as any.
        """
        if self.root.local is None:
            return not _any_job(self._checked(self.root.names()))
        new = not os.path.lexists(self.path) or not _any_job(self._check_folder())
        above = self.path
        while not os.path.lexists(above):
            above = above.parent
        if not above.is_dir():
            raise WarehouseError(f"{self.path}: {above} is not a folder")
        if not os.access(above, os.W_OK | os.X_OK):
            raise WarehouseError(
                f"{self.path}: cannot be written; check its owner and mode, or name another "
                "with --warehouse"
            )
        return new

    def _check_folder(self) -> list[str]:
        try:
            names = os.listdir(self.path)
        except NotADirectoryError as e:
            raise WarehouseError(f"{self.path} is a file, not a warehouse's folder") from e
        except OSError as e:
            raise WarehouseError(f"{self.path}: cannot be read: {e.strerror}") from e
        return self._checked(names)

    def _checked(self, names: list[str]) -> list[str]:
        others = [n for n in names if not n.startswith(".") and n not in _HARMLESS]
        if others and not _any_job(others):
            raise WarehouseError(
                f"{self.root} is not a warehouse: it holds other files ({sorted(others)[0]}) and "
                "no job; name a new or empty folder"
            )
        return names

    def jobs(self) -> list[str]:
        """Ids of the jobs with at least one source. Raises WarehouseError where there is none.

        In an object store a listing and a small request a job tell them, and with them jobs of
        which the first source is still on its way (`snapshot` raises NoSources for them).
        """
        if self.root.local is None:
            ids = self._listed()
            stand = reading.side_by_side(self._stands, ids, True)
            return [id for id, stands in zip(ids, stand, strict=True) if stands]
        self.check_readable()
        found = []
        for name in sorted(os.listdir(self.path)):
            job = name.removeprefix("job=")
            if name == job or not _JOB_ID.fullmatch(job):
                continue
            manifests = self.path / name / rooms.MANIFESTS
            try:
                there = [n for n in os.listdir(manifests) if n.endswith(".json")]
                if there and tombstone.alive(self.folder(job), rooms.MANIFESTS, there):
                    found.append(job)
            except OSError:
                continue
        return found

    def has(self, job: str) -> bool:
        """Whether there is a job of this id, as `jobs` has it, in as few requests as can be."""
        if self.root.local is not None:
            return job in self.jobs()
        return job in self._listed() and self._stands(job)

    def _listed(self) -> list[str]:
        """Ids of all jobs that have a folder in an object store, in one listing."""
        names = self._checked(self.root.names())
        if not names:
            self.check_readable()
        ids = [n.removeprefix("job=") for n in names if n.startswith("job=")]
        return [id for id in ids if _JOB_ID.fullmatch(id)]

    def _stands(self, job: str) -> bool:
        """Whether a job in an object store was not pruned, or came again since."""
        folder = self.folder(job)
        if folder.entry(tombstone.FILE) is None:
            return True
        names = [n for n in folder.names(rooms.MANIFESTS) if n.endswith(".json")]
        return bool(tombstone.alive(folder, rooms.MANIFESTS, names))

    def folders(self) -> list[str]:
        """Ids of all jobs that have a folder, those too that were pruned."""
        if self.root.local is None:
            return sorted(self._listed())
        self.check_readable()
        names = (n.removeprefix("job=") for n in self.root.names() if n.startswith("job="))
        return sorted(n for n in names if _JOB_ID.fullmatch(n))

    def manifests(self, job: str) -> tuple[list[Manifest], list[BadManifest]]:
        """The job's sources whose files stand, by id, and what is wrong with the others."""
        return counting.readable_manifests(self.job_folder(job))

    def snapshot(self, job: str) -> Snapshot:
        """The job as it stands now.

        Where no generation of derived tables covers exactly the present sources (an ingest is
        going on, or died), they are derived first: in the job, or in a temporary folder where the
        job cannot be written. Raises WarehouseError for a job that is not there.
        """
        if self.root.local is not None:
            self.check_readable()
        folder = store.folder(self.job_folder(job))
        for attempt in range(_TRIES):
            manifests, bad, made = self._standing(job)
            if not manifests:
                self.check_readable()
                raise NoSources(self._no_such_job(job, bad))
            if made is not None:
                return assemble(job, folder, folder, manifests, made, bad)
            # Looked at again after deriving: another source may have come in the meantime.
            if (apart := self._derive(job)) is not None:
                return apart
            time.sleep(0.01 * attempt)
        raise WarehouseError(f"{folder}: changes faster than it can be read; try again")

    def snapshots(self, jobs: list[str], *, all_there: bool = True) -> list[Snapshot]:
        """Several jobs as they stand now; those of an object store are asked for side by side.

        Without `all_there` jobs of which nothing can be read yet are left out.
        """

        def one(job: str) -> Snapshot | None:
            try:
                return self.snapshot(job)
            except NoSources:
                if all_there or self.root.local is not None:
                    raise
                return None

        found = reading.side_by_side(one, jobs, self.root.local is None)
        return [s for s in found if s is not None]

    def _standing(self, job: str) -> tuple[list[Manifest], list[BadManifest], Generation | None]:
        """The job's sources, what is wrong with others, and the generation over exactly them."""
        folder = self.job_folder(job)
        if isinstance(folder, Path):
            manifests, bad = self.manifests(job)
            return manifests, bad, self.generation(job, manifests) if manifests else None
        from .object_jobs import look

        seen = look(folder)
        manifests, bad = counting.readable_in(folder, seen)
        made = counting.standing_generation(folder, manifests, seen) if manifests else None
        return manifests, bad, made

    def generation(self, job: str, manifests: list[Manifest]) -> Generation | None:
        """The standing generation of derived tables over exactly these sources, if any."""
        return counting.standing_generation(self.job_folder(job), manifests)

    def _derive(self, job: str) -> Snapshot | None:
        """Derives in the job; where that cannot be written, gives a snapshot derived apart."""
        from .derive import derive, derive_into  # only now: most snapshots need none of it

        try:
            derive(self.job_folder(job))
            return None
        except StoreBusy:
            raise
        except WarehouseError:
            keep = tempfile.TemporaryDirectory(prefix="retime-")
            folder, apart = store.folder(self.job_folder(job)), Path(keep.name)
            manifests, bad = self.manifests(job)
            made = derive_into(apart, folder, manifests)
            return assemble(job, folder, store.folder(apart), manifests, made, bad, keep)

    def _no_such_job(self, job: str, bad: list[BadManifest]) -> str:
        if bad:
            return f"job {job} in {self.root} has no usable source; the first problem: {bad[0]}"
        jobs = self.jobs()
        if job in jobs:
            return (
                f"no job {job} in {self.root}: it was pruned, or its first upload is not finished"
            )
        known = ", ".join(jobs[:8]) + (", ..." if len(jobs) > 8 else "")
        return f"no job {job} in {self.root}; " + (f"jobs: {known}" if jobs else "it has no jobs")

    def remove_orphans(self, job: str, grace_s: float | None = None) -> list[str]:
        """Removes what dead processes left in a job; the paths, relative to the job's folder.

        What a pack took the place of goes `grace_s` (a day) after that.
        """
        return tidying.remove_orphans(self.job_folder(job), grace_s)


def assemble(
    job: str,
    folder: Folder,
    derived_folder: Folder,
    manifests: list[Manifest],
    generation: Generation,
    bad: list[BadManifest],
    keep: object = None,
) -> Snapshot:
    """The snapshot of these sources with this generation of derived tables."""
    files: dict[str, list[str]] = {t: [] for t in TABLES}
    older = set()
    fingerprints: dict[str, str] = {}
    for m in manifests:
        for table, parts in m.tables.items():
            if TABLES[table].derived:
                continue  # a source's own rows of before that table was derived
            files[table] += [folder.address(p.file) for p in parts]
            if table not in fingerprints:
                fingerprints[table] = TABLES[table].fingerprint
            if m.columns.get(table) != fingerprints[table]:
                older.add(table)
    # Sources of a pack share files, and all of a pack's sources are there.
    files = {table: list(dict.fromkeys(paths)) for table, paths in files.items()}
    pruned: dict[str, int] = {}
    for m in manifests:
        pruned |= {t: max(at_ns, pruned.get(t, 0)) for t, at_ns in m.pruned.items()}
    for table, parts in generation.tables.items():
        if table in OF_EVENTS and "events" in pruned:
            continue  # made before: the same job derived again has none
        files[table] += [derived_folder.address(p.file) for p in parts]
    problems = [Problem("bad_manifest", str(e), "lost") for e in bad]
    problems += [_pruned(table, at_ns, manifests) for table, at_ns in pruned.items()]
    rules = tuple(settings.usable(folder).said.kernels)
    return Snapshot(
        job, files, manifests, generation, problems, keep, rules, frozenset(older), pruned
    )


def _pruned(table: str, at_ns: int, manifests: list[Manifest]) -> Problem:
    n = sum(table in m.pruned for m in manifests)
    on = time.strftime("%Y-%m-%d", time.gmtime(at_ns / 1e9))
    return Problem(
        f"{table}_pruned",
        f"the rows of {table} of {n} of {len(manifests)} sources were pruned on {on} (retime prune "
        f"--raw-events): what is computed from them is empty or only of the others",
        "info",
        n,
    )


def _any_job(names: Iterable[str]) -> bool:
    return any(n.startswith("job=") for n in names)


def check_job_id(job: str) -> str:
    """The id itself. Raises UsageError where it is not letters, digits, dots, dashes, underscores.

    At most 128 characters, the first a letter or digit: it names a folder.
    """
    if not _JOB_ID.fullmatch(job):
        raise UsageError(
            f"job id {job[:140]!r} is not usable: 1 to 128 letters, digits, '.', '_' and '-', "
            "the first a letter or digit"
        )
    return job


def job_id_from(text: str) -> str:
    """A usable job id made from any text: other characters become dashes."""
    slug = re.sub(r"[^A-Za-z0-9._-]+", "-", text).strip("._-")[:128]
    return slug or "job"
