"""The command by which nodes send their traces into a shared warehouse: upload."""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING, Annotated, Any

from .options import AsJson, print_json
from .params import Argument, Exit, Option

if TYPE_CHECKING:
    from ...ingest.upload.report import UploadReport


def upload(
    paths: Annotated[
        list[str] | None,
        Argument(metavar="PATH", help="Files, folders, globs, archives; or what is left."),
    ] = None,
    to: Annotated[
        str | None,
        Option(
            "--to", "--warehouse", metavar="URL", help="The warehouse (default: $RETIME_WAREHOUSE)."
        ),
    ] = None,
    job: Annotated[
        str | None,
        Option(
            "--job",
            metavar="ID",
            help="The job, the same on every node (default: $RETIME_JOB, slurm-$SLURM_JOB_ID, "
            "$TORCHELASTIC_RUN_ID).",
        ),
    ] = None,
    spool: Annotated[
        str | None,
        Option(
            "--spool",
            metavar="DIR",
            help="Where what is not delivered is written down (default: $RETIME_SPOOL, else "
            "~/.local/state/retime/spool).",
        ),
    ] = None,
    retry: Annotated[
        bool, Option("--retry", help="Try everything that is left, due or not.")
    ] = False,
    for_: Annotated[str, Option("--for", metavar="TIME", help="Go on trying for so long.")] = "5m",
    wait_idle: Annotated[
        str | None,
        Option(
            "--wait-idle", metavar="TIME", help="Wait until nobody wrote to a file for so long."
        ),
    ] = None,
    keep: Annotated[
        bool, Option("--keep", help="Take what is not delivered into the spool.")
    ] = False,
    finish: Annotated[
        bool | None,
        Option(
            "--finish/--no-finish",
            help="Make the derived tables (default: when a job's last rank came).",
        ),
    ] = None,
    workers: Annotated[
        int | None, Option("--workers", min=1, help="Processes (default: one a core).")
    ] = None,
    follow: Annotated[
        bool,
        Option("--follow", help="Send files as they become whole, until SIGTERM; then all."),
    ] = False,
    epilogue: Annotated[
        bool, Option("--epilogue", help="End with 0 whatever happens, and say little.")
    ] = False,
    list_: Annotated[bool, Option("--list", help="What is left, and nothing else.")] = False,
    forget: Annotated[
        list[str] | None,
        Option("--forget", metavar="ENTRY", help="Give up an entry of --list; again for more."),
    ] = None,
    example: Annotated[
        str | None,
        Option(
            "--example",
            metavar="NAME",
            help="Print a file to start from: slurm, slurm-conf, kubernetes, cron, torch.",
        ),
    ] = None,
    json: AsJson = False,
) -> None:
    """A node's traces into a shared warehouse, tried again until they are in.

    Every file is written down in a spool first. Without PATH, what is left there is delivered when
    it is due. The same file again changes nothing; every node at once may upload into one job.
    Exit codes: 0 delivered, 1 some left for later or input lost, 2 usage, 3 nothing usable.

    \b
    Examples:
      retime upload traces/ --to s3://traces/warehouse --job run-7
      retime upload --retry
      retime upload --list
      retime upload --example slurm > retime-upload.sh
    """
    from ...ingest.errors import RetimeError
    from .. import screen, terminal, upload_screen

    if example is not None:
        from ...ingest.upload.examples import example as text_of

        text = text_of(example)
        return print_json({"name": example, "text": text}) if json else print(text, end="")
    show = upload_screen.show_left if list_ or forget else upload_screen.show
    try:
        report = _done(
            paths or [], to, job, spool, retry, for_, wait_idle, keep, finish, workers, follow,
            list_, forget or [], quiet=epilogue,
        )  # fmt: skip
    except (RetimeError, Exception) as e:
        if not epilogue:
            raise
        from ...ingest.upload import log

        log.say(_folder(spool), 40, f"upload: {e}")
        print(f"retime: {screen.clean(' '.join(str(e).split()))}", file=sys.stderr)
        raise Exit(0) from e
    if json:
        print_json(report.to_dict())
    elif not epilogue or report.exit_code:
        show(terminal.console(), report)
    raise Exit(0 if epilogue or list_ or forget else report.exit_code)


def _log_to_stderr() -> None:
    """What is said is a line on stderr at once: a sidecar's report comes only at its end."""
    import logging

    to_stderr = logging.StreamHandler()
    to_stderr.setFormatter(logging.Formatter("retime: %(message)s"))
    logging.getLogger("retime.upload").addHandler(to_stderr)
    logging.getLogger("retime.upload").setLevel(logging.INFO)


def _folder(spool: str | None) -> Any:
    from ...ingest.upload.spool import Spool

    try:
        kept = Spool(spool)
        kept.make()
    except Exception:
        return None
    return kept.folder


def _done(
    paths: list[str],
    to: str | None,
    job: str | None,
    spool: str | None,
    retry: bool,
    for_: str,
    wait_idle: str | None,
    keep: bool,
    finish: bool | None,
    workers: int | None,
    follow: bool,
    list_: bool,
    forget: list[str],
    *,
    quiet: bool,
) -> UploadReport:
    import logging

    from ...ingest.errors import UsageError
    from ...ingest.upload import backoff, run
    from ...ingest.upload.follow import IDLE_S
    from ...ingest.upload.follow import follow as following
    from .. import tracking

    for_s = backoff.seconds(for_, "--for")
    idle_s = None if wait_idle is None else backoff.seconds(wait_idle, "--wait-idle")
    if (list_ or forget) and (paths or follow or retry):
        raise UsageError("--list and --forget are about what is left: without PATH, and alone")
    if list_:
        return run.left(spool)
    if forget:
        return run.forget(forget, spool)
    options: dict[str, Any] = {
        "to": to, "job": job, "spool": spool, "for_s": for_s, "keep": keep, "finish": finish,
        "workers": workers,
    }  # fmt: skip
    if follow:
        if not paths:
            raise UsageError("--follow needs the folders to look into")
        _log_to_stderr()
        return following(paths, wait_idle_s=IDLE_S if idle_s is None else idle_s, **options)
    logging.getLogger("retime.upload").addHandler(logging.NullHandler())  # the report says it
    if quiet:
        return run.upload(paths, retry=retry, wait_idle_s=idle_s or 0.0, **options)
    with tracking.progress() as progress:
        return run.upload(
            paths, retry=retry, wait_idle_s=idle_s or 0.0, progress=progress, **options
        )
