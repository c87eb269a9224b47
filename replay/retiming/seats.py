"""Which GPU of a fabric each rank of a job sits on."""

from __future__ import annotations

from functools import lru_cache

import numpy as np

from ..fabric import Fabric, LinkGraph, graph
from ..policy import ReplayJob
from .places import Places


def gpus(job: ReplayJob, fabric: Fabric) -> tuple[np.ndarray, str]:
    """int64 [ranks]: the fabric's GPU of each rank; and, where it does not hold the job, why.

    Host by host, hosts in the order of their lowest rank, ranks by their place in the host; where
    hosts are not known, in the order of ranks.
    """
    n = n_ranks(job)
    places = Places.of(job)
    ranks = np.arange(n)
    host, local = places.host(ranks), places.local(ranks)
    if (host < 0).any() or (local < 0).any():
        seat = ranks
    else:
        first = np.full(len(places.names), n)
        np.minimum.at(first, host, ranks)
        place = np.argsort(np.argsort(first))
        if n and local.max() >= fabric.gpus_per_host:
            return ranks, (
                f"a host has {local.max() + 1} ranks, and one of fabric {fabric.name} "
                f"{fabric.gpus_per_host} GPUs"
            )
        seat = place[host] * fabric.gpus_per_host + local
    if n and seat.max() >= fabric.gpus:
        return seat, f"the job needs {seat.max() + 1} GPUs, fabric {fabric.name} has {fabric.gpus}"
    return seat, ""


def n_ranks(job: ReplayJob) -> int:
    """Ranks of a job: those seen, and those that its communicators name."""
    measured = job.facts.get("measured", job.graph)
    n = int(measured.rank.max(initial=-1)) + 1
    comms = job.facts.get("comms")
    if comms is not None and len(comms) and "ranks" in comms.columns:
        listed = comms["ranks"].explode().drop_nulls()
        n = max(n, int(listed.to_numpy().max(initial=-1)) + 1)
    return n


def wanted(job: ReplayJob, fabric: Fabric) -> int:
    """GPUs that a fabric of these hosts needs to hold a job: whole hosts, whole domains."""
    places = Places.of(job)
    hosts = max(len(places.names), -(-n_ranks(job) // fabric.gpus_per_host))
    whole = max(fabric.gpus_per_host, fabric.domain_gpus)
    return -(-hosts * fabric.gpus_per_host // whole) * whole


@lru_cache(maxsize=4)
def wires(fabric: Fabric) -> LinkGraph:
    """The link graph of a fabric, made once."""
    return graph(fabric)
