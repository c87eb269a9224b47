"""Everybody to everybody at once, as much to each: simulated from one GPU of each orbit.

All GPUs of an orbit send alike flows, and all links of an orbit carry equally many of each kind, so
the n (n - 1) flows of n GPUs are never laid out: the flows of one GPU an orbit are, and counted by
the orbits of links that they cross. Exact wherever orbits are (deduced; tests hold it to the whole
simulation on small fabrics).
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from .flows import Links, Paths
from .links import LinkGraph
from .orbits import Tree, orbits
from .paths import route
from .simulate import MERGE_NS, Ended, flows, simulate
from .symmetry import Quotient

MAX_ROUTES = 20_000_000
"""Routes of the GPUs that stand for their orbits: more orbits than this have are no symmetry."""


class Kinds(NamedTuple):
    """k kinds of flows: what stands for all of them."""

    quotient: Quotient
    count: np.ndarray
    """Flows of each kind, int64 [k]."""


def kinds(
    graph: LinkGraph,
    links: Links,
    of: Tree,
    gpus: np.ndarray,
    pair_bytes: float,
    *,
    rail: str = "auto",
    launch_ns: float = 0.0,
) -> Kinds | None:
    """The kinds of flows of n distinct GPUs that each send `pair_bytes` to each other at once.

    None where there are more orbits than make it worth while.
    """
    found = orbits(graph, of, gpus)
    ids, first, members = np.unique(found.gpu[gpus], return_index=True, return_counts=True)
    if len(ids) * len(gpus) > MAX_ROUTES:
        return None
    in_orbit = np.bincount(found.link)
    flow_size, delay, counted = [], [], []
    entries: list[tuple[int, np.ndarray, np.ndarray]] = []
    places = _Places()
    for rep, size in zip(gpus[first], members, strict=True):
        routes = route(graph, rep, gpus[gpus != rep], rail=rail)
        alpha = routes.alpha_ns(graph)
        kind, one = _alike(routes, found.link)
        many = np.bincount(kind)
        base = len(flow_size)
        for k, example in enumerate(one):
            crossed, times = np.unique(found.link[routes.of(example)], return_counts=True)
            coef = size * many[k] * times / in_orbit[crossed]
            if (np.abs(coef - np.rint(coef)) > 1e-6).any():
                return None
            entries.append((base + k, crossed, np.rint(coef)))
            flow_size.append(pair_bytes)
            delay.append(alpha[example] + launch_ns)
            counted.append(size * many[k])
        places.add(routes, found.link, kind, base, size, in_orbit, links.incast_gamma)
    ptr = np.cumsum([0] + [len(c) for _, c, _ in entries])
    used = np.unique(found.link, return_index=True)[1]
    paths = Paths(
        ptr.astype(np.int64), np.concatenate([c for _, c, _ in entries]),
        np.concatenate([n for _, _, n in entries]),
    )  # fmt: skip
    moved = flows(np.arange(len(flow_size)), flow_size, delay_ns=delay)
    made = Quotient(
        Links(*(a[..., used] for a in links)), paths, moved, places.finished(len(flow_size)),
        np.zeros(0, np.int64), found.link,
    )  # fmt: skip
    return Kinds(made, np.array(counted, np.int64))


def _alike(routes, link_orbit: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Kind of each route, by the orbits of its links in order, and an example of each kind."""
    length = np.diff(routes.offsets)
    table = np.full((routes.n, int(length.max(initial=0))), -1)
    pair = np.repeat(np.arange(routes.n), length)
    table[pair, np.arange(len(pair)) - routes.offsets[pair]] = link_orbit[routes.links]
    _, one, kind = np.unique(table, axis=0, return_index=True, return_inverse=True)
    return kind.ravel(), one


class _Places:
    """Places of senders at one port of each orbit with incast, as kinds of flows use them."""

    def __init__(self) -> None:
        self.flow: list[int] = []
        self.place: list[int] = []
        self.link: list[int] = []

    def add(self, routes, link_orbit, kind, base, size, in_orbit, gamma) -> None:
        """Counts one GPU's flows into ports: those of `size` GPUs like it, over an orbit."""
        pair = np.repeat(np.arange(routes.n), np.diff(routes.offsets))
        felt = gamma[routes.links] > 0
        if not felt.any():
            return
        touched = np.unique(np.stack([routes.links[felt], base + kind[pair[felt]]]), axis=1)
        patterns: dict[tuple[int, tuple[int, ...]], int] = {}
        starts = np.flatnonzero(np.diff(touched[0], prepend=-1))
        for a, b in zip(starts, [*starts[1:], touched.shape[1]], strict=True):
            key = (int(link_orbit[touched[0, a]]), tuple(touched[1, a:b].tolist()))
            patterns[key] = patterns.get(key, 0) + 1
        for (orbit, used), links in patterns.items():
            for _ in range(round(size * links / in_orbit[orbit])):
                self.link.append(orbit)
                for f in used:
                    self.flow.append(f)
                    self.place.append(len(self.link) - 1)

    def finished(self, n: int) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
        """CSR of flows to places, and the link of each place."""
        flow = np.array(self.flow, np.int64)
        order = np.argsort(flow, kind="stable")
        ptr = np.zeros(n + 1, np.int64)
        np.cumsum(np.bincount(flow, minlength=n), out=ptr[1:])
        place = np.array(self.place, np.int64)[order]
        return ptr, place, np.array(self.link, np.int64)


def simulate_kinds(found: Kinds, *, merge_ns: float = MERGE_NS) -> Ended:
    """`simulate` of one flow and link of each kind: [kinds] and [orbits] arrays."""
    q = found.quotient
    return simulate(q.links, q.paths, q.flows, merge_ns=merge_ns, slots=q.slots)
