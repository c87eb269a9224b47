"""Alpha and bandwidth from elsewhere than a job's collectives: benchmark, fabric, device name."""

from __future__ import annotations

import numpy as np
import polars as pl

from .. import models
from ..policy import ReplayJob
from . import machines, messages
from .hockney import Fit, NoFit, fit, usual

Found = tuple[float, float, str]
"""alpha (ns), bandwidth (bytes/s, a rank's, one direction), and what it rests on."""


def curve(job: ReplayJob, op: str, n: int) -> Fit | None:
    """The line of the job's benchmark (`cost_curves`) of an operation, of n ranks if there is one.

    Else of the number of ranks nearest to n, where that is known; None where no run of the
    operation gives a line.
    """
    return min(
        (f for f in curves(job) if f.op == op),
        key=lambda f: (abs(np.log(f.n / max(n, 2))), -f.instances, f.algo),
        default=None,
    )


def curves(job: ReplayJob) -> list[Fit]:
    """The lines of the job's benchmarks, one an operation, number of ranks and algorithm.

    Where a run tells in place from out of place, both count. Kept with the measured graph.
    """
    graph, tables = job.facts.get("measured", job.graph), job.facts.get("tables")
    known = graph.__dict__.get("_curves")
    if known is None or known[0] is not tables:
        known = graph.__dict__["_curves"] = (tables, _curves(job))
    return known[1]


def _curves(job: ReplayJob) -> list[Fit]:
    rows = job.table("cost_curves")
    if not len(rows):
        return []
    rows = rows.filter((pl.col("bytes") > 0) & (pl.col("time_ns") > 0) & (pl.col("n_ranks") > 1))
    rows = rows.filter(pl.col("op").is_not_null()).with_columns(pl.col("op").cast(pl.String))
    fits = []
    for (op, _, _), run in rows.group_by("op", "n_ranks", "algo", maintain_order=True):
        shaped = run.select(
            "bytes",
            "op",
            comm=pl.lit("a benchmark"),
            n=pl.col("n_ranks").cast(pl.Int64),
            transfer_ns=pl.col("time_ns").cast(pl.Float64),
        )
        algo = run["algo"].cast(pl.String)[0]
        try:
            fits.append(fit(shaped, usual(str(op)) if algo is None else models.recorded(algo)))
        except (NoFit, models.NoModel):
            continue
    return sorted(fits, key=lambda f: (f.op, f.n, f.algo))


def fabric(job: ReplayJob, ranks: np.ndarray) -> Found | None:
    """The slowest link between neighbours of a communicator on the job's fabric; None without.

    Between hosts a rank's NIC: all ranks of a host send at once, as in `link_demand`.
    """
    there = job.facts.get("fabric")
    if there is None or len(ranks) < 2:
        return None
    from ..fabric import route
    from ..retiming import seats

    gpu, why = seats.gpus(job, there)
    if why:
        return None
    wires, each = seats.wires(there), there.gpus_per_host
    follower = np.roll(ranks, -1)
    if len(np.unique(gpu[ranks] // each)) > 1:
        ranks = ranks[np.lexsort((gpu[ranks], gpu[ranks] % each))]
        follower = np.roll(ranks, -1)
        apart = gpu[ranks] // each != gpu[follower] // each
        ranks, follower = ranks[apart], follower[apart]
    routes = route(wires, gpu[ranks], gpu[follower])
    alpha = float(messages.alphas_ns(wires, routes).max())
    bandwidth = float(routes.capacity_bytes_per_s(wires).min())
    if not np.isfinite(bandwidth) or bandwidth <= 0:
        return None
    said = f"fabric {there.name}: {alpha / 1e3:.3g} us and {bandwidth / 1e9:.3g} GB/s"
    return alpha, bandwidth, said


def machine(job: ReplayJob, level: str) -> Found:
    """The default machine's link at a level; between hosts where the level is not known."""
    found, words = machines.of(job)
    if level == "intra host":
        alpha, bandwidth, link = machines.INTRA_ALPHA_NS, found.intra_bytes_per_s, "within a host"
    else:
        alpha, bandwidth, link = machines.INTER_ALPHA_NS, found.nic_bytes_per_s, "between hosts"
    if found is machines.HOST:
        alpha = machines.SOCKET_ALPHA_NS
    said = f"assumed: {alpha / 1e3:.3g} us and {bandwidth / 1e9:.3g} GB/s {link} ({words})"
    return alpha, bandwidth, said


def ports(job: ReplayJob) -> tuple[float, float, str]:
    """What a GPU sends out of its host and within it, bytes/s each, one direction, as reached.

    (NIC, link in the host, what they rest on): the job's fabric where it has both, a NIC shared by
    the GPUs that it serves; else the default machine's.
    """
    there = job.facts.get("fabric")
    if there is not None and there.nic is not None:
        inside = there.scale_up or there.pcie
        served = max(1, -(-there.gpus_per_host // there.rails))
        nic = there.rail_bytes_per_s * there.nic.link.efficiency / served
        if inside is not None:
            return nic, inside.link.usable_bytes_per_s, f"fabric {there.name}"
    found, words = machines.of(job)
    return found.nic_bytes_per_s, found.intra_bytes_per_s, words
