"""What an upload did, on a screen: a line in all, and one for each file that needs a look."""

from __future__ import annotations

import os
import time
from collections import Counter
from typing import TYPE_CHECKING

from . import units
from .screen import clean
from .tracking import announce

if TYPE_CHECKING:
    from rich.console import Console

    from ..ingest.upload.report import Sent, UploadReport

MOST_FILES = 20
"""Files named one by one; of more there is a number."""

MOST_NAMES = 8
"""Files with one error that are named; `--json` and `--list` have all."""

_WORDS = {
    "new": "delivered",
    "already": "already there",
    "waiting": "left for later",
    "failed": "not deliverable",
}


def show(out: Console, report: UploadReport) -> None:
    """Counts by job, the files that are not in, and what else is to be known."""
    by_job: dict[tuple[str, str], Counter[str]] = {}
    for s in report.sent:
        by_job.setdefault((s.job, s.to), Counter())[s.state] += 1
    for (job, to), n in by_job.items():
        parts = ", ".join(f"{n[k]} {w}" for k, w in _WORDS.items() if n[k])
        done = ", derived tables made" if (to, job) in report.finished else ""
        out.print(f"job {clean(job)} in {clean(to)}: {parts}{done}")
    for address in report.new_warehouses:
        announce(address)
    if not report.sent:
        out.print("nothing to deliver now (--list: what is left; --retry: all of it, due or not)")
    if report.others:
        out.print(f"{units.counted(report.others, 'file is', 'files are')} no trace", style="dim")
    _list(out, report.failed)
    _list(out, report.left)
    for note in report.notes[:MOST_FILES]:
        out.print(f"note: {clean(note)}", style="bold yellow")
    if report.left:
        out.print(f"retime upload --retry --spool {clean(report.spool)} tries again", style="dim")


def show_left(out: Console, report: UploadReport) -> None:
    """What a spool holds, the oldest first."""
    if not report.sent:
        out.print(f"nothing is left in {clean(report.spool)}")
    for s in report.sent:
        since = time.strftime("%Y-%m-%d %H:%M", time.gmtime(s.since_s or 0))
        where = "kept here" if s.stored else clean(s.path)
        out.print(
            f"{s.id}  {_WORDS[s.state]}  {units.size(s.size_bytes)}  since {since} UTC  "
            f"job {clean(s.job)} in {clean(s.to)}  {where}"
        )
        if s.error:
            tries = units.counted(s.attempts, "try", "tries")
            out.print(f"    after {tries}: {clean(s.error)}")
    for note in report.notes:
        out.print(f"note: {clean(note)}", style="bold yellow")


def _list(out: Console, files: list[Sent]) -> None:
    """Files by what is wrong with them; an error of several, but for their names, is said once."""
    alike: dict[tuple[str, str], list[Sent]] = {}
    for s in files:
        alike.setdefault((s.state, s.error.removeprefix(f"{s.path}: ")), []).append(s)
    for (state, error), same in list(alike.items())[:MOST_FILES]:
        which = clean(same[0].path) if len(same) == 1 else f"{len(same):,} files"
        out.print(f"{_WORDS[state]}: {which}: {clean(error)}", style="bold red")
        if len(same) > 1:
            names = [clean(os.path.basename(s.path.rstrip("/"))) for s in same[:MOST_NAMES]]
            more = f" and {len(same) - MOST_NAMES:,} more" if len(same) > MOST_NAMES else ""
            out.print(f"    {', '.join(names)}{more}", style="bold red")
    if left := sum(map(len, list(alike.values())[MOST_FILES:])):
        out.print(f"and {left:,} more", style="bold red")
