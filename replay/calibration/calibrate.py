"""What a job's own collectives say of its links, and where they say nothing, what else does."""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
import polars as pl

from .. import models
from ..graph import Kind, TaskGraph
from ..policy import ReplayJob
from ..retiming.places import Places
from ..steps import participations
from . import link_sources
from .hockney import DEFAULT_ALPHA_NS, SPREAD, Fit, NoFit, fit, usual

__all__ = [
    "DEFAULT_ALPHA_NS",
    "SPREAD",
    "Fit",
    "Link",
    "NoFit",
    "fit",
    "instances",
    "link",
    "table",
]


class Link(NamedTuple):
    """What a message and a byte cost among the ranks of a communicator."""

    alpha_ns: float
    bandwidth_bytes_per_s: float
    """Of one rank, one direction."""
    source: str
    """fitted (to the job's own collectives), curve (of a benchmark of the job), fabric, assumed."""
    words: str
    """What it rests on, in one line."""
    min_bytes: int
    max_bytes: int
    """Sizes that it was calibrated on; 0 and 0 where it was not."""
    level: str = "unknown"
    """intra host, inter host or unknown."""

    def outside(self, size_bytes: Any) -> str:
        """What to say of sizes outside the calibrated range; empty where all are within it."""
        size = np.atleast_1d(np.asarray(size_bytes, np.float64))
        size = size[size > 0]
        if not self.max_bytes or not len(size):
            return ""
        low, high = size.min(), size.max()
        if low >= self.min_bytes and high <= self.max_bytes:
            return ""
        return (
            f"sizes of {low:.0f} to {high:.0f} bytes are outside what is calibrated "
            f"({self.min_bytes} to {self.max_bytes} bytes): the estimate is an extrapolation"
        )


def link(job: ReplayJob, comm: str, op: str) -> Link:
    """Alpha and bandwidth for an operation on a communicator, from the best that is known.

    Fitted to the job's own participations: of the operation on the communicator, else of another
    operation on it, else of the operation on communicators of as many ranks at its level (intra
    host or inter host). Else the line of the job's `cost_curves` of the operation; else the
    fabric's; else the machine of the device's name (`machines`), which is marked assumed.
    """
    fits = _fits(job)
    level = _level(job, comm)
    n = _size(job, comm)

    def near(one: Fit) -> tuple:
        alike = one.op == op
        return (one.comm != comm, not alike, not one.separated, -one.instances, one.comm, one.op)

    own = [f for f in fits if f.comm == comm]
    others = [f for f in fits if f.op == op and f.n == n and _level(job, f.comm) == level]
    for candidates in (own, others if level != "unknown" else []):
        if candidates:
            best = min(candidates, key=near)
            return Link(
                best.alpha_ns,
                best.bandwidth_bytes_per_s,
                "fitted",
                f"fitted: {best.words()}",
                best.min_bytes,
                best.max_bytes,
                level,
            )
    curve = link_sources.curve(job, op, n)
    if curve is not None:
        return Link(
            curve.alpha_ns,
            curve.bandwidth_bytes_per_s,
            "curve",
            f"of a benchmark: {curve.words()}",
            curve.min_bytes,
            curve.max_bytes,
            level,
        )
    found = link_sources.fabric(job, ranks_of(job, comm))
    source = "fabric"
    if found is None:
        found, source = link_sources.machine(job, level), "assumed"
    return Link(*found[:2], source, found[2], 0, 0, level)


def table(job: ReplayJob) -> list[dict[str, Any]]:
    """The calibration: a row a communicator, operation and algorithm, by communicator.

    Each has `comm`, `dim`, `op`, `algo`, `level`, `n` (ranks), `alpha_ns`, `bandwidth_bytes_per_s`
    and their standard errors (None where `caveat` says why there is no fit), `tau_ns` (wait of
    the median rank, median over collectives) and `tau_spread_ns` (between its quartiles),
    `collectives`, `min_bytes`, `max_bytes`, and `error_pct`: how far the line is from 90 % of them
    at most.
    """
    graph = job.facts.get("measured", job.graph)
    taus = waits(graph)
    dims = _dims(job)
    out = []
    for rows, algo in _groups(graph):
        comm, op = rows["comm"][0], rows["op"][0]
        wait = rows.join(taus, on="collective", how="inner")["wait_ns"]
        row: dict[str, Any] = {
            "comm": comm,
            "dim": dims.get(comm, "unknown"),
            "op": op,
            "algo": algo,
            "level": _level(job, comm),
            "n": int(rows["n"][0]),
            "alpha_ns": None,
            "alpha_error_ns": None,
            "bandwidth_bytes_per_s": None,
            "bandwidth_error_bytes_per_s": None,
            "separated": False,
            "error_pct": None,
            "tau_ns": _number(wait.median()),
            "tau_spread_ns": _spread(wait),
            "collectives": len(rows),
            "min_bytes": int(rows["bytes"].to_numpy().min()),
            "max_bytes": int(rows["bytes"].to_numpy().max()),
            "caveat": None,
        }
        try:
            found = fit(rows, algo)
        except (NoFit, models.NoModel) as e:
            out.append({**row, "caveat": str(e)})
            continue
        out.append({**row, **{k: v for k, v in found._asdict().items() if k in row}})
    return out


def waits(graph: TaskGraph) -> pl.DataFrame:
    """`collective` and `wait_ns`: the wait of its median rank for the last to arrive, measured."""
    arrive, transfer = participations(graph)
    part = pl.DataFrame(
        {
            "collective": graph.collective[arrive],
            "start": graph.start_ns[arrive],
            "end": graph.end_ns[transfer],
        }
    )
    ready = pl.col("start").max().over("collective")
    wait = (pl.min_horizontal(ready, "end") - pl.col("start")).clip(0)
    return (
        part.select("collective", wait_ns=wait)
        .group_by("collective")
        .agg(pl.col("wait_ns").median())
        .sort("collective")
    )


def instances(graph: TaskGraph) -> pl.DataFrame:
    """One row a matched collective: comm, op, algo (`?` unknown), n, seen, bytes, transfer_ns.

    `transfer_ns` is the median over its ranks; n the size of its group where the source says,
    else the ranks that were seen.
    """
    task = np.flatnonzero(graph.kind == Kind.TRANSFER)
    none = np.full(graph.n, -1)
    rows = pl.DataFrame(
        {
            "collective": graph.collective[task],
            "comm": graph.comm[task],
            "op": graph.op[task],
            "algo": graph.extra.get("algo", none)[task],
            "size": graph.extra.get("group_size", none)[task],
            "bytes": graph.bytes[task],
            "transfer_ns": graph.dur_ns[task].astype(np.float64),
        }
    )
    named = rows.group_by("collective").agg(
        pl.col("comm", "op", "algo").first(),
        pl.col("size", "bytes").max(),
        seen=pl.len(),
        transfer_ns=pl.col("transfer_ns").median(),
    )

    def name(column: str, table: tuple[str, ...]) -> pl.Series:
        texts = pl.Series([*table, "?"], dtype=pl.String)
        codes = named[column].to_numpy()
        return texts.gather(np.where(codes < 0, len(table), codes)).alias(column)

    n = pl.when(pl.col("size") > 0).then("size").otherwise(pl.col("seen").cast(pl.Int64))
    return (
        named.with_columns(
            name("comm", graph.comm_names),
            name("op", graph.op_names),
            name("algo", graph.op_names),
            n=n,
        )
        .drop("size")
        .sort("collective")
    )


def _groups(graph: TaskGraph) -> list[tuple[pl.DataFrame, str]]:
    """Collectives seen on all ranks and with a size, by comm, op, algorithm, n; and that algo."""
    whole = graph.instances.filter(
        (pl.col("seen") >= pl.col("n")) & (pl.col("bytes") > 0) & (pl.col("n") > 1)
    )
    out = []
    for (_, op, algo, _), rows in whole.group_by("comm", "op", "algo", "n", maintain_order=True):
        out.append((rows, usual(str(op)) if algo == "?" else models.recorded(str(algo))))
    return sorted(out, key=lambda one: (one[0]["comm"][0], one[0]["op"][0], one[1]))


def _fits(job: ReplayJob) -> list[Fit]:
    graph = job.facts.get("measured", job.graph)
    known = graph.__dict__.get("_fits")
    if known is None:
        known = []
        for rows, algo in _groups(graph):
            try:
                known.append(fit(rows, algo))
            except (NoFit, models.NoModel):
                continue
        graph.__dict__["_fits"] = known
    return known


def ranks_of(job: ReplayJob, comm: str) -> np.ndarray:
    """int64: members of a communicator, as `comms` has them, else those that took part."""
    comms = job.facts.get("comms")
    if comms is not None and len(comms) and "ranks" in comms.columns:
        listed = comms.filter(pl.col("comm").cast(pl.String) == comm)["ranks"].drop_nulls()
        if len(listed):
            return np.asarray(listed[0].to_list(), np.int64)
    graph = job.facts.get("measured", job.graph)
    if comm not in graph.comm_names:
        return np.empty(0, np.int64)
    at = (graph.comm == graph.comm_names.index(comm)) & (graph.rank >= 0)
    return np.unique(graph.rank[at]).astype(np.int64)


def _size(job: ReplayJob, comm: str) -> int:
    rows = job.facts.get("measured", job.graph).instances.filter(pl.col("comm") == comm)
    return int(rows["n"].max()) if len(rows) else len(ranks_of(job, comm))  # type: ignore[arg-type]


def _level(job: ReplayJob, comm: str) -> str:
    hosts = Places.of(job).hosts_of(ranks_of(job, comm))
    return {0: "unknown", 1: "intra host"}.get(hosts, "inter host")


def _dims(job: ReplayJob) -> dict[str, str]:
    comms = job.facts.get("comms")
    if comms is None or not len(comms):
        return {}
    rows = comms.select(pl.col("comm").cast(pl.String), pl.col("dim").cast(pl.String))
    return {c: d for c, d in rows.iter_rows() if c is not None and d is not None}


def _number(value: Any) -> float | None:
    return None if value is None else float(value)


def _spread(wait: pl.Series) -> float | None:
    if not len(wait):
        return None
    return float(wait.quantile(0.75, "linear") - wait.quantile(0.25, "linear"))  # type: ignore
