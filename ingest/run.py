"""Ingest: paths in, a job's tables out, whatever happens to the process on the way."""

from __future__ import annotations

import os
import re
import shutil
import time
from collections.abc import Callable, Generator
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

from . import (
    clashes,
    compile_beside,
    detect,
    locks,
    object_commits,
    one_job,
    rooms,
    settings,
    staging,
    store,
    tidying,
)
from .bundles import bundled
from .derive import derive
from .errors import (
    Damaged,
    RankUnknown,
    RetimeError,
    StoreBusy,
    StoreRefused,
    UnusableInput,
    UsageError,
    WarehouseError,
)
from .manifest import Manifest
from .on_ray import check_address
from .on_ray.staged import stage as stage_on_ray
from .remarks import remember
from .remote_sources import Scratch, is_pattern
from .roster import Roster
from .schema import MAX_RANK, Problem
from .sources import Source, find_sources, sound
from .stage import TYPICAL_RATIO, Staged, source_id, stage_source
from .store import Place, addresses, reading
from .warehouse import Warehouse, check_job_id, job_id_from
from .workers import WorkerDied
from .workers import run as run_workers

if TYPE_CHECKING:
    from .made.picked import Picked

SMALL_BYTES = 256 << 20
"""Below so many (decompressed) bytes, starting worker processes costs more than it saves."""

Progress = Callable[[int, int, str], None]
"""Called with bytes done, bytes in all (as stored) and the name of a source being read."""

_SUFFIX = re.compile(
    r"\.(json|gz|tgz|tar|zip|parquet|jsonl|csv|pt|pkl|npz|npy|et|xml|sqlite|nsys-rep|arrows?|log|out|"
    r"err|trace|zst|xz|bz2)$",
    re.I,
)
_RANK_IN_NAME = re.compile(r"rank[-_. ]?\d+|^\d+$", re.I)


@dataclass
class SourceReport:
    """What became of one source: `status` is new, already, refused or failed.

    `rows` counts the rows written by table (rows of derived tables before matching).
    """

    name: str
    status: str
    size_bytes: int
    format: str | None = None
    ranks: list[int] = field(default_factory=list)
    rows: dict[str, int] = field(default_factory=dict)
    problems: list[Problem] = field(default_factory=list)
    error: RetimeError | None = None


@dataclass
class IngestReport:
    """What an ingest did. `problems` are (place, problem) pairs that belong to no source.

    `new_warehouse` is the path or address, where no job was there before; `events` are the rows of
    `events` of the whole job, where its derived tables were seen to.
    """

    job: str
    sources: list[SourceReport]
    problems: list[tuple[str, Problem]]
    seconds: float
    bytes: int
    new_warehouse: str | None = None
    events: int = 0

    @property
    def n_problems(self) -> int:
        """Occurrences of problems of severity lost or warning."""
        return sum(p.count for p in self._all() if p.severity != "info")

    @property
    def n_lost(self) -> int:
        """Occurrences of problems by which input was lost."""
        return sum(p.count for p in self._all() if p.severity == "lost")

    @property
    def exit_code(self) -> int:
        """0 done, 1 done with input lost, 3 nothing usable."""
        if not any(s.status in ("new", "already") for s in self.sources):
            return 3
        return 1 if self.n_lost else 0

    def _all(self) -> list[Problem]:
        return [p for s in self.sources for p in s.problems] + [p for _, p in self.problems]


class _Candidate(NamedTuple):
    place: int
    """Among all sources of the call; names may repeat in an archive."""
    source: Source
    format: str
    rank: int | None
    """As far as it can be told without parsing."""


def ingest(
    warehouse: Warehouse | str | os.PathLike[str],
    paths: str | os.PathLike[str] | list[str],
    *,
    job: str | None = None,
    rank: int | None = None,
    format: str | None = None,
    workers: int | None = None,
    step_annotation: str | None = None,
    progress: Progress | None = None,
    derive_now: bool = True,
    ray: str | None = None,
) -> IngestReport:
    """Ingests files, folders, globs and archives into one job of a warehouse.

    `job` is made from the path where it is not given; `rank` is for a single source that does not
    say its own; `format` forces a parser; `workers` is the number of cores to use (all);
    `step_annotation` names the annotations that are the job's steps (`*`, `?`), and is kept in the
    job ("" forgets it). Sources whose content is there already change nothing. Each source counts
    as soon as it is finished, the derived tables are made once at the end; without `derive_now`
    they are left to the first who reads the job, as where many machines ingest into it at once.
    With `ray`, a Ray cluster's address (`on_ray.check_address`), its nodes read the sources: what
    comes of it is the same, and `workers` bounds the sources that are read at once.

    Raises UsageError (also for clashing ranks, before anything is written), UnusableInput where
    no source is usable, ClusterError where a cluster cannot do the work, WarehouseError where the
    warehouse cannot be written, or the job's settings are damaged and `step_annotation` would
    change them (also before anything is written).
    """
    began = time.perf_counter()
    if not isinstance(warehouse, Warehouse):
        warehouse = Warehouse(warehouse)
    given = [os.fspath(p) for p in ([paths] if isinstance(paths, str | os.PathLike) else paths)]
    _check_arguments(given, job, rank, format, workers)
    if ray is not None:
        check_address(ray)
    settings.check_text(step_annotation or "", "--step-annotation")
    job = job_id_of(given) if job is None else job
    folder = warehouse.job_folder(job)
    if step_annotation is not None:
        settings.read(folder)  # where they are damaged, nothing is to be ingested first
    n_workers = workers or os.cpu_count() or 1
    problems: list[tuple[str, Problem]] = []
    scratch = Scratch()  # for archives of object stores: gone with this call
    found = bundled(
        find_sources(given, lambda name, p: problems.append((name, p)), scratch), format
    )
    sources = [source for source, _ in found]
    if rank is not None and len(sources) > 1:
        raise UsageError(f"--rank names the rank of one source, and here are {len(sources)}")

    candidates, reports = _detected(found, given, format, problems)
    new = warehouse.check_writable()
    roster = Roster.read(folder)
    todo: list[_Candidate] = []
    for candidate, standing in zip(
        candidates, _already(candidates, roster, n_workers), strict=True
    ):
        if standing is None:
            todo.append(candidate)
        else:
            reports[candidate.place] = _already_report(candidate, standing)
    todo, refused = _without_clashes(folder, todo, roster)
    reports |= refused
    picked: dict[str, Picked] | None = {} if derive_now else None
    if warehouse.root.local is not None:
        # In an object store that takes a listing of the whole job: publishing does it.
        if derive_now:
            warehouse.remove_orphans(job)
        else:
            tidying.remove_left_behind(folder)
    if todo:
        if derive_now and sum(c.format == "kineto" for c in todo) > 1:
            compile_beside.begin_ahead()  # deriving several ranks is what it is for
        at_once = workers if ray else n_workers
        reports |= _ingest_all(folder, todo, roster, rank, at_once, progress, ray, picked)

    ordered = [reports[i] for i in sorted(reports)]
    _spare(ordered)
    if not any(r.status in ("new", "already") for r in ordered):
        raise _nothing_usable(ordered, problems, given)
    remember(
        folder,
        [
            *problems,
            *((r.name, p) for r in ordered if r.error is not None for p in r.problems),
        ],
        roster,
    )
    if step_annotation is not None:
        with rooms.writing(warehouse.root), locks.locked(folder):
            said = settings.replaced(settings.read(folder), step_annotation=step_annotation)
            settings.write(folder, said)
    manifests, bad = warehouse.manifests(job) if derive_now else ([], [])
    if manifests and warehouse.generation(job, manifests) is None:
        derive(folder, picked or {})
    told = {str(e): None for e in (*roster.bad, *bad)}
    problems += [(job, Problem("bad_manifest", text)) for text in told]
    problems += [(job, p) for p in _doubts(warehouse, job, manifests)]
    return IngestReport(
        job=job,
        sources=ordered,
        problems=problems,
        seconds=time.perf_counter() - began,
        bytes=sum(s.size_bytes for s in sources),
        new_warehouse=str(warehouse.root) if new else None,
        events=sum(p.rows for m in manifests for p in m.tables.get("events", [])),
    )


def _doubts(warehouse: Warehouse, job: str, manifests: list[Manifest]) -> list[Problem]:
    """The problems that say that the job's sources are of several runs."""
    standing = warehouse.generation(job, manifests) if manifests else None
    parts = standing.tables.get("problems", []) if standing is not None else []
    found = []
    folder = store.folder(warehouse.job_folder(job))
    for part in parts:
        with rooms.writing(warehouse.root):
            file = reading.parquet(folder.address(part.file))
            rows = file.read(["code", "message", "count"]).to_pylist()
        found += [
            Problem(r["code"], r["message"], count=r["count"])
            for r in rows
            if r["code"] in one_job.CODES
        ]
    return found


def job_id_of(paths: list[str]) -> str:
    """A job's id from what is ingested: a folder's or file's name, without suffixes.

    A file that is named after its rank, and several files, give the name of their folder.
    """
    remote = store.is_address(paths[0])
    path = _as_path(paths[0])
    if len(paths) > 1:
        path = os.path.commonpath([_as_path(p) for p in paths])
        return job_id_from(os.path.basename(path))
    if os.path.isdir(path) and not remote:
        return job_id_from(os.path.basename(path))
    if remote and not is_pattern(paths[0]) and not _SUFFIX.search(path):
        return job_id_from(os.path.basename(path))
    while any(c in path for c in "*?["):
        path = os.path.dirname(path)
        if not any(c in path for c in "*?["):
            return job_id_from(os.path.basename(path))
    stem = os.path.basename(path)
    while (shorter := _SUFFIX.sub("", stem)) != stem:
        stem = shorter
    if not stem or _RANK_IN_NAME.search(stem):
        stem = os.path.basename(os.path.dirname(path))
    return job_id_from(stem)


def _as_path(given: str) -> str:
    """A path or a URL as an absolute path, of which the parts are looked at."""
    if not store.is_address(given):
        return os.path.abspath(given)
    return "/" + addresses.shown(given).partition("://")[2].strip("/")


def _check_arguments(
    given: list[str],
    job: str | None,
    rank: int | None,
    format: str | None,
    workers: int | None,
) -> None:
    if not given:
        raise UsageError("nothing to ingest: name a file, a folder, a glob or an archive")
    if job is not None:
        check_job_id(job)
    if rank is not None and not 0 <= rank <= MAX_RANK:
        raise UsageError(f"a rank is 0 to {MAX_RANK}, not {rank}")
    if workers is not None and workers < 1:
        raise UsageError(f"workers must be 1 or more, not {workers}")
    if format is not None:
        detect.parser(format)


def _shown(given: str) -> str:
    return addresses.shown(given) if store.is_address(given) else given


def _detected(
    sources: list[tuple[Source, str | None]],
    given: list[str],
    format: str | None,
    problems: list[tuple[str, Problem]],
) -> tuple[list[_Candidate], dict[int, SourceReport]]:
    """The sources with a format; those named themselves without one have failed."""
    named = {os.path.normpath(sound(_shown(p))) for p in given}
    candidates: list[_Candidate] = []
    failed: dict[int, SourceReport] = {}
    for i, (source, known) in enumerate(sources):
        try:
            found = known or format or detect.detect(source)
        except UnusableInput as e:
            # Any folder has files that are no traces; a file that was named is wanted.
            if os.path.normpath(source.name) in named:
                failed[i] = _failure(source, None, e, "not_a_trace")
            else:
                what = str(e).removeprefix(f"{source.name}: ")
                # A README beside traces is to be expected; a .json that is none is not.
                severity = "warning" if _SUFFIX.search(source.name) else "info"
                severity = "lost" if isinstance(e, Damaged) else severity
                problems.append((source.name, Problem("not_a_trace", what, severity)))
            continue
        candidates.append(_Candidate(i, source, found, detect.peek_rank(source, found)))
    return candidates, failed


def _already(candidates: list[_Candidate], roster: Roster, n_workers: int) -> list[Manifest | None]:
    """For each candidate the manifest that stands for the same content and format, if any."""

    def id_of(c: _Candidate) -> str | None:
        # Another size is other content: most new sources need not be read twice.
        if c.source.size_bytes not in roster.sizes:
            return None
        try:
            return source_id(c.source.sha256, c.format)
        except OSError:
            return None  # parsing says it

    with ThreadPoolExecutor(n_workers) as pool:
        ids = list(pool.map(id_of, candidates))
    return [None if id is None else roster.standing(id) for id in ids]


def _without_clashes(
    folder: Place, todo: list[_Candidate], roster: Roster
) -> tuple[list[_Candidate], dict[int, SourceReport]]:
    """The sources to read, and those refused for another one's rank, as far as told by now.

    Of two timelines of a rank in one format the larger is read: what is no more than the start of
    one must not keep it out. Raises RankClash against what the job has already: that is another
    run, and half of each would make a job of neither. What clashes otherwise (a rank's Nsight
    report beside its Kineto trace, two dumps of a rank) is refused when it has been read.
    """
    best: dict[tuple[str, int], _Candidate] = {}
    refused: dict[int, SourceReport] = {}
    for c in todo:
        if c.rank is None or detect.clash_group(c.format) != "timeline":
            continue
        alike = [m for m in roster.rivals(c.format, [c.rank]) if m.format == c.format]
        clashes.check_clash(folder, c.source.name, c.format, [c.rank], alike)
        other = best.setdefault((c.format, c.rank), c)
        if other is c or (
            other.source.size_bytes == c.source.size_bytes
            and other.source.sha256 == c.source.sha256
        ):
            continue
        if c.source.size_bytes > other.source.size_bytes:
            best[(c.format, c.rank)], c, other = c, other, c
        error = clashes.clash(folder, c.rank or 0, c.source.name, other.source.name)
        refused[c.place] = _failure(c.source, c.format, error)
    return [c for c in todo if c.place not in refused], refused


def _ingest_all(
    folder: Place,
    todo: list[_Candidate],
    roster: Roster,
    rank: int | None,
    n_workers: int | None,
    progress: Progress | None,
    ray: str | None,
    picked: dict[str, Picked] | None,
) -> dict[int, SourceReport]:
    """Stages every source and commits each as it finishes; what was `picked` is by source's id."""
    reports: dict[int, SourceReport] = {}
    finished: dict[int, Staged] = {}
    unfinished = dict(enumerate(todo))
    tell = _teller(todo, progress)
    with (
        staging.staging(folder) as staged,
        closing(
            _staged(folder, todo, staged, rank, n_workers, tell, ray, picked is not None)
        ) as results,
    ):

        def commit_ready() -> None:
            for i in sorted(finished):
                ranks = finished[i].manifest.ranks
                # Which of two clashing sources stays must not depend on which is faster.
                if any(
                    j < i and (c.rank is None or c.rank in ranks) for j, c in unfinished.items()
                ):
                    continue
                source = todo[i].source
                result = finished.pop(i)
                report = _commit(folder, staged / str(i), source, result, roster)
                reports[todo[i].place] = report
                if picked is not None and result.picked is not None:
                    if report.status == "new":
                        picked[result.manifest.id] = result.picked
                    else:
                        result.picked.give_up()

        try:
            for i, result in results:
                candidate = unfinished.pop(i)
                tell(i, candidate.source.size_bytes)
                if isinstance(result, WarehouseError):
                    raise result
                if isinstance(result, Staged):
                    finished[i] = result
                else:
                    shutil.rmtree(staged / str(i), ignore_errors=True)
                    reports[candidate.place] = _failure(candidate.source, candidate.format, result)
                commit_ready()
        except WarehouseError as e:
            n = sum(r.status == "new" for r in reports.values())
            kind = type(e) if isinstance(e, StoreBusy | StoreRefused) else WarehouseError
            raise kind(f"{e} ({n} of {len(todo)} new sources are in)") from e
        finally:
            if finished:  # whoever staged them may have uploaded them, and nobody will name them
                object_commits.give_up(folder, [s.manifest for s in finished.values()])
    return reports


def _staged(
    folder: Place,
    todo: list[_Candidate],
    staged: Path,
    rank: int | None,
    n_workers: int | None,
    tell: Callable[[int, int], None],
    ray: str | None,
    picking: bool,
) -> Generator[tuple[int, Any]]:
    """(index, Staged or exception) for each source as it finishes.

    With `picking` what deriving looks at is picked where this process reads the sources.
    """
    weights = [c.source.size_bytes * (TYPICAL_RATIO if c.source.compressed else 1) for c in todo]
    n_processes = min(n_workers or len(todo), len(todo))
    here = not ray and (n_processes == 1 or sum(weights) < SMALL_BYTES)
    threads = n_workers or 1 if len(todo) == 1 and not ray else 1
    each = sum(weights) // (1 if here else n_processes)
    tasks = [
        (
            c.source,
            c.format,
            detect.FORMATS[c.format].module,
            rank,
            threads,
            each,
            str(staged / str(i)),
        )
        for i, c in enumerate(todo)
    ]
    if not here:
        # The largest first: a large one that starts last would keep one core busy alone.
        order = sorted(range(len(todo)), key=lambda i: -weights[i])
        largest_first = [tasks[i] for i in order]

        def told(k: int, done: int) -> None:
            tell(order[k], done)

        if ray:
            results = stage_on_ray(ray, largest_first, folder, staged, n_workers, told)
        else:
            stage = "retime.ingest.stage:stage_source"
            results = run_workers(stage, largest_first, n_processes, told)
        with closing(results):
            for k, result in results:
                yield order[k], result
        return
    from .made.picked import Picked, Room  # where workers read, deriving alone needs it

    room = Room()
    for i, task in enumerate(tasks):
        its = Picked(room) if picking else None
        try:
            result = stage_source(*task, lambda done, i=i: tell(i, done), its)
        except Exception as e:
            result = e
            if its is not None:
                its.give_up()
        yield i, result
        if its is not None:
            its.finish()


def _commit(
    folder: Place,
    staged: Path,
    source: Source,
    result: Staged,
    roster: Roster,
) -> SourceReport:
    manifest = result.manifest
    report = SourceReport(
        source.name,
        "new",
        source.size_bytes,
        manifest.format,
        manifest.ranks,
        {
            t: sum(p.rows for p in parts)
            for t, parts in sorted({**manifest.tables, **manifest.views}.items())
        },
        result.problems,
    )
    try:
        if not staging.commit(folder, staged, result.moves, manifest, roster):
            standing = roster.has(manifest.id) or manifest
            report.status, report.rows, report.ranks = "already", {}, standing.ranks
            report.problems = _same_content(standing, sorted(set(manifest.ranks)))
    except clashes.RankClash as e:
        report = _failure(source, manifest.format, e)
    finally:
        shutil.rmtree(staged, ignore_errors=True)
    return report


def _already_report(candidate: _Candidate, standing: Manifest) -> SourceReport:
    report = SourceReport(
        candidate.source.name,
        "already",
        candidate.source.size_bytes,
        standing.format,
        standing.ranks,
    )
    if candidate.rank is not None:
        report.problems += _same_content(standing, [candidate.rank])
    return report


def _same_content(standing: Manifest, ranks: list[int]) -> list[Problem]:
    """A problem for each rank that a source claims whose content stands for others."""
    return [
        Problem(
            "same_content",
            f"its content is in the job already as rank {standing.ranks} ({standing.name}), "
            f"so nothing was added for rank {rank}: is one of them a copy?",
            rank=rank,
        )
        for rank in ranks
        if rank not in standing.ranks
    ]


def _failure(
    source: Source, format: str | None, error: Exception, code: str | None = None
) -> SourceReport:
    """The report of a source that gave nothing."""
    status = "refused" if isinstance(error, clashes.RankClash) else "failed"
    if isinstance(error, clashes.RankClash):
        code = "rank_clash"
    elif isinstance(error, RankUnknown):
        code = "rank_unknown"
    elif isinstance(error, WorkerDied):
        code = "worker_died"
        error = UnusableInput(f"the process that read it ended early: {error}", path=source.name)
    elif not isinstance(error, RetimeError):
        code = "reader_failed"
        notes = ", ".join(getattr(error, "__notes__", []))
        error = UnusableInput(
            f"its reader failed ({type(error).__name__}: {error}{notes and f' at {notes}'}): "
            "please report this with the file",
            path=source.name,
        )
    offset = getattr(error, "offset", None)
    problem = Problem(code or "unusable", str(error), "lost", offset=offset)
    return SourceReport(
        source.name, status, source.size_bytes, format, problems=[problem], error=error
    )


def _spare(reports: list[SourceReport]) -> None:
    """A source that could not be read, beside one that holds the same and was, is no loss."""
    there = [r.name for r in reports if r.status in ("new", "already")]
    for r in reports:
        if r.status != "failed" or r.format is None or r.format not in detect.FORMATS:
            continue
        spare = getattr(detect.parser(r.format), "spare", None)
        twin = None if spare is None else spare(r.name, there)
        if twin is not None:
            r.status, r.error = "already", None
            r.problems = [Problem("spare", f"the same is read from {twin}", "info")]


def _nothing_usable(
    reports: list[SourceReport], problems: list[tuple[str, Problem]], given: list[str]
) -> RetimeError:
    """The error for an ingest that has nothing to show."""
    errors = [r.error for r in reports if r.error is not None]
    if len(errors) == 1:
        return errors[0]
    first = str(errors[0]) if errors else next((f"{n}: {p.message}" for n, p in problems), "")
    n = len(errors) or len(problems)
    place = _shown(given[0]) if len(given) == 1 else f"{len(given)} paths"
    text = f"{place}: nothing usable in {n} files" + (f"; the first: {first}" if first else "")
    if errors and all(e.exit_code == UsageError.exit_code for e in errors):
        return UsageError(text)
    return UnusableInput(text)


def _teller(todo: list[_Candidate], progress: Progress | None) -> Callable[[int, int], None]:
    """Turns (source index, bytes done of it) into calls of `progress`."""
    done = [0] * len(todo)
    total = sum(c.source.size_bytes for c in todo)

    def tell(i: int, bytes_done: int) -> None:
        if progress is not None:
            done[i] = bytes_done
            progress(sum(done), total, todo[i].source.name)

    return tell
