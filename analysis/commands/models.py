"""The commands that need no trace: model, plan, fabric."""

from __future__ import annotations

from typing import Annotated

from .options import AsJson, Limit, print_json
from .params import Argument, Option


def model(
    op: Annotated[str, Argument(metavar="OP", help="all_reduce, all_to_all, …")],
    ranks: Annotated[int, Option("--ranks", "-n", help="Ranks that take part.")],
    bytes: Annotated[str | None, Option("--bytes", metavar="S", help="80MiB, …")] = None,
    alpha: Annotated[
        str | None, Option("--alpha", metavar="T", help="Of a message: 0.822us, …")
    ] = None,
    bandwidth: Annotated[
        str | None, Option("--bandwidth", metavar="B", help="Of a link: 450GB/s, …")
    ] = None,
    algo: Annotated[str | None, Option("--algo", metavar="A,B", help="Compare these only.")] = None,
    fabric: Annotated[
        str | None, Option("--fabric", metavar="FILE|PRESET", help="The machine's links.")
    ] = None,
    nodes: Annotated[int | None, Option("--nodes", help="Hosts (default: 1, or fit).")] = None,
    inter_alpha: Annotated[
        str | None, Option("--inter-alpha", metavar="T", help="Between hosts.")
    ] = None,
    inter_bandwidth: Annotated[
        str | None, Option("--inter-bandwidth", metavar="B", help="Of a NIC.")
    ] = None,
    nics: Annotated[int | None, Option("--nics", min=1, help="NICs of a host.")] = None,
    nccl: Annotated[
        str | None, Option("--nccl", metavar="ARCH", help="NCCL's own model: h100, …")
    ] = None,
    channels: Annotated[int | None, Option("--channels", help="NCCL's channels.")] = None,
    channel_bandwidth: Annotated[
        str | None, Option("--channel-bandwidth", metavar="B", help="Of one of them.")
    ] = None,
    cpu: Annotated[str, Option("--cpu", help="intel or amd, for NCCL.")] = "intel",
    plot: Annotated[
        str | None, Option("--plot", "-o", metavar="FILE", help=".html, .svg or .png.")
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
    from .. import model as models
    from .. import model_plot, model_screen, terminal

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
        return print_json(result)
    model_screen.show(terminal.console(), result)


def plan(
    gpus: Annotated[int, Option("--gpus", "-n", help="GPUs there are.")],
    model: Annotated[
        str | None, Option("--model", metavar="NAME", help="gpt3-175b, llama3-70b, …")
    ] = None,
    layers: Annotated[int | None, Option("--layers")] = None,
    hidden: Annotated[int | None, Option("--hidden")] = None,
    heads: Annotated[int | None, Option("--heads")] = None,
    kv_heads: Annotated[int | None, Option("--kv-heads")] = None,
    ffn: Annotated[int | None, Option("--ffn", help="Of an MLP, or of an expert.")] = None,
    sequence: Annotated[int | None, Option("--sequence", help="Tokens of one.")] = None,
    vocab: Annotated[int | None, Option("--vocab")] = None,
    experts: Annotated[int | None, Option("--experts", help="Of a layer.")] = None,
    top_k: Annotated[int | None, Option("--top-k", help="Experts of a token.")] = None,
    batch: Annotated[int | None, Option("--batch", help="Sequences of a step.")] = None,
    machine: Annotated[str, Option("--machine", metavar="GPU")] = "H100",
    fabric: Annotated[
        str | None, Option("--fabric", metavar="FILE|PRESET", help="The machine's links.")
    ] = None,
    memory: Annotated[
        str | None, Option("--memory", metavar="S", help="Usable on a GPU: 70GB, …")
    ] = None,
    hidden_dp: Annotated[
        float, Option("--dp-hidden", help="Share of the backward pass that hides it.")
    ] = 0.0,
    fix: Annotated[
        list[str] | None,
        Option("--fix", metavar="k=v", help="tp=8, recompute=full, schedule=zb-h1, …"),
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
    from .. import doors, plan_screen, terminal

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
        return print_json(result)
    plan_screen.show(terminal.console(), result, limit)


def fabric(
    name: Annotated[
        str | None, Argument(metavar="NAME|FILE", help="A preset, or a TOML file.")
    ] = None,
    gpus: Annotated[int | None, Option("--gpus", metavar="N", help="As many hosts.")] = None,
    json: AsJson = False,
) -> None:
    """The presets of machines; or one fabric, its links by class, bisection and bounds.

    \b
    Examples:
      retime fabric
      retime fabric h100 --gpus 1024
      retime fabric mine.toml --json
    """
    from .. import doors, fabric_screen, terminal

    result = doors.fabric(name, gpus=gpus)
    if json:
        return print_json(result)
    out = terminal.console()
    if isinstance(result, list):
        return fabric_screen.show_presets(out, result)
    fabric_screen.show(out, result)


def _pairs(texts: list[str] | None) -> dict[str, str]:
    """k=v texts as a mapping. Raises UsageError."""
    from ...ingest.errors import UsageError

    pairs: dict[str, str] = {}
    for text in (t for one in texts or [] for t in one.split(",")):
        key, equals, value = text.partition("=")
        if not equals or not key or key in pairs:
            raise UsageError(f"--fix {text!r}: give each as name=value, once")
        pairs[key] = value
    return pairs
