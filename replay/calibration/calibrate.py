"""What a job's own collectives say of its links, and where they say nothing, what else does."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, NamedTuple

import numpy as np
import polars as pl

from ..graph import Kind, TaskGraph
from ..policy import ReplayJob
from . import fits, hockney, link_sources, seen
from .hockney import DEFAULT_ALPHA_NS, SPREAD, Fit, NoFit, SizeClass, fit
from .tables import curves, lateness, pools, table

__all__ = [
    "DEFAULT_ALPHA_NS",
    "SPREAD",
    "Fit",
    "Link",
    "NoFit",
    "curves",
    "fit",
    "instances",
    "lateness",
    "link",
    "pools",
    "table",
]


class Link(NamedTuple):
    """What a message and a byte cost among the ranks of a communicator."""

    alpha_ns: float
    bandwidth_bytes_per_s: float
    """Of one rank, one direction."""
    source: str
    """fitted (to the job's own collectives), curve (of a benchmark of the job), fabric, seen
    (collectives that contradict what would be assumed, and give no line), assumed."""
    words: str
    """What it rests on, in one line."""
    min_bytes: int
    max_bytes: int
    """Sizes that it was calibrated on; 0 and 0 where it was not."""
    level: str = "unknown"
    """intra host, inter host or unknown."""
    classes: tuple[SizeClass, ...] = ()
    """Lines of small and of large collectives, where two say more than one."""
    alpha_from: str = ""
    """Of a fitted link: own, lent (by other fits of the job) or assumed."""
    doubt: str = ""
    """A warning: what was seen contradicts what is, or would be, assumed; else empty."""

    def at(self, size_bytes: Any) -> tuple[np.ndarray, np.ndarray]:
        """alpha (ns) and bandwidth (bytes/s) of each size: of its class where there are any."""
        return hockney.at(self.classes, size_bytes, self.alpha_ns, self.bandwidth_bytes_per_s)

    def outside(self, size_bytes: Any) -> str:
        """What to say of sizes outside the calibrated range; empty where all are within it."""
        return hockney.outside(size_bytes, self.min_bytes, self.max_bytes)


def link(job: ReplayJob, comm: str, op: str) -> Link:
    """Alpha and bandwidth for an operation on a communicator, from the best that is known.

    In this order:

    1. the operation's own collectives on the communicator, where sizes tell alpha from bandwidth;
    2. where they do not, these with the alpha (or, where messages take most of their time, the
       bandwidth) of 3, 4 or 5;
    3. another operation on the communicator whose sizes tell both;
    4. the operation on all communicators of its fabric level: of as many ranks, then of any;
    5. all operations on all communicators of its level;
    6. its own collectives of 2, then of 3, with an alpha that is assumed;
    7. pools of 4 and 5 whose sizes are too alike, with an alpha that is assumed;
    8. the line of the job's `cost_curves` of the operation;
    9. the job's fabric;
    10. the machine of the device's name (`machines`), which is marked assumed; where the
        communicator's collectives contradict it, what they took instead (`seen`).
    """
    known = fits.of(job)
    level, n = known.level(comm).coarse, known.n(comm)
    for found, source, words in _fitted(known, comm, op):
        said = f"fitted: {found.words()}{words}"
        return _link(found, "fitted", said, level)._replace(alpha_from=source)
    curve = link_sources.curve(job, op, n)
    if curve is not None:
        return _link(curve, "curve", f"of a benchmark: {curve.words()}", level)
    found = link_sources.fabric(job, ranks_of(job, comm))
    if found is not None:
        return Link(*found[:2], "fabric", found[2], 0, 0, level)
    alpha, bandwidth, words = link_sources.machine(job, level)
    other = seen.instead(known, comm, op, alpha, bandwidth)
    if other is None:
        return Link(alpha, bandwidth, "assumed", words, 0, 0, level)
    said = ("seen", other.words) if other.words else ("assumed", words)
    return Link(*other[:2], *said, 0, 0, level, doubt=other.doubt)


def _fitted(known: fits.Fits, comm: str, op: str) -> Iterator[tuple[Fit, str, str]]:
    """Steps 1 to 7 of `link`: fits, where their alpha is from, and what is to be said of that."""
    own = known.near(comm, op)
    yield from ((found, "own", "") for found, _ in own if found.op == op and found.separated)
    for lender in known.lenders(comm, op):
        for found, group in own:
            better = fits.lent(group, lender) if found.op == op else None
            if better is not None:
                yield better, "lent", f"; what its sizes do not tell is of {lender.words()}"
        yield lender, "own" if lender.comm == comm else "lent", ""
    yield from ((found, "assumed", "") for found, _ in own)
    yield from ((found, "assumed", "") for found in known.pools(comm, op))


def _link(found: Fit, source: str, words: str, level: str) -> Link:
    return Link(
        found.alpha_ns,
        found.bandwidth_bytes_per_s,
        source,
        words,
        found.min_bytes,
        found.max_bytes,
        level,
        found.classes,
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


def ranks_of(job: ReplayJob, comm: str) -> np.ndarray:
    """int64: members of a communicator, as `comms` has them, else those that took part."""
    return fits.of(job).members.get(comm, np.empty(0, np.int64))
