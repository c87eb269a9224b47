"""Alpha and bandwidth from elsewhere than a job's collectives: benchmark, fabric, device name."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
import polars as pl

from .. import models
from ..policy import ReplayJob
from . import fits, machines, messages
from .hockney import Fit, NoFit, fit, usual

if TYPE_CHECKING:
    from ..fabric import Fabric, LinkClass

Found = tuple[float, float, str]
"""alpha (ns), bandwidth (bytes/s, a rank's, one direction), and what it rests on."""

CONTRADICTED = 3.0
"""An assumed bandwidth of so many times what was reached is none of these links."""


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
    out = []
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
            out.append(fit(shaped, usual(str(op)) if algo is None else models.recorded(algo)))
        except (NoFit, models.NoModel):
            continue
    return sorted(out, key=lambda f: (f.op, f.n, f.algo))


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


def ports(job: ReplayJob) -> Found:
    """What a GPU sends out of its host and within it, bytes/s each, one direction, as reached.

    (NIC, link in the host, what they rest on): the job's fabric, a NIC shared by the GPUs that it
    serves, and where hosts of one GPU have no links inside, its NIC for both. What the fabric
    lacks, or all without one: the default machine's, or what the job's collectives reached at most
    where that is less than a third of it.
    """
    there = job.facts.get("fabric")
    nic = inside = None
    if there is not None:
        if there.nic is not None:
            served = max(1, -(-there.gpus_per_host // there.rails))
            nic = there.rail_bytes_per_s * there.nic.link.efficiency / served
        within = inside_of(there)
        inside = nic if within is None else within.usable_bytes_per_s
    if there is not None and nic is not None and inside is not None:
        return nic, inside, f"fabric {there.name}"
    found, words = machines.of(job)
    said = [words] if there is None else [f"fabric {there.name}", words]
    if nic is None:
        nic, seen = _reached(job, "inter host", found.nic_bytes_per_s)
        said += [seen] if seen else []
    if inside is None:
        inside, seen = _reached(job, "intra host", found.intra_bytes_per_s)
        said += [seen] if seen else []
    return nic, inside, "; ".join(said)


def nic_bytes_per_s(job: ReplayJob) -> float:
    """What one NIC of a host carries, one direction, as reached: the fabric's, else by device."""
    there = job.facts.get("fabric")
    if there is not None and there.nic is not None:
        return there.nic.link.usable_bytes_per_s
    return machines.of(job)[0].nic_bytes_per_s


def inside_of(fabric: Fabric) -> LinkClass | None:
    """The link by which GPUs of a host reach each other; None where a fabric has none."""
    within = fabric.scale_up or fabric.package or fabric.pcie
    return None if within is None else within.link


def _reached(job: ReplayJob, level: str, assumed: float) -> tuple[float, str]:
    """The bandwidth assumed of a level, or what was reached where that is less than a third of it.

    And what to say then. Fits that tell alpha from bandwidth count, of any operation.
    """
    known = fits.of(job)
    rates = [
        found.bandwidth_bytes_per_s
        for comm, own in known.own.items()
        if known.level(comm).coarse == level
        for found, _ in own
        if found.separated
    ]
    if not rates or max(rates) * CONTRADICTED >= assumed:
        return assumed, ""
    said = f"but collectives there reach {max(rates) / 1e9:.3g} GB/s at most ({level}): taken"
    return max(rates), said
