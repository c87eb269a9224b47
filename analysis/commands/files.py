"""The commands that write files: report, notebook, export."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Annotated

from .options import AsJson, JobId, Where, open_job, open_warehouse, print_json
from .params import Exit, Option


def report(
    job: JobId = None,
    output: Annotated[
        str | None,
        Option("-o", "--output", metavar="FILE.html", help="Default: JOB.html."),
    ] = None,
    warehouse: Where = None,
    json: AsJson = False,
) -> None:
    """One self-contained HTML page: where the step went, who is waited for, what if.

    \b
    Examples:
      retime report run-7
      retime report run-7 -o /tmp/run-7.html
    """
    written = open_job(warehouse, job).report(output)
    if json:
        return print_json({"path": str(written), "bytes": written.stat().st_size})
    from ..screen import clean

    print(clean(str(written)))


def notebook(
    job: JobId = None,
    name: Annotated[
        str | None,
        Option("-n", "--name", metavar="NAME", help="One notebook (default: all)."),
    ] = None,
    list_: Annotated[bool, Option("--list", help="Their names and questions.")] = False,
    to: Annotated[
        Path | None,
        Option(
            "--to", metavar="DIR", help="Only write the files there (.py and .ipynb, or --html's)."
        ),
    ] = None,
    html: Annotated[
        bool, Option("--html", "--run", help="Run, and write pages of what comes out.")
    ] = False,
    against: Annotated[
        str | None,
        Option("--against", metavar="JOB", help="The job before, for before-and-after."),
    ] = None,
    force: Annotated[bool, Option("--force", help="Write files anew.")] = False,
    jupyter: Annotated[
        bool, Option("--jupyter", help="Open in Jupyter (default: marimo, if installed).")
    ] = False,
    port: Annotated[int | None, Option("--port", min=1, help="Port to serve at.")] = None,
    no_browser: Annotated[
        bool, Option("--no-browser", help="Serve, and print the address only.")
    ] = False,
    warehouse: Where = None,
    json: AsJson = False,
) -> None:
    """Opens notebooks about a job: why is a step slow, who is late, is it the network, and so on.

    They are copies, in retime-notebooks/JOB, and yours to change: open them again and your changes
    are there. marimo serves them, or Jupyter; --html needs neither, and writes pages there, too.

    \b
    Examples:
      retime notebook run-7
      retime notebook run-7 --name who-is-late --html
      retime notebook run-8 --name before-and-after --against run-7
      retime notebook --name fleet
      retime notebook run-7 --to notebooks/
    """
    from ..notebooks import screen

    code = screen.command(
        open_warehouse(warehouse), job, name, to=to, html=html, against=against, force=force,
        jupyter=jupyter, port=port, browser=not no_browser, listed=list_, json=json,
    )  # fmt: skip
    raise Exit(code)


def export(
    job: JobId = None,
    to: Annotated[
        str, Option("--to", metavar="FORMAT", help="perfetto, or chakra (a folder).")
    ] = "perfetto",
    output: Annotated[
        str | None,
        Option(
            "-o",
            "--output",
            metavar="FILE",
            help="Default: JOB.perfetto-trace, JOB-chakra; a name with .gz is compressed.",
        ),
    ] = None,
    step: Annotated[
        list[str] | None,
        Option("--step", metavar="N", help="A step or a range, 10-12; may be given again."),
    ] = None,
    ranks: Annotated[
        str | None, Option("--ranks", metavar="LIST", help="These ranks: 0-7,9.")
    ] = None,
    no_host: Annotated[bool, Option("--no-host", help="Nothing of host threads.")] = False,
    kinds: Annotated[
        str | None,
        Option(
            "--kinds", metavar="LIST", help="These kinds: kernel,wait (a wrong one lists them)."
        ),
    ] = None,
    policy: Annotated[
        list[str] | None,
        Option(
            "--policy", metavar="NAME[:k=v,…]", help="A replayed timeline beside it, or unchanged."
        ),
    ] = None,
    warehouse: Where = None,
    json: AsJson = False,
) -> None:
    """One merged timeline on the job's clock for the Perfetto UI, or Chakra's execution traces.

    Open the file at https://ui.perfetto.dev: it stays on your machine. A rank is a process, with
    its steps, waits, transfers, exposed time and gaps above its streams and threads; arrows go from
    the rank that came last to a collective to those that it released.

    \b
    Examples:
      retime export run-7
      retime export run-7 --step 12 --no-host -o step12.perfetto-trace.gz
      retime export run-7 --policy align-arrivals --ranks 0-7
      retime export run-7 --to chakra -o run-7-chakra
    """
    from ..screen import clean

    written = open_job(warehouse, job).export(
        output, to, steps=step, ranks=ranks, host=not no_host, kinds=kinds, policies=policy or []
    )
    if json:
        return print_json(written)
    print(clean(written["path"]))
    for warning in written["warnings"]:
        print(f"note: {clean(warning)}", file=sys.stderr)
