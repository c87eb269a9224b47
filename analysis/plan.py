"""`retime plan`: the splits of a model over so many GPUs, ranked, with what each would take."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from ..ingest.errors import UsageError
from ..replay.planner import fitted, model, platform, search, split
from ..replay.planner.memory import Widths
from ..replay.quantities import size_bytes

CHOICES = {
    "recompute": split.RECOMPUTE,
    "schedule": split.SCHEDULES,
    "context": ("ring", "ulysses"),
    "dispatch": split.DISPATCH,
}
ASSUMPTIONS = (
    "a decoder of equal layers; experts are chosen evenly",
    "data-parallel communication begins when the backward pass is over, unless dp_hidden is given",
    "efficiencies are those of measured A100 runs; the interval is that of configurations like "
    "them, so of other machines or models less is known",
)


def plan(
    name: str | None = None,
    *,
    gpus: int,
    machine: str = "H100",
    batch: int | None = None,
    fabric: Any = None,
    memory: str | None = None,
    gradient_bytes: int = 4,
    dp_hidden: float = 0.0,
    fix: Mapping[str, Any] | None = None,
    **sizes: int | bool,
) -> dict[str, Any]:
    """The best variant of each set of degrees, quickest first, and those that do not fit.

    `name` is a preset of `replay.planner.model`; `sizes` (layers, hidden, heads, kv_heads, ffn,
    sequence, vocab, experts, top_k, gated) change it, or make a model where no name is given.
    `batch` is in sequences (default: 8 for each GPU, at most 2,048). `fabric` (a preset, a file or
    a Fabric) takes the place of the machine's links, `memory` of a GPU's usable memory. `fix`
    holds degrees and choices not to be varied.

    Returns `model`, `params`, `active_params` (those that a token meets), `gpus`, `machine`,
    `batch`, `memory_limit_bytes`, `plans` and `infeasible`, rows alike: degrees and choices;
    `step_ns`, `low_ns`, `high_ns`; its parts
    (`compute_ns`, `tp_ns`, `cp_ns`, `ep_ns`, `bubble_ns`, `dp_ns`, `optimizer_ns`); `bubble_share`,
    `mfu`; `memory_bytes`, `state_bytes`, `activation_bytes`; `volumes`, bytes a GPU sends in a step
    by dimension; `why_not`. And `assumptions`. Raises UsageError for what cannot be.
    """
    given = {k: v for k, v in sizes.items() if v is not None}
    of = _model(name, given)
    if gpus < 1:
        raise UsageError(f"a plan is for at least one GPU, not {gpus}")
    where = platform.named(machine)
    if fabric is not None:
        where = _with_links(where, fabric)
    if batch is None:
        batch = min(8 * gpus, 2048)
    limit = None
    if memory is not None:
        try:
            limit = float(size_bytes(memory))
        except ValueError as e:
            raise UsageError(f"memory={memory!r}: {e}") from e
    if not 0 <= dp_hidden <= 1:
        raise UsageError(f"dp_hidden={dp_hidden} is a share of the backward pass: 0 to 1")
    plans = search.search(
        of, gpus, where, batch, widths=Widths(gradient=gradient_bytes), memory_bytes=limit,
        dp_hidden=dp_hidden, fixed=_fixed(fix or {}),
    )  # fmt: skip
    rows = [_row(p, of) for p in plans]
    return {
        "model": of.name,
        "params": of.params(),
        "active_params": of.active_params(),
        "gpus": gpus,
        "machine": where.name,
        "batch": batch,
        "memory_limit_bytes": limit or search.USABLE * where.memory_bytes,
        "plans": [r for r in rows if not r["why_not"]],
        "infeasible": [r for r in rows if r["why_not"]],
        "assumptions": list(ASSUMPTIONS),
    }


def _model(name: str | None, given: dict[str, Any]) -> model.Model:
    low = [k for k, v in given.items() if v is not True and v is not False and v < 1]
    if low:
        raise UsageError(f"{low[0]} is {given[low[0]]}: it is at least 1")
    if name is not None:
        base = model.named(name)._replace(**given)
    else:
        lacking = [k for k in ("layers", "hidden", "heads") if k not in given]
        if lacking:
            known = ", ".join(model.PRESETS)
            raise UsageError(f"give {' and '.join(lacking)}, or a model by name: {known}")
        rest = {"ffn": 4 * given["hidden"], "sequence": 2048, "vocab": fitted.VOCAB, **given}
        base = model.Model(name="given", **rest)
    if base.hidden % base.heads:
        raise UsageError(f"hidden {base.hidden} is no multiple of {base.heads} heads")
    if base.experts and not 1 <= base.top_k <= base.experts:
        raise UsageError(f"top_k is {base.top_k}: a token goes to 1 to {base.experts} experts")
    return base


def _with_links(where: platform.Platform, fabric: Any) -> platform.Platform:
    if hasattr(fabric, "gpus_per_host"):
        return platform.of_fabric(fabric, where)
    from ..replay import fabric as fabrics

    return platform.of_fabric(fabrics.load(fabric), where)


def _fixed(fix: Mapping[str, Any]) -> dict[str, Any]:
    """Fields of Split from text or values. Raises UsageError."""
    out: dict[str, Any] = {}
    takes = [f for f in split.Split._fields if f != "batch"]
    for key, value in fix.items():
        if key not in takes:
            raise UsageError(f"{key!r} cannot be fixed: {', '.join(takes)} can")
        if key in CHOICES:
            if value not in CHOICES[key]:
                raise UsageError(f"{key}={value!r}: it is one of {', '.join(CHOICES[key])}")
            out[key] = value
            continue
        try:
            out[key] = _value(key, value)
            if key == "zero" and not 0 <= out[key] <= 3:
                raise ValueError
            if key not in ("zero", "stages", *_FLAGS) and out[key] < 1:
                raise ValueError
        except (ValueError, TypeError):
            example = "8+8+8+6" if key == "stages" else "true" if key in _FLAGS else "4"
            raise UsageError(f"{key}={value!r} is not like {key}={example}") from None
    return out


_FLAGS = ("sequence_parallel", "flash")


def _value(key: str, value: Any) -> Any:
    from ..replay.policy import boolean

    if key == "stages":
        return tuple(int(x) for x in (value.split("+") if isinstance(value, str) else value))
    if key in _FLAGS:
        return boolean(value) if isinstance(value, str) else bool(value)
    return int(value)


def _row(p: search.Plan, of: model.Model) -> dict[str, Any]:
    s, e = p.split, p.estimate
    chosen = {k: getattr(s, k) for k in ("dp", "tp", "pp", "cp", "ep", "micro_batch", "recompute",
                                         "zero", "schedule", "chunks")}  # fmt: skip
    parts = ("compute", "tp", "cp", "ep", "bubble", "dp", "optimizer")
    return {
        "split": s.words(),
        **chosen,
        "stages": list(s.layers_by_stage(of.layers)),
        "microbatches": s.microbatches,
        "step_ns": round(e.step_ns),
        "low_ns": round(p.low_ns),
        "high_ns": round(p.high_ns),
        **{f"{k}_ns": round(getattr(e, f"{k}_ns")) for k in parts},
        "bubble_share": e.bubble_ns / e.step_ns,
        "mfu": e.mfu,
        "memory_bytes": round(e.memory.total_bytes),
        "state_bytes": round(e.memory.state_bytes),
        "activation_bytes": round(e.memory.activation_bytes),
        "volumes": {k: round(v) for k, v in e.volumes._asdict().items()},
        "why_not": p.why_not or None,
    }
