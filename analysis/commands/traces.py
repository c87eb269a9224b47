"""The commands that fill a warehouse and say what is in it: demo, ingest, jobs, show, problems."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

from .options import AsJson, JobId, Limit, OnRay, Where, open_job, open_warehouse, print_json
from .params import Argument, Exit, Option


def demo(
    folder: Annotated[
        Path, Argument(metavar="FOLDER", help="Folder to leave the results in.")
    ] = Path("retime-demo"),
    json: AsJson = False,
) -> None:
    """The whole path on a bundled real job: ingest, report, replay.

    Leaves a warehouse and an HTML page in FOLDER, in under a minute.

    \b
    Examples:
      retime demo
      retime sql "FROM sync_tax" --warehouse retime-demo/warehouse
    """
    from .. import demo as bundled
    from .. import doors, terminal, tracking

    with tracking.progress() as progress:
        result = doors.demo(folder, progress=progress)
    if json:
        print_json(result)
    else:
        bundled.show(terminal.console(), result)
    raise Exit(result["exit_code"])


def ingest(
    paths: Annotated[list[str], Argument(metavar="PATH", help="Files, folders, globs, archives.")],
    job: Annotated[str | None, Option("--job", metavar="ID", help="Name of the job.")] = None,
    warehouse: Where = None,
    rank: Annotated[
        int | None,
        Option("--rank", min=0, help="Rank of a single file that does not say so itself."),
    ] = None,
    format: Annotated[
        str | None,
        Option(
            "--format",
            metavar="NAME",
            help="Force a parser (default: told from the content; a wrong name lists them).",
        ),
    ] = None,
    workers: Annotated[
        int | None, Option("--workers", min=1, help="Processes (default: one a core).")
    ] = None,
    step_annotation: Annotated[
        str | None,
        Option(
            "--step-annotation",
            metavar="NAME",
            help="Annotations that are the steps (`*`, `?`; default: told from names).",
        ),
    ] = None,
    kernel_patterns: Annotated[
        str | None,
        Option(
            "--kernel-patterns",
            metavar="FILE",
            help="Classes of kernels, as `retime kernels` takes them (default: "
            "$RETIME_KERNEL_PATTERNS, for jobs without any).",
        ),
    ] = None,
    ray: OnRay = None,
    json: AsJson = False,
) -> None:
    """Traces into the warehouse, as Parquet.

    The same file again changes nothing; a rank may come later; several machines may ingest into
    one job at once; a killed ingest leaves the warehouse as it was.

    \b
    Examples:
      retime ingest traces/ --job run-7
      retime ingest 'traces/rank*.json.gz' more.zip --job run-7 --warehouse /data/warehouse
      retime ingest trace.json --job one --rank 3
      retime ingest /shared/traces/ --job run-7 --warehouse /shared/warehouse --ray auto
    """
    from .. import terminal, tracking

    with tracking.progress() as progress:
        report = open_warehouse(warehouse).ingest(
            paths,
            job=job,
            rank=rank,
            format=format,
            workers=workers,
            progress=progress,
            step_annotation=step_annotation,
            kernel_patterns=kernel_patterns,
            ray=ray,
        )
    tracking.announce(report.new_warehouse)
    if json:
        print_json(tracking.rows_of(report))
    else:
        tracking.show(terminal.console(), report)
    raise Exit(report.exit_code)


def jobs(
    where: Annotated[
        str | None,
        Option(
            "--where", metavar="SQL", help="Jobs of which this is true, over the columns of --json."
        ),
    ] = None,
    warehouse: Where = None,
    json: AsJson = False,
) -> None:
    """The jobs of a warehouse, one row each, or those that fit a condition.

    \b
    Examples:
      retime jobs
      retime jobs --where "started > now() - interval 7 day AND tags['cluster'] = 'a'"
      retime jobs --where "ranks_seen >= 64 AND lost > 0" --json
    """
    from .. import jobs as jobs_
    from .. import keeping_screen, terminal

    wh = open_warehouse(warehouse)
    rows = wh.jobs(where).to_dicts()
    if json:
        return print_json(rows)
    titles = {
        "job": "job",
        "ranks_seen": "ranks",
        "world_size": "of",
        "steps": "steps",
        "pruned": "pruned",
        "participations": "participations",
        "clocks": "clocks",
        "lost": "lost",
        "framework": "framework",
        "sources": "files",
        "created_utc": "first ingest (UTC)",
        "tags": "tags",
    }
    rows = [
        {
            **r,
            "clocks": r["clocks"] if r["ranks_seen"] is None else terminal.clocks_word(r),
            "tags": keeping_screen.tag_words(r["tags"]),
        }
        for r in rows
    ]
    for sometimes in ("tags", "pruned"):
        if not any(r[sometimes] for r in rows):
            del titles[sometimes]
    empty = "no rows" if where is None else "no job fits"
    if where is not None and not rows and "tags" in where.lower():
        used = jobs_.tags_in_use(wh.jobs().iter_rows(named=True))
        empty += terminal.clean(f"; tags in use: {used}" if used else "; no job has a tag")
    terminal.show_table(terminal.console(), rows, titles, empty=empty)


def show(job: JobId = None, warehouse: Where = None, json: AsJson = False) -> None:
    """What a job looks like: ranks, clocks, steps, matches, where the step went.

    \b
    Examples:
      retime show run-7
      retime show run-7 --json | jq .waited_for.rank
    """
    from .. import terminal

    facts = open_job(warehouse, job).show()
    if json:
        return print_json(facts)
    terminal.show_job(terminal.console(), facts)


def problems(
    job: JobId = None, warehouse: Where = None, json: AsJson = False, limit: Limit = 40
) -> None:
    """What was odd in the input, lost input first.

    \b
    Examples:
      retime problems run-7
      retime problems run-7 --json | jq 'map(select(.severity == "lost"))'
    """
    from .. import problems_screen, terminal

    rows = open_job(warehouse, job).problems().to_dicts()
    if json:
        return print_json(rows)
    problems_screen.show_problems(terminal.console(), rows, limit)
