"""Recorded all-to-alls with the ports they use: what the MoE policies re-time."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import NamedTuple

import numpy as np
import polars as pl

from ..calibration import calibrate, link_sources
from ..policy import BadParam, ReplayJob
from ..retiming import transfers
from ..retiming.places import Places
from . import demand, params, rails, routed, waves
from .demand import Demand
from .rails import Layout, Speeds

AGAIN = (
    "{name}: a policy before it has placed experts already, from the same log: nothing more is "
    "changed; try each alone"
)


class Exchange(NamedTuple):
    """One all-to-all, where its members are, and what it costs before any byte moves."""

    demand: Demand
    where: Layout | None
    """None where the host of a member is not known."""
    latency_ns: float

    @property
    def hosts(self) -> int:
        """Hosts of its members; 0 where not known."""
        return 0 if self.where is None else self.where.hosts

    def parts(self, matrix: np.ndarray | None = None) -> tuple[np.ndarray, np.ndarray]:
        """Bytes between hosts and within them, float64 [n, n]; all between, where not known."""
        matrix = self.demand.matrix if matrix is None else matrix
        if self.where is None:
            return matrix, np.zeros_like(matrix)
        same = self.where.host[:, None] == self.where.host[None, :]
        return matrix * ~same, matrix * same

    def ports_ns(self, speeds: Speeds, matrix: np.ndarray | None = None) -> float:
        """Latency and the busiest port of a direct exchange: NIC between hosts, NVLink within."""
        cross, local = self.parts(matrix)
        return self.latency_ns + max(
            waves.bound_bytes(cross) * 1e9 / speeds.nic_bytes_per_s,
            waves.bound_bytes(local) * 1e9 / speeds.nvlink_bytes_per_s,
        )


class Found(NamedTuple):
    """The all-to-alls that a policy may re-time."""

    job: ReplayJob
    """With warnings about those that it may not, and assumptions about these."""
    rows: pl.DataFrame
    """Of `transfers.chosen`, one row an exchange."""
    exchanges: list[Exchange]
    speeds: Speeds
    routing: routed.Routing | None


def find(
    job: ReplayJob,
    *,
    comm: Sequence[str] = (),
    dim: Sequence[str] = (),
    local: int | None = None,
    nic: float | None = None,
    nvlink: float | None = None,
    alpha: float | None = None,
) -> Found:
    """All-to-alls of a job with demand, layout, latency and the speeds of ports.

    `local` GPUs a host are taken where hosts are not known (in the order of ranks); `nic` and
    `nvlink` (bytes/s, one direction, of one GPU) default to the fabric's, else to the machine of
    the device's name,
    `alpha` (ns a message) to the communicator's link (`calibrate.link`).
    """
    if local is not None and local < 1:
        raise BadParam(f"local={local}: a host has one GPU or more")
    job, routing = routed.of(job)
    job, rows = transfers.chosen(job, op=("all_to_all",), dim=dim, comm=comm)
    own_nic, own_nvlink, machine_words = link_sources.ports(job)
    speeds = Speeds(nic or own_nic, nvlink or own_nvlink)
    if not len(rows):
        return Found(job, rows, [], speeds, routing)
    found = demand.of(job, rows, routing)
    said = [demand.words(found)]
    if routing is not None and any(d.source == "routing" for d in found):
        said.append(routing.words)
        told = sum(d.layer is not None for d in found if d.source == "routing")
        if told < sum(d.source == "routing" for d in found):
            said.append("routing's layers could not be told apart in the steps: summed over them")
    if nic is None or nvlink is None:
        said.append(
            f"a GPU's NIC carries {speeds.nic_bytes_per_s / 1e9:.4g} GB/s, its links in the host "
            f"{speeds.nvlink_bytes_per_s / 1e9:.4g} GB/s each way ({machine_words})"
        )
    places = Places.of(job)
    wheres: dict[bytes, Layout | None] = {}
    latency: dict[str, float] = {}
    out = []
    for one in found:
        key = one.members.tobytes()
        if key not in wheres:
            wheres[key] = _layout(places, one.members, local)
        if one.comm not in latency:
            if alpha is None:
                link = calibrate.link(job, one.comm, "all_to_all")
                said.append(f"latency of a message on {one.comm}, {link.words}")
                latency[one.comm] = link.alpha_ns
            else:
                latency[one.comm] = alpha
        n = len(one.members)
        out.append(Exchange(one, wheres[key], latency[one.comm] * (n - 1)))
    if local is not None:
        if any(places.host(d.members).min(initial=0) < 0 for d in found):
            said.append(f"hosts are not known: {local} ranks after one another taken to be one")
        else:
            job = job.note(warnings=(f"local={local} is not used: the job knows its hosts",))
    return Found(job.note(assumptions=tuple(said)), rows, out, speeds, routing)


def _layout(places: Places, members: np.ndarray, local: int | None) -> Layout | None:
    host, place = places.host(members), places.local(members)
    if (host < 0).any() or (place < 0).any():
        if not local:
            return None
        host, place = members // local, members % local
    return rails.layout(host, place)


def lacking(found: Found, *, hosts: bool = True) -> tuple[str, ...]:
    """What is guessed of the exchanges for want of a record, and what to record; () for nothing."""
    even = sum(one.demand.source == "uniform" for one in found.exchanges)
    nowhere = sum(one.where is None for one in found.exchanges) if hosts else 0
    said = []
    if even:
        said.append(
            f"{even} of {len(found.exchanges)} all-to-alls are taken to be even: {params.RECORD}"
        )
    if nowhere:
        said.append(
            f"the hosts of {nowhere} of {len(found.exchanges)} all-to-alls are not known, all of it"
            " is taken to go over NICs: record host names, or give local=GPUs a host"
        )
    return tuple(said)


def retimed(
    found: Found,
    old_ns: np.ndarray,
    new_ns: np.ndarray,
    *,
    bytes_ratio: np.ndarray | None = None,
    added_ns: np.ndarray | None = None,
    matrices: Sequence[np.ndarray | None] = (),
) -> ReplayJob:
    """The job with each exchange's transfers times new / old; those of old 0 are left.

    `matrices`, one an exchange, are who sends how much to whom from here on (None: as before):
    policies that come after start from them, as `facts["exchanged"]`.
    """
    old, new = np.asarray(old_ns, np.float64), np.asarray(new_ns, np.float64)
    ratio = np.divide(new, old, out=np.ones(len(old)), where=old > 0)
    job = transfers.scaled(found.job, found.rows, ratio, bytes_ratio=bytes_ratio, added_ns=added_ns)
    made = {
        one.demand.collective: matrix
        for one, matrix in zip(found.exchanges, matrices, strict=False)
        if matrix is not None
    }
    if not made:
        return job
    return replace(
        job, facts={**job.facts, "exchanged": {**job.facts.get("exchanged", {}), **made}}
    )


def dims(job: ReplayJob, first: str, never: str) -> tuple[str, ...]:
    """Dimensions of the all-to-alls that are meant: `first` where there are any, else not `never`.

    () where the job has no other, so that what is chosen is all.
    """
    rows = transfers.described(job).filter(pl.col("op") == "all_to_all")
    have = set(rows["dim"].to_list())
    return (first,) if first in have else tuple(sorted(have - {never}))


def busiest(pairs: Sequence[tuple[np.ndarray, np.ndarray]]) -> tuple[float, float]:
    """Max over mean of ports out and in, over exchanges: sum of busiest over sum of means.

    `pairs` holds each exchange's bytes out and in by port; exchanges weigh by their bytes. 1 where
    nothing moves.
    """

    def ratio(ports: list[np.ndarray]) -> float:
        mean = sum(float(np.mean(p)) for p in ports)
        return sum(float(np.max(p)) for p in ports) / mean if mean > 0 else 1.0

    return ratio([out for out, _ in pairs]), ratio([into for _, into in pairs])


def sides(matrix: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Bytes out of and into each member, what stays at home left out."""
    off = np.array(matrix, np.float64)
    np.fill_diagonal(off, 0.0)
    return off.sum(axis=1), off.sum(axis=0)
