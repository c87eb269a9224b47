"""SMs that collectives held as recorded, and those that they are to hold."""

from __future__ import annotations

from dataclasses import replace
from typing import NamedTuple

import numpy as np
import polars as pl

from .. import models
from ..calibration import hockney, machines
from ..calibration.calibrate import ranks_of
from ..graph import Kind
from ..overlapped import kernel_facts
from ..policy import BadParam, ReplayJob
from ..retiming.places import Places
from . import sm_need

REDUCTIONS = ("all_reduce", "reduce_scatter", "reduce")

MOST_OF_MEMORY = 0.9
"""Of its bandwidth, that communication is taken to use at most: beyond it a size is misread."""


class Budget(NamedTuple):
    """What a policy gives to communication."""

    engine: str
    """sm, tma, copy, or recorded."""
    sms: int
    """For each collective; 0: what its bandwidth needs."""
    together: bool
    """One number for all: the largest need."""
    rate_bytes_per_s: float | None
    """That an SM moves; None: the engine's."""
    experts: int
    topk: int
    total: int
    """SMs of a device."""


def held(job: ReplayJob, rows: pl.DataFrame, recorded: int) -> np.ndarray:
    """float64 [k]: SMs that each collective held: its grid, else its channels, else as given."""
    graph = job.facts.get("measured", job.graph)
    if recorded:
        return np.full(len(rows), float(recorded))
    blocks = kernel_facts.of(replace(job, graph=graph)).blocks
    task = np.flatnonzero((graph.kind == Kind.TRANSFER) & (blocks > 0))
    grid = np.zeros(int(graph.collective.max(initial=-1)) + 2)
    np.maximum.at(grid, graph.collective[task], blocks[task])
    table = job.table("collectives").select("event_id", "channels").drop_nulls()
    if len(table):
        ids, first = np.unique(table["event_id"].to_numpy(), return_index=True)
        channels = table["channels"].to_numpy()[first]
        task = np.flatnonzero(graph.kind == Kind.TRANSFER)
        event = graph.extra["event_id"][task]
        at = np.minimum(np.searchsorted(ids, event), len(ids) - 1)
        task, many = task[ids[at] == event], channels[at][ids[at] == event]
        task, many = (x[grid[graph.collective[task]] == 0] for x in (task, many))
        np.maximum.at(grid, graph.collective[task], many)
    return grid[rows["collective"].to_numpy()]


def bandwidth(rows: pl.DataFrame) -> np.ndarray:
    """bytes/s that each rank sent during the transfer; 0 where no form says what it sends."""
    out = np.zeros(len(rows))
    for i, (op, algo, n, size, took) in enumerate(
        rows.select("op", "algo", "n", "bytes", "transfer_ns").iter_rows()
    ):
        algo = hockney.usual(op) if algo == "?" else models.recorded(algo)
        try:
            volume = hockney.coefficients(op, algo, n)[1] if n > 1 else 0.0
        except models.NoModel:
            continue
        out[i] = volume * size * 1e9 / max(took, 1.0)
    return out


def budget(
    job: ReplayJob, rows: pl.DataFrame, given: Budget
) -> tuple[ReplayJob, np.ndarray, np.ndarray]:
    """The job with notes; SMs of each collective afterwards; how much longer its transfer takes.

    `rows` are those of `transfers.chosen` with `held` and `bandwidth` (bytes/s).
    """
    was = rows["held"].to_numpy()
    if given.engine == "recorded" and not given.sms:
        return job, was, np.ones(len(rows))
    if given.engine == "copy":
        return _copied(job, rows, was)
    machine, _ = machines.of(job)
    need, said = was, "SMs move as many bytes a second each as was recorded"
    if given.engine != "recorded":
        rate = given.rate_bytes_per_s or sm_need.WRITE_BYTES_PER_S
        if given.engine == "tma" and not given.rate_bytes_per_s:
            rate = sm_need.tma_rate(given.total, machine.intra_bytes_per_s)
        need = rows["bandwidth"].to_numpy() / rate
        by = "given" if given.rate_bytes_per_s else given.engine
        said = f"an SM moves {rate / 1e9:.3g} GB/s ({by})"
    wanted = sm_need.need(need, 1.0, sm_need.DEEPEP_LEAST)
    if given.experts:
        wanted = _of_experts(job, rows, wanted, given, machine)
    if given.together:
        wanted = np.full(len(rows), wanted.max())
    now = np.minimum(wanted, was)
    if given.sms:
        # Those that held fewer than the most are small: more would not speed them up.
        now = np.where(was == was.max(), float(given.sms), np.minimum(was, given.sms))
    ratio = np.maximum(1.0, need / now)
    if given.experts and not given.sms:
        ratio = np.where((rows["op"] == "all_to_all").to_numpy(), 1.0, ratio)
    return job.note(assumptions=(said,)), now, ratio


def memory_relief(
    job: ReplayJob, rows: pl.DataFrame, ratio: np.ndarray
) -> tuple[np.ndarray, tuple[str, ...]]:
    """What waits for memory takes beside each collective that lasts `ratio` times as long, [k].

    Over what it took: `sm_need.hbm_slowdown` new over old; and what to say. Bytes sent are read,
    as many are written, and reductions read what they add to (counted, not measured). 1 where
    the device is not known.
    """
    machine = machines.device(job)
    if machine is None:
        return np.ones(len(rows)), ()
    passes = np.where(rows["op"].is_in(REDUCTIONS).to_numpy(), 3, 2)
    moved = np.minimum(
        passes * rows["bandwidth"].to_numpy(), MOST_OF_MEMORY * machine.hbm_bytes_per_s
    )
    was, now = (sm_need.hbm_slowdown(moved / by, machine.hbm_bytes_per_s) for by in (1.0, ratio))
    return now / was, (
        f"communication took {100 * moved.mean() / machine.hbm_bytes_per_s:.3g} % of the memory's "
        f"{machine.hbm_bytes_per_s / 1e12:.3g} TB/s ({machine.name}; mean of the collectives), now "
        f"{100 * (moved / ratio).mean() / machine.hbm_bytes_per_s:.3g} %",
    )


def _copied(job, rows, was):
    """By copy engines: no SMs, but nothing that is added up, and full speed with large ones."""
    adds = rows["op"].is_in(REDUCTIONS).to_numpy()
    warned = []
    if adds.any():
        warned.append(
            f"{int(adds.sum())} reductions stay on SMs: copy engines cannot add up what they move"
        )
    small = ~adds & (rows["bytes"].to_numpy() < sm_need.COPY_ENGINE_BYTES)
    if small.any():
        warned.append(
            f"{int(small.sum())} collectives are under 256 MiB (or of no known size): copy engines "
            "come near link speed with such pieces only, and their times are left as measured"
        )
    return job.note(warnings=tuple(warned)), np.where(adds, was, 0.0), np.ones(len(rows))


def _of_experts(job, rows, wanted, given, machine):
    """All-to-alls by DeepEP's own estimate."""
    out = wanted.copy()
    for i, (op, comm) in enumerate(rows.select("op", "comm").iter_rows()):
        if op != "all_to_all":
            continue
        ranks = ranks_of(job, comm)
        local = Places.of(job).per_host(ranks) or len(ranks)
        try:
            out[i] = sm_need.deepep(
                given.experts, given.topk, local, len(ranks) // local,
                machine.nic_bytes_per_s, machine.intra_bytes_per_s,
            )  # fmt: skip
        except ValueError as e:
            raise BadParam(f"policy sm-budget: experts={given.experts}: {e}") from e
    return out
