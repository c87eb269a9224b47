"""Other SMs for communication, and what that gives back to the GEMMs beside it.

A GEMM of N thread blocks beside communication that holds k of S SMs takes ceil(N/(S-k)) / ceil(N/S)
times as long. What it took beside communication is scaled by that ratio, new over old, but never
below what kernels of its shape took beside none. Communication keeps its bandwidth while it has
the SMs that this needs, by what one SM moves with the engine that is chosen.
"""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import polars as pl

from .. import edges
from ..contention import sm_contention, sm_held, sm_share
from ..overlapped import kernel_facts
from ..policy import BadParam, Param, Policy, ReplayJob, Stage
from ..quantities import bandwidth_bytes_per_s
from ..retiming import transfers

NEUTRAL = {"engine": "recorded"}

ASSUMPTIONS = (
    "a block of a GEMM has an SM to itself; communication holds an SM a block from its launch on",
    "kernels that wait for memory (all but GEMMs, attention and convolutions) gain nothing by SMs, "
    "only by the memory bandwidth that slower communication leaves them",
)
RECORD = (
    "how many SMs communication holds is not recorded: record kernels with their grids (Kineto's "
    "CUDA activities), or NCCL's channels (NCCL_DEBUG=INFO), or say recorded=SMs; nothing changes"
)
NO_GRIDS = (
    "no GEMM, attention or convolution with its grid ran beside communication, so none can gain "
    "by SMs: record kernels with their grids (Kineto's CUDA activities)"
)
NOTHING_BESIDE = "sm-budget: no computation is known beside communication: nothing changes"


def apply(
    job: ReplayJob,
    *,
    engine: str,
    sms: int,
    per: str,
    rate: float | None,
    recorded: int,
    grid: str,
    experts: int,
    topk: int,
    op: tuple[str, ...],
    dim: tuple[str, ...],
    comm: tuple[str, ...],
) -> ReplayJob:
    """The job with other SMs for communication."""
    total, said = kernel_facts.sms(job)
    _checked(sms, recorded, experts, topk, total, said)
    # What one SM moves must be held against bytes; what SMs did, or copy engines do, need not.
    sized = engine in ("sm", "tma")
    job, rows = transfers.chosen(job, op=op, dim=dim, comm=comm, sized=sized)
    if not len(rows):
        return job
    rows = rows.with_columns(
        held=sm_held.held(job, rows, recorded), bandwidth=sm_held.bandwidth(rows)
    )
    known = rows.filter(pl.col("held") > 0)
    if not len(known):
        return job.note(warnings=(RECORD,))
    if len(known) < len(rows):
        left = f"of {len(rows) - len(known)} collectives it is not known how many SMs they held"
        job = job.note(warnings=(f"{left}: left as measured",))
    given = sm_held.Budget(engine, sms, per == "all", rate, experts, topk, total)
    job, now, ratio = sm_held.budget(job, known, given)
    if np.array_equal(now, known["held"].to_numpy()):
        return job.note(assumptions=(said,))
    return _given_back(job, known, now, ratio, total, grid, per == "dynamic").note(
        assumptions=(said, *ASSUMPTIONS)
    )


def _checked(sms, recorded, experts, topk, total, said) -> None:
    for name, value in (("sms", sms), ("recorded", recorded)):
        if not 0 <= value < max(total, 1):
            raise BadParam(f"policy sm-budget: {name}={value}: 1 to {total - 1} of {said}, 0: auto")
    if experts < 0 or (experts and not 1 <= topk <= experts):
        raise BadParam(f"policy sm-budget: topk={topk} of {experts} experts: 1 to {experts}")


def _given_back(job: ReplayJob, rows, now, ratio, total: int, grid: str, dynamic: bool):
    """Transfers and computations with what they have now."""
    measured = job.facts.get("measured", job.graph)
    found = sm_share.pairs(measured)
    if found is None:
        return job.note(warnings=(NOTHING_BESIDE,))
    code = rows["collective"].to_numpy()
    relief, relieved = sm_held.memory_relief(job, rows, ratio)
    if dynamic:
        ratio = 1 + (ratio - 1) * sm_share.together(found, measured)[code]
    if (ratio > 1).any():
        said = f"{int((ratio > 1).sum())} collectives have fewer SMs than their bandwidth needs"
        job = transfers.scaled(job, rows, ratio).note(assumptions=(said,))
    kernels = kernel_facts.of(replace(job, graph=measured))
    task = found.was.task
    held = sm_share.Held(*np.full((3, int(measured.collective.max()) + 2), np.nan))
    for column, values in zip(held, (rows["held"].to_numpy(), now, relief), strict=True):
        column[code] = values
    of = sm_share.Kernels(
        np.where(kernels.matrix[task], kernels.blocks[task], 0), kernels.memory[task]
    )
    back = sm_share.given_back(found, of, held, total, grid)
    if not back.meetings and not back.relieved:
        return job.note(warnings=(NO_GRIDS,))
    if back.relieved:
        job = job.note(assumptions=relieved)
    before, after = back.slowdown
    took = rows["transfer_ns"].to_numpy()
    mean = [float(np.average(x, weights=took)) for x in (rows["held"].to_numpy(), now)]
    job = _computed(job, found, back)
    return job.note(
        assumptions=(
            f"communication holds {mean[1]:.4g} SMs (mean over its time) instead of {mean[0]:.4g}",
            f"computation beside it ran {before:.4g} times as long as beside none, and now runs "
            f"{after:.4g} times ({back.meetings} of {len(found.row)} meetings are of GEMMs, "
            "attention or convolutions with their grids)",
        )
    )


def _computed(job: ReplayJob, found: sm_share.Pairs, back: sm_share.Back) -> ReplayJob:
    """Computations as long as they are now; those that move are slowed by the new mean."""
    # The replay slows computation by what runs beside it: that part is left to it.
    given = job.facts.get("compute_slowdown") or job.facts.get("stated_slowdown")
    was = given or found.was.slowdown
    now = min(max(1.0, was * back.slowdown[1] / back.slowdown[0]), sm_contention.MOST)
    even = np.ones(len(found.was.task))
    times = [
        sm_contention.factors(found.was, found.start_ns, found.end_ns, even, s) for s in (was, now)
    ]
    job = replace(job, facts={**job.facts, "compute_slowdown": now})
    at = edges.place(job.graph)[found.was.task]
    dur = job.graph.dur_ns.copy()
    dur[at] = np.rint(dur[at] * back.ratio * times[0] / times[1]).astype(np.int64)
    return job.with_graph(dur_ns=dur)


POLICY = Policy(
    name="sm-budget",
    summary="fewer SMs for communication, given back to the GEMMs beside it",
    source="T-CCL; Weave; HCCL; SM counts of DeepEP's elastic buffer; wave quantisation",
    params=(
        Param(
            "engine", str, "sm", "", "what moves the bytes", ("sm", "tma", "copy", "recorded")
        ),
        Param("sms", int, 0, "SMs", "for communication; 0: what its bandwidth needs"),
        Param(
            "per", str, "collective", "",
            "one number for all, by collective, or only while something is computed beside it",
            ("collective", "all", "dynamic"),
        ),
        Param("rate", bandwidth_bytes_per_s, None, "bytes/s", "of one SM (default: the engine's)"),
        Param("recorded", int, 0, "SMs", "that communication held; 0: as recorded"),
        Param("grid", str, "fixed", "", "whole waves, or persistent", ("fixed", "smooth")),
        Param("experts", int, 0, "", "all-to-alls of so many experts: SMs by DeepEP's estimate"),
        Param("topk", int, 8, "", "experts that a token chooses"),
        *transfers.WHICH,
    ),
    assumptions=ASSUMPTIONS,
    apply=apply,
    stage=Stage.SCHEDULE,
    needs=(
        "kernels with their grids (blocks), or NCCL's channels",
        "computation beside communication, for its slow-down",
    ),
    valid="k well below S; GEMMs of one block an SM",
    checked=(
        "132 blocks on 132 SMs beside 24: 2.0 times as long (NVIDIA forum 337991); from 23.76 to "
        "6.60 SMs a gain of 1.12 becomes 1.30 (T-CCL: 1.25); DeepEP's 14, 12, 6 and 4 SMs"
    ),
)  # fmt: skip
