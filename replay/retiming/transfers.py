"""The collectives that a policy may re-time: which they are, and their transfers changed."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import polars as pl

from .. import edges
from ..calibration import calibrate
from ..graph import Kind
from ..policy import BadParam, Param, ReplayJob, words
from ..quantities import LONGEST_NS

YEAR_NS = 365.25 * 86_400e9

P2P = ("send", "recv")

RECORD_SIZES = "record sizes (record_shapes=True of PyTorch's profiler, or execution traces)"

WHERE = (
    Param("dim", words, (), "", "parallel dimensions to change, joined by + (default: all)"),
    Param("comm", words, (), "", "communicators to change, joined by + (default: all)"),
)
WHICH = (Param("op", words, (), "", "operations to change, joined by + (default: all)"), *WHERE)
"""Parameters of policies that say what `chosen` takes."""


def chosen(
    job: ReplayJob,
    *,
    op: Sequence[str] = (),
    dim: Sequence[str] = (),
    comm: Sequence[str] = (),
    sized: bool = True,
) -> tuple[ReplayJob, pl.DataFrame]:
    """The matched collectives of some operations, dimensions and communicators; none given: all.

    One row a collective, as `calibrate.instances` gives them, with `dim` (`unknown` where the
    communicator has none), `step` and `ranks` (list, those seen). Left out, with a warning on the
    returned job: those not seen on all their ranks (how much of their time is waiting is not
    known) and, if `sized`, those without a size. An empty frame, with a warning that says what
    the job has, where nothing is left.
    """
    rows = described(job)
    wanted = rows
    for column, names in (("op", op), ("dim", dim), ("comm", comm)):
        if names:
            wanted = wanted.filter(pl.col(column).is_in(list(names)))
    label = _named(op) or "collectives"
    if not len(wanted):
        have = ", ".join(sorted(set(rows["op"]))) or "no collectives"
        where = "".join(f" on {_named(names)}" for names in (dim, comm) if names)
        return job.note(warnings=(f"the job has no {label}{where}: it has {have}",)), wanted
    whole = wanted.filter(pl.col("seen") >= pl.col("n"))
    if len(whole) < len(wanted):
        said = (
            f"{len(wanted) - len(whole)} of {len(wanted)} {label} were not seen on all their "
            "ranks: how much of their time is waiting for the others is not known, so they are "
            "left as measured; record every rank"
        )
        job = job.note(warnings=(said,))
    with_size = whole.filter(pl.col("bytes") > 0) if sized else whole
    if len(with_size) < len(whole):
        said = (
            f"{len(whole) - len(with_size)} of {len(whole)} {label} have no size: left as measured"
            f"; {RECORD_SIZES}"
        )
        job = job.note(warnings=(said,))
    return job, with_size


def _named(names: Sequence[str]) -> str:
    """Names of any length and content in a sentence."""
    text = " or ".join("".join(c if c.isprintable() else "?" for c in n[:80]) for n in names[:20])
    return text if len(names) <= 20 else f"{text} or {len(names) - 20} more"


def whole_ns(dur_ns: np.ndarray) -> np.ndarray:
    """Durations of tasks, float64, as int64.

    Raises BadParam where all of them would last longer than a century: no chain of tasks is longer
    than all together, and times are 64 bits of ns. (Or where one is no number.)
    """
    if len(dur_ns) and not float(dur_ns.sum()) <= LONGEST_NS:
        raise BadParam(
            f"an operation would last {float(dur_ns.max()) / YEAR_NS:.3g} years, all of them more "
            "than a century: are the units of the policy's parameters right?"
        )
    return np.rint(dur_ns).astype(np.int64)


def described(job: ReplayJob) -> pl.DataFrame:
    """Every matched collective of the measured job: `calibrate.instances`, dim, step, ranks."""
    graph = job.facts.get("measured", job.graph)
    task = np.flatnonzero(graph.kind == Kind.TRANSFER)
    seen = (
        pl.DataFrame(
            {
                "collective": graph.collective[task],
                "rank": graph.rank[task],
                "step": graph.step[task],
            }
        )
        .group_by("collective")
        .agg(pl.col("rank").sort().alias("ranks"), pl.col("step").max())
    )
    rows = calibrate.instances(graph).join(seen, on="collective", how="left")
    comms = job.facts.get("comms")
    if comms is None or not len(comms):
        return rows.with_columns(dim=pl.lit("unknown")).sort("collective")
    dims = comms.select(pl.col("comm").cast(pl.String), pl.col("dim").cast(pl.String)).unique(
        "comm", keep="first", maintain_order=True
    )
    return (
        rows.join(dims, on="comm", how="left")
        .with_columns(pl.col("dim").fill_null("unknown"))
        .sort("collective")
    )


def scaled(
    job: ReplayJob,
    rows: pl.DataFrame,
    ratio: np.ndarray,
    *,
    bytes_ratio: np.ndarray | None = None,
    added_ns: np.ndarray | None = None,
    bandwidth_ratio: np.ndarray | None = None,
) -> ReplayJob:
    """The job with each collective's transfers times `ratio`, plus `added_ns`; never below 0.

    A bucket of a collective is scaled as that is.
    `ratio`, `bytes_ratio` (what moves afterwards over what moved), `added_ns` and
    `bandwidth_ratio` are float64 [k], one for each of the k rows of `chosen`. A ratio of 1 changes
    nothing, to the nanosecond. `bandwidth_ratio` is for a policy that makes links faster (or
    bytes need less of them): what they carry afterwards over what they carried; the floor of the
    busiest link (`bounds`) counts with it. A time that is no number is left as measured, with a
    warning. Raises BadParam where the transfers would last longer than a century in all.
    """
    graph = job.graph
    size = int(max(graph.collective.max(initial=-1), rows["collective"].max() if len(rows) else -1))
    at = rows["collective"].to_numpy()
    by = np.ones(size + 2)
    by[at] = ratio
    more = np.zeros(size + 2)
    if added_ns is not None:
        more[at] = added_ns
    task = graph.kind == Kind.TRANSFER
    which = _recorded_as(job)[task]
    dur = graph.dur_ns.copy()
    with np.errstate(over="ignore", invalid="ignore"):
        new = np.rint(dur[task] * by[which] + more[which])
    unknown = np.isnan(new)
    if unknown.any():
        said = (
            f"{len(np.unique(which[unknown]))} collectives: the model gives no time for them, left "
            "as measured"
        )
        job = job.note(warnings=(said,))
        new = np.where(unknown, dur[task], new)
    dur[task] = whole_ns(np.maximum(new, 0))
    arrays: dict[str, np.ndarray] = {"dur_ns": dur}
    if bytes_ratio is not None:
        of = np.ones(size + 2)
        of[at] = bytes_ratio
        moved = graph.bytes.copy()
        moved[task] = np.rint(moved[task] * of[which]).astype(np.int64)
        arrays["bytes"] = moved
    if bandwidth_ratio is not None:
        of = np.ones(size + 2)
        of[at] = bandwidth_ratio
        faster = graph.extra.get("bandwidth_ratio", np.ones(graph.n)).copy()
        faster[task] *= of[which]
        job = job.with_graph(extra={**graph.extra, "bandwidth_ratio": faster})
    return job.with_graph(**arrays)


def _recorded_as(job: ReplayJob) -> np.ndarray:
    """int64 [n]: the recorded collective of each task, of an added one that it was made like."""
    graph = job.graph
    measured = job.facts.get("measured", graph)
    return measured.collective[edges.origin(graph)] if measured is not graph else graph.collective


def faster(ratio: np.ndarray) -> np.ndarray:
    """`bandwidth_ratio` of a policy that changes the links themselves: as times fall, links rise.

    1 where times do not fall: what is slower may be so for another reason.
    """
    return np.divide(1.0, ratio, out=np.full(len(ratio), 1e12), where=ratio > 1e-12).clip(1.0)
