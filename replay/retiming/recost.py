"""What a collective would take under another algorithm, as a share of what it took.

Two models: alpha-beta forms with one alpha and bandwidth for both algorithms, and NCCL's tuning
model where a protocol or an algorithm of NCCL's own is asked for.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import NamedTuple

import numpy as np
import polars as pl

from .. import models
from ..calibration import calibrate, machines
from ..calibration.hockney import TookNoLonger, usual
from ..models import nccl, nccl_machines, uneven
from ..policy import ReplayJob
from . import altered
from .places import Places

IN_NCCL = {"ring": "ring", "tree": "tree", "double-tree": "tree", "nvls": "nvls"} | {
    name.replace("_", "-"): name for name in nccl.ALGORITHMS[2:]
}
"""Algorithms that NCCL has, by their names here."""

KEEP, AUTO = "keep", "auto"


class Given(NamedTuple):
    """Alpha and bandwidth that the user gave, or None."""

    alpha_ns: float | None = None
    bandwidth_bytes_per_s: float | None = None


class Ratio(NamedTuple):
    """New time over old, [k] for the rows asked about (NaN: no model), and what to say."""

    ratio: np.ndarray
    assumptions: tuple[str, ...] = ()
    warnings: tuple[str, ...] = ()


def by_form(
    job: ReplayJob, rows: pl.DataFrame, old: str, new: str, given: Given,
    matrices: Mapping[int, np.ndarray] | None = None,
) -> Ratio:  # fmt: skip
    """By closed forms, for sized rows of one communicator, operation and number of ranks.

    An all-to-all whose rank-by-rank bytes are in `matrices` (float64 [n, n] by collective) is
    counted from them (`models.uneven`), where both algorithms can be.

    Alpha and bandwidth are those given, else fitted to these rows under `old`, else
    `calibrate.link` where that rests on anything measured or described. Where it does not and
    larger ones took no longer, messages are counted alone. Raises calibrate.NoFit
    where nothing tells them, models.NoModel where an algorithm has no form for n.
    """
    op, n, comm = rows["op"][0], int(rows["n"][0]), rows["comm"][0]
    size = altered.sizes_bytes(job, rows)
    for algo in (new, old):
        models.time_ns(op, algo, n, 0, 1.0, 1.0)
    assumptions: tuple[str, ...] = ()
    warnings: tuple[str, ...] = ()
    try:
        found = calibrate.fit(
            rows,
            old,
            alpha_ns=given.alpha_ns,
            bandwidth_bytes_per_s=given.bandwidth_bytes_per_s,
        )
    except calibrate.NoFit as e:
        found = calibrate.link(job, comm, op)
        if given != Given():
            raise
        if found.source in ("assumed", "seen"):
            if not isinstance(e, TookNoLonger):
                raise
            return _by_messages(rows, old, new)
        assumptions = (found.words,)
    else:
        lent = None if found.separated or given != Given() else _lent(job, rows, old)
        if lent is not None:
            found, assumptions = lent, (lent.words,)
        elif None in given:
            assumptions = (f"fitted: {found.words()}",)
            if not found.separated and given == Given():
                warnings = (_alike(found, old, new),)
    outside = found.outside(size)
    if outside and None in given:
        warnings += (f"{op} on {comm}: {outside}",)
    alpha, bandwidth = found.at(size)
    cost = [models.time_ns(op, algo, n, size, alpha, bandwidth) for algo in (new, old)]
    counted = _counted(rows, (new, old), size, alpha, bandwidth, matrices or {})
    for at, times in counted.items():
        cost[0][at], cost[1][at] = times
    if counted:
        said = f"{op} on {comm}: counted from who sends how much to whom"
        assumptions = (*assumptions, said)
    return Ratio(_over(*cost), assumptions, warnings)


def _by_messages(rows: pl.DataFrame, old: str, new: str) -> Ratio:
    """Where larger ones took no longer: alpha alone matters, so the ratio is that of messages."""
    op, n, comm = rows["op"][0], int(rows["n"][0]), rows["comm"][0]
    times = [models.time_ns(op, algo, n, 0, 1.0, 1.0) for algo in (new, old)]
    ratio = float(_over(*times))
    size = rows["bytes"].to_numpy()
    said = (
        f"{op} on {comm}: those of {size.max()} bytes took no longer than those of {size.min()}: "
        f"{new} is priced by its messages alone, {ratio:.3g} times as many"
    )
    return Ratio(np.full(len(rows), ratio), (said,))


def _counted(
    rows: pl.DataFrame, algos: tuple[str, str], size: np.ndarray, alpha, bandwidth,
    matrices: Mapping[int, np.ndarray],
) -> dict[int, tuple[float, ...]]:  # fmt: skip
    """Times (ns) by both algorithms of the rows, by place, whose blocks are known."""
    if not matrices or not set(algos) <= set(uneven.ALGOS):
        return {}
    alpha, bandwidth = (np.broadcast_to(x, len(rows)) for x in (alpha, bandwidth))
    left = size / rows["bytes"].to_numpy()
    return {
        at: tuple(
            uneven.time_ns(algo, matrices[c] * left[at], alpha[at], bandwidth[at]) for algo in algos
        )
        for at, c in enumerate(rows["collective"].to_list())
        if c in matrices
    }


def _alike(found: calibrate.Fit, old: str, new: str) -> str:
    low, high = _whatever_alpha(found.op, old, new, found.n)
    return (
        f"{found.op} on {found.comm}: sizes from {found.min_bytes} to {found.max_bytes} bytes are "
        f"too alike to tell alpha from bandwidth; alpha taken as {found.alpha_ns / 1e3:.3g} us. "
        f"Whatever alpha is, {new} takes {low:.2f} to {high:.2f} times as long"
    )


def _lent(job: ReplayJob, rows: pl.DataFrame, old: str) -> calibrate.Link | None:
    """The link with what other collectives lend, where that was fitted for the same algorithm."""
    op, algo = rows["op"][0], rows["algo"][0]
    if old != (usual(op) if algo == "?" else models.recorded(algo)):
        return None
    link = calibrate.link(job, rows["comm"][0], op)
    return link if link.alpha_from == "lent" else None


def _whatever_alpha(op: str, old: str, new: str, n: int) -> tuple[float, float]:
    """The ratio where only messages cost, and where only bytes do; the smaller first."""
    size = float(1 << 40)
    pairs = [
        [float(models.time_ns(op, algo, n, size, alpha, bandwidth)) for algo in (new, old)]
        for alpha, bandwidth in ((1.0, np.inf), (0.0, 1.0))
    ]
    low, high = sorted(float(_over(*map(np.array, pair))) for pair in pairs)
    return low, high


def _over(new: np.ndarray, old: np.ndarray) -> np.ndarray:
    """new / old; 1 where neither takes any time."""
    with np.errstate(divide="ignore", invalid="ignore"):
        return np.where((old == 0) & (new == 0), 1.0, new / old)


def by_nccl(
    job: ReplayJob, rows: pl.DataFrame, old: str, new: str, protocol: str, machine: str
) -> Ratio:
    """By NCCL's tuning model, for sized rows of one communicator, operation and number of ranks.

    The old protocol is what the model chooses for the old algorithm at each size. `new` AUTO: the
    model's own choice; `protocol` KEEP: the old one where the new algorithm has it, else, as
    for AUTO, the best. NaN where something is not available. Raises models.NoModel and UsageError.
    """
    op, n, comm = rows["op"][0], int(rows["n"][0]), rows["comm"][0]
    found, said = communicator(job, str(comm), n, machine)
    times = nccl.times_ns(found, op, altered.sizes_bytes(job, rows))
    before, at = _best(times[_index(old)])
    if new == AUTO:
        after = _best(times.reshape(-1, times.shape[-1]))[0]
    else:
        candidates = times[_index(new)]
        after = _best(candidates)[0]
        if protocol in nccl.PROTOCOLS:
            after = candidates[nccl.PROTOCOLS.index(protocol)]
        elif protocol == KEEP:
            kept = np.take_along_axis(candidates, at[None], axis=0)[0]
            after = np.where(np.isnan(kept), after, kept)
    return Ratio(
        after / before,
        (
            f"{op} on {comm}: {said}",
            "NCCL's tuning model gives the ratio; the protocol that ran is the one it chooses",
        ),
    )


def _index(algo: str) -> int:
    if algo not in IN_NCCL:
        raise models.NoModel(
            f"NCCL has no algorithm {algo!r}: a protocol goes with {', '.join(IN_NCCL)}"
        )
    return nccl.ALGORITHMS.index(IN_NCCL[algo])


def _best(times: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """The least of [k, s] and which it is, [s] each; NaN where all are."""
    at = np.where(np.isnan(times), np.inf, times).argmin(axis=0)
    return np.take_along_axis(times, at[None], axis=0)[0], at


def communicator(job: ReplayJob, comm: str, n: int, machine: str = AUTO) -> tuple[nccl.Comm, str]:
    """A job's communicator for NCCL's tuning model, and what was taken for granted.

    Nodes are the hosts of its ranks; the machine is the one named, else told by the device. Raises
    UsageError where neither says, or hosts hold different numbers of ranks.
    """
    ranks = calibrate.ranks_of(job, comm)
    places = Places.of(job)
    nodes = places.hosts_of(ranks) if len(ranks) == n else 0
    said = f"{nodes} hosts" if nodes else "hosts unknown, taken as full ones"
    if machine == AUTO:
        machine = _machine(job)
    if not nodes:
        gpus = nccl.constants()["machines"].get(machine, {"gpus": 8})["gpus"]
        nodes = n // gpus if n > gpus and n % gpus == 0 else 1
    found = nccl_machines.comm(machine, n, nodes)
    return found, f"NCCL on {machine}, {n} ranks, {said}"


def _machine(job: ReplayJob) -> str:
    found = machines.of(job)[0]
    named = nccl_machines.of_device(found.name)
    # What stands in for a device that nobody names, or no table knows, says nothing here.
    if named is not None and found is not machines.GENERAL:
        return named
    known = ", ".join(nccl_machines.machines())
    raise models.NoModel(
        f"the job does not say a device that NCCL's model has data of: give machine, one of {known}"
    )
