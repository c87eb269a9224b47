"""Another split of the same model over the same GPUs: degrees, microbatch, layers a stage.

Each part of the step is the measured one times model(new) / model(old), so that what the model has
wrong in both cancels; the arithmetic and its sources are in `replay.planner`.
"""

from __future__ import annotations

from dataclasses import replace

from ..planner import asked, fitted, memory, platform, recorded, retiming, search, split
from ..planner.model import Model
from ..policy import BadParam, Param, Policy, ReplayJob, Stage, boolean, integers, words

NAME = "parallelism"
NEUTRAL = {}
"""Its defaults ask for the split that ran."""

ASSUMPTIONS = (
    "the graph stays that of the split that ran: its tasks are scaled to what the busiest GPU of "
    "the new split has to do",
    "compute and communication overlap as they did",
    "a bubble that grows is added to the computations, one that shrinks is taken from them and "
    "from the layers' transfers",
)


def apply(job: ReplayJob, **given) -> ReplayJob:
    """The job under another split, or unchanged with a warning where too little is known."""
    found = recorded.degrees(job)
    if found.missing and not given["was"]:
        return job.note(warnings=(f"{NAME}: {found.missing}",))
    old = asked.split_that_ran(given["was"]) if given["was"] else found.split
    if all(given[p.name] == p.default for p in CHANGES):
        return job.note(assumptions=(f"no other split is asked for: {old.words()} as it ran",))
    if "split" in job.facts:
        said = f"{NAME}: the job has been split anew already: ask for everything in one policy"
        return job.note(warnings=(said,))
    configuration = recorded.configuration(job)
    model = asked.model(given, configuration)
    if isinstance(model, str):
        return job.note(warnings=(model,))
    old = asked.with_batch(job, old, given, configuration)
    if not old.batch:
        said = f"{NAME}: the trace does not count sequences: give batch (and mb in was) of the run"
        return job.note(warnings=(said,))
    if given["machine"] == "auto":
        where, machine = platform.of_job(job)
    else:
        where, machine = platform.named(given["machine"]), f"machine: {given['machine']}, as given"
    new = asked.split_asked(model, old, given, where)
    if new == old:
        return job.note(assumptions=(f"the split is the one that ran: {old.words()}",))
    for one, which in ((old, "the split that ran"), (new, new.words())):
        wrong = split.problems(model, one, old.world)
        if wrong:
            raise BadParam(f"policy {NAME}: {which}: {wrong[0]}")
    said = (machine, *found.words, *ASSUMPTIONS)
    return _retimed(job, model, old, new, where, found).note(assumptions=said)


def _retimed(
    job: ReplayJob,
    model: Model,
    old: split.Split,
    new: split.Split,
    where: platform.Platform,
    found: recorded.Found,
) -> ReplayJob:
    """The re-timed job, with the model's word on both splits and on the new one's memory."""
    of = retiming.both(model, old, new, where, fitted.A100, memory.MEGATRON)
    dims = {d: (d,) for d in recorded.DIMS} | {"dp": found.data_dims}
    stage = recorded.stages(job)
    if len(stage) and new._replace(stages=old.stages) == old:
        job = retiming.restaged(job, of, stage, dims, where, fitted.A100)
    else:
        job = retiming.retimed(job, of, dims)
    before, after = of.before.step_ns / 1e6, of.after.step_ns / 1e6
    said = (
        f"model: {old.words()} takes {before:.4g} ms a step, {new.words()} {after:.4g} ms; each "
        "part of the measured step is scaled by its own ratio"
    )
    held, limit = memory.of(model, new).total_bytes, search.USABLE * where.memory_bytes
    if held > limit:
        warning = f"{new.words()} needs {held / 1e9:.0f} GB a GPU, {limit / 1e9:.0f} GB are usable"
        job = job.note(warnings=(warning,))
    measured = retiming.measured_ns(job) / 1e6
    if measured and not 1 / FAR < before / measured < FAR:
        warning = (
            f"the model takes {before:.4g} ms for the split that ran, it took {measured:.4g} ms: "
            "check model, batch and was, on which everything here rests"
        )
        job = job.note(warnings=(warning,))
    return replace(job, facts={**job.facts, "split": new}).note(assumptions=(said,))


FAR = 2.5
"""A model off by this factor is likely to be of another job."""

CHANGES = (
    Param("dp", int, 0, "", "data-parallel degree; 0: what the others leave"),
    Param("tp", int, 0, "", "tensor-parallel degree; 0: as it ran"),
    Param("pp", int, 0, "", "pipeline stages; 0: as they ran"),
    Param("cp", int, 0, "", "context-parallel degree; 0: as it ran"),
    Param("ep", int, 0, "", "expert-parallel degree, inside dp x cp; 0: as it ran"),
    Param(
        "stages", integers, (), "layers", "of each, joined by + (default: as they ran, else even)"
    ),
    Param("micro_batch", int, 0, "sequences", "microbatch; 0: as it ran"),
    Param("recompute", str, "", "", "of activations (default: as it ran)", ("", *split.RECOMPUTE)),
    Param("zero", int, -1, "", "ZeRO stage; -1: as it ran", (-1, 0, 1, 2, 3)),
    Param("schedule", str, "", "", "of the pipeline (default: as it ran)", ("", *split.SCHEDULES)),
    Param("chunks", int, 0, "", "chunks a GPU of an interleaved schedule"),
    Param("best", boolean, False, "", "the planner's quickest split that fits in memory"),
)

POLICY = Policy(
    name=NAME,
    summary="another DP/TP/PP/CP/EP split of the same model, uniform or not",
    source="arXiv 2104.04473 and 2205.05198 (Megatron-LM), 1910.02054 (ZeRO), 2401.10241",
    params=(
        *CHANGES,
        Param("was", words, (), "", "the split that ran (dp8+tp4+mb2+full), if the trace errs"),
        Param("batch", int, 0, "sequences", "of a step, all replicas; 0: from the trace"),
        Param("model", str, "", "", "as in `retime plan --help` (default: the trace's sizes)"),
        Param("layers", int, 0, "", "layers of the model; 0: from the trace"),
        Param("hidden", int, 0, "", "hidden size; 0: from the trace"),
        Param("heads", int, 0, "", "attention heads; 0: from the trace"),
        Param("sequence", int, 0, "tokens", "sequence length; 0: from the trace"),
        Param("kv_heads", int, 0, "", "heads of keys and values; 0: as many as heads"),
        Param("ffn", int, 0, "", "width of the MLP, or of an expert; 0: four times hidden"),
        Param("vocab", int, 0, "", "vocabulary; 0: 51200"),
        Param("experts", int, 0, "", "routed experts a layer; 0: a dense model"),
        Param("top_k", int, 0, "", "experts of a token"),
        Param("machine", str, "auto", "", "H100, A100, …; auto: by the devices' names"),
    ),
    assumptions=ASSUMPTIONS,
    apply=apply,
    stage=Stage.PLACEMENT,
    needs=(
        "communicators with their dimension: name process groups when they are made, or set them "
        "by `retime dims`; else give `was`",
        "the model's sizes and the batch: from `configurations`, or as parameters",
    ),
    valid="GPT-like decoders of equal layers; the planner's median error on measured steps is 2 to "
    "12 % (docs/policies/parallelism.md), its rank correlation with them 0.8 to 0.93",
    checked="volumes, bubbles, memory and parameters by the papers' worked numbers; 1,440 and 109 "
    "published iteration times",
)
