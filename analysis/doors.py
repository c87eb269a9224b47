"""The notebook API: a warehouse, a job in it, and the calls that the command line wraps."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any
from weakref import WeakKeyDictionary

from ..ingest.errors import RetimeError, UsageError, WarehouseError

if TYPE_CHECKING:
    import polars as pl
    from duckdb import DuckDBPyConnection

    from ..ingest.run import IngestReport
    from ..ingest.warehouse import Snapshot

DEFAULT_WAREHOUSE = "warehouse"


def open(url: str | os.PathLike[str] | None = None) -> Warehouse:
    """The warehouse at `url`, else at $RETIME_WAREHOUSE, else ./warehouse. Nothing is created."""
    return Warehouse(os.fspath(url or os.environ.get("RETIME_WAREHOUSE") or DEFAULT_WAREHOUSE))


def connect(
    url: str | os.PathLike[str] | None = None, job: str | None = None
) -> DuckDBPyConnection:
    """`open(url).connect(job)`."""
    return open(url).connect(job)


class Warehouse:
    """Jobs in one place. Frames of all jobs here, of one job from `job(id)`."""

    def __init__(self, url: str):
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
    ) -> IngestReport:
        """Traces into this warehouse; `paths` may be files, folders, globs and archives.

        `job` names the job (else the input does), `rank` says whose a single file is that does
        not say so itself, `step_annotation` which annotations are its steps (`*`, `?`; kept for
        the job). `kernel_patterns` is a file of rules as for `Job.set_kernels`, which are
        kept for the job; without it, those of the file $RETIME_KERNEL_PATTERNS are, where nothing
        was said of the job's kernels before. Returns an IngestReport whose `exit_code` is 1 where
        input was lost. Raises UnusableInput where nothing can be used, UsageError where ranks or
        jobs clash or a rule is wrong, WarehouseError where what is said cannot be kept.
        """
        from ..ingest import settings
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
        )
        if rules and report.exit_code < 3:
            folder = self.store.job_folder(report.job)
            standing = settings.usable(folder)
            # Rules not given for this job are no reason to fail where its settings are damaged.
            if kernel_patterns or not (standing.said.kernels or standing.problems):
                kernels.say(folder, rules)
        return report

    def job_ids(self) -> list[str]:
        """Ids of the jobs, sorted."""
        return sorted(self.store.jobs())

    def jobs(self) -> pl.DataFrame:
        """One row a job: ranks, framework, sources, steps, participations, clocks, problems."""
        from . import frames

        return frames.jobs(self.connect())

    def job(self, id: str | None = None) -> Job:
        """A job by id; without one, the only job there is.

        Raises WarehouseError, with the ids that there are, for any other.
        """
        ids = self.job_ids()
        if id is None and len(ids) == 1:
            return Job(self, ids[0])
        if not ids:
            raise WarehouseError(
                f"no jobs in warehouse {self.url}: ingest some traces first (retime ingest PATH)"
            )
        have = ", ".join(ids[:8]) + (f" and {len(ids) - 8} more" if len(ids) > 8 else "")
        if id is None:
            raise UsageError(f"warehouse {self.url} holds several jobs, say which: {have}")
        if id not in ids:
            raise WarehouseError(f"no job {id!r} in warehouse {self.url}; it holds {have}")
        return Job(self, id)

    def connect(self, job: str | Sequence[str] | None = None) -> DuckDBPyConnection:
        """A DuckDB connection with every table and view of all jobs, of one or of some.

        In memory, over the warehouse's files: it can read them and nothing else. What only a
        replay gives (`replay_scores`, `critical_path`, `slack`) is computed when a query first
        asks, for the one job of a connection; of several jobs there is what was kept.
        """
        from ..queries.loader import connect
        from . import computed

        if job is None:
            ids = self.job_ids()
        else:
            ids = [self.job(id).id for id in ([job] if isinstance(job, str) else job)]
        if not ids:
            self.job(None)
        store = self.store
        snapshots = [store.snapshot(id) for id in ids]
        con = connect({s.job: s.files for s in snapshots}, categories=_categories(snapshots))
        computed.attach(con, [(s, store.job_folder(s.job)) for s in snapshots])
        _confine(con, snapshots)
        return con

    def sql(self, query: str, job: str | None = None) -> pl.DataFrame:
        """The rows of one query over all jobs, or over one. Raises BadQuery, in one sentence."""
        from . import query as queries

        return queries.run(self.connect(job), query)

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


class Job:
    """One job of a warehouse. Each view of the SQL library is a method that gives its rows."""

    def __init__(self, warehouse: Warehouse, id: str):
        self.warehouse = warehouse
        self.id = id
        self._con: DuckDBPyConnection | None = None
        self._kept = False
        self._study: dict[str, Any] | None = None
        self._whatif: dict[str, Any] | None = None

    def __repr__(self) -> str:
        return f"{self.warehouse!r}.job({self.id!r})"

    @property
    def snapshot(self) -> Snapshot:
        """The files of the job as they stand."""
        return self.warehouse.store.snapshot(self.id)

    @property
    def con(self) -> DuckDBPyConnection:
        """A connection with this job's tables and views, kept for as long as the job object."""
        if self._con is None:
            self._con = self.warehouse.connect(self.id)
        return self._con

    def sql(self, query: str) -> pl.DataFrame:
        """The rows of one query over this job's tables and views."""
        from . import query as queries

        return queries.run(self.con, query)

    def _rows(self, view: str, order: str = "ALL") -> pl.DataFrame:
        from . import query as queries

        return queries.frame(self.con.sql(f"SELECT * FROM {view} ORDER BY {order}"))

    def ranks(self) -> pl.DataFrame:
        """One row a rank: host, device, clock offset and error (ns)."""
        return self._rows("ranks", "rank")

    def steps(self) -> pl.DataFrame:
        """One row a step on a rank: windows on device and host (ns)."""
        return self._rows("steps", "step, rank")

    def comms(self) -> pl.DataFrame:
        """One row a communicator: members and parallel dimension."""
        return self._rows("comms", "comm")

    def dims(self) -> pl.DataFrame:
        """One row a communicator: members, operations, dimension, how found and on what ground."""
        from . import dims

        return dims.table(self.con)

    def set_dims(
        self,
        rules: Mapping[str, str] | None = None,
        *,
        degrees: Mapping[str, int] | None = None,
        clear: bool = False,
    ) -> Job:
        """Says which dimension communicators serve; the job is derived anew when next asked.

        `rules` map patterns of identity, name or description (`*`, `?`, `[...]`) to dimensions;
        `degrees` give the mesh, fastest-varying dimension first, and name groups by their exact
        members; `clear` forgets what was said before. Returns this job, with a new connection.
        Raises UsageError for a dimension that there is not or degrees that do not fit the job.
        """
        from . import dims

        dims.say(self.warehouse.store.job_folder(self.id), self.world_size(), rules, degrees, clear)
        self._con, self._kept, self._study, self._whatif = None, False, None, None
        return self

    def kernels(self) -> dict[str, Any]:
        """Kernels by class, names that no pattern knows, and the rules said (`kernels.facts`)."""
        from . import kernels

        return kernels.facts(self.con, self.snapshot.kernels)

    def set_kernels(
        self,
        rules: Sequence[str] = (),
        *,
        patterns: str | os.PathLike[str] | None = None,
        clear: bool = False,
    ) -> Job:
        """Says what kernels do, by their names; nothing is ingested anew.

        `rules` are texts `PATTERN=CLASS` (or a finer category), `patterns` a TOML or CSV file of
        them; the first that finds a name decides, before the built-in table. `clear` forgets what
        was said before. Waits and matched collectives stay as they were ingested. Returns this
        job, with a new connection. Raises UsageError, and changes nothing, for a wrong rule.
        """
        from . import kernels

        said = kernels.given(os.fspath(patterns) if patterns is not None else None, rules)
        kernels.say(self.warehouse.store.job_folder(self.id), said, clear)
        self._con, self._kept, self._study, self._whatif = None, False, None, None
        return self

    def world_size(self) -> int | None:
        """Ranks that the job had, where a source says."""
        manifests, _ = self.warehouse.store.manifests(self.id)
        return max((w for m in manifests for w in m.world_sizes), default=None)

    def collectives(self) -> pl.DataFrame:
        """One row a participation, as recorded (the table behind `waits`)."""
        return self._rows("collectives", "start_ns, rank, event_id")

    def collective_instances(self) -> pl.DataFrame:
        """One row a matched collective: wait, transfer (ns), bandwidths (GB/s), who was last."""
        return self._rows("collective_instances", "first_start_ns, collective_id")

    def waits(self) -> pl.DataFrame:
        """One row a participation: wait_ns + transfer_ns = its duration."""
        return self._rows("waits", "start_ns, rank")

    def sync_tax(self) -> pl.DataFrame:
        """Share of communication time that is waiting, by dimension, operation, size class."""
        return self._rows("sync_tax")

    def overlap(self) -> pl.DataFrame:
        """Communication under compute by rank and step; step null is time outside steps."""
        return self._rows("overlap", "rank, step")

    def step_breakdown(self) -> pl.DataFrame:
        """Every ns of a step on a rank, in one class each."""
        return self._rows("step_breakdown", "rank, step, class")

    def step_composition(self) -> pl.DataFrame:
        """Work of a step on a rank, down to the kernel or collective that its time went to."""
        return self._rows("step_composition", "rank, step, class, ns DESC, what")

    def bandwidth(self) -> pl.DataFrame:
        """algbw and busbw (GB/s) by communicator, operation and size class."""
        return self._rows("bandwidth")

    def hockney_fit(self) -> pl.DataFrame:
        """alpha (ns), bandwidth (bytes/s) and tau (ns) by communicator, operation, algorithm."""
        return self._rows("hockney_fit", "comm, op, n_ranks, algorithm")

    def cost_curve_fit(self) -> pl.DataFrame:
        """The same of the benchmarks (`cost_curves`) that were ingested with the job."""
        return self._rows("cost_curve_fit")

    def rail_load(self) -> pl.DataFrame:
        """Bytes and busy time (ns) by window and rail, measured and derived each by itself."""
        return self._rows("rail_load", "step, window_start_ns, source, unit, host, rail, nic")

    def rail_imbalance(self) -> pl.DataFrame:
        """max/mean, variation and Jain's index over the rails of each window."""
        return self._rows("rail_imbalance", "step, window_start_ns, source, unit")

    def rail_left_out(self) -> pl.DataFrame:
        """Operations whose bytes could not be derived for any rail, by the reason."""
        return self._rows("rail_left_out")

    def kernel_stats(self) -> pl.DataFrame:
        """Kernels by rank and name: count, total, median, p99 (ns), the longest in all first."""
        return self._rows("kernel_stats", "total_ns DESC, rank, name")

    def kernel_classes(self) -> pl.DataFrame:
        """Device work by rank and class (gemm, attention, ..., unknown): ns and share."""
        return self._rows("kernel_classes", "rank, total_ns DESC, class")

    def unknown_kernels(self) -> pl.DataFrame:
        """Names that no pattern fits, the longest in all first: count, ns, share, ranks."""
        return self._rows("unknown_kernels", "total_ns DESC, name")

    def idle_gaps(self) -> pl.DataFrame:
        """Gaps of a GPU, classified, with what was before and after."""
        return self._rows("idle_gaps", "rank, start_ns")

    def replay_scores(self) -> pl.DataFrame:
        """One row a rank: what its own slowness costs the step (ns), by replay, costliest first."""
        return self._rows("replay_scores", "score_ns DESC NULLS LAST, rank")

    def critical_path(self) -> pl.DataFrame:
        """The chain of tasks across ranks that sets each step's time, piece by piece (ns)."""
        return self._rows("critical_path", "step, position")

    def slack(self) -> pl.DataFrame:
        """How much later (ns) the tasks of a name, rank and step could end, the least first."""
        return self._rows("slack", "step, rank, slack_ns, kind, name")

    def expert_load(self) -> pl.DataFrame:
        """Tokens by step, layer and expert."""
        return self._rows("expert_load", "source, step, layer, expert")

    def expert_imbalance(self) -> pl.DataFrame:
        """How unevenly a layer's tokens fell over experts and over their ranks, a step a row."""
        return self._rows("expert_imbalance", "source, step, layer")

    def expert_rail_regression(self) -> pl.DataFrame:
        """How far uneven experts explain uneven rails, a layer a row."""
        return self._rows("expert_rail_regression", "source, layer")

    def sm_budget(self) -> pl.DataFrame:
        """Blocks that communication kernels hold, and the slowdown of compute beside them."""
        return self._rows("sm_budget", "total_ns DESC, name, comm")

    def storage_interference(self) -> pl.DataFrame:
        """Stalls for data (ns) and collectives beside storage traffic, a step a row."""
        return self._rows("storage_interference", "step")

    def problems(self) -> pl.DataFrame:
        """What was odd in this job's input, lost input first."""
        from . import frames

        return frames.problems(self.con)

    def hangs(self) -> pl.DataFrame:
        """One row a collective that was under way: who had completed, entered, never entered it."""
        return self._rows("hangs", "enqueued_ns, comm, seq")

    def late_ranks(self) -> pl.DataFrame:
        """One row a rank: how often it was last, and what that cost the others (ns)."""
        return self._rows("late_ranks", "wait_caused_ns DESC, rank")

    def straggler_causes(self) -> pl.DataFrame:
        """View `stragglers`: one row a rank, why it is late and what that costs (ns)."""
        return self._rows("stragglers", "wait_caused_ns DESC, rank")

    def lateness_trend(self) -> pl.DataFrame:
        """One row a rank and step: how far behind the median it came (ns), and its slope."""
        return self._rows("lateness_trend", "rank, step")

    def waited_for(self) -> pl.DataFrame:
        """`late_ranks` that were ever last, with each one's share of all wait of the job."""
        from . import frames

        return frames.waited_for(self.con)

    def show(self) -> dict[str, Any]:
        """What the job looks like: ranks, clocks, steps, matches, and where the step went.

        `waited_for` is the rank that was last at the greatest cost, `culprit` (see
        `culprit.find`) the rank that holds the job up, by root cause, `hang` (see `hangs.find`)
        who is missing from which collective, where Flight Recorder dumps tell. `holds` counts the
        rows of the other tables that the job has: topology, cost curves, routing and so on.
        `fix_first` is what the page leads with (`fix_first.of_job`).
        """
        from ..queries.loader import materialise
        from . import culprit, fix_first, frames, hangs

        if not self._kept:
            materialise(self.con)
            # The reason of a culprit is asked of each, and so are all of them by a report.
            materialise(self.con, "late_ranks", "_explained")
            self._kept = True
        facts = {
            **frames.facts(self.con),
            **frames.headline(self.con),
            "holds": frames.holdings(self.con),
        }
        facts |= {"culprit": culprit.find(self, facts), "hang": hangs.find(self.con)}
        return {**facts, "fix_first": fix_first.of_job(self, facts)}

    def replay(self, policies: Sequence[Any] = (), **options: Any) -> dict[str, Any]:
        """`retime.replay(job, policies)`."""
        return replay(self, policies, **options)

    def explain(
        self, policies: Sequence[Any], path: str | os.PathLike[str] | None = None, **options: Any
    ) -> dict[str, Any]:
        """`replay`, and what the policies change in a step as a page and a Perfetto trace.

        `analysis.explain.explain` has the options and what is returned.
        """
        from .explain import explain

        return explain(self, policies, path, **options)

    def stragglers(self) -> dict[str, Any]:
        """`study`, who holds the job up (`culprit`, `said` in words), and its `ideals`.

        `ideals.rows` sets the study's ideal beside those of `whatif`. Raises UnusableInput for a
        job without steps.
        """
        from . import ideals, terminal

        study, facts = self.study(), self.show()
        return {
            **study,
            "culprit": facts["culprit"],
            "said": terminal.straggler_sentence(facts),
            "ideals": ideals.rows(self.whatif(facts), study),
        }

    def study(self) -> dict[str, Any]:
        """Slowdown against the ideal, m_w, m_s, and its parts by operation, rank and stage.

        `replay.stragglers.Stragglers` as a dict. Raises UnusableInput for a job without steps.
        """
        from ..replay.findings.stragglers import of_snapshot

        if self._study is None:
            self._study = of_snapshot(self.snapshot).as_dict()
        return {**self._study}

    def study_of_pairs(self, facts: Mapping[str, Any]) -> dict[str, Any] | None:
        """`study` where it is what tells: recorded operations, waits at sends and receives."""
        from .terminal import mostly_paired

        if not facts["steps"] or not (facts["framework"] == "recorded" or mostly_paired(facts)):
            return None
        try:
            return self.study()
        except RetimeError:
            return None

    def whatif(self, facts: Mapping[str, Any]) -> dict[str, Any]:
        """What the page tries (`whatif.of_job`), re-timed once; `facts` has the culprit."""
        from . import whatif

        if self._whatif is None:
            self._whatif = whatif.of_job(self, facts)
        return self._whatif

    def whatif_at_hand(self, facts: Mapping[str, Any]) -> dict[str, Any] | None:
        """`whatif` where that is made already, or takes no longer than a second or so."""
        from . import whatif

        return self.whatif(facts) if self._whatif or whatif.is_cheap(self) else None

    def report(self, path: str | os.PathLike[str] | None = None) -> Path:
        """Writes the self-contained page of this job and returns where it is."""
        from . import report

        return report.write(self, path)

    def export(
        self, path: str | os.PathLike[str] | None = None, to: str = "perfetto", **chosen: Any
    ) -> dict[str, Any]:
        """Writes the timeline for Perfetto or Chakra's traces: `analysis.export.export`."""
        from .export import export

        return export(self, path, to, **chosen)


def replay(
    job: Job,
    policies: Sequence[Any] = (),
    **options: Any,
) -> dict[str, Any]:
    """Re-times a job under policies: `replay.run.replay` has the object and the options.

    `policies` are names, or names with parameters as on the command line
    (`"align-arrivals:ranks=3"`). Options are `sweep` (a parameter's several values), `step`,
    `fabric`, `strict` and `calibration`. Raises UsageError for a policy or a parameter that there
    is not.
    """
    from ..replay.run import replay

    return replay(job.snapshot, policies, **options)


def model(op: str, ranks: int, **options: Any) -> dict[str, Any]:
    """What a collective costs by algorithm and size: `analysis.model.model` has the options.

    `retime.model("all_reduce", 8, alpha="0.822us", bandwidth="450GB/s")`. Needs no trace.
    """
    from . import model

    return model.model(op, ranks, **options)


def plan(name: str | None = None, *, gpus: int, **options: Any) -> dict[str, Any]:
    """Splits of a model over GPUs, ranked: `analysis.plan.plan` has the options and the fields.

    `retime.plan("gpt3-175b", gpus=512, machine="A100", batch=1536)`. Needs no trace.
    """
    from . import plan

    return plan.plan(name, gpus=gpus, **options)


def policies(name: str | None = None) -> list[dict[str, Any]]:
    """The catalogue, or one policy of it: `catalogue.policies` has the fields.

    Raises UsageError for a name that it does not hold, with those near it.
    """
    from . import catalogue

    return catalogue.policies(name)


def fabric(
    name: str | os.PathLike[str] | None = None, *, gpus: int | None = None
) -> list[dict[str, Any]] | dict[str, Any]:
    """The presets of fabrics; or what one (a preset, a TOML file) amounts to with `gpus` GPUs.

    `analysis.fabric` has the fields. Raises UsageError for a fabric that there is not or cannot be.
    """
    from . import fabric

    if name is None:
        if gpus is not None:
            raise UsageError("--gpus scales one fabric: name a preset or a file")
        return fabric.presets()
    return fabric.facts(name, gpus)


def tables(name: str | None = None) -> list[dict[str, Any]]:
    """The dictionary of tables, views and macros: one row each, or the columns of one.

    Raises UsageError for a name that there is not, with those near it.
    """
    from . import catalogue

    return catalogue.tables(name)


def demo(folder: str | os.PathLike[str] = "retime-demo", **options: Any) -> dict[str, Any]:
    """The whole path on the bundled job: ingest, report, replay; leaves `folder` behind."""
    from . import demo as bundled

    return bundled.run(folder, **options)


def _categories(snapshots: list[Snapshot]) -> dict[str, dict[str, str]]:
    """What users said of kernels, by job; nothing is read for jobs of which they said nothing."""
    if not any(s.kernels for s in snapshots):
        return {}
    from ..ingest import kernel_rules

    return {s.job: kernel_rules.categories(s.files, s.kernels) for s in snapshots if s.kernels}


_IN_USE: WeakKeyDictionary[DuckDBPyConnection, Any] = WeakKeyDictionary()
"""Snapshots by connection: one may hold a temporary folder that its files are in."""


def _confine(con: DuckDBPyConnection, snapshots: list[Snapshot]) -> None:
    """Lets a connection read its files and nothing else, for good.

    DuckDB allows writing where it allows reading: an ordinary COPY fails for want of its temporary
    file, one that is told to do without and names a part of the warehouse does not.

    Object stores are left open: their reader needs the network.
    """
    from ..queries.loader import pattern
    from .query import literal

    _IN_USE[con] = snapshots
    paths = [p for s in snapshots for of_table in s.files.values() for p in of_table]
    if any("://" in p for p in paths):
        return
    allowed = sorted({*paths, *map(pattern, paths)})
    con.execute(f"SET allowed_paths = [{', '.join(map(literal, allowed))}]")
    con.execute("SET enable_external_access = false")
    con.execute("SET lock_configuration = true")
