"""The commands that ask in SQL: sql, and tables for its dictionary."""

from __future__ import annotations

import sys
from typing import Annotated

from .options import AsJson, Limit, Where, open_warehouse, print_json
from .params import Argument, Option


def sql(
    query: Annotated[str, Argument(metavar="QUERY", help="One SELECT; `-` reads it from stdin.")],
    job: Annotated[
        str | None, Option("--job", metavar="JOB", help="Only this job (default: all).")
    ] = None,
    warehouse: Where = None,
    json: AsJson = False,
    limit: Limit = 50,
) -> None:
    """One query over the tables and the standard library (`retime tables` lists them).

    DuckDB's SQL, read-only; values are as stored (ns, bytes).

    \b
    Examples:
      retime sql "FROM sync_tax ORDER BY wait_ns DESC"
      retime sql "SELECT rank, sum(wait_ns) FROM waits GROUP BY rank" --job run-7 --json
    """
    from .. import query as queries
    from .. import terminal

    text = sys.stdin.read() if query == "-" else query
    names, rows = queries.rows(open_warehouse(warehouse).connect(job), text)
    if json:
        return print_json(rows)
    terminal.show_table(terminal.console(), rows, names=names, raw=True, limit=limit)


def tables(
    name: Annotated[str | None, Argument(metavar="NAME", help="A table, view or macro.")] = None,
    json: AsJson = False,
) -> None:
    """The dictionary of tables, views and macros, with units.

    \b
    Examples:
      retime tables
      retime tables waits
    """
    from .. import doors, manual_screen, terminal

    rows = doors.tables(name)
    if json:
        return print_json(rows)
    manual_screen.show_tables(terminal.console(), rows, name)
