"""SQL cells in Jupyter: `%load_ext retime.analysis.notebooks.magic`, then `%%sql name`."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import altair as alt

from ...ingest.errors import UsageError
from ..query import run

if TYPE_CHECKING:
    import polars as pl


def load_ipython_extension(shell: Any) -> None:
    """Called by `%load_ext`: registers the magic, and charts that need no network to show."""

    def sql(line: str, cell: str) -> pl.DataFrame:
        """The rows of the query in the cell, asked of the connection `con` of the notebook.

        `%%sql name` also gives them that name.
        """
        con = shell.user_ns.get("con")
        if con is None:
            raise UsageError('there is no connection `con`: con = retime.connect("WAREHOUSE", JOB)')
        rows = run(con, cell)
        name = line.strip()
        if name and not name.isidentifier():
            raise UsageError(f"{name!r} cannot name the rows: `%%sql name`")
        if name:
            shell.user_ns[name] = rows
        return rows

    shell.register_magic_function(sql, "cell", "sql")
    # A picture needs no network, as Altair's own default does; alt.renderers.enable("html") moves.
    alt.renderers.enable("svg")
