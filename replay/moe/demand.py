"""Who sends how much to whom in each recorded all-to-all: a matrix, and what it rests on."""

from __future__ import annotations

from collections import Counter
from typing import NamedTuple

import numpy as np
import polars as pl

from ..graph import Kind
from ..policy import ReplayJob
from . import routed
from .routed import Routing

SOURCES = {
    "policies": "what policies before this one made of them",
    "splits": "their recorded splits",
    "transfers": "recorded transfers by peer",
    "routing": "the routing log",
    "uniform": "nothing but their size, so taken to be even",
}


class Demand(NamedTuple):
    """One all-to-all: bytes from member to member."""

    collective: int
    comm: str
    step: int
    members: np.ndarray
    """int64 [n]: global ranks, in the order of the communicator."""
    matrix: np.ndarray
    """float64 [n, n]: bytes; the diagonal stays at home."""
    source: str
    """A key of SOURCES."""
    transfer_ns: float
    layer: int | None = None
    """Of the routing log, where the all-to-all could be told to be of one."""
    combines: bool = False


def of(job: ReplayJob, rows: pl.DataFrame, routing: Routing | None) -> list[Demand]:
    """The demand of each row of `transfers.chosen`, from the best source there is for it.

    What a policy before left in `facts["exchanged"]` (`exchange.retimed`) comes first, with the
    time that it left. Sizes are the recorded ones; the routing log gives the shape alone, unless
    there is no size.
    """
    facts = _Facts.of(job)
    places = _places(job, rows)
    changed = job.facts.get("exchanged", {})
    now = (
        dict(job.graph.instances.select("collective", "transfer_ns").iter_rows()) if changed else {}
    )
    out = []
    for row in rows.select("collective", "comm", "step", "ranks", "transfer_ns").iter_rows(
        named=True
    ):
        members = facts.members(row["comm"], row["ranks"])
        sent = facts.sent(row["collective"], members)
        place, count = places[row["collective"]]
        at = routed.layer_of(place, count, routing.layers_of(members)) if routing else None
        matrix, source = changed.get(row["collective"]), "policies"
        if matrix is None:
            matrix, source = facts.split(row["collective"], members), "splits"
        if matrix is None:
            matrix, source = facts.moved(row["collective"], members), "transfers"
        if matrix is None and routing is not None:
            matrix, source = shaped(routing, row["step"], at, members, sent), "routing"
        if matrix is None:
            matrix, source = (
                np.repeat(sent[:, None] / len(members), len(members), axis=1),
                "uniform",
            )
        took = now[row["collective"]] if source == "policies" else row["transfer_ns"]
        layer, combines = at if at is not None else (None, False)
        out.append(
            Demand(
                row["collective"], row["comm"], row["step"], members, matrix, source,
                took, layer, combines,
            )
        )  # fmt: skip
    return out


def shaped(
    routing: Routing,
    step: int,
    at: tuple[int, bool] | None,
    members: np.ndarray,
    sent: np.ndarray,
) -> np.ndarray | None:
    """The routing's matrix, scaled to the bytes that are known to have been sent.

    Of the layer where that is known, else the sum over layers; of the step where the log numbers
    it so, else over all. A combine sends the other way. None where no placement is known, or the
    log has no tokens of these members.
    """
    steps = (step,) if step in routing.steps else routing.steps
    layers = (at[0],) if at is not None else routing.layers_of(members)
    out = None
    for s in steps:
        for layer in layers:
            one = routing.matrix(s, layer, members)
            if one is None:
                return None
            out = one if out is None else out + one
    if out is None or not out.sum() > 0:
        return None
    if at is not None and at[1]:
        out = out.T.copy()
    return out * (sent.sum() / out.sum()) if sent.sum() > 0 else out


def told(job: ReplayJob, rows: pl.DataFrame) -> dict[int, np.ndarray]:
    """Demands of the all-to-alls among `rows`, float64 [n, n] by collective; {} where none is told.

    Where some are told, the others are taken to be even.
    """
    exchanges = rows.filter(pl.col("op") == "all_to_all")
    if not len(exchanges):
        return {}
    _, routing = routed.of(job)
    made = of(job, exchanges, routing)
    if all(d.source == "uniform" for d in made):
        return {}
    return {d.collective: d.matrix for d in made}


def words(demands: list[Demand]) -> str:
    """How many all-to-alls there are, and what their matrices rest on."""
    found = Counter(d.source for d in demands)
    parts = [f"{found[s]} by {SOURCES[s]}" for s in SOURCES if found[s]]
    return f"who sends how much to whom in {len(demands)} all-to-alls: {', '.join(parts)}"


def _places(job: ReplayJob, rows: pl.DataFrame) -> dict[int, tuple[int, int]]:
    """Each all-to-all's place among those of its communicator and step, and how many there are."""
    graph = job.facts.get("measured", job.graph)
    task = np.flatnonzero(graph.kind == Kind.TRANSFER)
    started = (
        pl.DataFrame({"collective": graph.collective[task], "start": graph.start_ns[task]})
        .group_by("collective")
        .agg(pl.col("start").min())
    )
    key = ("comm", "step")
    placed = (
        rows.select("collective", *key)
        .join(started, on="collective", how="left")
        .sort(*key, "start", "collective")
        .with_columns(place=pl.int_range(pl.len()).over(key), count=pl.len().over(key))
    )
    return {c: (p, n) for c, p, n in placed.select("collective", "place", "count").iter_rows()}


class _Facts(NamedTuple):
    """What the job recorded about participations, by (collective of the graph, rank)."""

    order: dict[str, list[int]]
    bytes: dict[tuple[int, int], int]
    splits: dict[tuple[int, int], tuple[np.ndarray, float]]
    peers: dict[int, list[tuple[int, int, float]]]

    @classmethod
    def of(cls, job: ReplayJob) -> _Facts:
        graph = job.facts.get("measured", job.graph)
        task = np.flatnonzero(graph.kind == Kind.TRANSFER)
        key = list(zip(graph.collective[task].tolist(), graph.rank[task].tolist(), strict=True))
        size = dict(zip(key, graph.bytes[task].tolist(), strict=True))
        comms = job.facts.get("comms")
        order: dict[str, list[int]] = {}
        if comms is not None and len(comms):
            named = comms.select(pl.col("comm").cast(pl.String), "ranks").drop_nulls()
            order = dict(named.iter_rows())
        event = graph.extra.get("event_id")
        parts = job.frame("collectives")
        splits: dict[tuple[int, int], tuple[np.ndarray, float]] = {}
        peers: dict[int, list[tuple[int, int, float]]] = {}
        if event is None or parts is None or not len(parts):
            return cls(order, size, splits, peers)
        of_event = dict(zip(event[task].tolist(), key, strict=True))
        split = parts.filter(pl.col("in_splits").is_not_null() & pl.col("event_id").is_not_null())
        for event_id, in_bytes, rows in split.select(
            "event_id", "in_bytes", "in_splits"
        ).iter_rows():
            at = of_event.get(event_id)
            if at is not None:
                splits[at] = (np.array(rows, np.float64), float(in_bytes))
        ids = parts.select("event_id", "collective_id").drop_nulls()
        dense = {c: of_event[e][0] for e, c in ids.iter_rows() if e in of_event}
        moved = job.table("transfers")
        moved = moved.filter(
            pl.col("collective_id").is_not_null()
            & pl.col("peer_rank").is_not_null()
            & (pl.col("direction").cast(pl.String).fill_null("send") == "send")
        )
        for c, s, d, n in (
            moved.group_by("collective_id", "rank", "peer_rank")
            .agg(pl.col("bytes").sum())
            .sort("collective_id", "rank", "peer_rank")
            .iter_rows()
        ):
            if c in dense:
                peers.setdefault(dense[c], []).append((s, d, float(n)))
        return cls(order, size, splits, peers)

    def members(self, comm: str, seen: list[int]) -> np.ndarray:
        named = self.order.get(comm, [])
        return np.array(named if sorted(named) == sorted(seen) else sorted(seen), np.int64)

    def sent(self, collective: int, members: np.ndarray) -> np.ndarray:
        return np.array([self.bytes.get((collective, int(r)), 0) for r in members], np.float64)

    def split(self, collective: int, members: np.ndarray) -> np.ndarray | None:
        """Bytes by peer from the rows that each member sent, where all say them."""
        out = np.zeros((len(members), len(members)))
        for i, rank in enumerate(members):
            rows, size = self.splits.get((collective, int(rank)), (np.empty(0), 0.0))
            if len(rows) != len(members):
                return None
            if rows.sum() > 0:
                out[i] = rows * (size / rows.sum())
        return out if out.sum() > 0 else None

    def moved(self, collective: int, members: np.ndarray) -> np.ndarray | None:
        """Bytes by peer, where every member that sends anything was watched."""
        place = {int(r): i for i, r in enumerate(members)}
        found = self.peers.get(collective, [])
        out = np.zeros((len(members), len(members)))
        for s, d, n in found:
            if s in place and d in place:
                out[place[s], place[d]] += n
        watched = (out.sum(axis=1) > 0) | (self.sent(collective, members) == 0)
        return out if out.sum() > 0 and watched.all() else None
