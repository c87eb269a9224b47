"""What several commands share: their options, the warehouse and the job asked for, JSON."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated, Any

from .params import Argument, Option

if TYPE_CHECKING:
    from ..doors import Job, Warehouse

Where = Annotated[
    str | None,
    Option(
        "--warehouse",
        metavar="URL",
        help="Folder of the jobs, or s3://bucket/folder (default: $RETIME_WAREHOUSE, else "
        "./warehouse).",
    ),
]
AsJson = Annotated[bool, Option("--json", help="Print JSON and nothing else on stdout.")]
JobId = Annotated[
    str | None, Argument(metavar="JOB", help="The job (not needed where there is one).")
]
OnRay = Annotated[
    str | None,
    Option(
        "--ray",
        metavar="ADDRESS",
        help="Work on a Ray cluster: auto, HOST:PORT, ray://HOST:PORT, or local.",
    ),
]
Limit = Annotated[int, Option("--limit", min=1, help="Rows to print at most.")]


def open_warehouse(url: str | None) -> Warehouse:
    """The warehouse of --warehouse."""
    from ...ingest import suggested
    from .. import doors

    suggested.named(url)
    return doors.open(url)


def open_job(url: str | None, id: str | None) -> Job:
    """The job that a command names, or the only one."""
    return open_warehouse(url).job(id)


def print_json(value: Any) -> None:
    """Prints a value as JSON."""
    from ..screen import to_json

    print(to_json(value))
