"""All splits of a model over so many GPUs, ranked by what a step is estimated to take."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import NamedTuple

from ...ingest.errors import UsageError
from . import fitted, memory, split, step
from .memory import MEGATRON, Widths
from .model import Model
from .platform import Platform
from .split import Split

USABLE = 0.92
"""Share of a GPU's memory for state and activations; the rest is context, workspace, fragments."""

MICRO_BATCHES = (1, 2, 4, 8, 16)


class Plan(NamedTuple):
    """A split and what is expected of it; `why_not` says why it cannot be, else is empty."""

    split: Split
    estimate: step.Estimate
    low_ns: float
    high_ns: float
    why_not: str


def search(
    model: Model,
    gpus: int,
    platform: Platform,
    batch: int,
    *,
    eff: step.Efficiencies | None = None,
    widths: Widths = MEGATRON,
    memory_bytes: float | None = None,
    dp_hidden: float = 0.0,
    fixed: dict | None = None,
) -> list[Plan]:
    """The best variant of each set of degrees, quickest first; those that do not fit come last.

    Variants of a set of degrees differ in microbatch, recomputation and ZeRO stage. `memory_bytes`
    is the limit of a GPU (default USABLE of the platform's). `fixed` holds fields of Split that
    are not to be varied (tp=8, schedule="interleaved", ...). low_ns and high_ns hold nine of ten
    measured steps (`fitted.INTERVAL`). Raises UsageError where no degrees divide the GPUs and the
    model.
    """
    far = split.beyond(model, batch, gpus)
    if far:
        raise UsageError(far)
    eff = eff or fitted.A100
    limit = USABLE * platform.memory_bytes if memory_bytes is None else memory_bytes
    best: dict[tuple[int, ...], tuple[tuple, Plan]] = {}
    refused: list[str] = []
    for one in variants(model, gpus, platform, batch, fixed or {}, refused):
        held = memory.of(model, one, widths).total_bytes
        fits = held <= limit
        key = (one.dp, one.tp, one.pp, one.cp, one.ep)
        old = best.get(key)
        if not fits and old is not None and (old[0][0] == 0 or held >= old[0][1]):
            continue
        found = step.estimate(model, one, platform, eff, widths=widths, dp_hidden=dp_hidden)
        rank = (0, found.step_ns) if fits else (1, held)
        if old is not None and old[0] <= rank:
            continue
        why = "" if fits else _too_large(found.memory, limit)
        best[key] = rank, _plan(one, found, why)
    if not best:
        why = f": {refused[0]}" if refused else ""
        raise UsageError(f"no split of {model.name} over {gpus} GPUs is possible{why}")
    plans = []
    for rank, plan in best.values():
        if rank[0] == 0 and not {"stages", "schedule"} & set(fixed or {}):
            plan = _uneven(plan, model, platform, eff, widths, limit, dp_hidden)
        plans.append(plan)
    return sorted(plans, key=lambda x: (x.why_not != "", _order(x), x.split))


def _order(plan: Plan) -> float:
    return plan.estimate.memory.total_bytes if plan.why_not else plan.estimate.step_ns


def _plan(one: Split, found: step.Estimate, why: str) -> Plan:
    low, high = (found.step_ns * x for x in fitted.INTERVAL)
    return Plan(one, found, low, high, why)


def _uneven(
    plan: Plan,
    model: Model,
    platform: Platform,
    eff: step.Efficiencies,
    widths: Widths,
    limit: float,
    dp_hidden: float,
) -> Plan:
    """The plan with balanced stages, where that is quicker and fits."""
    one = balanced(model, plan.split, platform, eff)
    if one.layers_by_stage(model.layers) == plan.split.layers_by_stage(model.layers):
        return plan
    found = step.estimate(model, one, platform, eff, widths=widths, dp_hidden=dp_hidden)
    if found.step_ns >= plan.estimate.step_ns or found.memory.total_bytes > limit:
        return plan
    return _plan(one, found, "")


def variants(
    model: Model,
    gpus: int,
    platform: Platform,
    batch: int,
    fixed: dict,
    refused: list[str],
) -> Iterator[Split]:
    """Splits that fit the model and the GPUs (memory apart), fullest of sense first.

    Tensor parallelism stays inside a host and context parallelism is tried up to 16, in powers of
    2, unless they are fixed. `refused` gets the reason of each set that had to be left out.
    """

    def of(name: str, values: Sequence) -> Sequence:
        return (fixed[name],) if name in fixed else values

    tps = of("tp", [t for t in _divisors(gpus) if t <= platform.gpus_per_host])
    long = model.sequence > 8192
    for tp in tps:
        for pp in of("pp", [p for p in _divisors(gpus) if p <= model.layers]):
            for cp in of("cp", [c for c in (1, 2, 4, 8, 16) if c == 1 or long]):
                dp = fixed.get("dp", gpus // (tp * pp * cp) or 1)
                eps = _divisors(model.experts) if model.experts else [1]
                for ep in of("ep", eps):
                    yield from _of_degrees(
                        model, gpus, batch, fixed, refused, dp=dp, tp=tp, pp=pp, cp=cp, ep=ep
                    )


def _of_degrees(
    model: Model, gpus: int, batch: int, fixed: dict, refused: list[str], **degrees: int
) -> Iterator[Split]:
    """Variants of one set of degrees."""

    def of(name: str, values: Sequence) -> Sequence:
        return (fixed[name],) if name in fixed else values

    rest = {k: v for k, v in fixed.items() if k in Split._fields and k not in degrees}
    micro = [b for b in MICRO_BATCHES if batch % (degrees["dp"] * b) == 0] or [1]
    zeros = (0, 1, 3) if degrees["pp"] == 1 else (0, 1)
    for micro_batch in of("micro_batch", micro):
        for zero in of("zero", zeros if degrees["dp"] * degrees["cp"] > 1 else (0,)):
            for recompute in of("recompute", split.RECOMPUTE):
                varied = {"micro_batch": micro_batch, "zero": zero, "recompute": recompute}
                one = Split(**{"batch": batch, **rest, **degrees, **varied})
                if one.flash and recompute == "selective" and "recompute" not in fixed:
                    continue  # a fused attention keeps no scores, and repeats them anyway
                wrong = split.problems(model, one, gpus)
                if wrong:
                    refused.append(wrong[0])
                    if not _of_microbatch(wrong[0]):
                        return
                    continue
                yield one


def _of_microbatch(reason: str) -> bool:
    """Whether another microbatch of the same degrees may not have this problem."""
    return "micro" in reason


def balanced(model: Model, one: Split, platform: Platform, eff: step.Efficiencies) -> Split:
    """The split with layers a stage such that the slowest stage is as quick as can be: the last,
    which has the output, gets fewer where that takes as long as a layer or more."""
    if one.pp < 2:
        return one
    per = step.layer(model, one, platform, eff)
    output = step.head(model, one, platform, eff)
    layers = [0] * one.pp
    load = [0.0] * one.pp
    load[-1] = output
    for _ in range(model.layers):
        at = min(range(one.pp), key=lambda i: (load[i], i))
        layers[at] += 1
        load[at] += per.forward_ns + per.backward_ns
    return one._replace(stages=tuple(layers))


def _too_large(held: memory.Memory, limit: float) -> str:
    return (
        f"needs {held.total_bytes / 1e9:.0f} GB on a GPU of stage {held.stage} "
        f"({held.state_bytes / 1e9:.0f} state, {held.activation_bytes / 1e9:.0f} activations), "
        f"{limit / 1e9:.0f} GB are usable"
    )


def _divisors(n: int) -> list[int]:
    return [d for d in range(1, n + 1) if n % d == 0]
