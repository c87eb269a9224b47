"""The commands by which users say what traces do not: dims, kernels."""

from __future__ import annotations

import sys
from typing import Annotated, Any

from .options import AsJson, JobId, Limit, Where, open_job, print_json
from .params import Option


def dims(
    job: JobId = None,
    set: Annotated[
        list[str] | None,
        Option("--set", metavar="PATTERN=DIM", help="Says a dimension; may be given again."),
    ] = None,
    degrees: Annotated[
        str | None,
        Option("--degrees", metavar="tp=8,pp=4,…", help="The mesh, fastest-varying first."),
    ] = None,
    clear: Annotated[bool, Option("--clear", help="Forgets what was said before.")] = False,
    warehouse: Where = None,
    json: AsJson = False,
    limit: Limit = 60,
) -> None:
    """Communicators: members, operations, dimension (dp, tp, pp, ep, cp, fsdp, world), how found.

    A pattern (`*`, `?`) fits the whole of an identity, name or description. Degrees name groups by
    their exact members; their product is the number of ranks.

    \b
    Examples:
      retime dims run-7
      retime dims run-7 --set '*TENSOR*=tp' --set 'pg_3@*=dp'
      retime dims run-7 --degrees tp=8,cp=1,pp=4,dp=16
    """
    from .. import dims as said
    from .. import terminal

    chosen = open_job(warehouse, job)
    if set or degrees or clear:
        mesh = said.parse_degrees(degrees) if degrees else None
        chosen.set_dims(said.parse_rules(set or []), degrees=mesh, clear=clear)
    rows = chosen.dims().to_dicts()
    _tell_bad_settings(chosen)
    if json:
        return print_json(rows)
    names = ["comm", "description", "size", "members", "ops", "dim", "dim_source", "dim_reason"]
    titles = dict(zip(names, [*names[:6], "found by", "because"], strict=True))
    terminal.show_table(terminal.console(), rows, titles, limit=limit)


def kernels(
    job: JobId = None,
    set: Annotated[
        list[str] | None,
        Option("--set", metavar="PATTERN=CLASS", help="Says a class; may be given again."),
    ] = None,
    patterns: Annotated[
        str | None,
        Option("--patterns", metavar="FILE", help="Says those of a TOML or CSV file."),
    ] = None,
    clear: Annotated[bool, Option("--clear", help="Forgets what was said before.")] = False,
    warehouse: Where = None,
    json: AsJson = False,
    limit: Limit = 40,
) -> None:
    """Kernels by class with their time, and the names that no pattern knows, the longest first.

    A pattern is a regular expression (RE2) found anywhere in a kernel's name; a class is gemm,
    attention, elementwise, reduction, normalisation, embedding, optimizer, communication, copy,
    other or unknown, or a finer category (conv, softmax, ...). In a file: "pattern" = "class"
    (.toml) or pattern,class (.csv). Rules hold at once for what is ingested already; the first
    that fits decides. Waits and matched collectives stay as they were ingested: a rule that makes
    a kernel communication, or takes that from it, moves its time, not them.

    \b
    Examples:
      retime kernels run-7
      retime kernels run-7 --set 'my_fused_mlp=gemm' --set '^hydro::=other'
      retime kernels run-7 --patterns ours.toml --json | jq .unknown
    """
    from .. import kernels as said
    from .. import terminal

    chosen = open_job(warehouse, job)
    if set or patterns or clear:
        chosen.set_kernels(set or [], patterns=patterns, clear=clear)
    facts = chosen.kernels()
    _tell_bad_settings(chosen)
    if json:
        return print_json(facts)
    said.show(terminal.console(), facts, limit)


def _tell_bad_settings(job: Any) -> None:
    """Says on stderr what is left out of what the user said of the job."""
    from ...ingest import settings
    from ..screen import clean

    for problem in settings.usable(job.warehouse.store.job_folder(job.id)).problems:
        print(f"note: {clean(problem.message)}", file=sys.stderr)
