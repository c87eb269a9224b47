"""A recorded job's tasks under another split: each part times model(new) over model(old)."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
import polars as pl

from .. import steps as timing
from ..graph import Kind, TaskGraph
from ..policy import ReplayJob
from ..retiming import transfers
from . import step, volumes
from .memory import Widths
from .model import Model
from .platform import Platform
from .split import Split

PARTS = ("dp", "tp", "cp", "ep")


class Both(NamedTuple):
    """The model's word on the split that ran and on the one that is asked for."""

    model: Model
    old: Split
    new: Split
    before: step.Times
    after: step.Times
    volumes_before: volumes.Volumes
    volumes_after: volumes.Volumes


def both(
    model: Model, old: Split, new: Split, platform: Platform, eff: step.Efficiencies, widths: Widths
) -> Both:
    """Both splits' times and volumes."""
    before, after = (step.times(model, s, platform, eff, widths=widths) for s in (old, new))
    sent_before, sent_after = (volumes.of(model, s, widths) for s in (old, new))
    return Both(model, old, new, before, after, sent_before, sent_after)


def retimed(job: ReplayJob, of: Both, dims: dict[str, tuple[str, ...]]) -> ReplayJob:
    """The job's tasks under the new split; the graph stays that of the old one.

    Computations, and the host's work and delays, are scaled by what the busiest GPU has to do; the
    collectives of each dimension by their modelled time (`dims`: the names of communicators'
    dimensions for dp, tp, cp, ep, pp). Communication of a dimension that the job has none of is
    added to the computations, evenly. So is a bubble that grows; one that shrinks shortens
    computations, host work and the layers' transfers alike. Added time is the model's times
    measured over modelled step.
    """
    before, after = of.before, of.after
    scale = measured_ns(job) / before.step_ns
    work = [_work(t) for t in (before, after)]
    grown = after.bubble_ns - before.bubble_ns * work[1] / work[0]
    shrink = 1.0
    if grown < 0:
        shrink = (work[1] + after.bubble_ns) / (work[1] + after.bubble_ns - grown)
    added = max(grown, 0.0)
    absent = []
    for part in PARTS:
        was, now = getattr(before, f"{part}_ns"), getattr(after, f"{part}_ns")
        ratio = _ratio(was, now, *(getattr(v, part) for v in _sent(of)))
        if ratio is None:
            if now:
                added += now
                absent.append(part)
            continue
        in_layers = shrink if part != "dp" else 1.0
        job, found = _scaled(job, dims[part], ratio * in_layers, _bytes(of, part))
        if not found and now:
            added += now
            absent.append(part)
    if of.old.pp > 1:
        ratio = _bytes(of, "pp")
        job, _ = _scaled(job, dims["pp"], ratio * shrink, ratio, only=("send", "recv"))
    host = shrink * _launches(of.new, of.model) / _launches(of.old, of.model)
    device = shrink * after.compute_ns / before.compute_ns
    optimizer = after.optimizer_ns / before.optimizer_ns
    graph = _computed(job.graph, device, host, optimizer, added * scale)
    said = tuple(
        f"the job has no {part} collectives: theirs are added to its computations"
        for part in absent
    )
    return job.with_graph(dur_ns=graph.dur_ns, gap_ns=graph.gap_ns).note(assumptions=said)


def restaged(
    job: ReplayJob, of: Both, stage: np.ndarray, dims: dict[str, tuple[str, ...]],
    platform: Platform, eff: step.Efficiencies,
) -> ReplayJob:  # fmt: skip
    """The job with other layers a stage and nothing else changed: each stage by its own ratio.

    The graph has the pipeline, so what the stages then wait for each other comes out of the replay.
    `stage` [rank] is each rank's.
    """
    passes = step.layer(of.model, of.old, platform, eff)
    output = step.head(of.model, of.old, platform, eff)
    was, now = (np.array(s.layers_by_stage(of.model.layers)) for s in (of.old, of.new))
    last = np.arange(len(was)) == len(was) - 1
    compute = (now * passes.compute_ns + last * output) / (was * passes.compute_ns + last * output)
    layers = now / np.maximum(was, 1)
    graph = job.graph
    dur = graph.dur_ns.copy()
    at = np.where(graph.rank >= 0, stage[graph.rank], -1)
    work = np.isin(graph.kind, (Kind.COMPUTE, Kind.COPY)) & (at >= 0) & ~_optimizer(graph)
    dur[work] = np.rint(dur[work] * compute[at[work]]).astype(np.int64)
    tail = _optimizer(graph) & (graph.kind != Kind.TRANSFER) & (at >= 0)
    dur[tail] = np.rint(dur[tail] * layers[at[tail]]).astype(np.int64)
    rows = transfers.described(job)
    for part in ("tp", "cp", "ep", "dp"):
        which = rows.filter(pl.col("dim").is_in(dims[part]))["collective"].to_numpy()
        task = (graph.kind == Kind.TRANSFER) & np.isin(graph.collective, which) & (at >= 0)
        dur[task] = np.rint(dur[task] * layers[at[task]]).astype(np.int64)
    return job.with_graph(dur_ns=dur)


def _work(t: step.Times) -> float:
    """What the busiest GPU does between its first and last microbatch, apart from standing."""
    return t.compute_ns + t.tp_ns + t.cp_ns + t.ep_ns


def _sent(of: Both) -> tuple[volumes.Volumes, volumes.Volumes]:
    return of.volumes_before, of.volumes_after


def _ratio(was: float, now: float, sent_before: float, sent_after: float) -> float | None:
    """How much longer a dimension's collectives take; None where the job has none of it. Where the
    model hides all of them (a ring's exchange) their bytes tell."""
    if was > 0 and (now > 0 or not sent_after):
        return now / was
    return sent_after / sent_before if sent_before > 0 else None


def _bytes(of: Both, part: str) -> float:
    was, now = (getattr(v, part) for v in _sent(of))
    return now / was if was else 1.0


def _scaled(
    job: ReplayJob,
    dims: tuple[str, ...],
    ratio: float,
    bytes_ratio: float,
    only: tuple[str, ...] = (),
) -> tuple[ReplayJob, bool]:
    """The collectives of some dimensions times `ratio`; whether the job has any. `only` are words
    that an operation's name holds."""
    rows = transfers.described(job)
    if only:
        rows = rows.filter(pl.col("op").str.contains("|".join(only)))
    rows = rows.filter(pl.col("dim").is_in(list(dims)) & (pl.col("n") > 1))
    if not len(rows):
        return job, False
    by = np.full(len(rows), ratio)
    return transfers.scaled(job, rows, by, bytes_ratio=np.full(len(rows), bytes_ratio)), True


def _launches(s: Split, model: Model) -> float:
    """Layer passes that a host launches in a step."""
    passes = 4 if s.recompute == "full" else 3
    return max(s.layers_by_stage(model.layers)) * s.microbatches * passes


def _optimizer(graph: TaskGraph) -> np.ndarray:
    """bool [n]: the optimizer's computations, where the trace names them."""
    return graph.ops(*(o for o in graph.op_names if o.startswith("optimizer")))


def _computed(
    graph: TaskGraph, device: float, host: float, optimizer: float, added_ns: float
) -> TaskGraph:
    """Computations times `device`, the optimizer's times `optimizer`, host work and delays times
    `host`, and `added_ns` more for each rank and step, spread over its computations by length.
    """
    dur = graph.dur_ns.astype(np.float64)
    of_optimizer = _optimizer(graph)
    on_device = np.isin(graph.kind, (Kind.COMPUTE, Kind.COPY)) & ~of_optimizer
    dur[on_device] *= device
    dur[of_optimizer & (graph.kind != Kind.TRANSFER)] *= optimizer
    dur[(graph.kind == Kind.HOST) & ~of_optimizer] *= host
    inside = (graph.step >= 0) & (graph.rank >= 0)
    bare = ~np.isin(graph.rank, np.unique(graph.rank[graph.kind == Kind.COMPUTE]))
    work = inside & ((graph.kind == Kind.COMPUTE) | ((graph.kind == Kind.HOST) & bare))
    if added_ns and work.any():
        key = np.column_stack([graph.rank[work], graph.step[work]])
        _, group = np.unique(key, axis=0, return_inverse=True)
        group = group.ravel()
        sums = np.bincount(group, dur[work])
        share = dur[work] / np.where(sums > 0, sums, 1.0)[group]
        dur[work] += added_ns * share
    gap = np.rint(graph.gap_ns * host).astype(np.int64)
    return graph.with_(dur_ns=np.rint(dur).astype(np.int64), gap_ns=gap)


def measured_ns(job: ReplayJob) -> float:
    """The mean measured step, ns; 0 where none is known."""
    _, took = timing.measured(job.facts.get("measured", job.graph))
    return float(took.mean()) if len(took) else 0.0
