"""The commands that re-time a job: replay, policies, stragglers."""

from __future__ import annotations

from typing import Annotated, Any

from .options import AsJson, JobId, OnRay, Where, open_job, print_json
from .params import Argument, Option


def replay(
    job: JobId = None,
    policy: Annotated[
        list[str] | None,
        Option("--policy", metavar="NAME[:k=v,…]", help="A policy; may be given again."),
    ] = None,
    sweep: Annotated[
        list[str] | None,
        Option("--sweep", metavar="k=v1,v2", help="Several values of a parameter."),
    ] = None,
    step: Annotated[int | None, Option("--step", help="Only this step.")] = None,
    fabric: Annotated[
        str | None,
        Option("--fabric", metavar="FILE|PRESET", help="The machine (default: from traces)."),
    ] = None,
    strict: Annotated[
        bool, Option("--strict", help="Refuse where the unchanged replay is over 5 % off.")
    ] = False,
    calibration: Annotated[
        bool, Option("--calibration", help="Also alpha, bandwidth and tau of the links.")
    ] = False,
    explain: Annotated[
        bool,
        Option(
            "--explain", help="Also draw a step before and after: a page, and a Perfetto trace."
        ),
    ] = False,
    output: Annotated[
        str | None,
        Option("-o", "--output", metavar="FILE", help="That page (JOB-explain.html)."),
    ] = None,
    ray: OnRay = None,
    warehouse: Where = None,
    json: AsJson = False,
) -> None:
    """What the step would have cost: baseline, fidelity, and an estimate for each policy.

    Several policies are tried each alone, then together. Together they apply in the order of their
    stages (retime policies shows them): placement, volume, algorithm, links, schedule, arrivals,
    run; those of one stage in the order given.

    --explain draws all policies together (of a sweep the best point) in step --step, else in the
    step of median time: a page with both timelines and what moved, and beside it both timelines
    with every task as one trace, NAME.perfetto-trace.gz, for https://ui.perfetto.dev.

    \b
    Examples:
      retime replay run-7 --policy align-arrivals
      retime replay run-7 --policy align-arrivals:ranks=3
      retime replay run-7 --policy align-arrivals --sweep factor=0,0.5,1
      retime replay run-7 --policy scale-fabric --sweep factor=1,2,4 --ray auto
      retime replay run-7 --policy algorithm:op=all_reduce,algo=tree --json
      retime replay run-7 --calibration
      retime replay run-7 --policy align-arrivals --explain -o why.html
    """
    from ...ingest.errors import UsageError
    from .. import doors, replay_screen, terminal, tracking

    options: dict[str, Any] = {
        "sweep": _sweep(sweep),
        "step": step,
        "fabric": fabric,
        "strict": strict,
        "calibration": calibration,
    }
    if ray is not None:
        if explain:
            raise UsageError("--explain draws on this machine: give it, or --ray")
        options["ray"] = ray
    of_job, tried = open_job(warehouse, job), policy or []
    if output is not None and not explain:
        raise UsageError("-o names the page of --explain: give both, or --json > FILE")
    with tracking.points() as progress:
        if explain:
            result = of_job.explain(tried, output, progress=progress, **options)
        else:
            result = doors.replay(of_job, tried, progress=progress, **options)
    if json:
        return print_json(result)
    replay_screen.show_replay(terminal.console(), result)


def policies(
    name: Annotated[
        str | None, Argument(metavar="NAME", help="A policy, for its parameters.")
    ] = None,
    json: AsJson = False,
) -> None:
    """The catalogue of policies, or one with its parameters and assumptions.

    \b
    Examples:
      retime policies
      retime policies align-arrivals
    """
    from .. import doors, replay_screen, terminal

    rows = doors.policies(name)
    if json:
        return print_json(rows)
    replay_screen.show_policies(terminal.console(), rows, detail=name is not None)


def stragglers(job: JobId = None, warehouse: Where = None, json: AsJson = False) -> None:
    """How much slower the job is than its ideal, by operation, rank and stage.

    The ideal has every compute operation at its mean over workers and every transfer at its
    median.

    \b
    Examples:
      retime stragglers run-7
      retime stragglers run-7 --json | jq .slowdown
    """
    from .. import terminal

    result = open_job(warehouse, job).stragglers()
    if json:
        return print_json(result)
    terminal.show_stragglers(terminal.console(), result)


def _sweep(texts: list[str] | None) -> dict[str, list[str]] | None:
    """`["factor=0,0.5"]` -> {"factor": ["0", "0.5"]}. Raises UsageError for other forms."""
    if not texts:
        return None
    from ...ingest.errors import UsageError

    out: dict[str, list[str]] = {}
    for text in texts:
        key, equals, values = text.partition("=")
        chosen = [v for v in values.split(",") if v]
        if not (key and equals and chosen):
            raise UsageError(f"--sweep {text!r} is not of the form k=v1,v2")
        if key in out:
            raise UsageError(f"--sweep {key} is given twice: one has all its values, k=v1,v2")
        out[key] = chosen
    return out
