"""Recorded all-to-alls with the ports they use: what the MoE policies re-time."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import NamedTuple

import numpy as np
import polars as pl

from .. import models
from ..calibration import calibrate, hockney, link_sources, messages
from ..graph import Kind
from ..policy import BadParam, ReplayJob
from ..retiming import transfers
from ..retiming.places import Places
from . import demand, early, params, rails, routed, waves
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
    """Of as many messages as its algorithm sends one after another."""
    alpha_ns: float = 0.0
    """Of one message."""
    inside_ns: float = 0.0
    """Of one message within a host: what a phase of forwarding costs beside its bytes."""
    early_ns: float = 0.0
    """Of the busiest port, moved before the last member was there (`early`)."""
    took_ns: float = 0.0
    """From the last arrival until the last member was done."""

    @property
    def aligned_ns(self) -> float:
        """What it would have taken, had all members come at once."""
        return self.took_ns + self.early_ns

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
    was: early.Arrived | None = None
    """Arrivals as they are before the policy; None where there are no exchanges."""


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
    `alpha` (ns a message) to the communicator's link (`calibrate.link`). An exchange has as many
    messages one after another as the form of its algorithm, as in the fit of that link: one where
    all are sent at once, n - 1 where the source says nothing.
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
    places, own_inside = Places.of(job), _inside_ns(job)
    wheres: dict[bytes, Layout | None] = {}
    latency: dict[str, float] = {}
    out = []
    for one, algo in zip(found, rows["algo"], strict=True):
        key = one.members.tobytes()
        if key not in wheres:
            wheres[key] = _layout(places, one.members, local)
        if one.comm not in latency:
            if alpha is None:
                link = calibrate.link(job, one.comm, "all_to_all")
                said.append(f"latency of a message on {one.comm}, {link.words}")
                latency[one.comm] = link.alpha_ns
                told = link_sources.fabric(job, one.members)
                if link.alpha_from == "assumed" and told is not None and told[0] > 0:
                    latency[one.comm] = told[0]
                    said.append(f"its sizes do not tell the latency: that of {told[2]}")
            else:
                latency[one.comm] = alpha
        each = latency[one.comm]
        inside = min(each, own_inside)
        messages_ns = each * _messages(algo, len(one.members))
        out.append(Exchange(one, wheres[key], messages_ns, each, inside))
    if local is not None:
        if any(places.host(d.members).min(initial=0) < 0 for d in found):
            said.append(f"hosts are not known: {local} ranks after one another taken to be one")
        else:
            job = job.note(warnings=(f"local={local} is not used: the job knows its hosts",))
    out, was = _early(job, out, speeds)
    return Found(job.note(assumptions=tuple(said)), rows, out, speeds, routing, was)


def _messages(algo: str, n: int) -> float:
    """Messages that a member sends one after another, as `calibrate` counts them."""
    name = hockney.usual("all_to_all") if algo == "?" else models.recorded(algo)
    try:
        return hockney.coefficients("all_to_all", name, n)[0]
    except models.NoModel:
        return float(n - 1)


def _inside_ns(job: ReplayJob) -> float:
    """A message within a host, by the fabric, else the machine."""
    fabric = job.facts.get("fabric")
    said = messages.inside_ns(fabric) if fabric is not None else 0.0
    return said or link_sources.machine(job, "intra host")[0]


def _early(
    job: ReplayJob, found: list[Exchange], speeds: Speeds
) -> tuple[list[Exchange], early.Arrived]:
    """The exchanges with what they took and what moved before, and their arrivals."""
    at = np.array([one.demand.collective for one in found], np.int64)
    was = early.arrived(job.graph, at)
    measured = job.facts.get("measured", job.graph)
    before = was.took_ns if measured is job.graph else early.arrived(measured, at).took_ns
    # A policy that made links faster made its need less: as it did the time.
    altered = np.divide(was.took_ns, before, out=np.ones(len(found)), where=before > 0)
    made = np.array([one.demand.source == "policies" for one in found])
    need = np.array([one.ports_ns(speeds) for one in found]) * np.where(made, 1.0, altered)
    moved = early.early_ns(was, need)
    out = [
        one._replace(took_ns=float(took), early_ns=float(ns))
        for one, took, ns in zip(found, was.took_ns, moved, strict=True)
    ]
    return out, was


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
    done: Sequence[np.ndarray | None] = (),
) -> ReplayJob:
    """The job with each exchange's transfers times new / old; those of old 0 are left.

    What moved before the last arrival (`Exchange.early_ns`) comes on top, by new / old, as far as
    members then wait less for the last: times and arrivals follow each other for a few rounds.
    `added_ns` (float64 [k]) is added as it is. `done`, one an exchange, says when each member is
    done as a share of the last one's time (float64 [n]); None: members stay apart as they were.

    `matrices`, one an exchange, are who sends how much to whom from here on (None: as before):
    policies that come after start from them, as `facts["exchanged"]`.
    """
    old, new = np.asarray(old_ns, np.float64), np.asarray(new_ns, np.float64)
    ratio = np.divide(new, old, out=np.ones(len(old)), where=old > 0)
    more = np.zeros(len(old)) if added_ns is None else np.asarray(added_ns, np.float64)
    moved = np.array([one.early_ns for one in found.exchanges]) * ratio

    changed = (ratio != 1) | (more != 0)
    took = np.array([one.took_ns for one in found.exchanges]) * ratio

    def at(share: np.ndarray) -> ReplayJob:
        back = moved * (1 - share)
        job = transfers.scaled(
            found.job, found.rows, ratio, bytes_ratio=bytes_ratio, added_ns=more + back
        )
        return _done(found, job, np.where(changed, took + back, np.nan), more, done)

    share = np.ones(len(old))
    job = at(share)
    if found.was is not None and moved.any() and changed.any():
        collectives = np.array([one.demand.collective for one in found.exchanges], np.int64)
        for _ in range(early.ROUNDS):
            share = early.share(found.was, early.arrived(job.graph, collectives))
            job = at(share)
        back = moved * (1 - share)
        said = (
            f"{(moved > 0).sum()} of {len(old)} all-to-alls take less after their last arrival "
            "than their busiest port needs, so part of them passed before, with members that were "
            f"there: {back.sum() / 1e6:.4g} ms of it come back, as members wait less for the last"
        )
        job = job.note(assumptions=(said,))
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


def _done(
    found: Found,
    job: ReplayJob,
    took_ns: np.ndarray,
    more_ns: np.ndarray,
    done: Sequence[np.ndarray | None],
) -> ReplayJob:
    """The job whose members are done at shares of `took_ns`, then `more_ns` later (NaN: left)."""
    last: dict[tuple[int, int], float] = {}
    for i, (one, shares) in enumerate(zip(found.exchanges, done, strict=False)):
        if shares is not None and took_ns[i] > 0:
            for rank, share in zip(one.demand.members.tolist(), shares.tolist(), strict=True):
                last[one.demand.collective, rank] = took_ns[i] * share + more_ns[i]
    if not last:
        return job
    graph = job.graph
    task = np.flatnonzero(graph.kind == Kind.TRANSFER)
    dur = graph.dur_ns.astype(np.float64)
    for k, c, rank in zip(
        task, graph.collective[task].tolist(), graph.rank[task].tolist(), strict=True
    ):
        dur[k] = last.get((c, rank), dur[k])
    return job.with_graph(dur_ns=transfers.whole_ns(dur))


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
