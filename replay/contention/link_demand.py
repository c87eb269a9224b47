"""What each collective asks of each link of the fabric: the share of it that it would use alone.

Bytes on links, and who sends into ports that suffer from incast. Message rates are left out: a flow
here is one message, and NICs start so many that only flows of some hundred bytes would be bound.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
import polars as pl

from ...ingest.errors import RetimeError
from .. import models
from ..calibration import calibrate, hockney, messages
from ..fabric import paths, placed
from ..fabric import rounds as fabric_rounds
from ..fabric.description import Fabric
from ..graph import Kind, TaskGraph
from ..policy import ReplayJob
from ..retiming import seats
from ..retiming.places import Places

OPS = ("all_reduce", "reduce_scatter", "all_gather", "all_to_all", "broadcast", "reduce",
       "gather", "scatter", "send_recv", "send", "recv")  # fmt: skip
"""Longer names first, where one ends with another."""

LEAST = 1e-3
"""Shares of a link below this contend with nobody."""


class Demand(NamedTuple):
    """Kinds of collectives (a communicator's operation) and what a byte of each costs a link."""

    kind: np.ndarray
    """int64 [collectives]: kind of each code of `TaskGraph.collective`; -1: it crosses no link."""
    ptr: np.ndarray
    link: np.ndarray
    ns_per_byte: np.ndarray
    """float64 [entries]: bytes on the link a byte of size, over its capacity."""
    fixed_ns: np.ndarray
    """float64 [kinds]: messages x alpha."""
    slowest: np.ndarray
    """float64 [kinds]: the largest ns_per_byte of a kind."""
    n_links: int
    incast_gamma: np.ndarray
    incast_free: np.ndarray
    """float64 [n_links]: as `flows.Links` has them."""
    sender_ptr: np.ndarray
    sender: np.ndarray
    """Of each kind (CSR): places of senders at ports with incast, each with a GPU and a port."""
    sender_link: np.ndarray
    """The port of each place."""

    def alone_ns(self, kind: np.ndarray, size_bytes: np.ndarray) -> np.ndarray:
        """What collectives would take with all links to themselves, by this model."""
        return self.fixed_ns[kind] + self.slowest[kind] * size_bytes


def of(job: ReplayJob, fabric: Fabric) -> tuple[Demand | None, tuple[str, ...]]:
    """The demand of a job's collectives on a fabric, and what to say; None where it cannot be told.

    A ring over several hosts is spread over the ranks of each, as NCCL's channels are: every rank
    sends to its like on the next host its part of the bytes.
    """
    graph = job.facts.get("measured", job.graph)
    gpu, why = seats.gpus(job, fabric)
    if why:
        return None, (f"contention is not modelled: {why}",)
    wires = seats.wires(fabric)
    members = _members(graph)
    kind = np.full(int(graph.collective.max(initial=-1)) + 1, -1, np.int64)
    rows = graph.instances.join(members, on="collective", how="left")
    made = placed.links_of(wires)
    ptr, link, cost, fixed, pushes = [0], [], [], [], []
    rows, left_out = _sized(rows)
    places = Places.of(job)
    for (_, name, algo, n, _), group in rows.group_by(
        "comm", "op", "algo", "n", "pair", maintain_order=True
    ):
        op = plain(str(name))
        ranks = np.asarray(group["ranks"][0].to_list(), np.int64)
        if len(ranks) < n:
            ranks = calibrate.ranks_of(job, group["comm"][0])
        if len(ranks) != n or n < 2:
            left_out += len(group) if n > 1 else 0
            continue
        algo = hockney.usual(op) if algo == "?" else models.recorded(str(algo))
        try:
            src, dst, share = _pairs(op, algo, ranks, places)
            routes = paths.route(wires, gpu[src], gpu[dst])
        except RetimeError:
            left_out += len(group)
            continue
        each = np.repeat(share, np.diff(routes.offsets))
        at, of_link = np.unique(routes.links, return_inverse=True)
        ns = np.bincount(of_link, each, len(at)) * 1e9 / wires.link_capacity_bytes_per_s[at]
        kind[group["collective"].to_numpy()] = len(fixed)
        link.append(at)
        cost.append(ns)
        ptr.append(ptr[-1] + len(at))
        fixed.append(
            _messages(op, algo, int(n)) * messages.alphas_ns(wires, routes).max(initial=0.0)
        )
        into = made.incast_gamma[routes.links] > 0
        sent = np.repeat(gpu[src], np.diff(routes.offsets))
        pushes.append(np.unique(np.stack([routes.links[into], sent[into]]), axis=1))
    if not fixed:
        return None, ("contention is not modelled: no collective's ranks and size are all known",)
    said = (f"{left_out} collectives contend with nobody: not all their ranks, their size, or no "
            "algorithm of theirs is known",) if left_out else ()  # fmt: skip
    slowest = np.maximum.reduceat(np.concatenate(cost), ptr[:-1])
    return Demand(
        kind, np.array(ptr), np.concatenate(link), np.concatenate(cost), np.array(fixed),
        slowest, wires.n, made.incast_gamma, made.incast_free, *_places(pushes),
    ), said  # fmt: skip


def plain(name: str) -> str:
    """The operation that a recorded one is (`grads-reduce-scatter`: reduce_scatter)."""
    text = name.replace("-", "_").lower()
    return next((o for o in OPS if text == o or text.endswith(f"_{o}")), name)


def _sized(rows: pl.DataFrame) -> tuple[pl.DataFrame, int]:
    """Collectives that move bytes, and how many of the others may do so too."""
    bare = rows.filter(pl.col("bytes") <= 0)
    moving = bare.filter((pl.col("n") > 1) & (pl.col("op") != "barrier"))
    return rows.filter(pl.col("bytes") > 0), len(moving)


def _places(pushes: list[np.ndarray]) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """`sender_ptr`, `sender`, `sender_link` of kinds' ports and senders (int64 [2, p] each)."""
    ptr = np.cumsum([0] + [p.shape[1] for p in pushes])
    pairs, place = np.unique(np.concatenate(pushes, axis=1), axis=1, return_inverse=True)
    return ptr, place.astype(np.int64).ravel(), np.ascontiguousarray(pairs[0], np.int64)


def _members(graph: TaskGraph) -> pl.DataFrame:
    """`ranks` of each collective, and `pair`: them again where a pair of ranks makes the kind.

    Of a pair the sender comes first.
    """
    task = np.flatnonzero(graph.kind == Kind.TRANSFER)
    ops = np.array([*map(plain, graph.op_names), "?"])[graph.op[task]]
    frame = pl.DataFrame(
        {
            "collective": graph.collective[task],
            "rank": graph.rank[task],
            "paired": np.isin(ops, ("send", "recv")),
            "receives": ops == "recv",
        }
    )
    made = (
        frame.sort("receives", "rank")
        .group_by("collective", maintain_order=True)
        .agg(pl.col("rank").unique(maintain_order=True).alias("ranks"), pl.col("paired").any())
    )
    name = pl.col("ranks").list.eval(pl.element().cast(pl.String)).list.join(" ")
    return made.select("collective", "ranks", pair=pl.when("paired").then(name))


def _pairs(
    op: str, algo: str, ranks: np.ndarray, places: Places
) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Who sends to whom, and bytes a byte of the operation's size."""
    n = len(ranks)
    if op in ("send", "recv"):
        return ranks[:1], ranks[1:2], np.ones(1)
    if algo == "ring":
        volume = hockney.coefficients(op, algo, n)[1]
        return _ring(ranks, volume, places)
    made = fabric_rounds.decompose(op, algo, n, 1.0)
    moves = made.src >= 0
    key = made.src[moves] * n + made.dst[moves]
    pair, of_pair = np.unique(key, return_inverse=True)
    return ranks[pair // n], ranks[pair % n], np.bincount(of_pair, made.size_bytes[moves])


def _ring(ranks, volume, places) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    host, each = places.host(ranks), places.per_host(ranks)
    follower = np.roll(ranks, -1)
    if each is None or each in (1, len(ranks)):
        return ranks, follower, np.full(len(ranks), volume)
    order = np.argsort(host, kind="stable").reshape(-1, each)
    ring = ranks[order]
    inside = each > 1
    src = [ring[:, :-1].ravel(), ring.ravel()] if inside else [ring.ravel()]
    dst = [ring[:, 1:].ravel(), np.roll(ring, -1, axis=0).ravel()]
    share = [np.full(ring[:, :-1].size, volume), np.full(ring.size, volume / each)]
    return np.concatenate(src), np.concatenate(dst), np.concatenate(share)


def _messages(op: str, algo: str, n: int) -> float:
    try:
        return float(hockney.coefficients(op, algo, n)[0])
    except models.NoModel:
        return 1.0
