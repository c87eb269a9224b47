"""The widest part of the machine that a communicator's bytes cross: its fabric level."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
import polars as pl

from ..policy import ReplayJob
from ..retiming.places import Places

LEVELS = (
    "intra host",
    "intra domain",
    "on a rail",
    "inter host",
    "inter leaf",
    "inter pod",
    "unknown",
)
"""From the narrowest. Domains, leaves and pods are known only where the job has a fabric."""


class Level(NamedTuple):
    """Communicators of one level share links of one kind, and as many of them a rank."""

    name: str
    """One of LEVELS."""
    per_host: int
    """Ranks of it on each host (one NIC's worth each, or shared); 0: uneven, or not known."""

    @property
    def coarse(self) -> str:
        """intra host, inter host or unknown."""
        return self.name if self.name in ("intra host", "unknown") else "inter host"

    def words(self) -> str:
        """The level, and how many ranks a host where that is more than one."""
        if self.name in ("intra host", "unknown", "on a rail") or not self.per_host:
            return self.name
        return f"{self.name}, {self.per_host} a host"


UNKNOWN = Level("unknown", 0)


def levels(job: ReplayJob, members: dict[str, np.ndarray]) -> dict[str, Level]:
    """The level of each communicator, by its ranks (int64).

    Hosts and rails are those of the job's `ranks`. Where it has a fabric that holds it, domains,
    leaves, pods and rails are the fabric's. `on a rail`: one rank a host, all of one rail (of
    one local rank where rails are not known). `unknown` where the host of a rank is.
    """
    places = Places.of(job)
    rail = _rails(job)
    seat, fabric = _seats(job)
    out = {}
    for comm, ranks in members.items():
        hosts = places.hosts_of(ranks)
        per_host = places.per_host(ranks) or 0
        if not hosts:
            out[comm] = UNKNOWN
            continue
        name = "intra host"
        if hosts > 1:
            of = _at(rail, ranks)
            if (of < 0).any():
                of = places.local(ranks)
            name = "inter host"
            if seat is not None and (ranks < len(seat)).all():
                name, of = _of_fabric(fabric, seat[ranks])
            if name == "inter host" and per_host == 1 and (of == of[0]).all() and of[0] >= 0:
                name = "on a rail"
        out[comm] = Level(name, per_host)
    return out


def _of_fabric(fabric, gpus: np.ndarray) -> tuple[str, np.ndarray]:
    """The level of GPUs on more than one host, and the rail of each (-1: it has none)."""
    host = gpus // fabric.gpus_per_host
    serves = np.array(fabric.nic.serves if fabric.nic is not None else ())
    rail = serves[gpus % fabric.gpus_per_host] if len(serves) else np.full(len(gpus), -1)

    def parts(each: int, of: np.ndarray = host) -> int:
        return len(np.unique(of // each)) if each else 1

    if fabric.scale_up is not None and parts(fabric.domain_gpus, gpus) == 1:
        return "intra domain", rail
    net = fabric.network
    if net is not None and parts(net.hosts_per_pod) > 1:
        return "inter pod", rail
    if net is not None and parts(net.hosts_per_leaf) > 1:
        return "inter leaf", rail
    return "inter host", rail


def _seats(job: ReplayJob):
    """The GPU of a fabric that each rank sits on, and the fabric; None, None where it has none."""
    fabric = job.facts.get("fabric")
    if fabric is None:
        return None, None
    from ..retiming import seats

    gpus, why = seats.gpus(job, fabric)
    return (None, None) if why else (gpus, fabric)


def _rails(job: ReplayJob) -> np.ndarray:
    """int64 [r]: the rail of each rank by the job's `ranks`, -1 unknown."""
    ranks = job.facts.get("ranks")
    if ranks is None or "rail" not in ranks.columns or not len(ranks):
        return np.empty(0, np.int64)
    known = ranks.filter((pl.col("rank") >= 0) & pl.col("rail").is_not_null())
    rank = known["rank"].to_numpy().astype(np.int64)
    out = np.full(int(rank.max(initial=-1)) + 1, -1, np.int64)
    names = known["rail"].rank("dense").to_numpy().astype(np.int64)
    out[rank] = names - 1
    return out


def _at(of: np.ndarray, ranks: np.ndarray) -> np.ndarray:
    out = np.full(len(ranks), -1, np.int64)
    inside = (ranks >= 0) & (ranks < len(of))
    out[inside] = of[ranks[inside]]
    return out
