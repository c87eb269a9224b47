"""Progress on stderr while traces are read or steps re-timed, and what became of the traces."""

from __future__ import annotations

import sys
import time
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

from ..ingest import one_job
from ..ingest.suggested import command
from . import units
from .columns import show_table
from .names import shorter
from .screen import clean, console

if TYPE_CHECKING:
    from rich.console import Console

    from ..ingest.run import IngestReport, SourceReport

MOST_SOURCES = 20
"""Sources listed one by one; of more, those that went well are counted."""

NOT_YET_REPLAYED = "not_yet_replayed"
"""Code of what an ingest says of a job whose computed rows it left to whoever asks for them."""

MOST_BESIDE_DOUBTS = 3
"""Of those that were not read, where the job's files are of several runs: that is the reason."""

ROWS = {
    "events": "events",
    "collectives": "participations",
    "steps": "rank-steps",
    "transfers": "transfers",
    "routing": "routed counts",
    "counters": "samples of counters",
    "topology": "links and devices",
    "tuning": "tuning choices",
    "cost_curves": "points of cost curves",
    "graph_nodes": "graph nodes",
    "configurations": "configurations",
}
"""Tables whose rows are counted on the screen, and what a row of each is called there."""


@contextmanager
def progress() -> Iterator[Callable[[int, int, str], None] | None]:
    """A callback (bytes done, bytes in all, source) drawn on stderr; None without a terminal."""
    if not sys.stderr.isatty():
        yield None
        return
    from rich.progress import (
        BarColumn,
        DownloadColumn,
        Progress,
        TextColumn,
        TimeElapsedColumn,
        TransferSpeedColumn,
    )

    with Progress(
        TextColumn("{task.description}", markup=False),
        BarColumn(bar_width=24),
        DownloadColumn(),
        TransferSpeedColumn(),
        TimeElapsedColumn(),
        console=console(stderr=True),
        transient=True,
    ) as bars:
        task = bars.add_task("reading", total=None)

        def update(done: int, total: int, name: str) -> None:
            words = shorter(clean(name.rsplit("/", 1)[-1]), 24)
            bars.update(task, completed=done, total=total, description=words)

        yield update


EVERY_S = 10.0
"""So often a line says how far a replay is where stderr is no terminal."""


@contextmanager
def points(
    doing: str = "re-timing", done: str = "re-timed"
) -> Iterator[Callable[[int, int], None]]:
    """A callback (points done, points in all) drawn on stderr; a line now and then without one.

    `doing` and `done` are what is said of the points.
    """
    if not sys.stderr.isatty():
        yield _by_line(time.monotonic, done)
        return
    from rich.progress import (
        BarColumn,
        MofNCompleteColumn,
        Progress,
        TextColumn,
        TimeElapsedColumn,
        TimeRemainingColumn,
    )

    with Progress(
        TextColumn(doing),
        BarColumn(bar_width=24),
        MofNCompleteColumn(),
        TimeElapsedColumn(),
        TextColumn("left"),
        TimeRemainingColumn(),
        console=console(stderr=True),
        transient=True,
    ) as bars:
        task = bars.add_task("", total=None)
        yield lambda n, total: bars.update(task, completed=n, total=total)


def _by_line(clock: Callable[[], float], words: str = "re-timed") -> Callable[[int, int], None]:
    """`points` as lines: the first after EVERY_S, none for what is done before."""
    began = said = clock()

    def update(done: int, total: int) -> None:
        nonlocal said
        now = clock()
        if now - said < EVERY_S or done >= total:
            return
        said = now
        took = units.time((now - began) * 1e9)
        print(f"{words} {done:,} of {total:,} in {took}", file=sys.stderr, flush=True)

    return update


def rows_of(report: IngestReport) -> dict[str, Any]:
    """An ingest's report as one object: what became of each source, rows by table, problems."""
    return {
        "job": report.job,
        "exit_code": report.exit_code,
        "seconds": round(report.seconds, 3),
        "bytes": report.bytes,
        "new_warehouse": report.new_warehouse,
        "sources": [_source(s) for s in report.sources],
        "problems": [
            {"source": name, "severity": p.severity, "code": p.code, "count": p.count,
             "message": p.message}
            for name, p in [*((s.name, p) for s in report.sources for p in s.problems),
                            *report.problems]
        ],
    }  # fmt: skip


def announce(new_warehouse: str | None) -> None:
    """Says on stderr that there was no job at a path or an address: it may have a slip in it."""
    if new_warehouse:
        words = f"new warehouse at {clean(new_warehouse)} (no job was there before)"
        console(stderr=True).print(words, style="bold yellow", soft_wrap=True)


def _source(source: SourceReport) -> dict[str, Any]:
    return {
        "name": source.name,
        "status": source.status,
        "format": source.format,
        "ranks": list(source.ranks),
        "bytes": source.size_bytes,
        "rows": dict(source.rows),
        "error": None if source.error is None else str(source.error),
    }


def show(out: Console, report: IngestReport) -> None:
    """What an ingest did: one line in all, sources that need a look, problems by kind."""
    n = Counter(s.status for s in report.sources)
    words = {
        "new": "ingested",
        "already": "already there",
        "refused": "refused",
        "failed": "failed",
    }
    parts = [f"{n[k]} {w}" for k, w in words.items() if n[k]] or ["nothing to ingest"]
    rows: Counter[str] = Counter()
    for s in report.sources:
        if s.status == "new":
            rows.update(s.rows)
    out.print(
        f"job {clean(report.job)}: {', '.join(parts)} ({units.size(report.bytes)} in "
        f"{units.time(report.seconds * 1e9)})"
    )
    counted = [f"{rows[t]:,} {words}" for t, words in ROWS.items() if rows[t]]
    if counted:
        out.print(f"rows: {', '.join(counted)}")
    formats = Counter(s.format for s in report.sources if s.format and s.error is None)
    if len(formats) > 1:
        out.print("formats: " + ", ".join(f"{n} {f}" for f, n in sorted(formats.items())))
    doubts = [p for _, p in report.problems if p.code in one_job.CODES]
    for p in doubts:
        out.print(f"warning: {clean(p.message)}", style="bold yellow")
    for _, p in report.problems:
        if p.code == NOT_YET_REPLAYED:
            out.print(f"note: {clean(p.message)}", style="yellow", soft_wrap=True)
    wrong = [s for s in report.sources if s.error is not None]
    most = MOST_BESIDE_DOUBTS if doubts else MOST_SOURCES
    for s in wrong[:most]:
        out.print(f"{s.status}: {clean(str(s.error))}", style="bold red")
    if len(wrong) > most:
        out.print(f"and {len(wrong) - most:,} more", style="bold red")
    kinds: dict[tuple[str, str], list[Any]] = {}
    for place, p in [*((s.name, p) for s in report.sources for p in s.problems), *report.problems]:
        if p.severity == "info" or p in doubts:
            continue
        first = p.message if place in p.message else f"{place.rpartition('/')[2]}: {p.message}"
        kind = kinds.setdefault((p.severity, p.code), [0, first])
        kind[0] += p.count
    if kinds:
        order = {"lost": 0, "warning": 1}
        table = [
            {"severity": severity, "code": code, "times": count, "message": message}
            for (severity, code), (count, message) in sorted(
                kinds.items(), key=lambda k: (order.get(k[0][0], 2), k[0][1])
            )
        ]
        out.print()
        show_table(
            out,
            table,
            {"severity": "severity", "code": "problem", "times": "times", "message": "first seen"},
        )
        all_of_them = clean(command("problems", report.job))
        out.print(f"{all_of_them} has them all", style="dim", soft_wrap=True)
