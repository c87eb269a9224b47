"""A job's collectives fitted once: group by group, and pooled by fabric level."""

from __future__ import annotations

from collections.abc import Iterator
from functools import cached_property
from typing import Any

import numpy as np
import polars as pl

from .. import models
from ..graph import TaskGraph
from ..policy import ReplayJob
from .hockney import DEFAULT_ALPHA_NS, Fit, NoFit, coefficients, error_pct, fit, line, tell, usual
from .levels import UNKNOWN, Level, levels
from .size_classes import SPREAD

Group = tuple[pl.DataFrame, str]
"""Collectives of one comm, op, algorithm and number of ranks; and the algorithm they ran."""


class Fits:
    """What the collectives of a job say, kept with its measured graph (`of`)."""

    def __init__(self, job: ReplayJob):
        self._job = job
        self.graph: TaskGraph = job.facts.get("measured", job.graph)
        self.groups = groups(self.graph)
        self._pools: dict[tuple[Level, str | None, int | None], Fit | None] = {}

    @cached_property
    def members(self) -> dict[str, np.ndarray]:
        """The ranks of each communicator, int64."""
        return members(self._job)

    @cached_property
    def levels(self) -> dict[str, Level]:
        """The fabric level of each communicator."""
        return levels(self._job, self.members)

    def level(self, comm: str) -> Level:
        """The fabric level of a communicator."""
        return self.levels.get(comm, UNKNOWN)

    @cached_property
    def own(self) -> dict[str, list[tuple[Fit, Group]]]:
        """The fits of each communicator's groups, for those that have one."""
        out: dict[str, list[tuple[Fit, Group]]] = {}
        for rows, algo in self.groups:
            try:
                found = fit(rows, algo)
            except (NoFit, models.NoModel):
                continue
            out.setdefault(found.comm, []).append((found, (rows, algo)))
        return out

    def pool(self, level: Level, op: str | None = None, n: int | None = None) -> Fit | None:
        """One fit to all communicators of a level: of an operation, of n ranks, or of all.

        None where the level is unknown, or no line goes through them.
        """
        key = (level, op, n)
        if key not in self._pools:
            self._pools[key] = self._pooled(*key)
        return self._pools[key]

    def _pooled(self, level: Level, op: str | None, n: int | None) -> Fit | None:
        if level == UNKNOWN:
            return None
        chosen = [
            (rows, algo)
            for rows, algo in self.groups
            if self.level(rows["comm"][0]) == level
            and op in (None, rows["op"][0])
            and n in (None, rows["n"][0])
        ]
        try:
            found = pooled(chosen)
        except (NoFit, models.NoModel):
            return None
        where = f"{found.comms} communicator{'s' * (found.comms != 1)} ({level.words()})"
        return found._replace(comm=where, op=op or "all operations")

    def pools(self, comm: str, op: str) -> Iterator[Fit]:
        """Pools of a communicator's level that may stand in: of op and its n, of op, of all."""
        for key in ((op, self.n(comm)), (op, None), (None, None)):
            found = self.pool(self.level(comm), *key)
            if found is not None:
                yield found

    def lenders(self, comm: str, op: str) -> Iterator[Fit]:
        """Fits that tell alpha from bandwidth and may stand in for an operation, nearest first.

        Other operations on the communicator, then the pools of its level.
        """
        for found, _ in self.near(comm, op):
            if found.op != op and found.separated:
                yield found
        yield from (found for found in self.pools(comm, op) if found.separated)

    def near(self, comm: str, op: str) -> list[tuple[Fit, Group]]:
        """The communicator's own fits: of the operation first, then those of the most sizes."""
        return sorted(
            self.own.get(comm, []),
            key=lambda one: (one[0].op != op, not one[0].separated, -one[0].instances, one[0].op),
        )

    def n(self, comm: str) -> int:
        """Ranks of a communicator: the size of its group, else those that are known."""
        return self._sizes.get(comm) or len(self.members.get(comm, ()))

    @cached_property
    def _sizes(self) -> dict[str, int]:
        rows = self.graph.instances.group_by("comm").agg(pl.col("n").max())
        return dict(rows.select("comm", "n").iter_rows())


def of(job: ReplayJob) -> Fits:
    """The fits of a job; made anew only where its ranks, communicators or fabric are others."""
    graph = job.facts.get("measured", job.graph)
    facts = tuple(job.facts.get(name) for name in ("ranks", "comms", "fabric"))
    known: tuple[tuple[Any, ...], Fits] | None = graph.__dict__.get("_fits")
    if known is None or any(a is not b for a, b in zip(known[0], facts, strict=True)):
        known = graph.__dict__["_fits"] = (facts, Fits(job))
    return known[1]


def groups(graph: TaskGraph) -> list[Group]:
    """Collectives seen on all ranks and with a size, by comm, op, algorithm, n; and that algo."""
    whole = graph.instances.filter(
        (pl.col("seen") >= pl.col("n")) & (pl.col("bytes") > 0) & (pl.col("n") > 1)
    )
    out = []
    for (_, op, algo, _), rows in whole.group_by("comm", "op", "algo", "n", maintain_order=True):
        out.append((rows, usual(str(op)) if algo == "?" else models.recorded(str(algo))))
    return sorted(out, key=lambda one: (one[0]["comm"][0], one[0]["op"][0], one[1]))


def members(job: ReplayJob) -> dict[str, np.ndarray]:
    """The ranks of each communicator of the measured graph, and of `comms`; int64, ascending there.

    As `comms` lists them, else those that took part.
    """
    graph = job.facts.get("measured", job.graph)
    out: dict[str, np.ndarray] = {}
    comms = job.facts.get("comms")
    if comms is not None and len(comms) and "ranks" in comms.columns:
        listed = comms.select(pl.col("comm").cast(pl.String), "ranks").drop_nulls()
        for comm, ranks in listed.unique("comm", keep="first", maintain_order=True).iter_rows():
            out[comm] = np.asarray(ranks, np.int64)
    seen = np.flatnonzero((graph.comm >= 0) & (graph.rank >= 0))
    width = int(graph.rank.max(initial=0)) + 1
    pairs = np.unique(graph.comm[seen].astype(np.int64) * width + graph.rank[seen])
    starts = np.searchsorted(pairs, np.arange(len(graph.comm_names) + 1) * width)
    for i, name in enumerate(graph.comm_names):
        out.setdefault(name, pairs[starts[i] : starts[i + 1]] % width)
    return out


def pooled(chosen: list[Group]) -> Fit:
    """One fit to several groups, whatever their operations and numbers of ranks.

    Each collective tells messages and bytes by its own form. By size classes (`fit`) where all
    have the same form and number of ranks. Raises NoFit and models.NoModel.
    """
    if not chosen:
        raise NoFit("there are none")
    kinds = {(rows["op"][0], algo, int(rows["n"][0])) for rows, algo in chosen}
    if len(kinds) == 1:
        return fit(pl.concat([rows for rows, _ in chosen]), chosen[0][1])
    p, x, took, size, comm = [], [], [], [], []
    for i, (rows, algo) in enumerate(chosen):
        messages, volume = coefficients(rows["op"][0], algo, int(rows["n"][0]))
        rows = rows.filter((pl.col("bytes") > 0) & (pl.col("transfer_ns") > 0))
        if not len(rows) or not messages or not volume:
            continue
        bytes_ = rows["bytes"].to_numpy().astype(np.float64)
        p.append(np.full(len(rows), messages))
        x.append(volume * bytes_)
        size.append(bytes_)
        took.append(rows["transfer_ns"].to_numpy())
        comm.append(np.full(len(rows), i))
    if not p:
        raise NoFit("none has both a size and a transfer time")
    p, x, took, size, comm = (np.concatenate(part) for part in (p, x, took, size, comm))
    names, code = np.unique([rows["comm"][0] for rows, _ in chosen], return_inverse=True)
    separated = x.max() / p.max() >= SPREAD * x.min() / p.min()
    alpha_error = slope_error = 0.0
    if separated:
        (alpha, slope), (alpha_error, slope_error) = line(p, x, took, code[comm])
    else:
        alpha = min(DEFAULT_ALPHA_NS, float((took / p).min()) / 2)
        slope = float(np.median((took - p * alpha) / x))
    tell(slope, slope_error)
    ranks = [n for _, _, n in kinds]
    return Fit(
        comm="",
        op="",
        algo=" or ".join(sorted({algo for _, algo, _ in kinds})),
        n=max(ranks),
        alpha_ns=float(alpha),
        alpha_error_ns=float(alpha_error),
        bandwidth_bytes_per_s=1e9 / float(slope),
        bandwidth_error_bytes_per_s=1e9 * float(slope_error) / float(slope) ** 2,
        instances=len(took),
        min_bytes=int(size.min()),
        max_bytes=int(size.max()),
        error_pct=error_pct(p * alpha + x * slope, took),
        separated=bool(separated),
        comms=len(names),
    )


def lent(group: Group, lender: Fit) -> Fit | None:
    """A group whose sizes are too alike, fitted with what another fit lends it; None: no fit.

    The lender's line says whether messages or bytes take more of the median collective: that one
    is fitted to the group's own, the other is lent.
    """
    rows, algo = group
    p, q = coefficients(rows["op"][0], algo, int(rows["n"][0]))
    size = float(rows["bytes"].median())  # type: ignore[arg-type]
    alpha, bandwidth = (float(v) for v in lender.at(size))
    try:
        if p * alpha > q * size * 1e9 / bandwidth:
            found = fit(rows, algo, bandwidth_bytes_per_s=bandwidth)
            return found._replace(bandwidth_error_bytes_per_s=lender.bandwidth_error_bytes_per_s)
        found = fit(rows, algo, alpha_ns=alpha)
        return found._replace(alpha_error_ns=lender.alpha_error_ns)
    except NoFit:
        return None
