"""The command line: each command is a Python call of the same name, and its printing."""

from __future__ import annotations

import os
import sys
from importlib.machinery import ModuleSpec
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, cast

import typer

if TYPE_CHECKING:
    from .analysis.doors import Job, Warehouse

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

Where = Annotated[
    str | None,
    typer.Option(
        "--warehouse",
        metavar="URL",
        help="Folder of the jobs (default: $RETIME_WAREHOUSE, else ./warehouse).",
    ),
]
AsJson = Annotated[bool, typer.Option("--json", help="Print JSON and nothing else on stdout.")]
JobId = Annotated[
    str | None, typer.Argument(metavar="JOB", help="The job (not needed where there is one).")
]
Limit = Annotated[int, typer.Option("--limit", min=1, help="Rows to print at most.")]


def _warehouse(url: str | None) -> Warehouse:
    from .analysis import doors

    return doors.open(url)


def _job(url: str | None, id: str | None) -> Job:
    return _warehouse(url).job(id)


def _json(value: Any) -> None:
    from .analysis.terminal import to_json

    print(to_json(value))


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


@app.command(short_help="The whole path on a bundled real job: ingest, report, replay.")
def demo(
    folder: Annotated[
        Path, typer.Argument(metavar="FOLDER", help="Folder to leave the results in.")
    ] = Path("retime-demo"),
    json: AsJson = False,
) -> None:
    """The whole path on a bundled real job: ingest, report, replay.

    Leaves a warehouse and an HTML page in FOLDER, in under a minute.

    \b
    Examples:
      retime demo
      retime sql "FROM sync_tax" --warehouse retime-demo/warehouse
    """
    from .analysis import demo as bundled
    from .analysis import doors, terminal, tracking

    with tracking.progress() as progress:
        result = doors.demo(folder, progress=progress)
    if json:
        _json(result)
    else:
        bundled.show(terminal.console(), result)
    raise typer.Exit(result["exit_code"])


@app.command()
def ingest(
    paths: Annotated[
        list[str], typer.Argument(metavar="PATH...", help="Files, folders, globs, archives.")
    ],
    job: Annotated[str | None, typer.Option("--job", metavar="ID", help="Name of the job.")] = None,
    warehouse: Where = None,
    rank: Annotated[
        int | None,
        typer.Option("--rank", min=0, help="Rank of a single file that does not say so itself."),
    ] = None,
    format: Annotated[
        str | None,
        typer.Option(
            "--format",
            metavar="NAME",
            help="Force a parser (default: told from the content; a wrong name lists them).",
        ),
    ] = None,
    workers: Annotated[
        int | None, typer.Option("--workers", min=1, help="Processes (default: one a core).")
    ] = None,
    step_annotation: Annotated[
        str | None,
        typer.Option(
            "--step-annotation",
            metavar="NAME",
            help="Annotations that are the steps (`*`, `?`; default: told from names).",
        ),
    ] = None,
    kernel_patterns: Annotated[
        str | None,
        typer.Option(
            "--kernel-patterns",
            metavar="FILE",
            help="Classes of kernels, as `retime kernels` takes them (default: "
            "$RETIME_KERNEL_PATTERNS, for jobs without any).",
        ),
    ] = None,
    json: AsJson = False,
) -> None:
    """Traces into the warehouse, as Parquet.

    The same file again changes nothing; a rank may come later; several machines may ingest into
    one job at once; a killed ingest leaves the warehouse as it was.

    \b
    Examples:
      retime ingest traces/ --job run-7
      retime ingest 'traces/rank*.json.gz' more.zip --job run-7 --warehouse /data/warehouse
      retime ingest trace.json --job one --rank 3
    """
    from .analysis import terminal, tracking

    with tracking.progress() as progress:
        report = _warehouse(warehouse).ingest(
            paths,
            job=job,
            rank=rank,
            format=format,
            workers=workers,
            progress=progress,
            step_annotation=step_annotation,
            kernel_patterns=kernel_patterns,
        )
    if json:
        _json(tracking.rows_of(report))
    else:
        tracking.show(terminal.console(), report)
    raise typer.Exit(report.exit_code)


@app.command()
def jobs(warehouse: Where = None, json: AsJson = False) -> None:
    """The jobs of a warehouse, one row each.

    \b
    Examples:
      retime jobs
      retime jobs --warehouse /data/warehouse --json
    """
    from .analysis import terminal

    rows = _warehouse(warehouse).jobs().to_dicts()
    if json:
        return _json(rows)
    titles = {
        "job": "job",
        "ranks_seen": "ranks",
        "world_size": "of",
        "steps": "steps",
        "participations": "participations",
        "clocks": "clocks",
        "lost": "lost",
        "framework": "framework",
        "sources": "files",
        "created_utc": "first ingest (UTC)",
    }
    rows = [{**r, "clocks": terminal.clocks_word(r)} for r in rows]
    terminal.show_table(terminal.console(), rows, titles)


@app.command(short_help="What a job looks like, and where its step went.")
def show(job: JobId = None, warehouse: Where = None, json: AsJson = False) -> None:
    """What a job looks like: ranks, clocks, steps, matches, where the step went.

    \b
    Examples:
      retime show run-7
      retime show run-7 --json | jq .waited_for.rank
    """
    from .analysis import terminal

    facts = _job(warehouse, job).show()
    if json:
        return _json(facts)
    terminal.show_job(terminal.console(), facts)


@app.command(short_help="Communicators and their parallel dimensions; says them, too.")
def dims(
    job: JobId = None,
    set: Annotated[
        list[str] | None,
        typer.Option("--set", metavar="PATTERN=DIM", help="Says a dimension; may be given again."),
    ] = None,
    degrees: Annotated[
        str | None,
        typer.Option("--degrees", metavar="tp=8,pp=4,…", help="The mesh, fastest-varying first."),
    ] = None,
    clear: Annotated[bool, typer.Option("--clear", help="Forgets what was said before.")] = False,
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
    from .analysis import dims as said
    from .analysis import terminal

    chosen = _job(warehouse, job)
    if set or degrees or clear:
        mesh = said.parse_degrees(degrees) if degrees else None
        chosen.set_dims(said.parse_rules(set or []), degrees=mesh, clear=clear)
    rows = chosen.dims().to_dicts()
    _tell_bad_settings(chosen)
    if json:
        return _json(rows)
    names = ["comm", "description", "size", "members", "ops", "dim", "dim_source", "dim_reason"]
    titles = dict(zip(names, [*names[:6], "found by", "because"], strict=True))
    terminal.show_table(terminal.console(), rows, titles, limit=limit)


@app.command(short_help="What kernels do, by class; says it, too.")
def kernels(
    job: JobId = None,
    set: Annotated[
        list[str] | None,
        typer.Option("--set", metavar="PATTERN=CLASS", help="Says a class; may be given again."),
    ] = None,
    patterns: Annotated[
        str | None,
        typer.Option("--patterns", metavar="FILE", help="Says those of a TOML or CSV file."),
    ] = None,
    clear: Annotated[bool, typer.Option("--clear", help="Forgets what was said before.")] = False,
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
    from .analysis import kernels as said
    from .analysis import terminal

    chosen = _job(warehouse, job)
    if set or patterns or clear:
        chosen.set_kernels(set or [], patterns=patterns, clear=clear)
    facts = chosen.kernels()
    _tell_bad_settings(chosen)
    if json:
        return _json(facts)
    said.show(terminal.console(), facts, limit)


@app.command(short_help="What was odd in the input, lost input first.")
def problems(
    job: JobId = None, warehouse: Where = None, json: AsJson = False, limit: Limit = 40
) -> None:
    """What was odd in the input, lost input first.

    \b
    Examples:
      retime problems run-7
      retime problems run-7 --json | jq 'map(select(.severity == "lost"))'
    """
    from .analysis import problems_screen, terminal

    rows = _job(warehouse, job).problems().to_dicts()
    if json:
        return _json(rows)
    problems_screen.show_problems(terminal.console(), rows, limit)


@app.command(short_help="One query over the tables and views, read-only.")
def sql(
    query: Annotated[
        str, typer.Argument(metavar="QUERY", help="One SELECT; `-` reads it from stdin.")
    ],
    job: Annotated[
        str | None, typer.Option("--job", metavar="JOB", help="Only this job (default: all).")
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
    from .analysis import terminal

    text = sys.stdin.read() if query == "-" else query
    frame = _warehouse(warehouse).sql(text, job)
    rows = frame.to_dicts()
    if json:
        return _json(rows)
    terminal.show_table(terminal.console(), rows, names=frame.columns, raw=True, limit=limit)


@app.command(short_help="The dictionary of tables, views and macros.")
def tables(
    name: Annotated[
        str | None, typer.Argument(metavar="NAME", help="A table, view or macro.")
    ] = None,
    json: AsJson = False,
) -> None:
    """The dictionary of tables, views and macros, with units.

    \b
    Examples:
      retime tables
      retime tables waits
    """
    from .analysis import doors, manual_screen, terminal

    rows = doors.tables(name)
    if json:
        return _json(rows)
    manual_screen.show_tables(terminal.console(), rows, name)


@app.command(short_help="What the step would have cost, under policies.")
def replay(
    job: JobId = None,
    policy: Annotated[
        list[str] | None,
        typer.Option("--policy", metavar="NAME[:k=v,…]", help="A policy; may be given again."),
    ] = None,
    sweep: Annotated[
        list[str] | None,
        typer.Option("--sweep", metavar="k=v1,v2", help="Several values of a parameter."),
    ] = None,
    step: Annotated[int | None, typer.Option("--step", help="Only this step.")] = None,
    fabric: Annotated[
        str | None,
        typer.Option("--fabric", metavar="FILE|PRESET", help="The machine (default: from traces)."),
    ] = None,
    strict: Annotated[
        bool, typer.Option("--strict", help="Refuse where the unchanged replay is over 5 % off.")
    ] = False,
    calibration: Annotated[
        bool, typer.Option("--calibration", help="Also alpha, bandwidth and tau of the links.")
    ] = False,
    explain: Annotated[
        bool,
        typer.Option(
            "--explain", help="Also draw a step before and after: a page, and a Perfetto trace."
        ),
    ] = False,
    output: Annotated[
        str | None,
        typer.Option("-o", "--output", metavar="FILE", help="That page (JOB-explain.html)."),
    ] = None,
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
      retime replay run-7 --policy algorithm:op=all_reduce,algo=tree --json
      retime replay run-7 --calibration
      retime replay run-7 --policy align-arrivals --explain -o why.html
    """
    from .analysis import doors, replay_screen, terminal
    from .ingest.errors import UsageError

    options: dict[str, Any] = {
        "sweep": _sweep(sweep),
        "step": step,
        "fabric": fabric,
        "strict": strict,
        "calibration": calibration,
    }
    of_job, tried = _job(warehouse, job), policy or []
    if explain:
        result = of_job.explain(tried, output, **options)
    elif output is not None:
        raise UsageError("-o names the page of --explain: give both, or --json > FILE")
    else:
        result = doors.replay(of_job, tried, **options)
    if json:
        return _json(result)
    replay_screen.show_replay(terminal.console(), result)


@app.command(short_help="The catalogue of policies.")
def policies(
    name: Annotated[
        str | None, typer.Argument(metavar="NAME", help="A policy, for its parameters.")
    ] = None,
    json: AsJson = False,
) -> None:
    """The catalogue of policies, or one with its parameters and assumptions.

    \b
    Examples:
      retime policies
      retime policies align-arrivals
    """
    from .analysis import doors, replay_screen, terminal

    rows = doors.policies(name)
    if json:
        return _json(rows)
    replay_screen.show_policies(terminal.console(), rows, detail=name is not None)


@app.command(short_help="What collectives cost by algorithm, without a trace.")
def model(
    op: Annotated[str, typer.Argument(metavar="OP", help="all_reduce, all_to_all, …")],
    ranks: Annotated[int, typer.Option("--ranks", "-n", help="Ranks that take part.")],
    bytes: Annotated[str | None, typer.Option("--bytes", metavar="S", help="80MiB, …")] = None,
    alpha: Annotated[
        str | None, typer.Option("--alpha", metavar="T", help="Of a message: 0.822us, …")
    ] = None,
    bandwidth: Annotated[
        str | None, typer.Option("--bandwidth", metavar="B", help="Of a link: 450GB/s, …")
    ] = None,
    algo: Annotated[
        str | None, typer.Option("--algo", metavar="A,B", help="Compare these only.")
    ] = None,
    fabric: Annotated[
        str | None, typer.Option("--fabric", metavar="FILE|PRESET", help="The machine's links.")
    ] = None,
    nodes: Annotated[
        int | None, typer.Option("--nodes", help="Hosts (default: 1, or fit).")
    ] = None,
    inter_alpha: Annotated[
        str | None, typer.Option("--inter-alpha", metavar="T", help="Between hosts.")
    ] = None,
    inter_bandwidth: Annotated[
        str | None, typer.Option("--inter-bandwidth", metavar="B", help="Of a NIC.")
    ] = None,
    nics: Annotated[int | None, typer.Option("--nics", min=1, help="NICs of a host.")] = None,
    nccl: Annotated[
        str | None, typer.Option("--nccl", metavar="ARCH", help="NCCL's own model: h100, …")
    ] = None,
    channels: Annotated[int | None, typer.Option("--channels", help="NCCL's channels.")] = None,
    channel_bandwidth: Annotated[
        str | None, typer.Option("--channel-bandwidth", metavar="B", help="Of one of them.")
    ] = None,
    cpu: Annotated[str, typer.Option("--cpu", help="intel or amd, for NCCL.")] = "intel",
    plot: Annotated[
        str | None, typer.Option("--plot", "-o", metavar="FILE", help=".html, .svg or .png.")
    ] = None,
    json: AsJson = False,
) -> None:
    """What a collective costs by algorithm and size: closed forms, or NCCL's tuning model.

    Prints the best algorithm by size, where algorithms cross, and the curves.

    \b
    Examples:
      retime model all_reduce --ranks 8 --alpha 0.822us --bandwidth 450GB/s
      retime model all_reduce --ranks 8 --bytes 80MiB --algo ring,tree --plot cost.html
      retime model all_reduce --ranks 16 --nodes 2 --inter-bandwidth 400Gb/s
      retime model all_reduce --ranks 128 --nodes 16 --nccl h100 --json
    """
    from .analysis import model as models
    from .analysis import model_plot, model_screen, terminal

    if plot is not None:
        model_plot.ending(plot)
    result = models.model(
        op,
        ranks,
        bytes=bytes,
        alpha=alpha,
        bandwidth=bandwidth,
        algo=[a for a in (algo or "").split(",") if a],
        fabric=fabric,
        nodes=nodes,
        inter_alpha=inter_alpha,
        inter_bandwidth=inter_bandwidth,
        nics=nics,
        machine=nccl,
        channels=channels,
        channel_bandwidth=channel_bandwidth,
        cpu=cpu,
    )
    if plot is not None:
        model_plot.save(result, plot)
    if json:
        return _json(result)
    model_screen.show(terminal.console(), result)


@app.command(short_help="How to split a model over GPUs, without a trace.")
def plan(
    gpus: Annotated[int, typer.Option("--gpus", "-n", help="GPUs there are.")],
    model: Annotated[
        str | None, typer.Option("--model", metavar="NAME", help="gpt3-175b, llama3-70b, …")
    ] = None,
    layers: Annotated[int | None, typer.Option("--layers")] = None,
    hidden: Annotated[int | None, typer.Option("--hidden")] = None,
    heads: Annotated[int | None, typer.Option("--heads")] = None,
    kv_heads: Annotated[int | None, typer.Option("--kv-heads")] = None,
    ffn: Annotated[int | None, typer.Option("--ffn", help="Of an MLP, or of an expert.")] = None,
    sequence: Annotated[int | None, typer.Option("--sequence", help="Tokens of one.")] = None,
    vocab: Annotated[int | None, typer.Option("--vocab")] = None,
    experts: Annotated[int | None, typer.Option("--experts", help="Of a layer.")] = None,
    top_k: Annotated[int | None, typer.Option("--top-k", help="Experts of a token.")] = None,
    batch: Annotated[int | None, typer.Option("--batch", help="Sequences of a step.")] = None,
    machine: Annotated[str, typer.Option("--machine", metavar="GPU")] = "H100",
    fabric: Annotated[
        str | None, typer.Option("--fabric", metavar="FILE|PRESET", help="The machine's links.")
    ] = None,
    memory: Annotated[
        str | None, typer.Option("--memory", metavar="S", help="Usable on a GPU: 70GB, …")
    ] = None,
    hidden_dp: Annotated[
        float, typer.Option("--dp-hidden", help="Share of the backward pass that hides it.")
    ] = 0.0,
    fix: Annotated[
        list[str] | None,
        typer.Option("--fix", metavar="k=v", help="tp=8, recompute=full, schedule=zb-h1, …"),
    ] = None,
    limit: Limit = 10,
    json: AsJson = False,
) -> None:
    """How to split a model over GPUs: every set of degrees, ranked by the step's estimated time.

    Memory, bubble and what a GPU sends by dimension stand beside it, and why other splits do not
    fit. No trace is needed; `retime replay JOB --policy parallelism:…` re-times one that is there.

    \b
    Examples:
      retime plan --model gpt3-175b --gpus 512 --machine A100 --batch 1536
      retime plan --model mixtral-8x7b --gpus 64 --fix ep=8 --json | jq '.plans[0]'
      retime plan --layers 48 --hidden 8192 --heads 64 --gpus 256 --fabric roce-rail
    """
    from .analysis import doors, plan_screen, terminal

    result = doors.plan(
        model,
        gpus=gpus,
        machine=machine,
        batch=batch,
        fabric=fabric,
        memory=memory,
        dp_hidden=hidden_dp,
        fix=_pairs(fix),
        layers=layers,
        hidden=hidden,
        heads=heads,
        kv_heads=kv_heads,
        ffn=ffn,
        sequence=sequence,
        vocab=vocab,
        experts=experts,
        top_k=top_k,
    )
    if json:
        return _json(result)
    plan_screen.show(terminal.console(), result, limit)


@app.command(short_help="Fabrics: presets, or one's links and bounds.")
def fabric(
    name: Annotated[
        str | None, typer.Argument(metavar="NAME|FILE", help="A preset, or a TOML file.")
    ] = None,
    gpus: Annotated[int | None, typer.Option("--gpus", metavar="N", help="As many hosts.")] = None,
    json: AsJson = False,
) -> None:
    """The presets of machines; or one fabric, its links by class, bisection and bounds.

    \b
    Examples:
      retime fabric
      retime fabric h100 --gpus 1024
      retime fabric mine.toml --json
    """
    from .analysis import doors, fabric_screen, terminal

    result = doors.fabric(name, gpus=gpus)
    if json:
        return _json(result)
    out = terminal.console()
    if isinstance(result, list):
        return fabric_screen.show_presets(out, result)
    fabric_screen.show(out, result)


@app.command(short_help="Slowdown against the ideal, by operation and rank.")
def stragglers(job: JobId = None, warehouse: Where = None, json: AsJson = False) -> None:
    """How much slower the job is than its ideal, by operation, rank and stage.

    The ideal has every compute operation at its mean over workers and every transfer at its
    median.

    \b
    Examples:
      retime stragglers run-7
      retime stragglers run-7 --json | jq .slowdown
    """
    from .analysis import terminal

    result = _job(warehouse, job).stragglers()
    if json:
        return _json(result)
    terminal.show_stragglers(terminal.console(), result)


@app.command(short_help="What changed between two jobs, part by part of the step.")
def diff(
    job_a: Annotated[str, typer.Argument(metavar="JOB_A", help="The job before.")],
    job_b: Annotated[str, typer.Argument(metavar="JOB_B", help="The job after.")],
    steps_a: Annotated[
        str | None, typer.Option("--steps-a", metavar="N-M", help="Only these steps of A.")
    ] = None,
    steps_b: Annotated[
        str | None, typer.Option("--steps-b", metavar="N-M", help="Only these steps of B.")
    ] = None,
    warehouse: Where = None,
    other: Annotated[
        str | None,
        typer.Option("--warehouse-b", metavar="URL", help="Warehouse of B, if another one."),
    ] = None,
    limit: Limit = 20,
    json: AsJson = False,
) -> None:
    """What changed between two jobs: what got slower, by how much, and is it more than chance.

    Parts of the step are matched by class of time, collective (dimension, operation, size class)
    and kernel name; the jobs may differ in size. The changes add up to that of the whole step.

    \b
    Examples:
      retime diff run-7 run-8
      retime diff run-7 run-8 --steps-a 10-20 --json | jq '.parts[:5]'
    """
    from .analysis import diff_screen, doors, terminal

    found = _warehouse(warehouse).diff(
        job_a, job_b, other=doors.open(other) if other else None, steps_a=steps_a, steps_b=steps_b
    )
    if json:
        return _json(found)
    diff_screen.show(terminal.console(), found, limit)


@app.command(short_help="Many jobs beside each other: hosts, fabric, kernels.")
def fleet(
    by: Annotated[
        str, typer.Option("--by", metavar="WHAT", help="hosts, fabric, jobs or kernels.")
    ] = "hosts",
    warehouse: Where = None,
    limit: Limit = 20,
    json: AsJson = False,
) -> None:
    """Over all jobs of a warehouse: which hosts are late again and again, which fabric is slower.

    \b
    Examples:
      retime fleet
      retime fleet --by fabric
      retime fleet --by kernels --json | jq '.[:5]'
    """
    from .analysis import fleet_screen, terminal

    opened = _warehouse(warehouse)
    rows = fleet_screen.rows(opened, by)
    if json:
        return _json(rows)
    unnamed = fleet_screen.unnamed_jobs(opened) if by == "hosts" else 0
    fleet_screen.show(terminal.console(), rows, by, limit, unnamed)


@app.command(short_help="One self-contained HTML page of a job.")
def report(
    job: JobId = None,
    output: Annotated[
        str | None,
        typer.Option("-o", "--output", metavar="FILE.html", help="Default: JOB.html."),
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
    written = _job(warehouse, job).report(output)
    if json:
        return _json({"path": str(written), "bytes": written.stat().st_size})
    from .analysis.terminal import clean

    print(clean(str(written)))


@app.command(short_help="Notebooks of SQL and charts, a question each.")
def notebook(
    job: JobId = None,
    name: Annotated[
        str | None,
        typer.Option("-n", "--name", metavar="NAME", help="One notebook (default: all)."),
    ] = None,
    list_: Annotated[bool, typer.Option("--list", help="Their names and questions.")] = False,
    to: Annotated[
        Path | None,
        typer.Option(
            "--to", metavar="DIR", help="Only write the files there (.py and .ipynb, or --html's)."
        ),
    ] = None,
    html: Annotated[
        bool, typer.Option("--html", "--run", help="Run, and write pages of what comes out.")
    ] = False,
    against: Annotated[
        str | None,
        typer.Option("--against", metavar="JOB", help="The job before, for before-and-after."),
    ] = None,
    force: Annotated[bool, typer.Option("--force", help="Write files anew.")] = False,
    jupyter: Annotated[
        bool, typer.Option("--jupyter", help="Open in Jupyter (default: marimo, if installed).")
    ] = False,
    port: Annotated[int | None, typer.Option("--port", min=1, help="Port to serve at.")] = None,
    no_browser: Annotated[
        bool, typer.Option("--no-browser", help="Serve, and print the address only.")
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
    from .analysis.notebooks import screen

    code = screen.command(
        _warehouse(warehouse), job, name, to=to, html=html, against=against, force=force,
        jupyter=jupyter, port=port, browser=not no_browser, listed=list_, json=json,
    )  # fmt: skip
    raise typer.Exit(code)


@app.command(short_help="One timeline for the Perfetto UI, or Chakra's execution traces.")
def export(
    job: JobId = None,
    to: Annotated[
        str, typer.Option("--to", metavar="FORMAT", help="perfetto, or chakra (a folder).")
    ] = "perfetto",
    output: Annotated[
        str | None,
        typer.Option(
            "-o",
            "--output",
            metavar="FILE",
            help="Default: JOB.perfetto-trace, JOB-chakra; a name with .gz is compressed.",
        ),
    ] = None,
    step: Annotated[
        list[str] | None,
        typer.Option("--step", metavar="N", help="A step or a range, 10-12; may be given again."),
    ] = None,
    ranks: Annotated[
        str | None, typer.Option("--ranks", metavar="LIST", help="These ranks: 0-7,9.")
    ] = None,
    no_host: Annotated[bool, typer.Option("--no-host", help="Nothing of host threads.")] = False,
    kinds: Annotated[
        str | None,
        typer.Option(
            "--kinds", metavar="LIST", help="These kinds: kernel,wait (a wrong one lists them)."
        ),
    ] = None,
    policy: Annotated[
        list[str] | None,
        typer.Option(
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
    from .analysis.terminal import clean

    written = _job(warehouse, job).export(
        output, to, steps=step, ranks=ranks, host=not no_host, kinds=kinds, policies=policy or []
    )
    if json:
        return _json(written)
    print(clean(written["path"]))
    for warning in written["warnings"]:
        print(f"note: {clean(warning)}", file=sys.stderr)


def _tell_bad_settings(job: Any) -> None:
    """Says on stderr what is left out of what the user said of the job."""
    from .analysis.terminal import clean
    from .ingest import settings

    for problem in settings.usable(job.warehouse.store.job_folder(job.id)).problems:
        print(f"note: {clean(problem.message)}", file=sys.stderr)


def _pairs(texts: list[str] | None) -> dict[str, str]:
    """k=v texts as a mapping. Raises UsageError."""
    from .ingest.errors import UsageError

    pairs: dict[str, str] = {}
    for text in (t for one in texts or [] for t in one.split(",")):
        key, equals, value = text.partition("=")
        if not equals or not key or key in pairs:
            raise UsageError(f"--fix {text!r}: give each as name=value, once")
        pairs[key] = value
    return pairs


def _sweep(texts: list[str] | None) -> dict[str, list[str]] | None:
    """`["factor=0,0.5"]` -> {"factor": ["0", "0.5"]}. Raises UsageError for other forms."""
    if not texts:
        return None
    from .ingest.errors import UsageError

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


def run(args: list[str] | None = None) -> int:
    """Runs one command line and returns its exit code; errors are one sentence on stderr."""
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
        return _fail(str(e), e.exit_code)
    except Exception as e:
        if _is_usage(e):
            return _usage(e)
        if debug:
            raise
        return _fail(
            f"{_what(e)} (unexpected: RETIME_DEBUG=1 shows where; please report it)",
            3,
        )


def main() -> None:
    """The entry point of the `retime` script."""
    sys.meta_path.insert(0, _NoPandas)
    sys.exit(run())


class _NoPandas:
    """Makes `import pandas` fail as where it is not installed.

    Where it is, pyarrow imports it at its first conversion; nothing here needs it, and it would be
    a third of the time of a small ingest. (None in sys.modules is no way to say so: compiled
    modules take that for the module.)
    """

    @classmethod
    def find_spec(cls, name: str, path: object = None, target: object = None) -> ModuleSpec | None:
        return ModuleSpec(name, cast(Any, cls)) if name == "pandas" else None

    @staticmethod
    def create_module(spec: ModuleSpec) -> None:
        raise ImportError("the command line does without pandas", name=spec.name)

    @staticmethod
    def exec_module(module: object) -> None:
        """Never reached; importlib asks for it."""


def _is_usage(error: Exception) -> bool:
    return hasattr(error, "format_message") and hasattr(error, "exit_code")


def _usage(error: Any) -> int:
    context = getattr(error, "ctx", None)
    path = context.command_path if context is not None else "retime"
    text = error.format_message()
    if type(error).__name__ == "NoArgsIsHelpError":
        print(text, file=sys.stderr)
        return 2
    return _fail(f"{text.rstrip('.')}. `{path} --help` has the options.", 2)


def _what(error: Exception) -> str:
    if isinstance(error, MemoryError):
        return "out of memory"
    if isinstance(error, OSError) and error.strerror:
        return f"{error.filename}: {error.strerror}" if error.filename else error.strerror
    return f"{type(error).__name__}: {error}"


LONGEST_MESSAGE = 2000
"""Characters of an error."""


def _fail(message: str, code: int) -> int:
    from .analysis.terminal import clean

    text = clean(" ".join(message.split()))
    if len(text) > LONGEST_MESSAGE:
        # What was typed is in it, however long.
        half = LONGEST_MESSAGE // 2
        text = f"{text[:half]} ... {text[-half:]}"
    print(f"retime: {text}", file=sys.stderr)
    return code
