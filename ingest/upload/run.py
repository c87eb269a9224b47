"""Upload: files written down in the spool, tried until they are in a job or time is over."""

from __future__ import annotations

import logging
import os
import time
from collections.abc import Callable, Iterable

from ..errors import UnusableInput, UsageError
from ..warehouse import check_job_id
from . import finishing, job_names, log
from .entry import Entry, check_address
from .finding import Found, find, wait_quiet
from .report import UploadReport, listed
from .sending import Progress, Sending
from .spool import Claim, Spool

FOR_S = 300.0
"""So long an upload goes on trying."""


def upload(
    paths: str | os.PathLike[str] | Iterable[str | os.PathLike[str]] = (),
    *,
    to: str | None = None,
    job: str | None = None,
    spool: str | os.PathLike[str] | None = None,
    retry: bool = False,
    for_s: float = FOR_S,
    wait_idle_s: float = 0.0,
    keep: bool = False,
    finish: bool | None = None,
    workers: int | None = None,
    progress: Progress | None = None,
    only: Callable[[Found], bool] | None = None,
) -> UploadReport:
    """Delivers files, folders, globs and archives into one job of a warehouse, whatever it takes.

    Each file is written down in the spool first and struck off when it is in; so a killed upload
    is taken up again, by the same call or by one without `paths`, which delivers what is left and
    due (with `retry` everything that is left, at once, also what failed for good, after `paths`).
    `to` is the warehouse's address (default $RETIME_WAREHOUSE), `job` its job (default: see
    `job_names.from_environment`). Failures are tried again with growing pauses for `for_s` seconds.
    `wait_idle_s` waits until nobody has written to the files for so long. With `keep` the spool
    takes files in that were not delivered, as those of a job that goes away. `finish` makes the
    derived tables (None: where this upload brought the job's last rank). `only` is asked of each
    trace found whether it is to be sent.

    Raises UsageError, UnusableInput where the paths hold no trace, OSError never.
    """
    began = time.monotonic()
    given = [os.fspath(p) for p in ([paths] if isinstance(paths, str | os.PathLike) else paths)]
    if for_s < 0 or wait_idle_s < 0:
        raise UsageError("--for and --wait-idle are times, and none is less than nothing")
    kept, note = _spool(spool)
    report = UploadReport(str(kept.folder if kept else spool or ""), notes=[note] if note else [])
    report.lost += kept is None and not given
    until = began + for_s
    if given or finish:
        to = check_address(to or os.environ.get("RETIME_WAREHOUSE") or "")
        job = named_job(job)
    sender = Sending(kept, report, keep, workers, progress)
    try:
        if given:
            busy = wait_quiet(given, wait_idle_s, for_s) if wait_idle_s else set()
            found = find(given, busy)
            if not found.found and not found.lost and only is None:
                raise UnusableInput(f"no trace among {len(found.others)} files", path=given[0])
            report.others = len(found.others)
            report.lost += sum(p.count for _, p in found.lost)
            report.notes += [
                f"{place}: {p.message.removeprefix(f'{place}: ')}" for place, p in found.lost
            ]
            sender.send(
                [f for f in found.found if only is None or only(f)],
                to or "",
                job or "",
                busy,
                until,
            )
        if (retry or not given) and kept is not None:
            sender.send_left(retry, to, until)
    finally:
        sender.close()
    for at in sorted(sender.jobs | ({(to or "", job or "")} if finish else set())):
        if finish is not False and finishing.finish(*at, force=bool(finish), notes=report.notes):
            report.finished.append(at)
    report.seconds = time.monotonic() - began
    for text in report.notes:
        log.say(kept and kept.folder, logging.WARNING, text)
    return report


def named_job(job: str | None) -> str:
    """The job's id, from the environment where it is not given. Raises UsageError without any."""
    job = job or job_names.from_environment()
    if job is None:
        raise UsageError(
            "which job? --job ID, or RETIME_JOB, SLURM_JOB_ID or TORCHELASTIC_RUN_ID in the "
            "environment; every node of a run must say the same"
        )
    return check_job_id(job)


def left(spool: str | os.PathLike[str] | None = None) -> UploadReport:
    """What the spool holds, the oldest first; nothing is tried."""
    kept = Spool(spool)
    entries, bad = kept.entries()
    return UploadReport(
        str(kept.folder), [listed(e, kept.path_of(e)) for e in entries], notes=bad, lost=len(bad)
    )


def forget(ids: Iterable[str], spool: str | os.PathLike[str] | None = None) -> UploadReport:
    """Strikes entries off the spool, with what it keeps of them; gives those it forgot.

    Raises UsageError for an id that is not there or that somebody is at, before any is forgotten.
    """
    kept = Spool(spool)
    taken: list[tuple[Entry, Claim]] = []
    report = UploadReport(str(kept.folder))
    try:
        for id in dict.fromkeys(ids):
            found = kept.take(id) if id in kept.ids() else None
            if found is None:
                raise UsageError(f"{id[:40]!r}: no such entry, or an upload is at it (--list)")
            taken.append(found)
        for entry, _ in taken:
            report.sent.append(listed(entry, kept.path_of(entry)))
            kept.remove(entry)
            log.say(kept.folder, logging.WARNING, f"forgotten: {entry.path} for job {entry.job}")
    finally:
        for _, claim in taken:
            claim.release(True)
    return report


def _spool(folder: str | os.PathLike[str] | None) -> tuple[Spool | None, str]:
    """The spool, made; or None and why, where it cannot be written: delivery goes on without."""
    kept = Spool(folder)
    try:
        kept.make()
        return kept, ""
    except OSError as e:
        return None, (
            f"spool {kept.folder}: {e.strerror}; nothing can be written down, so what is not "
            "delivered now is up to the same command again"
        )
