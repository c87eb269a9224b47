"""The command line: each command is a Python call of the same name, and its printing.

The commands themselves are in `analysis/commands`.
"""

from __future__ import annotations

import os
import sys
from typing import Annotated

import typer

from .analysis.commands import (
    files,
    keeping,
    listed,
    models,
    queries,
    said,
    several,
    traces,
    upload,
    whatif,
)
from .analysis.commands.failing import fail, is_usage, of_files, usage, what
from .analysis.commands.first_run import FirstRun
from .analysis.commands.no_pandas import NoPandas

app = typer.Typer(
    name="retime",
    help="Where a distributed training step's time went, who made everybody wait, and what it "
    "would have cost otherwise.",
    epilog="Start with `retime demo`, or `retime ingest TRACES --job NAME` and `retime report "
    "NAME`. `retime COMMAND --help` has examples. Exit codes: 0 done, 1 done but input was lost, "
    "2 usage, 3 nothing usable. RETIME_DEBUG=1 shows tracebacks.",
    rich_markup_mode=None,
    add_completion=False,
    pretty_exceptions_enable=False,
    no_args_is_help=True,
    context_settings={"help_option_names": ["-h", "--help"], "max_content_width": 100},
)

COMMANDS = (
    (traces.demo, "The whole path on a bundled real job: ingest, report, replay."),
    (traces.ingest, None),
    (upload.upload, "Traces into a shared warehouse, from every node of a job."),
    (traces.jobs, "The jobs of a warehouse, or some of them."),
    (traces.show, "What a job looks like, and where its step went."),
    (said.dims, "Communicators and their parallel dimensions; says them, too."),
    (said.kernels, "What kernels do, by class; says it, too."),
    (traces.problems, "What was odd in the input, lost input first."),
    (queries.sql, "One query over the tables and views, read-only."),
    (queries.tables, "The dictionary of tables, views and macros."),
    (listed.files, "The Parquet files of a job's tables, for other engines."),
    (whatif.replay, "What the step would have cost, under policies."),
    (whatif.policies, "The catalogue of policies."),
    (models.model, "What collectives cost by algorithm, without a trace."),
    (models.plan, "How to split a model over GPUs, without a trace."),
    (models.fabric, "Fabrics: presets, or one's links and bounds."),
    (whatif.stragglers, "Slowdown against the ideal, by operation and rank."),
    (several.diff, "What changed between two jobs, part by part of the step."),
    (several.fleet, "Many jobs beside each other: hosts, fabric, kernels."),
    (several.analyse, "Computes and keeps what only a replay gives, of many jobs."),
    (files.report, "One self-contained HTML page of a job."),
    (files.notebook, "Notebooks of SQL and charts, a question each."),
    (keeping.tag, "Tags of a job; sets and removes them, too."),
    (keeping.note, "Notes on a job; adds and removes them, too."),
    (keeping.verify, "Whether a warehouse holds what it says; repairs it."),
    (keeping.prune, "Removes old jobs, or only their events."),
    (keeping.compact, "Puts the small files of a job together into few."),
    (files.export, "One timeline for the Perfetto UI, or Chakra's execution traces."),
)
"""In the order of `retime --help`, with a line each where their first sentence is too long."""


def _version(asked: bool) -> None:
    if asked:
        from . import __version__

        print(f"retime {__version__}")
        raise typer.Exit


@app.callback()
def common(
    version: Annotated[
        bool,
        typer.Option("--version", callback=_version, is_eager=True, help="Print the version."),
    ] = False,
) -> None:
    """What every command shares; the text of `retime --help` is the application's own."""


for command, short_help in COMMANDS:
    app.command(short_help=short_help)(command)


def run(args: list[str] | None = None) -> int:
    """Runs one command line and returns its exit code; errors are one sentence on stderr."""
    from .ingest import suggested
    from .ingest.errors import RetimeError

    debug = os.environ.get("RETIME_DEBUG", "") not in ("", "0")
    try:
        result = app(args, prog_name="retime", standalone_mode=False)
        sys.stdout.flush()
        return result if isinstance(result, int) else 0
    except typer.Exit as e:
        return e.exit_code
    except (typer.Abort, KeyboardInterrupt):
        return 130
    except (BrokenPipeError, SystemExit):
        # The reader has what it wanted (the parser of options turns that into SystemExit); a
        # second error when stdout is flushed at exit would say otherwise.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return 0
    except RetimeError as e:
        if debug:
            raise
        return fail(str(e), e.exit_code)
    except Exception as e:
        if is_usage(e):
            return usage(e)
        if debug:
            raise
        if (said := of_files(e)) is not None:
            return fail(said, 3)
        return fail(
            f"{what(e)} (unexpected: RETIME_DEBUG=1 shows where; please report it)",
            3,
        )
    finally:
        suggested.named(None)  # Python that goes on after a command line named no warehouse


def main() -> None:
    """The entry point of the `retime` script."""
    sys.meta_path[:0] = [NoPandas, FirstRun()]
    sys.exit(run())
