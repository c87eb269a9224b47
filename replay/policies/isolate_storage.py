"""Storage off the collectives' links, or staged on the hosts: two terms, removed separately.

isolate: collectives that shared their links with storage lose that factor, and stalls of the loader
stay. stage: batches come from the host's own drives, so that the traffic is off the network and a
load takes bytes / B_nv. The factor is fitted to the job (the same collectives with and without
storage beside them), or given.
"""

from __future__ import annotations

import numpy as np
import polars as pl

from .. import storage, transfers
from ..graph import NULL, Kind, TaskGraph
from ..job_clock import on_job_clock
from ..places import Places
from ..policy import BadParam, Param, Policy, ReplayJob, Stage
from ..quantities import bandwidth_bytes_per_s, size_bytes

NEUTRAL = {"what": "isolate", "factor": 1.0}

LEAST_BESIDE = 0.5
"""Share of its transfer from which a collective counts as one beside storage."""

ASSUMPTIONS = (
    "storage that is off the collectives' links is as fast as before",
    "a collective's bytes go over the links that storage of its ranks' hosts loads",
)


def apply(
    job: ReplayJob,
    *,
    what: str,
    factor: float | None,
    guarantee: float,
    bandwidth: float | None,
    read: int,
) -> ReplayJob:
    """The job without the cost of sharing links with storage, or of reading from afar."""
    if factor is not None and not factor >= 1:
        raise BadParam(
            f"policy isolate-storage: factor={factor:g}: collectives take 1 or more times as long "
            "beside storage"
        )
    if not 0 < guarantee <= 1:
        raise BadParam(f"policy isolate-storage: guarantee={guarantee:g}: a share above 0, up to 1")
    if what == "stage" and bandwidth is None:
        raise BadParam(
            "policy isolate-storage: what=stage needs the drives' bandwidth (3 to 7GB/s each)"
        )
    job = _isolated(job, factor, 1.0 if what == "stage" else guarantee)
    if what == "stage" and bandwidth is not None:
        job = _staged(job, bandwidth, read)
    return job.note(assumptions=ASSUMPTIONS)


def _isolated(job: ReplayJob, given: float | None, guarantee: float) -> ReplayJob:
    traffic = _traffic(job)
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
    times = _fitted(rows, share) if given is None else np.full(len(rows), given)
    known = np.isfinite(times)
    left = np.minimum(times, 1.0 / guarantee)
    with np.errstate(invalid="ignore"):
        ratio = np.where(known & (share > 0), 1 - share + share * left / times, 1.0)
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
        notes = (
            f"{len(seen)} of {len(rows)} collectives ran beside storage, {np.median(seen):.3g} "
            f"times as long ({origin})",
        )
    return transfers.scaled(job, rows, ratio).note(assumptions=notes, warnings=said)


def _fitted(rows: pl.DataFrame, share: np.ndarray) -> np.ndarray:
    """float64 [k]: how many times longer beside storage its like take; NaN where none compare."""
    frame = rows.select("comm", "op", "bytes", "transfer_ns").with_columns(share=pl.Series(share))
    beside = pl.col("transfer_ns").filter(pl.col("share") >= LEAST_BESIDE).median()
    alone = pl.col("transfer_ns").filter(pl.col("share") == 0).median()
    by = ("comm", "op", "bytes")
    times = frame.select((beside / alone).over(by).alias("times"))["times"]
    # Not slower beside storage: it did not share a link.
    return np.maximum(times.cast(pl.Float64).fill_null(np.nan).to_numpy(), 1.0)


def _traffic(job: ReplayJob) -> dict[int, tuple[np.ndarray, np.ndarray]]:
    """Host code (-1: unknown) -> disjoint intervals of storage traffic on the job's clock, ns."""
    rows = job.table("transfers")
    ranks = job.facts.get("ranks")
    if not len(rows) or ranks is None:
        return {}
    rows = rows.filter(
        (pl.col("traffic_class").cast(pl.String) == "storage")
        & (pl.col("end_ns") >= pl.col("start_ns"))
    )
    if not len(rows):
        return {}
    places = Places.of(job)
    code = {name: i for i, name in enumerate(places.names)}
    first = {int(h): int(np.flatnonzero(places.host_of == h)[0]) for h in set(code.values())}
    host = np.array([code.get(h, -1) for h in rows["host"].cast(pl.String)])
    rank = rows["rank"].cast(pl.Int64).fill_null(-1).to_numpy()
    host = np.where(host < 0, places.host(rank), host)
    rank = np.where(rank < 0, [first.get(int(h), 0) for h in host], rank)
    placed = on_job_clock(
        rows.select("start_ns", "end_ns").with_columns(rank=pl.Series(rank)).with_columns(
            pl.col("rank").cast(ranks.schema["rank"])
        ),
        ranks, "start_ns", "end_ns",
    )  # fmt: skip
    start, end = placed["start_ns"].to_numpy(), placed["end_ns"].to_numpy()
    return {int(h): storage.union(start[host == h], end[host == h]) for h in np.unique(host)}


def _staged(job: ReplayJob, bandwidth: float, read: int) -> ReplayJob:
    """The job whose loads take bytes / bandwidth, where that is shorter than what was measured."""
    events = job.table("events")
    loads = events.filter(storage.is_data_loading()) if len(events) else events
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
    ranks = job.facts["ranks"]
    loads = loads.with_columns(end_ns=pl.col("start_ns") + pl.col("dur_ns").clip(0))
    loads = on_job_clock(loads.select("rank", "start_ns", "end_ns"), ranks, "start_ns", "end_ns")
    least = read * 1e9 / bandwidth
    gap, dur = graph.gap_ns.copy(), graph.dur_ns.copy()
    saved = 0
    for (rank,), of_rank in loads.group_by("rank", maintain_order=True):
        intervals = storage.union(of_rank["start_ns"].to_numpy(), of_rank["end_ns"].to_numpy())
        saved += _shorten(graph, int(str(rank)), intervals, least, gap, dur)
    notes = (
        f"a load reads {read / 1e6:.4g} MB, in {least / 1e6:.4g} ms from the hosts' drives; the "
        "data set is staged before the job, which is not counted",
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
            "guarantee", float, 1.0, "", "share of a link that the collectives' class is sure of"
        ),
        Param(
            "bandwidth", bandwidth_bytes_per_s, None, "bytes/s", "of a host's drives, with stage"
        ),
        Param("read", size_bytes, 0, "bytes", "that a load reads, with stage"),
    ),
    assumptions=ASSUMPTIONS,
    apply=apply,
    stage=Stage.LINKS,
    needs=(
        "storage traffic (transfers of class storage, from client or NIC counters)",
        "data loading in the trace, for stage",
    ),
    valid="links shared max-min fairly; 145x of small operations is reported, which is queueing "
    "behind full buffers and not in the factor",
    checked=(
        "compute 400 ms, depth 1, reads of 100, 100, 900, 100 ms: stalls 0, 0, 500, 0; 8 storage "
        "beside 8 collective flows: 20 ms become 40, isolated 20 and the stall stays (arithmetic)"
    ),
)
