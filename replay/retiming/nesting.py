"""The levels of a communicator: which ranks meet first, and over which links."""

from __future__ import annotations

import math
from typing import NamedTuple

import numpy as np

from ..calibration import calibrate
from ..models.hierarchical import Level
from ..policy import BadParam, ReplayJob
from . import seats
from .places import Places

FABRIC = "fabric"
LARGEST = 1 << 20


class Nesting(NamedTuple):
    """Sizes of the levels of one communicator; `why` says what keeps it from having any."""

    sizes: tuple[int, ...] = ()
    """Innermost first; their product is its ranks. One size: a level of its own, nothing to do."""
    here: int = 0
    """Its ranks on each host."""
    near: int = 0
    """Ranks that scale-up links join: those of a host, or of a domain of several."""
    why: str = ""


def asked(levels: tuple[str, ...]) -> tuple[int, ...] | str:
    """The sizes that a user gave, or FABRIC; () for hosts. Raises BadParam."""
    if levels == (FABRIC,):
        return FABRIC
    try:
        sizes = tuple(int(x) for x in levels)
    except ValueError:
        sizes = (0,)
    if any(not 1 <= s <= LARGEST for s in sizes):
        raise BadParam(
            f"policy hierarchical: levels={'+'.join(levels)[:80]}: ranks of each level, innermost "
            "first (8+4+2), or fabric"
        )
    return sizes


def of(job: ReplayJob, comm: str, n: int, local: int, wanted: tuple[int, ...] | str) -> Nesting:
    """The levels of a communicator of n ranks: as wanted, else its hosts' (`local` ranks each)."""
    ranks = calibrate.ranks_of(job, comm)
    here = local or Places.of(job).per_host(ranks) or 0
    fabric = job.facts.get("fabric")
    gpu = None
    if fabric is not None and len(ranks) == n:
        gpu, unknown = seats.gpus(job, fabric)
        gpu = None if unknown else gpu[ranks]
    near = here
    if gpu is not None and fabric is not None and fabric.domain_gpus > fabric.gpus_per_host:
        near = max(here, _even(gpu // fabric.domain_gpus) or 0)
    if isinstance(wanted, str):
        if gpu is None or fabric is None:
            return Nesting(why="levels=fabric needs a fabric that holds its ranks (--fabric)")
        each = fabric.gpus_per_host
        units = [fabric.domain_gpus if fabric.scale_up is not None else each, each]
        if fabric.network is not None:
            hosts = (fabric.network.hosts_per_leaf, fabric.network.hosts_per_pod)
            units += [each * h for h in hosts if h]
        sizes = _sizes(gpu, units)
        if np.prod(sizes) != n or len(sizes) < 2:
            return Nesting(why=f"fabric {fabric.name} parts its {n} ranks into no even levels")
        return Nesting(sizes, here or each, max(near, 1))
    if wanted:
        if math.prod(wanted) != n:
            made = " x ".join(map(str, wanted))
            return Nesting(why=f"levels of {made} hold {math.prod(wanted)} ranks, it has {n}")
        sizes = tuple(s for s in wanted if s > 1)
        first = sizes[0] if sizes else 1
        return Nesting(sizes, here or first, near or first)
    why = _unfit(n, here)
    if why or here == 1:
        return Nesting((n,), here, near, why)
    return Nesting((here, n // here), here, near)


def levels(
    sizes: tuple[int, ...],
    here: int,
    near: int,
    inside: tuple[float, float],
    outside: tuple[float, float],
    nics: int,
) -> tuple[Level, ...]:
    """The nesting with its links: `inside` up to `near` ranks, then `nics` a host of `here` ranks.

    `inside` and `outside` are alpha (ns) and bandwidth (bytes/s). A group's ports are its ranks'
    part of its hosts' NICs.
    """
    below, out = 1, []
    for size in sizes:
        if below * size <= near:
            out.append(Level(size, *inside))
        else:
            out.append(Level(size, *outside, ports=max(1, nics * below // here)))
        below *= size
    return tuple(out)


def words(label: str, sizes: tuple[int, ...], near: int) -> tuple[str, ...]:
    """How a nesting of more than two levels is told."""
    if len(sizes) < 3:
        return ()
    made = " x ".join(map(str, sizes))
    return (f"{label}: levels of {made}, scale-up links up to {near} ranks",)


def _sizes(gpu: np.ndarray, units: list[int]) -> tuple[int, ...]:
    """Level sizes of ranks on such GPUs, parted by units of so many GPUs, the smallest first."""
    below, out = 1, []
    for unit in sorted(set(units)):
        held = _even(gpu // unit)
        if held is None or held % below:
            continue
        if held > below:
            out.append(held // below)
            below = held
    if len(gpu) > below and len(gpu) % below == 0:
        out.append(len(gpu) // below)
    return tuple(out)


def _even(part: np.ndarray) -> int | None:
    """Ranks of each part, where all have as many; else None."""
    counts = np.unique(part, return_counts=True)[1]
    return int(counts[0]) if len(counts) and (counts == counts[0]).all() else None


def _unfit(n: int, local: int) -> str:
    """Why a communicator has no two levels; empty where it has."""
    if not local:
        return "which ranks share a host is not known (say local, or record the hosts)"
    if n % local:
        return f"{n} ranks do not divide into hosts of {local}"
    if n == local:
        return f"its {n} ranks are on one host, there is no level above"
    return ""
