"""The split that ran, the model and the split that is asked for, from a policy's parameters."""

from __future__ import annotations

from ..policy import BadParam, ReplayJob
from . import fitted, platform, recorded, search, split
from .model import PRESETS, Model
from .split import Split


def split_that_ran(text: tuple[str, ...]) -> Split:
    """The split that ran, from words like dp8, tp4, mb1, zero1, full."""
    values: dict = {}
    for word in text:
        name = word.rstrip("0123456789")
        number = word[len(name) :]
        if word in split.RECOMPUTE:
            values["recompute"] = word
        elif word in split.SCHEDULES:
            values["schedule"] = word
        elif name in _WORDS and 0 < len(number) < 10 and (int(number) or name == "zero"):
            values[_WORDS[name]] = int(number)
        else:
            known = ", ".join(f"{w}N" for w in _WORDS)
            raise BadParam(
                f"policy parallelism: was={word[:40]!r}: words are {known}, full, 1f1b, …"
            )
    return Split(**values)


_WORDS = {"dp": "dp", "tp": "tp", "pp": "pp", "cp": "cp", "ep": "ep", "mb": "micro_batch",
          "zero": "zero", "chunks": "chunks"}  # fmt: skip


def model(given: dict, conf: dict) -> Model | str:
    """The model from a preset, parameters and the job's configuration; or what is missing."""
    name = given["model"]
    base = PRESETS.get(name.lower()) if name else None
    if name and base is None:
        raise BadParam(f"policy parallelism: model={name!r}: there are {', '.join(PRESETS)}")
    sizes = {
        "layers": given["layers"] or conf.get("layers", 0),
        "hidden": given["hidden"] or conf.get("hidden", 0),
        "heads": given["heads"] or conf.get("heads", 0),
        "sequence": given["sequence"] or conf.get("seq_len", 0),
    }
    extra = {k: given[k] for k in ("kv_heads", "ffn", "vocab", "experts", "top_k") if given[k]}
    if base is None:
        lacking = [k for k, v in sizes.items() if not v]
        if lacking:
            named = ", ".join(lacking)
            return f"parallelism: the trace does not say the model: give model=NAME or {named}"
        base = Model("given", **sizes, ffn=4 * sizes["hidden"], vocab=fitted.VOCAB)
        return base._replace(**extra)
    return base._replace(**{k: v for k, v in sizes.items() if v}, **extra)


def with_batch(job: ReplayJob, old: Split, given: dict, conf: dict) -> Split:
    """The split that ran with its batch and microbatch; batch 0 where nothing tells it."""
    if "micro_batch" in conf and not any(w.startswith("mb") for w in given["was"]):
        old = old._replace(micro_batch=conf["micro_batch"])
    batch = given["batch"] or conf.get("global_batch", 0)
    if not batch:
        batch = recorded.microbatches(job) * old.dp * old.micro_batch
    return old._replace(batch=batch)


def split_asked(model: Model, old: Split, given: dict, where: platform.Platform) -> Split:
    """The split that is asked for; dp takes the GPUs that the other degrees leave."""
    kept = old.recompute if not given["recompute"] else given["recompute"]
    if given["best"]:
        fixed = {k: given[k] for k in recorded.DIMS if given[k]} | {"recompute": kept}
        plans = search.search(model, old.world, where, old.batch, fixed=fixed)
        return plans[0].split
    degree = {k: given[k] or getattr(old, k) for k in recorded.DIMS}
    if not given["dp"]:
        rest = degree["tp"] * degree["pp"] * degree["cp"]
        degree["dp"] = old.world // rest if old.world % rest == 0 else degree["dp"]
    new = old._replace(
        **degree,
        micro_batch=given["micro_batch"] or old.micro_batch,
        recompute=kept,
        zero=old.zero if given["zero"] < 0 else given["zero"],
        schedule=given["schedule"] or old.schedule,
        chunks=given["chunks"] or old.chunks,
        stages=given["stages"] or (old.stages if degree["pp"] == old.pp else ()),
    )
    if new.layers_by_stage(model.layers) == old.layers_by_stage(model.layers):
        new = new._replace(stages=old.stages)
    return new
