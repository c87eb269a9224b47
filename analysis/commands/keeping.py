"""The commands that keep a team's warehouse: tag, note, verify, prune, compact."""

from __future__ import annotations

from typing import Annotated

from .options import AsJson, Limit, Where, open_job, open_warehouse, print_json
from .params import Argument, Exit, Option

Jobs = Annotated[list[str] | None, Argument(metavar="JOB", help="The jobs (default: all).")]
Author = Annotated[
    str | None,
    Option("--author", metavar="NAME", help="Who says it ($RETIME_AUTHOR, else the user)."),
]
Grace = Annotated[
    str,
    Option(
        "--grace",
        metavar="TIME",
        help="How long files that count no more stay for those who read them (24h, 0s, ...).",
    ),
]


def tag(
    job: Annotated[str, Argument(metavar="JOB", help="The job.")],
    tags: Annotated[list[str] | None, Argument(metavar="KEY[=VALUE]", help="Tags to set.")] = None,
    remove: Annotated[
        list[str] | None,
        Option("--remove", metavar="KEY", help="Removes a tag; may be given again."),
    ] = None,
    author: Author = None,
    warehouse: Where = None,
    json: AsJson = False,
) -> None:
    """Tags of a job; sets and removes them, too.

    `retime jobs --where` finds jobs by their tags, and `retime prune` keeps those tagged `keep`.

    \b
    Examples:
      retime tag run-7 cluster=a model=llama-70b
      retime tag run-7 keep
      retime tag run-7 --remove keep
      retime jobs --where "tags['cluster'] = 'a'"
    """
    from ...ingest import labels
    from .. import keeping_screen, terminal

    said = open_job(warehouse, job).tag(
        labels.parse(tags or []), remove=remove or [], author=author
    )
    if json:
        return print_json(said)
    keeping_screen.show_tags(terminal.console(), said)


def note(
    job: Annotated[str, Argument(metavar="JOB", help="The job.")],
    text: Annotated[
        str | None, Argument(metavar="TEXT", help="The note to add (default: none).")
    ] = None,
    remove: Annotated[
        int | None,
        Option("--remove", metavar="N", min=1, help="Removes the note of that number."),
    ] = None,
    author: Author = None,
    warehouse: Where = None,
    json: AsJson = False,
) -> None:
    """Notes on a job, with who wrote them and when; adds and removes them, too.

    \b
    Examples:
      retime note run-7 "rank 12's fan was replaced before this run"
      retime note run-7
      retime note run-7 --remove 1
    """
    from .. import keeping_screen, terminal

    said = open_job(warehouse, job).note(text, remove=remove, author=author)
    if json:
        return print_json(said)
    keeping_screen.show_notes(terminal.console(), said)


def verify(
    jobs: Jobs = None,
    deep: Annotated[
        bool, Option("--deep", help="Reads every file, and holds it against its SHA-256.")
    ] = False,
    repair: Annotated[
        bool,
        Option("--repair", help="Removes what is garbage; sets aside, in _quarantine, what lies."),
    ] = False,
    warehouse: Where = None,
    json: AsJson = False,
    limit: Limit = 100,
) -> None:
    """Whether a warehouse holds what it says: a row a finding, and what to do about each.

    Manifests are read, and their files held against them: names, sizes, rows, columns, with --deep
    every byte. Also found: files that nothing names, unfinished work of dead processes, two
    sources of one rank, damaged settings and labels. Exit code 1 where anything is wrong; notes
    alone are no fault.

    \b
    Examples:
      retime verify
      retime verify run-7 --deep
      retime verify --repair --json | jq 'map(select(.severity == "lost"))'
    """
    from .. import keeping_screen, terminal, tracking

    with tracking.progress() as progress:
        rows = open_warehouse(warehouse).verify(
            jobs or None, deep=deep, repair=repair, progress=progress
        )
    found = rows.to_dicts()
    if json:
        print_json(found)
    else:
        keeping_screen.show_findings(terminal.console(), found, limit)
    raise Exit(int(any(r["severity"] != "info" for r in found)))


def prune(
    jobs: Annotated[list[str] | None, Argument(metavar="JOB", help="Only these jobs.")] = None,
    older_than: Annotated[
        str | None,
        Option(
            "--older-than", metavar="TIME", help="Jobs without a new source for so long (90d, 12h)."
        ),
    ] = None,
    where: Annotated[
        str | None,
        Option(
            "--where", metavar="SQL", help="Jobs of which this is true, as `retime jobs --where`."
        ),
    ] = None,
    keep: Annotated[
        int | None,
        Option("--keep", metavar="N", min=0, help="Not the N newest jobs of the warehouse."),
    ] = None,
    keep_tag: Annotated[
        list[str] | None,
        Option("--keep-tag", metavar="TAG[=VALUE]", help="Not jobs with this tag."),
    ] = None,
    raw_events: Annotated[
        bool,
        Option(
            "--raw-events",
            help="Only the rows of `events`, by far the most: all else of the jobs stays.",
        ),
    ] = False,
    yes: Annotated[bool, Option("--yes", help="Does it; without, it only says what.")] = False,
    dry_run: Annotated[bool, Option("--dry-run", help="Only says what (default).")] = False,
    grace: Grace = "24h",
    warehouse: Where = None,
    json: AsJson = False,
    limit: Limit = 100,
) -> None:
    """Removes jobs by age, tag or condition; says which, and how many bytes, unless --yes is given.

    All that is given must hold of a job. Jobs tagged `keep` are never pruned: how many fit is said.
    A pruned job is gone for all who open it from then on; its files go when --grace is over, with
    the next prune, so that those who read it go on (--yes alone takes no job, and only frees
    those). With --raw-events ranks, steps, collectives, waits and what was computed stay, and the
    summary that `retime show` prints is kept before.

    \b
    Examples:
      retime prune --older-than 90d
      retime prune --older-than 90d --keep-tag baseline --yes
      retime prune --older-than 14d --raw-events --yes
      retime prune --where "tags['team'] = 'x' AND ranks_seen < 8" --keep 20
      retime prune --yes --grace 0s
    """
    from ...ingest.errors import UsageError
    from .. import keeping, keeping_screen, terminal

    if yes and dry_run:
        raise UsageError("--yes does it and --dry-run does not: give one of them")
    rows = open_warehouse(warehouse).prune(
        jobs or None,
        older_than=older_than,
        where=where,
        keep=keep,
        keep_tags=keep_tag or (),
        raw_events=raw_events,
        dry_run=not yes,
        grace_s=keeping.seconds(grace, "--grace"),
    )
    found = rows.to_dicts()
    if json:
        print_json(found)
    elif not jobs and older_than is where is keep is None:
        keeping_screen.show_freed(terminal.console(), found, limit)
    else:
        keeping_screen.show_pruned(
            terminal.console(), found, not yes, raw_events, limit, named=bool(jobs)
        )
    raise Exit(int(any(r["status"].startswith(keeping.FAILED) for r in found)))


def compact(
    jobs: Jobs = None,
    grace: Grace = "24h",
    warehouse: Where = None,
    json: AsJson = False,
    limit: Limit = 100,
) -> None:
    """Puts the many small files of a job's sources together into few: the same rows, opened faster.

    Sources that are large themselves stay as they are. Others may come afterwards, and whoever
    reads meanwhile goes on: the small files go when --grace is over, with the next compact or
    ingest. Run again, it does nothing.

    \b
    Examples:
      retime compact run-7
      retime compact --grace 0s
    """
    from .. import keeping, keeping_screen, terminal, tracking

    with tracking.progress() as progress:
        rows = open_warehouse(warehouse).compact(
            jobs or None, grace_s=keeping.seconds(grace, "--grace"), progress=progress
        )
    found = rows.to_dicts()
    if json:
        print_json(found)
    else:
        keeping_screen.show_compacted(terminal.console(), found, limit)
    raise Exit(int(any(r["status"].startswith(keeping.FAILED) for r in found)))
