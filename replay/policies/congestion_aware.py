"""The pattern of a collective rewritten round a loaded link: another order, a tree, a second path.

What was recorded ran under the load. Candidates are the pattern as it was, a ring in another order,
a tree, and the bytes split over a second path; the fastest is taken, and the pattern as it was
where none is faster: never worse, and without load no change.
"""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from .. import models
from ..calibration.hockney import coefficients
from ..costs.rerouting import best_ring, ring_edges, slowest, split, split_ns, tree_edges
from ..fabric import links, paths
from ..policy import BadParam, Param, Policy, ReplayJob, Stage, words
from ..quantities import bandwidth_bytes_per_s
from ..retiming import by_group, seats, transfers

NEUTRAL = {"load": 0.0, "between": ("0-1",)}

ASSUMPTIONS = (
    "the load was there when the job was recorded, and stays as it is",
    "pairs of ranks whose link is loaded differ; edges of a pattern do not share other links",
)


def apply(
    job: ReplayJob,
    *,
    load: float,
    between: tuple[str, ...],
    spare: float | None,
    op: tuple[str, ...] = (),
    dim: tuple[str, ...] = (),
    comm: tuple[str, ...] = (),
) -> ReplayJob:
    """The job with patterns that keep off the loaded links."""
    if not 0 <= load < 1:
        raise BadParam(f"policy congestion-aware: load={load:g}: a share from 0 to under 1")
    pairs = [_pair(text) for text in between]
    fabric = job.facts.get("fabric")
    loaded = fabric is not None and bool(fabric.background)
    if not pairs and not loaded:
        return job.note(
            warnings=(
                "congestion-aware: which link is loaded is not known: give between=0-1 (ranks) and "
                "load, or a --fabric whose background says it; link counters of a switch tell",
            )
        )
    job, rows = transfers.chosen(job, op=op, dim=dim, comm=comm)
    if not len(rows):
        return job
    gpu, why = np.empty(0, np.int64), ""
    if fabric is not None and loaded:
        gpu, why = seats.gpus(job, fabric)
    if why:
        return job.note(warnings=(f"congestion-aware: {why}: left as measured",))
    took: dict[str, int] = {}

    def price(group: by_group.Group) -> np.ndarray | None:
        ranks = np.asarray(group.rows["ranks"][0].to_list(), np.int64)
        kept = np.ones((group.n, group.n))
        at = {int(r): i for i, r in enumerate(ranks)}
        for a, b in pairs:
            if a in at and b in at:
                kept[at[a], at[b]] = kept[at[b], at[a]] = 1 - load
        if loaded:
            kept = np.minimum(kept, _kept(fabric, gpu[ranks]))
        if kept.min() >= 1:
            return None
        made = _candidates(group, kept, spare)
        if made is None:
            return None
        before = made["as it was"]
        names = list(made)
        # Ties go to the first: the pattern as it was.
        which = np.argmin([made[k] for k in names], axis=0)
        for k, count in zip(*np.unique(which, return_counts=True), strict=True):
            took[names[k]] = took.get(names[k], 0) + int(count)
        return np.minimum.reduce([made[k] for k in names]) / before

    job, ratio = by_group.ratios(job, rows, price)
    said = ", ".join(f"{count} {name}" for name, count in took.items())
    return transfers.scaled(job, rows, ratio).note(
        assumptions=(*ASSUMPTIONS, f"patterns taken: {said}" if said else "no pattern is taken")
    )


def _pair(text: str) -> tuple[int, int]:
    ends = text.split("-")
    if len(ends) != 2 or not all(e.isascii() and e.isdecimal() and len(e) < 10 for e in ends):
        raise BadParam(
            f"policy congestion-aware: between={text[:40]!r}: pairs of ranks, such as 0-1+8-9"
        )
    return int(ends[0]), int(ends[1])


def _kept(fabric, gpu: np.ndarray) -> np.ndarray:
    """float64 [n, n]: the share of its path's bandwidth that each pair keeps under the load."""
    wires = links.graph(fabric)
    alone = links.graph(replace(fabric, background=()))
    n = len(gpu)
    src, dst = np.repeat(gpu, n), np.tile(gpu, n)
    routes = paths.route(wires, src, dst)
    kept = np.ones(n * n)
    for i in np.flatnonzero(np.diff(routes.offsets)):
        on = routes.links[routes.offsets[i] : routes.offsets[i + 1]]
        kept[i] = (
            wires.link_capacity_bytes_per_s[on].min() / alone.link_capacity_bytes_per_s[on].min()
        )
    return kept.reshape(n, n)


def _candidates(
    group: by_group.Group, kept: np.ndarray, spare: float | None
) -> dict[str, np.ndarray] | None:
    """Times (ns, float64 [k]) of the ways to do the group's collectives; None: it meets no load.

    `kept` float64 [n, n] is the share that the load leaves of each pair's path.
    """
    size, alpha, n = group.size_bytes, group.link.alpha_ns, group.n

    def by(algo: str, rate: float) -> np.ndarray:
        messages, volume = coefficients(group.op, algo, n)
        return messages * alpha + volume * size * 1e9 / rate

    own = np.arange(n)
    other = best_ring(kept)
    ring = group.algo == "ring"
    edges = ring_edges(own) if ring else _used(group.algo, own)
    share = slowest(kept, edges, both=not ring)
    if share >= kept.max():
        return None
    # A link that was fitted, or is of the fabric with its background, has the load in it already.
    under_load = group.link.source in ("fitted", "seen", "fabric")
    free = kept * group.link.bandwidth_bytes_per_s / (share if under_load else 1.0)
    was = slowest(free, edges, both=not ring)
    out = {"as it was": by(group.algo, was)}
    if ring:
        out["ring in another order"] = by("ring", slowest(free, ring_edges(other)))
    for order, name in ((own, "tree"), (other, "tree in another order")):
        if models.fits(group.op, "tree", n):
            out[name] = by("tree", slowest(free, tree_edges(order), both=True))
    if spare is not None:
        messages, volume = coefficients(group.op, group.algo, n)
        both = np.array([was, spare])
        name = f"split with {100 * split(both)[1]:.3g} % over a second path"
        out[name] = messages * alpha + split_ns(volume * size, both)
    return out


def _used(algo: str, order: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Edges of a pattern over members in an order: a tree's, else between all of them."""
    if algo in ("tree", "double-tree"):
        return tree_edges(order)
    n = len(order)
    a, b = np.repeat(order, n), np.tile(order, n)
    return a[a != b], b[a != b]


POLICY = Policy(
    name="congestion-aware",
    summary="collectives' patterns rewritten round a loaded link",
    source="REACT; TE-CCL for parallel paths",
    params=(
        Param("load", float, 0.5, "", "share of the pairs' links that others take, 0 to under 1"),
        Param(
            "between",
            words,
            (),
            "",
            "pairs of ranks whose link is loaded, as 0-1+8-9 (default: the fabric's background)",
        ),
        Param(
            "spare",
            bandwidth_bytes_per_s,
            None,
            "bytes/s",
            "free on a second path, to split over (default: no second path)",
        ),
        Param(
            "op",
            words,
            ("all_reduce", "all_gather", "reduce_scatter"),
            "",
            "operations, joined by +",
        ),
        *transfers.WHERE,
    ),
    assumptions=ASSUMPTIONS,
    apply=apply,
    stage=Stage.ALGORITHM,
    needs=("which links are loaded: between and load, or a fabric's background",),
    valid="a load that lasts for the whole step; collectives within the calibrated sizes",
    checked=(
        "a ring of 4, 400 MB, 50 GB/s: 12 ms; with one link half loaded 24 ms, and 12 in another "
        "order; two paths with 50 and 25 GB/s free carry 66.7 and 33.3 % (arithmetic)"
    ),
)
