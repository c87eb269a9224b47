"""Many jobs made ready for every query: derived, replayed, their pages written if asked for."""

from __future__ import annotations

import contextlib
import os
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from ..ingest import on_ray, staging, store, workers
from ..ingest.errors import RetimeError, UsageError, line_of

if TYPE_CHECKING:
    from .warehouse import Warehouse

FAILED = "failed"


def analyse(
    warehouse: Warehouse,
    jobs: str | Sequence[str] | None = None,
    *,
    reports: str | os.PathLike[str] | None = None,
    n_workers: int | None = None,
    ray: str | None = None,
    progress: Callable[[int, int], None] | None = None,
) -> list[dict[str, Any]]:
    """Derives and replays jobs (None: all) where that is not done, and keeps what comes of it.

    One row a job, in the order given: `job`; `status` (`computed`, `already`, `no rows` where it
    cannot be replayed, `failed`); `reason` for the last two; rows of `replay_scores`,
    `critical_path` and `slack`; and `report`, the page's path where the folder `reports` is given.
    Each job is one task: of a process here (`n_workers`; one a core), or of a Ray cluster. A job
    that fails keeps no other from its turn. `progress` is told the jobs done, and of how many.

    Raises UsageError and WarehouseError for jobs that there are not or a folder that cannot be,
    ClusterError where a cluster cannot do the work.
    """
    if n_workers is not None and n_workers < 1:
        raise UsageError(f"workers must be 1 or more, not {n_workers}")
    if ray is not None:
        on_ray.check_address(ray)
    known = warehouse.job_ids()
    wanted = [jobs] if isinstance(jobs, str) else known if jobs is None else list(jobs)
    ids = [warehouse.job(id).id for id in dict.fromkeys(wanted)]
    if not ids:
        warehouse.job(None)
    target = _made(reports)
    tasks = [(_absolute(warehouse.url), target, id) for id in ids]
    found: dict[int, dict[str, Any]] = {}
    with _results(warehouse, ids, tasks, target, n_workers, ray) as results:
        for k, result in results:
            row = result if isinstance(result, dict) else _failed(ids[k], result)
            found[k] = row
            if progress is not None:
                progress(len(found), len(ids))
    return [found[k] for k in range(len(ids))]


def exit_code(rows: Sequence[dict[str, Any]]) -> int:
    """0 done, 1 some jobs failed, 3 all did."""
    failed = sum(row["status"] == FAILED for row in rows)
    return 0 if not failed else 3 if failed == len(rows) else 1


def one(url: str, reports: str | None, job: str, progress: Callable[[int], None]) -> dict[str, Any]:
    """The row of one job, made in whatever process this is."""
    from . import computed, doors

    opened = doors.open(url)
    store = opened.store
    made = computed.keep(store.snapshot(job), store.job_folder(job))
    row = _row(job, "already" if made.already else "computed", made.reason or None, made.rows)
    if made.reason:
        row["status"] = "no rows"
    if not made.stands:
        row |= {
            "status": FAILED,
            "reason": made.reason
            or f"its rows cannot be kept: {store.job_folder(job)} cannot be written",
        }
    elif reports is not None:
        row["report"] = str(opened.job(job).report(os.path.join(reports, f"{job}.html")))
    return row


def _row(
    job: str, status: str, reason: str | None, rows: dict[str, int] | None = None
) -> dict[str, Any]:
    names = ("replay_scores", "critical_path", "slack")
    counts = {name: (rows or {}).get(name, 0) for name in names}
    return {"job": job, "status": status, "reason": reason, **counts, "report": None}


def _failed(job: str, error: Any) -> dict[str, Any]:
    if isinstance(error, workers.WorkerDied):
        return _row(job, FAILED, f"the process that worked on it ended early: {error}")
    if isinstance(error, RetimeError):
        return _row(job, FAILED, str(error))
    return _row(job, FAILED, f"{type(error).__name__}: {line_of(error)} (please report this)")


def _made(reports: str | os.PathLike[str] | None) -> str | None:
    if reports is None:
        return None
    target = os.path.abspath(os.path.expanduser(os.fspath(reports)))
    try:
        os.makedirs(target, exist_ok=True)
    except OSError as e:
        raise UsageError(f"--reports {target}: cannot be made: {e.strerror or e}") from e
    return target


def _absolute(url: str) -> str:
    return url if "://" in url else os.path.abspath(os.path.expanduser(url))


@contextlib.contextmanager
def _results(
    warehouse: Warehouse,
    ids: Sequence[str],
    tasks: Sequence[tuple],
    reports: str | None,
    n_workers: int | None,
    ray: str | None,
) -> Iterator[Iterator[tuple[int, Any]]]:
    """(task, row or exception) as they finish, from processes here or from a cluster."""
    function = f"{__name__}:one"
    if ray is None:
        at_once = min(n_workers or os.cpu_count() or 1, len(tasks))
        with contextlib.closing(
            workers.run(function, tasks, at_once, lambda k, amount: None)
        ) as results:
            yield results
        return
    with contextlib.ExitStack() as stack:
        cluster = stack.enter_context(on_ray.connected(ray))
        seen: list[on_ray.Seen] = []
        folder = store.folder(warehouse.store.job_folder(ids[0]))
        if folder.local is None:
            seen += stack.enter_context(on_ray.shared_folder(folder))
        else:
            staged = stack.enter_context(staging.staging(folder))
            seen += stack.enter_context(on_ray.shared_folder(staged))
        if reports is not None:
            seen += stack.enter_context(on_ray.shared_folder(Path(reports)))
        yield stack.enter_context(
            contextlib.closing(on_ray.run(cluster, function, tasks, n_workers, None, wanted=seen))
        )
