"""From a job in the warehouse to a job ready to be re-timed."""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from functools import lru_cache
from typing import Any
from weakref import WeakValueDictionary

import polars as pl

from ..ingest import kernel_rules
from ..ingest.errors import UnusableInput
from ..ingest.schema import TABLES
from ..ingest.store import is_address, reading
from ..ingest.tasks import shares
from ..ingest.tasks import stored as tasks
from ..ingest.tasks.tables import timed
from . import recorded
from .graph import NULL
from .policy import ReplayJob
from .traced import build as kineto
from .traced import stored


def load(snapshot: Any) -> ReplayJob:
    """The replay job of a `Snapshot` (`files`: Parquet files by table; `job`: its id).

    Recorded operations and traces have builders of their own. While somebody holds the job of the
    same files, it is that one: a large graph takes longer to build than to replay many times.
    Raises UnusableInput where the job has nothing to replay.
    """
    key = _identity(snapshot)
    held = _HELD.get(key)
    if held is None:
        built = _built(snapshot)
        facts = {**built.facts, "measured": built.graph, "tables": _reader(snapshot.files)}
        held = replace(built, facts=facts)
        if key:
            _HELD[key] = held
    return held


def _reader(files: Mapping[str, Sequence[Any]]) -> Callable[[str], pl.DataFrame]:
    """A table's name -> its rows, each read once."""
    return lru_cache(maxsize=None)(lambda table: read(files, table))


def with_fabric(job: ReplayJob, fabric: Any = None) -> ReplayJob:
    """The job with `facts["fabric"]`: what is given (a Fabric, a file or a preset's name).

    A preset has as many hosts as the job needs. With nothing given: what the job has already, else
    what its topology says, with what that had to assume, else None. Raises UsageError for a given
    fabric that cannot be; a topology that makes none is a warning.
    """
    if fabric is None:
        if job.facts.get("fabric") is not None:
            return job
        topology = job.table("topology")
        if not len(topology):
            return job
        from .fabric import BadFabric, from_topology

        try:
            fabric = from_topology.build(topology, job.facts["ranks"])
        except BadFabric as e:
            return job.note(warnings=(str(e),))
        if fabric is not None:
            said = tuple(f"fabric: {words}" for words in fabric.assumptions)
            job = job.note(assumptions=said)
    elif isinstance(fabric, str | os.PathLike):
        from . import fabric as fabrics
        from .retiming.seats import wanted

        named = fabric
        fabric = fabrics.load(named)
        needed = wanted(job, fabric)
        if named in fabrics.presets() and needed > fabric.gpus:
            fabric = fabrics.load(named, needed)
    return replace(job, facts={**job.facts, "fabric": fabric})


_HELD: WeakValueDictionary[tuple[Any, ...], ReplayJob] = WeakValueDictionary()


def _identity(snapshot: Any) -> tuple[Any, ...]:
    """What a replay job is made from, as far as can be told without reading it; () if unknown."""
    paths = [(t, str(p)) for t, of_it in sorted(snapshot.files.items()) for p in of_it or ()]
    try:
        files = [
            # An object never changes under its name.
            (t, p) if is_address(p) else (t, p, (s := os.stat(p)).st_ino, s.st_size, s.st_mtime_ns)
            for t, p in paths
        ]
    except OSError:
        return ()
    return (snapshot.job, repr(getattr(snapshot, "kernels", ())), *files)


def _built(snapshot: Any) -> ReplayJob:
    files, job = snapshot.files, snapshot.job
    if "events" in getattr(snapshot, "pruned", ()):
        raise UnusableInput(
            f"job {job!r} has no events any more: they were pruned (retime prune --raw-events), "
            "so there is nothing to replay; ingest its traces into a job of another name"
        )
    made = _of_tasks(snapshot)
    if made is None:
        if source(files) == "recorded":
            return recorded.load(files, job=job)
        made = _of_events(snapshot)
    if not made.graph.n or not (made.graph.start_ns != NULL).any():
        raise UnusableInput(
            f"job {job!r} has no events and no collectives with times: nothing to replay"
        )
    return made


def _of_tasks(snapshot: Any) -> ReplayJob | None:
    """The job from the tasks that were made of its events when it was derived, where they are."""
    files = snapshot.files
    if not files.get(tasks.TASKS) or kernel_rules.categories(
        files, getattr(snapshot, "kernels", ())
    ):
        return None

    def facts() -> dict[str, Any]:
        known = {name: read(files, name) for name in ("ranks", "comms")}
        return known | {"unread": ("steps", "collectives")}

    return stored.of_files(files, facts, snapshot.job)


def _of_events(snapshot: Any) -> ReplayJob:
    files = snapshot.files
    categories = kernel_rules.categories(files, getattr(snapshot, "kernels", ()))
    frames = {name: read(files, name) for name in ("ranks", "steps", "comms", "collectives")}
    frames["collectives"] = frames["collectives"].filter(timed())
    of_ranks = shares.of_files(files.get("events") or (), categories)
    return kineto.of_shares(frames, of_ranks, snapshot.job)


def read(
    files: Mapping[str, Sequence[Any]],
    table: str,
    where: pl.Expr | None = None,
    columns: Sequence[str] | None = None,
) -> pl.DataFrame:
    """Rows of one table from its Parquet files; an empty frame where it has none.

    Columns that a file lacks, as an older version wrote it, are null.
    """
    paths = [str(p) for p in files.get(table) or ()]

    def asked(rows: pl.LazyFrame) -> pl.DataFrame:
        rows = rows if where is None else rows.filter(where)
        return (rows if columns is None else rows.select(columns)).collect()

    if not paths:
        return asked(_empty(table).lazy())
    try:
        found = asked(reading.scan(paths))
    except (pl.exceptions.ColumnNotFoundError, pl.exceptions.SchemaError):
        return asked(_completed(paths, table))
    whole = columns is not None or TABLES[table].derived
    if whole or set(found.columns) >= set(TABLES[table].schema.names):
        return found
    return asked(_completed(paths, table))


def _empty(table: str) -> pl.DataFrame:
    empty = pl.from_arrow(TABLES[table].schema.empty_table())
    assert isinstance(empty, pl.DataFrame)
    return empty


def _completed(paths: Sequence[str], table: str) -> pl.LazyFrame:
    """The rows of files of which some lack columns."""
    each = [reading.scan([p]) for p in paths]
    return pl.concat([_empty(table).lazy(), *each], how="diagonal_relaxed")


def source(files: Mapping[str, Sequence[Any]]) -> str:
    """What wrote the job: `jobs.framework`, else the source that its collectives name."""
    for table, column in (("jobs", "framework"), ("collectives", "source")):
        named = read(files, table)[column].cast(pl.String).drop_nulls().unique().to_list()
        if len(named) == 1:
            return "recorded" if "recorded" in named[0] or "straggler" in named[0] else "kineto"
    return "kineto"
