"""The command line: each command is a Python call of the same name, and its printing.

The commands themselves are in `analysis/commands`, each imported when it is called.
"""

from __future__ import annotations

import atexit
import gc
import os
import sys
import threading
from typing import NoReturn

import click

from .analysis.commands.failing import fail, is_usage, of_files, usage, what
from .analysis.commands.first_run import FirstRun
from .analysis.commands.lazily import Commands, Exit, Named
from .analysis.commands.no_pandas import NoPandas

COMMANDS = (
    Named("demo", "traces", "The whole path on a bundled real job: ingest, report, replay."),
    Named("ingest", "traces", "Traces into the warehouse, as Parquet."),
    Named("upload", "upload", "Traces into a shared warehouse, from every node of a job."),
    Named("jobs", "traces", "The jobs of a warehouse, or some of them."),
    Named("show", "traces", "What a job looks like, and where its step went."),
    Named("dims", "said", "Communicators and their parallel dimensions; says them, too."),
    Named("kernels", "said", "What kernels do, by class; says it, too."),
    Named("problems", "traces", "What was odd in the input, lost input first."),
    Named("sql", "queries", "One query over the tables and views, read-only."),
    Named("tables", "queries", "The dictionary of tables, views and macros."),
    Named("files", "listed", "The Parquet files of a job's tables, for other engines."),
    Named("replay", "whatif", "What the step would have cost, under policies."),
    Named("policies", "whatif", "The catalogue of policies."),
    Named("model", "models", "What collectives cost by algorithm, without a trace."),
    Named("plan", "models", "How to split a model over GPUs, without a trace."),
    Named("fabric", "models", "Fabrics: presets, or one's links and bounds."),
    Named("stragglers", "whatif", "Slowdown against the ideal, by operation and rank."),
    Named("diff", "several", "What changed between two jobs, part by part of the step."),
    Named("fleet", "several", "Many jobs beside each other: hosts, fabric, kernels."),
    Named("analyse", "several", "Computes and keeps what only a replay gives, of many jobs."),
    Named("report", "files", "One self-contained HTML page of a job."),
    Named("notebook", "files", "Notebooks of SQL and charts, a question each."),
    Named("tag", "keeping", "Tags of a job; sets and removes them, too."),
    Named("note", "keeping", "Notes on a job; adds and removes them, too."),
    Named("verify", "keeping", "Whether a warehouse holds what it says; repairs it."),
    Named("prune", "keeping", "Removes old jobs, or only their events."),
    Named("compact", "keeping", "Puts the small files of a job together into few."),
    Named("export", "files", "One timeline for the Perfetto UI, or Chakra's execution traces."),
)
"""In the order of `retime --help`, with their lines there."""


def _version(ctx: click.Context, param: click.Parameter, asked: bool) -> None:
    if asked:
        from . import __version__

        print(f"retime {__version__}")
        ctx.exit()


app = Commands(
    COMMANDS,
    name="retime",
    help="Where a distributed training step's time went, who made everybody wait, and what it "
    "would have cost otherwise.",
    epilog="Start with `retime demo`, or `retime ingest TRACES --job NAME` and `retime report "
    "NAME`. `retime COMMAND --help` has examples. Exit codes: 0 done, 1 done but input was lost, "
    "2 usage, 3 nothing usable. RETIME_DEBUG=1 shows tracebacks.",
    no_args_is_help=True,
    context_settings={"help_option_names": ["-h", "--help"], "max_content_width": 100},
    params=[
        click.Option(
            ["--version"], is_flag=True, is_eager=True, expose_value=False, callback=_version,
            help="Print the version.",
        )
    ],
)  # fmt: skip


def run(args: list[str] | None = None) -> int:
    """Runs one command line and returns its exit code; errors are one sentence on stderr."""
    from .ingest import suggested
    from .ingest.errors import RetimeError

    debug = os.environ.get("RETIME_DEBUG", "") not in ("", "0")
    try:
        result = app(args, prog_name="retime", standalone_mode=False)
        sys.stdout.flush()
        return result if isinstance(result, int) else 0
    except Exit as e:
        return e.exit_code
    except (click.Abort, KeyboardInterrupt):
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
    # Imports make many objects that stay: looking for garbage among them is a tenth of a start.
    gc.set_threshold(50_000, 20, 20)
    sys.meta_path[:0] = [NoPandas, FirstRun()]
    leave(run())


def leave(code: int) -> NoReturn:
    """Ends the process as `sys.exit` does, but takes no module down: that is a tenth, too."""
    threads, at_exit = (
        getattr(threading, "_shutdown", None),
        getattr(atexit, "_run_exitfuncs", None),
    )
    if threads is None or at_exit is None:
        sys.exit(code)
    threads()
    at_exit()
    try:
        sys.stdout.flush()
        sys.stderr.flush()
    except OSError:
        code = 120
    os._exit(code)
