"""Keeping a warehouse: which jobs a prune takes, and what each call did, as frames."""

from __future__ import annotations

import contextlib
import re
from collections.abc import Callable, Iterable, Iterator, Sequence
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING, Any

import polars as pl

from ..ingest import labels
from ..ingest.errors import UsageError, WarehouseError
from ..ingest.keeping import events
from ..ingest.keeping import prune as pruning
from ..ingest.keeping.findings import LOST, SEVERITIES, Finding
from ..ingest.labels import KEEP
from ..ingest.suggested import command
from . import jobs as listed

if TYPE_CHECKING:
    from ..ingest.store import Folder
    from .warehouse import Warehouse

Progress = Callable[[int, int, str], None]

PRUNED = {
    "job": pl.String(),
    "newest": pl.Datetime("us"),
    "ranks_seen": pl.Int64(),
    "tags": pl.List(pl.Struct({"key": pl.String, "value": pl.String})),
    "removed_bytes": pl.Int64(),
    "status": pl.String(),
}
COMPACTED = {
    "job": pl.String(),
    "sources": pl.Int64(),
    "files_before": pl.Int64(),
    "files_after": pl.Int64(),
    "stored_bytes": pl.Int64(),
    "status": pl.String(),
}

_AGE = re.compile(r"([0-9]{1,9})\s*(s|m|min|h|d|w)")
_SECONDS = {"s": 1, "m": 60, "min": 60, "h": 3600, "d": 86400, "w": 7 * 86400}


def seconds(text: str, option: str) -> float:
    """A length of time as `90d`, `12h`, `30m`, `0s` or `2w`. Raises UsageError."""
    m = _AGE.fullmatch(text.strip())
    if m is None:
        raise UsageError(f"{option} {text[:40]!r}: give a number and s, m, h, d or w (90d, 12h)")
    return float(int(m[1]) * _SECONDS[m[2]])


def prune(
    warehouse: Warehouse,
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
    """Takes jobs that fit all that is given; one row each, with what became of it.

    `status` is `would go` (a dry run), `pruned`, `kept: ...` for a job that fits and is spared by
    its tag, `keep` or one of `keep_tags`, `busy`, or `failed: ...` for a job that cannot be read
    or written: the others are done. Where nothing says which jobs, none is taken, and what
    earlier prunes left is removed, where its time is over: `freed`, or `waits: ...`. Raises
    UsageError where nothing says which jobs, and it is a dry run or about events or tags.
    """
    from ..ingest.tidying import SUPERSEDED_S

    grace_s = SUPERSEDED_S if grace_s is None else grace_s
    named = None if jobs is None else list(dict.fromkeys(jobs))
    if named is None and older_than is None and where is None and keep is None:
        if dry_run or raw_events or keep_tags:
            raise UsageError(
                "say which jobs: JOB, --older-than 90d, --where SQL or --keep N; "
                f"`{command('jobs')}` lists them (--yes alone only frees what was pruned before)"
            )
        return _free(warehouse, grace_s)
    failed: dict[str, str] = {}
    if not dry_run:
        finish(warehouse, grace_s, failed)
    out = []
    for row in _fitting(warehouse, named, older_than, where, keep):
        job = row["job"]
        found = (0, "")
        with _told(job, failed):
            folder = warehouse.store.folder(job)
            if older_than is not None and not _is_old_there(folder, _age_s(older_than)):
                continue
            removed = events.stored_bytes(folder) if raw_events else sum(folder.sizes().values())
            pinned = _pinned(row["tags"], keep_tags)
            if raw_events and not removed and (named is None or not pinned):
                continue
            status = f"{KEPT}{pinned}" if pinned else ""
            if not status and pruning.busy(folder):
                status = "busy: something is being ingested into it"
            if not status and not dry_run:
                status = _take(warehouse, job, raw_events, grace_s, keep_tags)
            found = (removed, status or "would go")
        out.append(
            {
                "job": job,
                "newest": row["newest"],
                "ranks_seen": row["ranks_seen"],
                "tags": [{"key": k, "value": v} for k, v in row["tags"]],
                "removed_bytes": found[0],
                "status": found[1] or f"{FAILED}{failed.pop(job)}",
            }
        )
    # Of jobs that were not to go now: what earlier prunes left of them could not be removed.
    out += [_row(job, f"{FAILED}{what}") for job, what in sorted(failed.items())]
    return pl.DataFrame(out, PRUNED)


def _free(warehouse: Warehouse, grace_s: float) -> pl.DataFrame:
    """Removes what earlier prunes left; a row a job of which something went, or is still to go."""
    failed: dict[str, str] = {}
    rows: list[dict[str, Any]] = []
    for job in warehouse.store.folders():
        with _told(job, failed):
            folder = warehouse.store.folder(job)
            before = folder.sizes()
            _finish(warehouse, job, grace_s)
            after = folder.sizes()
            # Others may write at the same time: what came does not count against what went.
            freed = sum(size for file, size in before.items() if file not in after)
            status = WAITS if pruning.pending(folder) else "freed"
            if freed or status == WAITS:
                rows.append(_row(job, status, freed))
    rows += [_row(job, f"{FAILED}{what}") for job, what in failed.items()]
    return pl.DataFrame(rows, PRUNED)


def _row(job: str, status: str, removed_bytes: int = 0) -> dict[str, Any]:
    """A row about a job of which nothing else is to be said."""
    return {"job": job, "newest": None, "ranks_seen": None, "tags": [],
            "removed_bytes": removed_bytes, "status": status}  # fmt: skip


WAITS = "waits: --grace is not over"
"""The status of a job that was pruned and whose files are still there for those who read them."""

KEPT = "kept: "
"""Begins the status of a job that a tag spares; the tag follows."""

FAILED = "failed: "
"""Begins the status of a job that could not be read or written."""


@contextlib.contextmanager
def _told(job: str, failed: dict[str, str]) -> Iterator[None]:
    """Keeps what is wrong with one job, so that the others are done."""
    try:
        yield
    except (WarehouseError, OSError) as e:
        failed[job] = str(e)


def _fitting(
    warehouse: Warehouse,
    named: list[str] | None,
    older_than: str | float | None,
    where: str | None,
    keep: int | None,
) -> list[dict[str, Any]]:
    table = listed.table(warehouse)
    known = set(table["job"].to_pylist())
    if missing := [j for j in named or () if j not in known]:
        raise WarehouseError(
            f"no job {missing[0][:140]!r} in warehouse {warehouse.url}; `{command('jobs')}` "
            "lists them"
        )
    chosen = set(known if named is None else named)
    if where is not None:
        chosen &= set(listed.ids(table, listed.fitting(table, where)))
    rows = sorted(table.to_pylist(), key=lambda r: (r["newest"] or datetime.min, r["job"]))
    if keep is not None:
        chosen -= {r["job"] for r in rows[len(rows) - keep :]} if keep else set()
    if older_than is not None:
        before = datetime.now(UTC).replace(tzinfo=None) - timedelta(seconds=_age_s(older_than))
        # A job whose age is not known is not old.
        chosen -= {r["job"] for r in rows if r["newest"] is None or r["newest"] >= before}
    return [r for r in rows if r["job"] in chosen]


def _age_s(older_than: str | float) -> float:
    return seconds(older_than, "--older-than") if isinstance(older_than, str) else older_than


def _is_old_there(folder: Folder, age_s: float) -> bool:
    """Whether a job is so old by the clock of where it lies, too.

    The clock of the node that wrote it, or of this one, may be off by years. A pack tells nothing:
    it is younger than the sources in it.
    """
    from ..ingest import clock, rooms
    from ..ingest.manifest import is_pack

    written = [
        entry.modified_ns
        for file, entry in folder.entries(rooms.MANIFESTS).items()
        if not (name := file.rpartition("/")[2]).startswith("derived-") and not is_pack(name)
    ]
    return not written or clock.clock_ns(folder) - max(written) >= age_s * 1e9


def _pinned(tags: Iterable[tuple[str, str]], keep_tags: Sequence[str]) -> str:
    """The tag that keeps a job, as words; "" where none does."""
    has = dict(tags)
    for said in (KEEP, *keep_tags):
        key, equals, value = said.partition("=")
        if key in has and (not equals or has[key] == value):
            return f"tagged {said}"
    return ""


def _take(
    warehouse: Warehouse, job: str, raw_events: bool, grace_s: float, keep_tags: Sequence[str]
) -> str:
    store = warehouse.store
    folder = store.folder(job)
    if pinned := _pinned(labels.read(folder).values.items(), keep_tags):
        return f"{KEPT}{pinned}"  # only just now
    if raw_events:
        from . import kept_summary

        kept_summary.keep(warehouse.job(job))
        if events.prune(store, job) is None and events.stored_bytes(folder):
            return "busy: its sources changed meanwhile; run it again"
    else:
        pruning.prune(folder, labels.author_of())
    if not grace_s:
        _finish(warehouse, job, grace_s)
    return "pruned"


def finish(warehouse: Warehouse, grace_s: float, failed: dict[str, str]) -> list[str]:
    """Removes what earlier prunes left, whose time is over; gives the files removed.

    `failed` gets what is wrong with jobs where that cannot be done, by id.
    """
    removed: list[str] = []
    for job in warehouse.store.folders():
        with _told(job, failed):
            removed += [f"{job}/{file}" for file in _finish(warehouse, job, grace_s)]
    return removed


def _finish(warehouse: Warehouse, job: str, grace_s: float) -> list[str]:
    store = warehouse.store
    folder = store.folder(job)
    removed = pruning.finish(folder, grace_s) if pruning.pending(folder) else []
    return [*removed, *store.remove_orphans(job, grace_s)]


def verify(
    warehouse: Warehouse,
    jobs: Iterable[str] | None = None,
    *,
    deep: bool = False,
    repair: bool = False,
    progress: Progress | None = None,
) -> pl.DataFrame:
    """What is to be said of each job (all), one row a finding; see `Warehouse.verify`."""
    from ..ingest.keeping import repair as repairing
    from ..ingest.keeping import verify as verifying

    store = warehouse.store
    chosen = _chosen(warehouse, jobs, store.folders())
    rows: list[Finding] = []
    done_bytes = 0

    def looked(n_bytes: int) -> None:
        nonlocal done_bytes
        done_bytes += n_bytes
        if progress is not None:
            progress(done_bytes, 0, job)

    failed: dict[str, str] = {}
    for job in chosen:
        found: list[Finding] = []
        with _told(job, failed):
            found = verifying.verify(store, job, deep=deep, looked=looked)
            if repair and found:
                found = repairing.repair(store.folder(job), found)
        rows += found
    rows += [
        Finding(job, LOST, "unreadable", "", what, "see to what it says, and verify again")
        for job, what in failed.items()
    ]
    rows.sort(key=lambda f: SEVERITIES.index(f.severity))
    return pl.DataFrame(rows, dict.fromkeys(Finding._fields, pl.String()), orient="row")


def compact(
    warehouse: Warehouse,
    jobs: Iterable[str] | None = None,
    *,
    grace_s: float | None = None,
    progress: Progress | None = None,
) -> pl.DataFrame:
    """Puts small files of jobs together, one row a job; see `Warehouse.compact`."""
    from ..ingest.keeping import compact as compacting
    from ..ingest.tidying import SUPERSEDED_S

    store = warehouse.store
    chosen = _chosen(warehouse, jobs, store.jobs())
    rows: list[dict[str, Any]] = []
    failed: dict[str, str] = {}
    for n, job in enumerate(chosen):
        if progress is not None:
            progress(n, len(chosen), job)
        with _told(job, failed):
            manifests, _ = store.manifests(job)
            before = len({p.file for m in manifests for p in m.parts})
            packed = compacting.compact(store.folder(job))
            store.remove_orphans(job, SUPERSEDED_S if grace_s is None else grace_s)
            parts = {p.file: p for m in store.manifests(job)[0] for p in m.parts}
            rows.append(
                {
                    "job": job,
                    "sources": len(manifests),
                    "files_before": before,
                    "files_after": len(parts),
                    "stored_bytes": sum(p.bytes for p in parts.values()),
                    "status": "nothing to do" if packed is None else "compacted",
                }
            )
    none = dict.fromkeys(COMPACTED)
    rows += [{**none, "job": job, "status": f"{FAILED}{what}"} for job, what in failed.items()]
    return pl.DataFrame(rows, COMPACTED)


def _chosen(warehouse: Warehouse, jobs: Iterable[str] | None, there: list[str]) -> list[str]:
    """The jobs named, else all. Raises WarehouseError for one that is not there."""
    named = there if jobs is None else list(dict.fromkeys(jobs))
    if missing := [j for j in named if j not in there]:
        have = ", ".join(there[:8]) + (", ..." if len(there) > 8 else "")
        raise WarehouseError(
            f"no job {missing[0][:140]!r} in warehouse {warehouse.url}; it holds {have or 'none'}"
        )
    return named
