"""Communication moved under computation: asynchronous, in buckets, posted ahead.

What a reduction of gradients holds up without need is freed (`asynchronous`), a reduction sets out
in buckets as its gradients become ready (`bucketed`), and gathers of parameters begin `depth`
gathers earlier. Edges of the graph change, so what is exposed falls out of the replay; computation
that comes to run beside communication runs slower (`sm_contention`).
"""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import polars as pl

from ..contention import sm_contention
from ..graph import Kind
from ..overlapped import asynchronous, bucketed
from ..policy import BadParam, Param, Policy, ReplayJob, Stage, words
from ..quantities import size_bytes
from ..retiming import by_group, transfers

NEUTRAL = {"until": ("recorded",), "chunk": 0, "depth": 0}

REDUCTIONS = ("all_reduce", "reduce_scatter")
SENDS = ("send",)
WITHIN_LAYERS = ("tp", "cp", "ep", "pp")
"""Dimensions whose results the next layer needs at once."""

ASSUMPTIONS = (
    "the host launches what is moved in time, and the network carries as much beside computation",
)


def apply(
    job: ReplayJob,
    *,
    op: tuple[str, ...],
    dim: tuple[str, ...],
    comm: tuple[str, ...],
    until: tuple[str, ...],
    chunk: int,
    backward: float,
    depth: int,
    slowdown: float,
) -> ReplayJob:
    """The job with communication under computation."""
    _checked(op, dim, chunk, backward, depth, slowdown)
    free = until != ("recorded",)
    if not free and not chunk and not depth:
        return job
    before = job.graph
    job = job.note(assumptions=_pipelines(job))
    job, rows = _chosen(job, op, dim, comm, NONE_CHOSEN)
    if chunk and len(rows):
        job = _in_buckets(job, rows, chunk, backward)
    if free and len(rows):
        job = _freed(job, rows, until)
    if depth:
        job = _ahead(job, depth, dim, comm)
    if job.graph is before:
        return job.note(warnings=(NOTHING,) if len(rows) else ())
    return _slowed(job.note(assumptions=ASSUMPTIONS), slowdown)


NOTHING = (
    "overlap: the chosen collectives hold up only what needs them, and none can begin earlier in "
    "buckets: nothing changes"
)
NO_GATHERS = "overlap: no all_gathers outside of layers that could begin earlier"
NONE_CHOSEN = (
    "overlap: no reductions outside of layers (tp, cp, ep, pp, whose results the next layer needs "
    "at once): nothing is made asynchronous"
)


def _checked(op, dim, chunk, backward, depth, slowdown) -> None:
    for one in op:
        if one not in (*REDUCTIONS, *SENDS):
            raise BadParam(
                f"policy overlap: what needs the result of {one!r} is not known; op takes "
                f"{', '.join((*REDUCTIONS, *SENDS))} (depth=1 begins all_gathers earlier)"
            )
    near = [d for d in dim if d in WITHIN_LAYERS]
    if near and set(op) & set(REDUCTIONS):
        raise BadParam(
            f"policy overlap: the next layer needs the results of {near[0]} at once; tile-overlap "
            "overlaps those"
        )
    if chunk < 0 or depth < 0:
        raise BadParam("policy overlap: chunk and depth are 0 or more")
    if not 0 < backward <= 1:
        raise BadParam(f"policy overlap: backward={backward:g}: a part above 0, 1 at most")
    if slowdown and not 1 <= slowdown <= sm_contention.MOST:
        raise BadParam(
            f"policy overlap: slowdown={slowdown:g}: 1 or more (1.0 to 1.4 is published), 0: fitted"
        )


def _chosen(job: ReplayJob, op, dim, comm, none: str) -> tuple[ReplayJob, pl.DataFrame]:
    """`transfers.chosen`, by default outside of layers; `none` is said where all are within."""
    rows = transfers.described(job)
    # A pair has the operation of either of its ends.
    wanted = (*op, "recv") if set(op) & set(SENDS) else op
    names = [o for o in rows["op"].unique() if asynchronous.is_of(o, *wanted)]
    if not dim and names:
        rows = rows.filter(pl.col("op").is_in(names))
        if comm:
            rows = rows.filter(pl.col("comm").is_in(list(comm)))
        pairs = {o for o in names if asynchronous.is_of(o, *SENDS, "recv")}
        free = rows.filter(~pl.col("dim").is_in(WITHIN_LAYERS) | pl.col("op").is_in(pairs))
        if len(rows) and not len(free):
            return job.note(warnings=(none,)), free
        dim = tuple(sorted(set(free["dim"])))
    job, found = transfers.chosen(job, op=names or op, dim=dim, comm=comm, sized=False)
    return job, found


def _in_buckets(job: ReplayJob, rows: pl.DataFrame, chunk: int, backward: float) -> ReplayJob:
    names = [o for o in rows["op"].unique() if asynchronous.is_of(o, *REDUCTIONS)]
    reductions = rows.filter(pl.col("op").is_in(names))
    bare = int((reductions["bytes"] <= 0).sum())
    if bare:
        said = (
            f"{bare} of {len(reductions)} reductions have no size: they stay whole; "
            f"{transfers.RECORD_SIZES}"
        )
        job = job.note(warnings=(said,))
    sized = reductions.filter(pl.col("bytes") > chunk)
    if not len(sized):
        return job
    count = np.minimum(-(-sized["bytes"].to_numpy() // chunk), bucketed.MOST)
    counts = dict(zip(sized["collective"].to_list(), count.tolist(), strict=True))

    def price(group: by_group.Group) -> np.ndarray:
        k = np.array([counts[c] for c in group.rows["collective"]])
        size = group.size_bytes / k
        return group._replace(size_bytes=size).time_ns() / group.time_ns()

    job, ratio = by_group.ratios(job, sized, price)
    ratios = dict(zip(sized["collective"].to_list(), ratio.tolist(), strict=True))
    # What could not be priced is not parted.
    counts = {c: k for c, k in counts.items() if ratios[c] != 1.0}
    made = bucketed.split(job.graph, counts, ratios, backward)
    if not made.split:
        said = (
            "no reduction can begin earlier: nothing was computed since the one before it that "
            "its gradients could come from",
        )
        return job.note(warnings=said if counts else ())
    return replace(job, graph=made.graph).note(
        assumptions=(
            f"{made.split} reductions in {made.buckets} buckets, each begun when its gradients are "
            f"there: evenly over the computation since the one before (a step's first: over the "
            f"last {100 * backward:.3g} % of its computation)",
        )
    )


def _freed(job: ReplayJob, rows: pl.DataFrame, until) -> ReplayJob:
    codes = rows["collective"].to_numpy()
    graph = job.graph
    # Of a pair only the sender has no use for what has moved.
    sends, received = asynchronous.are(graph, *SENDS), asynchronous.are(graph, "recv")
    wanted = (graph.kind == Kind.TRANSFER) & np.isin(graph.collective, codes) & ~received
    transfer = np.flatnonzero(wanted)
    sent = sends[transfer]
    found = asynchronous.freed(graph, transfer[~sent], until)
    job = replace(job, graph=found.graph)
    said, warned = [], []
    if found.released:
        said.append(
            f"{found.released} participations no longer hold up computation: needed by the "
            f"optimizer {found.at_optimizer}, at the step's end {found.at_end}"
        )
    if found.as_recorded:
        warned.append(
            f"{found.as_recorded} participations hold up what they did: gathers follow them in the "
            "step, and no kernel is named like an optimizer's (say until=part of its name, or "
            "until=step)"
        )
    if sent.any():
        moved = asynchronous.freed(job.graph, transfer[sent], (asynchronous.STEP_END,))
        job = replace(job, graph=moved.graph)
        said.append(f"{moved.released} sends no longer hold up what their rank computes next")
    return job.note(assumptions=tuple(said), warnings=tuple(warned))


def _ahead(job: ReplayJob, depth: int, dim, comm) -> ReplayJob:
    job, rows = _chosen(job, ("all_gather",), dim, comm, NO_GATHERS)
    if not len(rows):
        return job
    graph = job.graph
    mine = np.isin(graph.collective, rows["collective"].to_numpy())
    arrive = np.flatnonzero((graph.kind == Kind.ARRIVE) & mine)
    graph = asynchronous.posted_ahead(graph, arrive, depth)
    said = (
        f"all_gathers begin where the one {depth} before them in the step did: what they gather is "
        "there by then (parameters of a pass, not what the step itself has just computed)"
    )
    return replace(job, graph=graph).note(assumptions=(said,))


def _slowed(job: ReplayJob, slowdown: float) -> ReplayJob:
    """With what computation that comes to run beside communication loses: the replay settles it."""
    if slowdown:
        return replace(job, facts={**job.facts, "stated_slowdown": slowdown})
    if "begins" in job.graph.extra:
        return job
    return job.note(
        assumptions=("computation runs as fast beside communication as it was recorded",)
    )


def _pipelines(job: ReplayJob) -> tuple[str, ...]:
    """What 1F1B would do, where stages pass activations on."""
    order = asynchronous.pipeline_order(job.facts.get("measured", job.graph))
    if not order:
        return ()
    return (
        f"pipeline: {order}; 1F1B and all forwards first idle as long, (p-1)/(m+p-1) of a step, "
        "and differ in memory: the order of computation is left",
    )


POLICY = Policy(
    name="overlap",
    summary="communication moved under computation: asynchronous, in buckets, posted ahead",
    source=(
        "DDP's buckets (Li et al., VLDB 2020) and FSDP's prefetch; slow-down beside communication: "
        "arXiv 2507.03114; bubble of 1F1B: Megatron-LM (SC 2021)"
    ),
    params=(
        Param("op", words, REDUCTIONS, "", "what is made asynchronous, joined by + (also send)"),
        Param("dim", words, (), "", "dimensions, joined by + (default: all but tp, cp, ep, pp)"),
        Param("comm", words, (), "", "communicators to change, joined by + (default: all)"),
        Param(
            "until", words, (), "",
            "parts of names of the kernels that need the results (default: optimizers'), "
            "step: the step's end, recorded: as recorded",
        ),
        Param("chunk", size_bytes, 25 << 20, "bytes", "of a bucket; 0: reductions stay whole"),
        Param("backward", float, bucketed.BACKWARD, "", "part of a step's work that is backward"),
        Param("depth", int, 0, "gathers", "all_gathers begin so many gathers earlier"),
        Param("slowdown", float, 0.0, "x", "of what comes to run beside it; 0: fitted, or 1.19"),
    ),
    assumptions=ASSUMPTIONS,
    apply=apply,
    stage=Stage.SCHEDULE,
    needs=("collectives matched over ranks, and the streams' order", "sizes, for buckets"),
    valid="a slow-down of 1.0 to 1.4; buckets of 1 MiB and more",
    checked=(
        "three buckets of 50 MB ready at 1, 2 and 3 ms at 50 GB/s end at 2, 3 and 4 ms: 1 ms "
        "exposed (arithmetic); a step is never shorter than its critical path or busiest link"
    ),
)  # fmt: skip
