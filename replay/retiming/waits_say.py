"""What recorded waits say: the bandwidth beyond which more is useless, and whether lateness is one
rank's or everybody's."""

from __future__ import annotations

import numpy as np
import polars as pl

from .. import models
from ..calibration import calibrate, hockney
from ..costs import lateness
from ..graph import NULL, Kind, TaskGraph
from ..once import once
from ..policy import ReplayJob

WORTH = 0.05
"""A doubled bandwidth that saves less of a collective than this is taken for useless."""

LEAST_RANKS = 3
"""Of fewer the spread of arrivals says nothing about how they are spread."""

STANDS_OUT = 1.2
"""Waits this many times what random arrivals of the same spread cost: someone is often last."""


def useful_bandwidth(job: ReplayJob, rows: pl.DataFrame) -> tuple[str, ...]:
    """B* of the communicator and operation that moves bytes for longest, of `transfers.chosen`.

    Its mean collective, with the mean wait that was recorded. Nothing where waits were not
    measured, or nothing but bytes costs time.
    """
    graph = job.facts.get("measured", job.graph)
    arrived = _seen(graph)
    if not len(arrived) or not len(rows):
        return ()
    every = (
        rows.join(arrived.select("collective", "wait_ns"), on="collective")
        .group_by("comm", "op", "algo", "n", maintain_order=True)
        .agg(pl.col("bytes", "wait_ns").mean(), pl.col("transfer_ns").sum())
        .filter((pl.col("n") > 1) & (pl.col("bytes") > 0))
        .sort("transfer_ns", descending=True, maintain_order=True)
    )
    for comm, op, algo, n, size, wait in every.select(
        "comm", "op", "algo", "n", "bytes", "wait_ns"
    ).iter_rows():
        ran = hockney.usual(op) if algo == "?" else models.recorded(algo)
        try:
            messages, volume = hockney.coefficients(op, ran, n)
        except models.NoModel:
            continue
        latency = float(messages) * calibrate.link(job, comm, op).alpha_ns
        if not volume > 0 or latency + wait <= 0:
            return ()
        most = lateness.useful_bandwidth(
            volume * size, latency_ns=latency, wait_ns=wait, worth=WORTH
        )
        return (
            f"{op} on {comm}: beyond B* = {most / 1e9:.3g} GB/s twice the bandwidth saves less "
            f"than {100 * WORTH:g} % of it (ranks wait {wait / 1e6:.3g} ms for the last one on the "
            f"mean, messages take {latency / 1e6:.3g} ms)",
        )
    return ()


def who_is_late(job: ReplayJob) -> tuple[str, ...]:
    """Mean waits beside those of independent normal arrivals that spread as much."""
    graph = job.facts.get("measured", job.graph)
    arrived = _seen(graph)
    if not len(arrived):
        return ()
    each = arrived.filter(pl.col("n") >= LEAST_RANKS)
    if not len(each) or each["wait_ns"].sum() <= 0:
        return ()
    n = each["n"].to_numpy()
    sizes, place = np.unique(n, return_inverse=True)
    largest = np.array([lateness.expected_maximum(int(k)) for k in sizes])
    wait = float(each["wait_ns"].mean())  # type: ignore[arg-type]
    random = float((each["spread_ns"].to_numpy() * largest[place]).mean())
    who = (
        "some ranks are often the last by far"
        if wait > STANDS_OUT * random
        else "no rank stands out: lateness is everybody's"
    )
    return (
        f"ranks wait {wait / 1e6:.3g} ms on the mean for the last at a collective; independent "
        f"normal arrivals of the same spread would wait {random / 1e6:.3g} ms: {who}",
    )


def _seen(graph: TaskGraph) -> pl.DataFrame:
    return once(graph, ("arrivals",), lambda: _arrivals(graph))


def _arrivals(graph: TaskGraph) -> pl.DataFrame:
    """Collectives as measured: how many ranks were seen, their mean wait, their arrivals' spread.

    Columns collective, n, wait_ns, spread_ns (the standard deviation of a sample).
    """
    of = (graph.collective >= 0) & ~graph.ops("send", "recv")
    came = np.flatnonzero(of & (graph.kind == Kind.ARRIVE) & (graph.start_ns != NULL))
    moved = np.flatnonzero(of & (graph.kind == Kind.TRANSFER) & (graph.end_ns != NULL))
    if not len(came) or not len(moved):
        return pl.DataFrame()
    many = int(graph.collective.max()) + 1
    code, since = graph.collective[came], graph.start_ns[came].min()
    n, seen = (
        np.bincount(code, minlength=many),
        np.bincount(graph.collective[moved], minlength=many),
    )
    ready = (graph.end_ns[moved] - graph.dur_ns[moved] - since).astype(np.float64)
    ready = np.bincount(graph.collective[moved], ready, many) / np.maximum(seen, 1)
    early = ready[code] - (graph.start_ns[came] - since)
    wait = np.bincount(code, early, many) / np.maximum(n, 1)
    squares = np.bincount(code, (early - wait[code]) ** 2, many)
    rows = np.flatnonzero((n > 0) & (seen > 0))
    return pl.DataFrame(
        {
            "collective": rows,
            "n": n[rows],
            "wait_ns": np.maximum(wait[rows], 0),
            "spread_ns": np.sqrt(squares[rows] / np.maximum(n[rows] - 1, 1)),
        }
    )
