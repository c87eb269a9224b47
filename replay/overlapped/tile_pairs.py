"""GEMMs next to collectives in a graph, and what tiles in groups make of both."""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

import numpy as np
import polars as pl

from ..graph import TaskGraph
from ..policy import ReplayJob
from ..retiming import by_group
from ..steps import participations
from . import kernel_facts, tiles

GATHERS = ("all_gather",)
OPS = ("reduce_scatter", "all_reduce", *GATHERS)

Curve = Callable[[float], float]
"""Share of a collective's bytes -> share of its measured transfer."""


class Pair(NamedTuple):
    """A collective and the GEMM next to it on each of its ranks."""

    row: int
    gemm: np.ndarray
    transfer: np.ndarray
    """Tasks, int64 [ranks]."""
    blocks: int


def pairs(job: ReplayJob, rows: pl.DataFrame, given: int) -> list[Pair]:
    """Collectives that have a GEMM next to them on all ranks; a GEMM goes with one collective."""
    graph = job.graph
    kernels = kernel_facts.of(job)
    arrive, transfer = participations(graph)
    code = rows["collective"].to_numpy()
    mine = np.flatnonzero(np.isin(graph.collective[arrive], code))
    before = kernel_facts.work_before(graph, arrive[mine])
    after = kernel_facts.work_after(graph, transfer[mine])
    where: dict[int, list[int]] = {}
    for k, i in enumerate(mine.tolist()):
        where.setdefault(int(graph.collective[arrive[i]]), []).append(k)
    taken: set[int] = set()
    out = []
    for row, (one, op, n) in enumerate(rows.select("collective", "op", "n").iter_rows()):
        at = where.get(one, [])
        gemm = (after if op in GATHERS else before)[at]
        if n < 2 or not len(at) or (gemm < 0).any() or not kernels.gemm[gemm].all():
            continue
        blocks = given or int(kernels.blocks[gemm].min())
        if blocks < 1 or taken & set(gemm.tolist()):
            continue
        taken |= set(gemm.tolist())
        out.append(Pair(row, gemm, transfer[mine[at]], blocks))
    return out


def tries(pair: Pair, sms: int, groups: int) -> list[list[int]]:
    """Groups of tiles to try with so many SMs left."""
    if groups:
        return [tiles.equal_groups(pair.blocks, -(-pair.blocks // groups))]
    return tiles.candidates(pair.blocks, sms)


def curves(job: ReplayJob, rows: pl.DataFrame) -> tuple[ReplayJob, list[Curve | None]]:
    """For each pair a function: share of the bytes -> share of the measured transfer."""
    made: list[Curve | None] = [None] * len(rows)
    place = {c: i for i, c in enumerate(rows["collective"].to_list())}

    def price(group: by_group.Group) -> np.ndarray:
        whole = group.time_ns()
        for k, code in enumerate(group.rows["collective"].to_list()):
            one = group._replace(size_bytes=group.size_bytes[k : k + 1])

            def curve(share: float, one=one, whole=float(whole[k])) -> float:
                part = one._replace(size_bytes=one.size_bytes * share)
                return float(part.time_ns()[0]) / whole

            made[place[code]] = curve
        return np.ones(len(group.rows))

    job, _ = by_group.ratios(job, rows, price)
    return job, made


class Way(NamedTuple):
    """How GEMMs and collectives are overlapped."""

    sms: int
    held: int
    order: str
    groups: int


class Overlapped(NamedTuple):
    """What a pair takes now."""

    gemm_ns: np.ndarray
    transfer_ns: np.ndarray
    """float64 [ranks] each."""
    least_ns: float
    """No overlap whose first or last group is as small takes less, on all ranks together."""


def overlapped(
    graph: TaskGraph, pair: Pair, curve: Curve | None, way: Way, gathers: bool
) -> Overlapped | None:
    """New times of the GEMMs and transfers of a pair; None where none is faster.

    The GEMM takes what it does with the SMs that are left, the transfer what is sent after it; of
    a gather the transfer takes what its first group does, and the GEMM the rest.
    """
    took, sent = graph.dur_ns[pair.gemm].astype(float), graph.dur_ns[pair.transfer].astype(float)
    if curve is None or (way.order != "waves" and (gathers or len(took) < 2)):
        return None
    gemms = [tiles.Gemm(float(g), pair.blocks, way.sms, way.held) for g in took]
    sends = [_sending(float(c), curve) for c in sent]

    if way.order == "waves":
        tried = tries(pair, way.sms - way.held, way.groups)
        best = tiles.best_groups(gemms, sends, tried, gathers=gathers)
        edge = best.groups[0 if gathers else -1] / pair.blocks
    else:
        both = zip(gemms, sends, strict=True)
        shards = [tiles.shards_ns(g, c, len(took), way.order) for g, c in both]
        best, edge = tiles.Best([], np.array(shards)), 0.0
    serial = (took + sent).sum()
    if best.took_ns.sum() >= serial:
        return None
    exposed = sent * curve(edge) if edge else np.zeros(len(sent))
    least = serial / tiles.ceiling(took.sum(), sent.sum(), exposed.sum())
    if gathers:
        return Overlapped(best.took_ns - exposed, exposed, least)
    slowed = np.minimum([g.slowed_ns for g in gemms], best.took_ns)
    return Overlapped(slowed, best.took_ns - slowed, least)


def _sending(took_ns: float, curve: Curve) -> tiles.Comm:
    return lambda share: took_ns * curve(share)
