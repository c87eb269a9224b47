"""The commands over several jobs: diff, fleet, analyse."""

from __future__ import annotations

from typing import Annotated

from .options import AsJson, Limit, OnRay, Where, open_warehouse, print_json
from .params import Argument, Exit, Option


def diff(
    job_a: Annotated[str, Argument(metavar="JOB_A", help="The job before.")],
    job_b: Annotated[str, Argument(metavar="JOB_B", help="The job after.")],
    steps_a: Annotated[
        str | None, Option("--steps-a", metavar="N-M", help="Only these steps of A.")
    ] = None,
    steps_b: Annotated[
        str | None, Option("--steps-b", metavar="N-M", help="Only these steps of B.")
    ] = None,
    warehouse: Where = None,
    other: Annotated[
        str | None,
        Option("--warehouse-b", metavar="URL", help="Warehouse of B, if another one."),
    ] = None,
    limit: Limit = 20,
    json: AsJson = False,
) -> None:
    """What changed between two jobs: what got slower, by how much, and is it more than chance.

    Parts of the step are matched by class of time, collective (dimension, operation, size class)
    and kernel name; the jobs may differ in size. The changes add up to that of the whole step.

    \b
    Examples:
      retime diff run-7 run-8
      retime diff run-7 run-8 --steps-a 10-20 --json | jq '.parts[:5]'
    """
    from .. import diff_screen, doors, terminal

    found = open_warehouse(warehouse).diff(
        job_a, job_b, other=doors.open(other) if other else None, steps_a=steps_a, steps_b=steps_b
    )
    if json:
        return print_json(found)
    diff_screen.show(terminal.console(), found, limit)


def fleet(
    by: Annotated[
        str, Option("--by", metavar="WHAT", help="hosts, fabric, jobs or kernels.")
    ] = "hosts",
    warehouse: Where = None,
    limit: Limit = 20,
    json: AsJson = False,
) -> None:
    """Over all jobs of a warehouse: which hosts are late again and again, which fabric is slower.

    \b
    Examples:
      retime fleet
      retime fleet --by fabric
      retime fleet --by kernels --json | jq '.[:5]'
    """
    from .. import fleet_screen, terminal

    opened = open_warehouse(warehouse)
    rows = fleet_screen.rows(opened, by)
    if json:
        return print_json(rows)
    unnamed = fleet_screen.unnamed_jobs(opened) if by == "hosts" else 0
    fleet_screen.show(terminal.console(), rows, by, limit, unnamed)


def analyse(
    jobs: Annotated[list[str] | None, Argument(metavar="JOB", help="Jobs; or --all.")] = None,
    all_: Annotated[bool, Option("--all", help="All jobs of the warehouse.")] = False,
    reports: Annotated[
        str | None,
        Option("--reports", metavar="DIR", help="Also write each job's page, DIR/JOB.html."),
    ] = None,
    workers: Annotated[
        int | None, Option("--workers", min=1, help="Jobs at once (default: one a core).")
    ] = None,
    ray: OnRay = None,
    warehouse: Where = None,
    json: AsJson = False,
) -> None:
    """Makes jobs ready for every query: derived tables, replay scores, critical paths, slack.

    One query of one job computes them when it first asks; queries over several jobs (fleet, sql)
    only read what is kept. This computes and keeps what is missing, a job a task, on all cores or
    on a Ray cluster. A job that fails keeps no other from its turn.

    \b
    Examples:
      retime analyse --all
      retime analyse run-7 run-8 --reports pages/
      retime analyse --all --warehouse /shared/warehouse --ray auto --json
    """
    from ...ingest.errors import UsageError
    from .. import analysing, terminal, tracking

    if bool(jobs) == all_:
        raise UsageError("name the jobs to analyse, or --all of the warehouse")
    with tracking.points("analysing", "analysed") as progress:
        rows = open_warehouse(warehouse).analyse(
            jobs or None, reports=reports, workers=workers, ray=ray, progress=progress
        )
    if json:
        print_json(rows)
    else:
        titles = {
            "job": "job",
            "status": "status",
            "replay_scores": "ranks scored",
            "critical_path": "on the critical path",
            "slack": "with slack",
            "reason": "why not",
        }
        shown = [{**r, "reason": r["reason"] or ""} for r in rows]
        terminal.show_table(terminal.console(), shown, titles)
    raise Exit(analysing.exit_code(rows))
