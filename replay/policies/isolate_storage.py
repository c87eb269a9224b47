"""Storage off the collectives' links, or staged on the hosts: two terms, removed separately.

isolate: collectives that shared their links with storage lose that factor, and stalls of the loader
stay. stage: batches come from the host's own drives, so that the traffic is off the network and a
load takes bytes / B_nv; what `depth` steps of compute do not hide of that is a stall. The factor is
fitted to the job (the same collectives with and without storage beside them), else that of its
fabric's links, or given.
"""

from __future__ import annotations

import numpy as np
import polars as pl

from ...ingest.tasks.job_clock import on_job_clock
from .. import steps
from ..costs import storage
from ..graph import NULL, Kind, TaskGraph
from ..policy import BadParam, Param, Policy, ReplayJob, Stage, integers
from ..quantities import bandwidth_bytes_per_s, size_bytes
from ..retiming import fabric_says, storage_traffic, transfers
from ..retiming.places import Places

NEUTRAL = {"what": "isolate", "factor": 1.0}

ASSUMPTIONS = (
    "storage that is off the collectives' links is as fast as before",
    "a collective's bytes go over the links that storage of its ranks' hosts loads",
)


def apply(
    job: ReplayJob,
    *,
    what: str,
    factor: float | None,
    flows: tuple[int, ...],
    buffer: int,
    guarantee: float,
    bandwidth: float | None,
    read: int,
    depth: int,
) -> ReplayJob:
    """The job without the cost of sharing links with storage, or of reading from afar."""
    if factor is not None and not factor >= 1:
        raise BadParam(
            f"policy isolate-storage: factor={factor:g}: collectives take 1 or more times as long "
            "beside storage"
        )
    if flows:
        if factor is not None or len(flows) != 2 or min(flows) < 1:
            raise BadParam(
                "policy isolate-storage: flows is two counts that share a link, of storage and of "
                "collectives, in place of factor (8+8)"
            )
        factor = storage.shared_factor(*flows)
    if buffer < 0:
        raise BadParam(f"policy isolate-storage: buffer={buffer}: bytes, or 0 for no queue")
    if not 0 < guarantee <= 1:
        raise BadParam(f"policy isolate-storage: guarantee={guarantee:g}: a share above 0, up to 1")
    if depth < 0:
        raise BadParam(f"policy isolate-storage: depth={depth}: steps, 0 or more")
    drives, told = fabric_says.value(
        job, "bytes/s of a host's drives", bandwidth,
        lambda f: f.storage and f.storage.staging.usable_bytes_per_s, 0.0,
    )  # fmt: skip
    if what == "stage" and not drives:
        raise BadParam(
            "policy isolate-storage: what=stage needs the drives' bandwidth (3 to 7GB/s each)"
        )
    job = _isolated(job, factor, buffer, 1.0 if what == "stage" else guarantee)
    if what == "stage":
        job = _staged(job, drives, read, depth).note(assumptions=told)
    else:
        job = _stalled(job)
    return job.note(assumptions=ASSUMPTIONS)


def _isolated(job: ReplayJob, given: float | None, buffer: int, guarantee: float) -> ReplayJob:
    traffic = storage_traffic.intervals(job)
    if not traffic:
        return job.note(
            warnings=(
                "isolate-storage: the job has no storage traffic: nothing shares links with "
                "collectives; record it as transfers of class storage (client or NIC counters)",
            )
        )
    graph = job.facts.get("measured", job.graph)
    task = np.flatnonzero((graph.kind == Kind.TRANSFER) & (graph.start_ns != NULL))
    host = Places.of(job).host(graph.rank[task])
    beside = np.zeros(len(task))
    start, end = graph.start_ns[task], graph.end_ns[task]
    length = np.maximum(end - start, 1)
    for code, intervals in traffic.items():
        there = (host == code) if code >= 0 else np.ones(len(task), bool)
        share = storage.covered(start[there], end[there], intervals) / length[there]
        beside[there] = np.maximum(beside[there], share)
    # A collective is as slow as its slowest rank: beside storage if any of its ranks is.
    most = np.zeros(int(graph.collective.max(initial=-1)) + 1)
    np.maximum.at(most, graph.collective[task], beside)
    job, rows = transfers.chosen(job, sized=False)
    if not len(rows):
        return job
    share = np.minimum(most[rows["collective"].to_numpy()], 1.0)
    if not (share > 0).any():
        return job.note(warnings=("isolate-storage: no collective ran beside storage traffic",))
    times = storage_traffic.fitted(rows, share) if given is None else np.full(len(rows), given)
    by_fabric = ()
    if given is None:
        times, by_fabric = storage_traffic.by_fabric(job, rows, times, share)
    known = np.isfinite(times)
    left = np.minimum(times, 1.0 / guarantee)
    with np.errstate(invalid="ignore"):
        ratio = np.where(known & (share > 0), 1 - share + share * left / times, 1.0)
    # What is fitted has the queue in it already; a class of its own has a queue of its own.
    if buffer and given is None:
        job = job.note(
            warnings=("isolate-storage: buffer goes with factor or flows: a fit has it already",)
        )
    queued = (
        share * storage_traffic.queued_ns(job, rows, buffer)
        if buffer and given is not None
        else share * 0
    )
    unknown = int((~known & (share > 0)).sum())
    said = ()
    if unknown:
        said = (
            f"isolate-storage: {unknown} collectives ran beside storage and none like them without:"
            " how much longer they took is not known (give factor): left as measured",
        )
    seen = times[known & (share > 0)]
    notes = ()
    if len(seen):
        origin = "fitted to the same ones without" if given is None else "as given"
        origin = "; ".join((origin, *by_fabric))
        notes = (
            f"{len(seen)} of {len(rows)} collectives ran beside storage, {np.median(seen):.3g} "
            f"times as long ({origin})",
        )
    if queued.any():
        notes += (
            f"each message beside storage stood behind {buffer / 1e6:.4g} MB in a switch's buffer: "
            f"{queued.sum() / 1e6:.4g} ms in all",
        )
        over = int((queued > rows["transfer_ns"].to_numpy()).sum())
        if over:
            said += (
                f"isolate-storage: {over} collectives took less than that queue: buffer is too "
                "large for them",
            )
    return transfers.scaled(job, rows, ratio, added_ns=-queued * ratio).note(
        assumptions=notes, warnings=said
    )


def _loads(job: ReplayJob) -> pl.DataFrame:
    """Waits for batches as recorded, on the job's clock: rank, start_ns, end_ns."""
    events = job.table("events")
    loads = events.filter(storage.is_data_loading()) if len(events) else events
    if not len(loads):
        return loads
    loads = loads.with_columns(end_ns=pl.col("start_ns") + pl.col("dur_ns").clip(0))
    columns = ("rank", "start_ns", "end_ns")
    return on_job_clock(loads.select(*columns), job.facts["ranks"], "start_ns", "end_ns")


def _of_ranks(loads: pl.DataFrame) -> dict[int, tuple[np.ndarray, np.ndarray]]:
    """Rank -> disjoint intervals in which it waits for a batch."""
    return {
        int(str(rank)): storage.union(of["start_ns"].to_numpy(), of["end_ns"].to_numpy())
        for (rank,), of in loads.group_by("rank", maintain_order=True)
    }


def _stalled(job: ReplayJob) -> ReplayJob:
    """The job, saying what its loader's stalls take: they stay where storage is only isolated."""
    loads = _loads(job)
    if not len(loads):
        return job
    waits = np.concatenate([end - begin for begin, end in _of_ranks(loads).values()])
    return job.note(
        assumptions=(
            f"ranks wait {waits.sum() / 1e6:.4g} ms for {len(waits)} batches, "
            f"{waits.max() / 1e6:.4g} ms for the slowest: such stalls stay (what=stage takes them "
            "away)",
        )
    )


def _staged(job: ReplayJob, bandwidth: float, read: int, depth: int) -> ReplayJob:
    """The job whose ranks wait for a batch no longer than a read of `bandwidth` makes them."""
    loads = _loads(job)
    graph = job.graph
    if not len(loads):
        return job.note(
            warnings=(
                "isolate-storage: no data loading is in the trace (DataLoader ranges, or NVTX "
                "ranges that say so): stalls are not known, and stay",
            )
        )
    if not read:
        return job.note(
            warnings=(
                "isolate-storage: how many bytes a load reads is not known: give read=, such as "
                "read=64MB: stalls stay",
            )
        )
    _, took = steps.measured(job.facts.get("measured", graph))
    gap, dur = graph.gap_ns.copy(), graph.dur_ns.copy()
    saved, least = 0, 0.0
    for rank, intervals in _of_ranks(loads).items():
        waited = float((intervals[1] - intervals[0]).sum())
        compute = max(float(took.sum()) - waited, 0.0) / max(len(took), 1)
        stall = float(storage.stalls(np.array([read * 1e9 / bandwidth]), compute, depth)[0])
        saved += _shorten(graph, rank, intervals, stall, gap, dur)
        least = max(least, stall)
    ahead = f", read {depth} steps ahead," if depth else ""
    notes = (
        f"a load reads {read / 1e6:.4g} MB, in {read * 1e3 / bandwidth:.4g} ms from the hosts' "
        f"drives{ahead} and holds a step up for {least / 1e6:.4g} ms; the data set is staged "
        "before the job, which is not counted",
        f"{saved / 1e6:.4g} ms of loading, over all ranks, are taken away",
    )
    return job.with_graph(gap_ns=gap, dur_ns=dur).note(assumptions=notes)


def _shorten(
    graph: TaskGraph, rank: int, loads: tuple[np.ndarray, np.ndarray], least_ns: float,
    gap: np.ndarray, dur: np.ndarray,
) -> int:  # fmt: skip
    """Takes from a rank's host tasks, in place, what of its loads is over `least_ns` each."""
    task = np.flatnonzero(
        (graph.rank == rank) & (graph.kind == Kind.HOST) & (graph.start_ns != NULL)
    )
    begin, end = loads
    length = np.maximum(end - begin, 1)
    keep = np.minimum(least_ns / length, 1.0)
    # A load may span tasks: each loses its part of what is taken from the load.
    over = np.zeros(len(task))
    for i in range(len(begin)):
        if keep[i] < 1:
            a = np.searchsorted(graph.end_ns[task], begin[i], side="right")
            b = np.searchsorted(graph.start_ns[task], end[i], side="left")
            inside = task[a:b]
            part = np.minimum(graph.end_ns[inside], end[i]) - np.maximum(
                graph.start_ns[inside], begin[i]
            )
            over[a:b] += np.maximum(part, 0) * (1 - keep[i])
    less = np.minimum(np.rint(over).astype(np.int64), dur[task])
    dur[task] -= less
    return int(less.sum())


POLICY = Policy(
    name="isolate-storage",
    summary="storage off the collectives' traffic class, or staged on the hosts' own drives",
    source="Sharing a Fabric; DYAD",
    params=(
        Param(
            "what",
            str,
            "isolate",
            "",
            "isolate: storage in a class of its own; stage: on the hosts",
            ("isolate", "stage"),
        ),
        Param("factor", float, None, "x", "that collectives take beside storage (default: fitted)"),
        Param(
            "flows",
            integers,
            (),
            "",
            "that share a link, of storage and of collectives, in place of factor (8+8: twice)",
        ),
        Param(
            "buffer",
            size_bytes,
            0,
            "bytes",
            "of others' that a message stood behind, with factor or flows (72MB of a deep switch)",
        ),
        Param(
            "guarantee", float, 1.0, "", "share of a link that the collectives' class is sure of"
        ),
        Param(
            "bandwidth",
            bandwidth_bytes_per_s,
            None,
            "bytes/s",
            "of a host's drives, with stage (default: the fabric's)",
        ),
        Param("read", size_bytes, 0, "bytes", "that a load reads, with stage"),
        Param(
            "depth",
            int,
            0,
            "steps",
            "that a batch is read ahead, with stage: what of the read they do not hide stalls",
        ),
    ),
    assumptions=ASSUMPTIONS,
    apply=apply,
    stage=Stage.LINKS,
    needs=(
        "storage traffic (transfers of class storage, from client or NIC counters)",
        "data loading in the trace, for stage",
    ),
    valid="links shared max-min fairly; 145x of small operations is reported, which is queueing "
    "behind full buffers (buffer) and not in the factor",
    checked=(
        "compute 400 ms, depth 1, reads of 100, 100, 900, 100 ms: stalls 0, 0, 500, 0; 8 storage "
        "beside 8 collective flows: 20 ms become 40, isolated 20 and the stall stays (arithmetic)"
    ),
)
