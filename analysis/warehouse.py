"""A warehouse as notebooks have it: its jobs, queries over them, ingest, comparisons."""

from __future__ import annotations

import contextlib
import os
import time
from collections.abc import Callable, Iterable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from ..ingest import suggested
from ..ingest.errors import RetimeError, UsageError, WarehouseError
from .job import Job

if TYPE_CHECKING:
    import polars as pl
    from duckdb import DuckDBPyConnection

    from ..ingest.run import IngestReport


class Warehouse:
    """Jobs in one place. Frames of all jobs here, of one job from `job(id)`."""

    def __init__(self, url: str):
        """Raises UsageError for an address that no warehouse has, or whose package is not here."""
        if ":/" in (text := os.fspath(url)):
            from ..ingest import kinds

            kinds.check(text)
            kinds.check_package(text)
        self.url = url

    def __repr__(self) -> str:
        return f"retime.open({self.url!r})"

    @property
    def store(self) -> Any:
        """The `ingest.warehouse.Warehouse` underneath."""
        from ..ingest.warehouse import Warehouse as Store

        return Store(self.url)

    def ingest(
        self,
        paths: str | os.PathLike[str] | Iterable[str | os.PathLike[str]],
        *,
        job: str | None = None,
        rank: int | None = None,
        format: str | None = None,
        workers: int | None = None,
        step_annotation: str | None = None,
        progress: Callable[..., None] | None = None,
        kernel_patterns: str | os.PathLike[str] | None = None,
        ray: str | None = None,
    ) -> IngestReport:
        """Traces into this warehouse; `paths` may be files, folders, globs and archives.

        `job` names the job (else the input does), `rank` says whose a single file is that does
        not say so itself, `step_annotation` which annotations are its steps (`*`, `?`; kept for
        the job). `kernel_patterns` is a file of rules as for `Job.set_kernels`, which are
        kept for the job; without it, those of the file $RETIME_KERNEL_PATTERNS are, where nothing
        was said of the job's kernels before. `ray` is the address of a Ray cluster whose nodes
        read the traces (`on_ray.check_address`). Returns an IngestReport whose `exit_code` is 1
        where input was lost. Of a large job (`kept.LARGE_EVENTS`) the rows that only a replay gives
        are computed, too, unless a rank, or ranks in one file, have so many events that this would
        take much memory: then `problems` has a `tracking.NOT_YET_REPLAYED`. Raises UnusableInput
        where nothing can be used, UsageError where ranks or jobs clash or a rule is wrong,
        WarehouseError where what is said cannot be kept, ClusterError where a cluster cannot do
        the work.
        """
        from ..ingest import kept, settings
        from ..ingest.run import ingest, job_id_of

        if isinstance(paths, str | os.PathLike):
            paths = [paths]
        given = [os.fspath(p) for p in paths]
        default = os.environ.get("RETIME_KERNEL_PATTERNS")
        rules = []
        if kernel_patterns or default:
            from . import kernels

            rules = kernels.given(os.fspath(kernel_patterns or default or ""))
            if given and kernel_patterns:
                # Before anything is read: what cannot be kept must not end a finished ingest.
                id = job_id_of(given) if job is None else job
                kernels.with_rules(self.store.job_folder(id), rules)
        report = ingest(
            self.store,
            given,
            job=job,
            rank=rank,
            format=format,
            workers=workers,
            step_annotation=step_annotation,
            progress=progress,
            ray=ray,
        )
        if rules and report.exit_code < 3:
            folder = self.store.job_folder(report.job)
            standing = settings.usable(folder)
            # Rules not given for this job are no reason to fail where its settings are damaged.
            if kernel_patterns or not (standing.said.kernels or standing.problems):
                kernels.say(folder, rules)
        if report.exit_code < 3 and report.events >= kept.LARGE_EVENTS:
            self._replay(report)
        return report

    def _replay(self, report: IngestReport) -> None:
        """Computes what only a replay gives of a large job, unless it is kept or takes too much."""
        from . import computed

        began = time.perf_counter()
        # What cannot be read or written now is said to who asks for the rows.
        with contextlib.suppress(RetimeError):
            snapshot, folder = self.store.snapshot(report.job), self.store.job_folder(report.job)
            if (left := computed.left(snapshot, folder)) is not None:
                report.problems.append((report.job, left))
            else:
                computed.keep(snapshot, folder)
        report.seconds += time.perf_counter() - began

    def job_ids(self) -> list[str]:
        """Ids of the jobs, sorted."""
        return sorted(self.store.jobs())

    def jobs(self, where: str | None = None) -> pl.DataFrame:
        """One row a job (`jobs.SCHEMA`): ranks, steps, clocks, problems, when it ran, tags, notes.

        `where` is a condition in SQL over these columns: the jobs that it is true of. Reads small
        files only. Raises UsageError, with the columns, for a condition that is none.
        """
        from . import jobs

        return jobs.frame(self, where)

    def verify(
        self,
        jobs: Iterable[str] | None = None,
        *,
        deep: bool = False,
        repair: bool = False,
        progress: Callable[..., None] | None = None,
    ) -> pl.DataFrame:
        """Whether jobs (all) hold what their manifests say; one row a finding, the worst first.

        `severity` is lost (rows cannot be read), warning, or info (nothing is wrong); `do` says
        what to do. With `deep` every byte is read. `repair` removes what is garbage and sets aside
        what lies; `done` then says what was done. Raises WarehouseError for a job that there is
        not.
        """
        from . import keeping

        return keeping.verify(self, jobs, deep=deep, repair=repair, progress=progress)

    def prune(
        self,
        jobs: Iterable[str] | None = None,
        *,
        older_than: str | float | None = None,
        where: str | None = None,
        keep: int | None = None,
        keep_tags: Sequence[str] = (),
        raw_events: bool = False,
        dry_run: bool = True,
        grace_s: float | None = None,
    ) -> pl.DataFrame:
        """Removes jobs that fit all that is given; a row each. Nothing, unless `dry_run` is false.

        `older_than` ("90d", or seconds) counts from a job's newest source; `where` is as in
        `jobs`; `keep` spares the newest so many jobs of the warehouse, `keep_tags` those with a
        tag (`key` or `key=value`), and the tag `keep` always does. `raw_events` removes only the
        rows of `events`. Files stay for `grace_s` (a day), for those who read them; where nothing
        says which jobs, those go that earlier prunes left for so long. Raises UsageError where
        nothing says which jobs and `dry_run` is true.
        """
        from . import keeping

        return keeping.prune(
            self,
            jobs,
            older_than=older_than,
            where=where,
            keep=keep,
            keep_tags=keep_tags,
            raw_events=raw_events,
            dry_run=dry_run,
            grace_s=grace_s,
        )

    def compact(
        self,
        jobs: Iterable[str] | None = None,
        *,
        grace_s: float | None = None,
        progress: Callable[..., None] | None = None,
    ) -> pl.DataFrame:
        """Puts the small files of jobs (all) together into few; a row a job: files before, after.

        The same rows, sources and derived tables. The small files stay for `grace_s` (a day), for
        those who read them. Raises WarehouseError where a job cannot be read or written.
        """
        from . import keeping

        return keeping.compact(self, jobs, grace_s=grace_s, progress=progress)

    def job(self, id: str | None = None) -> Job:
        """A job by id; without one, the only job there is.

        Raises WarehouseError, with the ids that there are, for any other.
        """
        if id is not None and self.store.has(id):
            return Job(self, id)
        ids = self.job_ids()
        if id is None and len(ids) == 1:
            return Job(self, ids[0])
        if not ids:
            raise WarehouseError(
                f"no jobs in warehouse {self.url}: ingest some traces first "
                f"({suggested.command('ingest', 'PATH')})"
            )
        have = ", ".join(ids[:8]) + (f" and {len(ids) - 8} more" if len(ids) > 8 else "")
        if id is None:
            raise UsageError(f"warehouse {self.url} holds several jobs, say which: {have}")
        raise WarehouseError(f"no job {id!r} in warehouse {self.url}; it holds {have}")

    def connect(
        self,
        job: str | Sequence[str] | None = None,
        *,
        memory: str | int | None = None,
        threads: int | None = None,
    ) -> DuckDBPyConnection:
        """A DuckDB connection with every table and view of all jobs, of one or of some.

        In memory, over the warehouse's files: its SQL can read them and nothing else. What only a
        replay gives (`replay_scores`, `critical_path`, `slack`) is computed when a query first
        asks, for the one job of a connection; of several jobs there is what was kept. `memory` is
        the most that its queries may take ("8GB", "25%"; else $RETIME_MEMORY, else half of what
        this process may have), `threads` their number (else $RETIME_THREADS, else a core each, 16
        at most). Raises UsageError for a limit that cannot be.
        """
        from . import computed, connecting, limits

        most, workers = limits.memory_bytes(memory), limits.threads(threads)
        if job is None:
            ids = self.job_ids()
        else:
            ids = [self.job(id).id for id in ([job] if isinstance(job, str) else job)]
        if not ids:
            self.job(None)
        store = self.store
        snapshots = store.snapshots(ids, all_there=job is not None)
        con = connecting.open_snapshots(snapshots, most, workers)
        computed.attach(con, [(s, store.job_folder(s.job)) for s in snapshots])
        connecting.confine(con, snapshots)
        return con

    def sql(self, query: str, job: str | None = None) -> pl.DataFrame:
        """The rows of one query over all jobs, or over one. Raises BadQuery, in one sentence."""
        from . import query as queries

        return queries.run(self.connect(job), query)

    def files(
        self, job: str | Sequence[str] | None = None, *, table: str | None = None
    ) -> pl.DataFrame:
        """The Parquet files of all jobs' tables, or of some, as they belong together now.

        A Polars frame with one row a file: `job`, `table`, `file` (a path, or an address in an
        object store), `rows` and `bytes`. `table` keeps one table. For engines other than DuckDB:
        files that are not here (superseded, unfinished) are not part of a job. Raises UsageError
        for a table that there is not, WarehouseError for a job without derived tables that cannot
        be written.
        """
        from . import listing

        listing.check_table(table)
        if job is None:
            ids = self.job_ids()
        else:
            ids = [self.job(id).id for id in ([job] if isinstance(job, str) else job)]
        found = listing.of_jobs(self.store, ids)
        return found if table is None else found.filter(found["table"] == table)

    def diff(
        self,
        job_a: str,
        job_b: str,
        *,
        other: Warehouse | None = None,
        steps_a: str | None = None,
        steps_b: str | None = None,
    ) -> dict[str, Any]:
        """What changed from job A to job B, part by part of the step: `diff.compare`'s dict.

        `other` is the warehouse that holds B, if another one; `steps_a` and `steps_b` choose steps
        ("10-20"). Raises WarehouseError for a job that is not there.
        """
        from . import diff

        b = (other or self).job(job_b)
        return diff.diff(self.job(job_a), b, steps_a=steps_a, steps_b=steps_b)

    def analyse(
        self,
        jobs: str | Sequence[str] | None = None,
        *,
        reports: str | os.PathLike[str] | None = None,
        workers: int | None = None,
        ray: str | None = None,
        progress: Callable[[int, int], None] | None = None,
    ) -> list[dict[str, Any]]:
        """Derives and replays jobs (default: all) and keeps what comes of it, a row a job.

        `analysing.analyse` has the fields. `reports` is a folder for the pages; `ray` the address
        of a Ray cluster whose nodes do the work. Raises WarehouseError for a job that there is not.
        """
        from . import analysing

        return analysing.analyse(
            self, jobs, reports=reports, n_workers=workers, ray=ray, progress=progress
        )

    def fleet_jobs(self) -> pl.DataFrame:
        """A line a job, by start: ranks, step time (ns), shares of its time."""
        return self._rows("fleet_jobs", "started_ns, job")

    def fleet_hosts(self) -> pl.DataFrame:
        """A line a host over all jobs, the least likely by chance first: how often the latest."""
        return self._rows("fleet_hosts", "p_value NULLS LAST, wait_caused_ns DESC, host")

    def fleet_host_jobs(self) -> pl.DataFrame:
        """A host in each of its jobs: what its ranks' lateness cost the others (ns)."""
        return self._rows("fleet_host_jobs", "started_ns, job, host")

    def fleet_fabric(self) -> pl.DataFrame:
        """Bus bandwidth (GB/s) by day and week against the earlier ones, the newest first."""
        key = "device_name, dim, op, size_class, n_ranks, n_hosts"
        return self._rows("fleet_fabric", f"per DESC, bucket DESC, change NULLS LAST, {key}")

    def fleet_kernels(self) -> pl.DataFrame:
        """Kernels by host against the other hosts of the same jobs, the costliest first."""
        return self._rows("fleet_kernels", "excess_ns DESC, host, name, category")

    def _rows(self, view: str, order: str) -> pl.DataFrame:
        from . import query as queries

        return queries.frame(self.connect().sql(f"SELECT * FROM {view} ORDER BY {order}"))

    def problems(self, job: str | None = None) -> pl.DataFrame:
        """What was odd in the input, lost input first."""
        from . import frames

        return frames.problems(self.connect(job))

    def notebook(
        self,
        job: str | None = None,
        name: str | None = None,
        *,
        to: str | os.PathLike[str] = ".",
        against: str | None = None,
        html: bool = False,
        force: bool = False,
    ) -> list[Path]:
        """Writes notebooks pointed at a job into the folder `to`: `.py` for marimo and `.ipynb`.

        `name` chooses one (else all); `against` is the job before, for "before-and-after". With
        `html` they are run, and pages of what comes out are written instead. Raises UsageError for
        a name that there is not, and for files that are there already, without `force`.
        """
        from .notebooks import opening

        names = opening.chosen(name)
        at = opening.point(self, names, job, against)
        if html:
            return opening.write_html(names, Path(to), at, force)[0]
        return opening.write(names, Path(to), at, force=force)[0]
