"""The command that lists a job's files, for other engines."""

from __future__ import annotations

from typing import Annotated

from .options import AsJson, JobId, Limit, Where, open_warehouse, print_json
from .params import Option


def files(
    job: JobId = None,
    table: Annotated[
        str | None, Option("--table", metavar="NAME", help="Only this table's files.")
    ] = None,
    all_: Annotated[bool, Option("--all", help="Files of all jobs.")] = False,
    warehouse: Where = None,
    json: AsJson = False,
    limit: Limit = 50,
) -> None:
    """The Parquet files of every table at this moment, for Polars, DataFusion, Spark and others.

    They are what belongs together: derived tables that were superseded, and files of an upload that
    is not finished, lie in the same folders and are not listed.

    \b
    Examples:
      retime files run-7
      retime files run-7 --table events --json
      retime files --all --json
    """
    from .. import files_screen, terminal

    wh = open_warehouse(warehouse)
    found = wh.files(None if all_ else wh.job(job).id, table=table)
    rows = found.to_dicts()
    if json:
        return print_json(rows)
    files_screen.show_files(terminal.console(), rows, limit)
