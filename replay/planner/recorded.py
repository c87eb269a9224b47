"""What a recorded job says of its own split: degrees from communicators, model from its tables."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
import polars as pl

from ..graph import Kind
from ..policy import ReplayJob
from .split import Split

DIMS = ("dp", "tp", "pp", "cp", "ep")


class Found(NamedTuple):
    """The degrees of a recorded job, and what they rest on; `missing` says what to record."""

    split: Split
    words: tuple[str, ...] = ()
    missing: str = ""
    data_dims: tuple[str, ...] = ("dp", "fsdp")
    """Dimensions of communicators whose collectives are the data-parallel ones."""


def degrees(job: ReplayJob) -> Found:
    """Degrees by the sizes of the communicators of each dimension, stages as the trace has them.

    A job whose only known group is the whole world is taken for data parallel. The ZeRO stage is 3
    where a dimension is `fsdp`, 1 where gradients are scattered and parameters gathered, else 0.
    """
    comms = job.facts.get("comms")
    world = n_ranks(job)
    if comms is None or not len(comms):
        return Found(Split(), missing=_record("no communicator is known"))
    sizes = _sizes(comms)
    split, said = Split(), []
    data: tuple[str, ...] = ("dp", "fsdp")
    known = {d: n for d, n in sizes.items() if d in (*DIMS, "fsdp")}
    if not any(n > 1 for n in known.values()):
        if sizes.get("world", 0) < 2 and world > 1:
            return Found(split, missing=_record("no communicator has a known dimension"))
        said.append("the job's only known group is the whole world: taken for data parallel")
        known, data = {"dp": max(world, 1)}, (*data, "world")
    dp = known.get("dp", 1) * known.get("fsdp", 1)
    tp, cp, ep = (known.get(d, 1) for d in ("tp", "cp", "ep"))
    stage = stages(job)
    pp = int(stage.max()) + 1 if len(stage) else known.get("pp", 1)
    if not len(stage) and pp == 2 and dp * tp * cp and world % (dp * tp * cp) == 0:
        pp = world // (dp * tp * cp)  # communicators of neighbours only
    split = Split(dp=dp, tp=tp, pp=pp, cp=cp, ep=ep, zero=_zero(job, known, data))
    if split.world != world:
        why = f"the communicators' degrees ({split.words()}) make {split.world} of {world} ranks"
        return Found(split, missing=_record(why))
    return Found(split, tuple(said), "", data)


def n_ranks(job: ReplayJob) -> int:
    """Ranks that the graph or the table of ranks knows."""
    ranks = job.facts.get("ranks")
    if ranks is not None and len(ranks):
        return int(ranks["rank"].n_unique())
    return len(np.unique(job.graph.rank[job.graph.rank >= 0]))


def stages(job: ReplayJob) -> np.ndarray:
    """int64 [max rank + 1]: each rank's pipeline stage; empty where the trace does not say."""
    graph = job.graph
    n = int(graph.rank.max(initial=-1)) + 1
    out = np.full(n, -1)
    stage = graph.extra.get("stage")
    if stage is not None:
        known = (stage >= 0) & (graph.rank >= 0)
        out[graph.rank[known]] = stage[known]
        return out if (out >= 0).any() else np.empty(0, np.int64)
    ranks = job.facts.get("ranks")
    if ranks is not None and "stage" in ranks.columns:
        rows = ranks.select("rank", "stage").drop_nulls().filter(pl.col("rank") < n)
        out[rows["rank"].to_numpy()] = rows["stage"].to_numpy()
    return out if (out >= 0).any() else np.empty(0, np.int64)


def microbatches(job: ReplayJob) -> int:
    """Forward passes of a worker in a step, where the trace counts them; else 0."""
    graph = job.graph
    task = graph.ops("forward-compute") & (graph.kind == Kind.COMPUTE) & (graph.step >= 0)
    if not task.any():
        return 0
    counts = np.unique(np.column_stack([graph.rank[task], graph.step[task]]), axis=0,
                       return_counts=True)[1]  # fmt: skip
    return int(np.median(counts))


def configuration(job: ReplayJob) -> dict:
    """The row of the table `configurations`, where the job has exactly one; else {}."""
    rows = job.table("configurations")
    return {k: v for k, v in rows.row(0, named=True).items() if v} if len(rows) == 1 else {}


def _sizes(comms: pl.DataFrame) -> dict[str, int]:
    """The usual size of a dimension's communicators."""
    size = pl.col("ranks").list.len().cast(pl.Int64)
    if "size" in comms.columns:
        size = pl.coalesce(pl.col("size").cast(pl.Int64), size)
    rows = comms.select(pl.col("dim").cast(pl.String), n=size).drop_nulls()
    usual = rows.group_by("dim").agg(pl.col("n").mode().max())
    return dict(usual.iter_rows())


def _zero(job: ReplayJob, known: dict[str, int], data: tuple[str, ...]) -> int:
    if known.get("fsdp", 1) > 1:
        return 3
    comms = job.facts["comms"]
    of_data = comms.filter(pl.col("dim").cast(pl.String).is_in(data))["comm"].cast(pl.String)
    graph = job.graph
    codes = [i for i, name in enumerate(graph.comm_names) if name in set(of_data)]
    ops = {graph.op_names[o] for o in np.unique(graph.op[np.isin(graph.comm, codes)]) if o >= 0}
    scatter = any("reduce" in o and "scatter" in o for o in ops)
    return int(scatter and any("all" in o and "gather" in o for o in ops))


def _record(why: str) -> str:
    return (
        f"{why}: name process groups by what they are for (dp, tp, pp, cp, ep) when they are made, "
        "set them by `retime dims`, or give was=dp8+tp4+…"
    )
