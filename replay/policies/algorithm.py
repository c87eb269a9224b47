"""Another algorithm or protocol for chosen collectives.

A transfer's new time is the measured one times model(new) / model(old), with the same alpha and
bandwidth in both, so that an error common to both cancels. Closed forms and their sources are in
`replay.models`; NCCL's protocols and its own algorithms come from its tuning model there.
"""

from __future__ import annotations

import numpy as np
import polars as pl

from .. import models
from ..calibration import calibrate
from ..calibration.hockney import usual
from ..moe import demand
from ..policy import BadParam, Param, Policy, ReplayJob, Stage, words
from ..quantities import bandwidth_bytes_per_s, time_ns
from ..retiming import altered, recost, transfers
from . import hierarchical

NCCL_ONLY = tuple(a for a in recost.IN_NCCL if a not in models.ALGOS)
BY_LEVELS = "hierarchical"
"""Done by the policy of that name, whose parameters tell more."""

ALGOS = (*models.ALGOS, *NCCL_ONLY, BY_LEVELS, recost.AUTO, recost.KEEP)
IN_NETWORK = ("nvls", "nvls-tree", "collnet-direct", "collnet-chain", recost.AUTO)

NEUTRAL = {"algo": "ring", "from": "ring"}

ASSUMPTIONS = (
    "alpha and bandwidth are the same under both algorithms",
    "the new algorithm contends with other work as the old one did",
)


def apply(
    job: ReplayJob,
    *,
    op: tuple[str, ...],
    algo: str,
    protocol: str = recost.KEEP,
    dim: tuple[str, ...] = (),
    comm: tuple[str, ...] = (),
    machine: str = recost.AUTO,
    alpha: float | None = None,
    bandwidth: float | None = None,
    **more: str,
) -> ReplayJob:
    """The job with the transfers of the chosen operations under another algorithm."""
    ops = (op,) if isinstance(op, str) else tuple(op)
    if algo == BY_LEVELS:
        levels = hierarchical.POLICY
        given = {"op": ops, "dim": dim, "comm": comm, "alpha": alpha, "bandwidth": bandwidth}
        return levels.apply(job, **levels.values(given))
    in_nccl = protocol != recost.KEEP or algo in (*NCCL_ONLY, recost.AUTO)
    for one in ops:
        if not in_nccl and algo != recost.KEEP:
            models.row(one, algo)
    if in_nccl and (alpha is not None or bandwidth is not None):
        raise BadParam(
            "policy algorithm: NCCL's tuning model has its own latencies and bandwidths: leave out "
            "alpha and bandwidth, or protocol"
        )
    job, rows = transfers.chosen(job, op=ops, dim=dim, comm=comm)
    job, rows = altered.untouched(job, rows, "algorithm")
    if not len(rows):
        return job
    job, rows = _ran(job, rows, more.get("from", recost.AUTO))
    rows = rows.with_row_index("at")
    ratio = np.ones(len(rows))
    given = recost.Given(alpha, bandwidth)
    matrices = demand.told(job, rows)
    for _, group in rows.group_by("comm", "op", "algo", "n", maintain_order=True):
        old, n = group["algo"][0], int(group["n"][0])
        new = old if algo == recost.KEEP else algo
        if n < 2 or (old == new and not in_nccl):
            continue
        label = f"{group['op'][0]} on {group['comm'][0]}"
        try:
            if in_nccl or (old in NCCL_ONLY and new in recost.IN_NCCL):
                found = recost.by_nccl(job, group, old, new, protocol, machine)
            else:
                found = recost.by_form(job, group, old, new, given, matrices)
        except calibrate.NoFit as e:
            said = f"{label}: no fit of alpha and bandwidth is possible, left as measured: {e}"
            job = job.note(warnings=(said,))
            continue
        except models.NoModel as e:
            said = f"{len(group)} {label} ran as {old!r}: left as measured: {e}"
            job = job.note(warnings=(said,))
            continue
        missing = int(np.isnan(found.ratio).sum())
        if missing:
            said = f"{missing} {label}: NCCL does not offer {new} {protocol} there, as measured"
            job = job.note(warnings=(said,))
        ratio[group["at"].to_numpy()] = np.where(np.isnan(found.ratio), 1.0, found.ratio)
        if new in models.ALGOS and not missing:
            job = altered.run_by(job, group["collective"], new)
        job = job.note(assumptions=found.assumptions, warnings=found.warnings)
    # Switches that add up and copy spare the ranks' links bytes.
    spared = transfers.faster(ratio) if algo in IN_NETWORK else None
    return transfers.scaled(job, rows, ratio, bandwidth_ratio=spared).note(assumptions=ASSUMPTIONS)


def _ran(job: ReplayJob, rows: pl.DataFrame, old: str) -> tuple[ReplayJob, pl.DataFrame]:
    """The rows with the algorithm that ran in `algo`: the one given, else recorded, else usual."""
    if old != recost.AUTO:
        return job, rows.with_columns(algo=pl.lit(old))
    unknown = rows.filter(pl.col("algo") == "?")
    taken = sorted({usual(o) for o in unknown["op"]})
    if taken:
        job = job.note(
            assumptions=(
                f"{len(unknown)} of {len(rows)} collectives do not say their algorithm: "
                f"taken to be {', '.join(taken)}",
            )
        )
    return job, rows.with_columns(algo=pl.Series(altered.algorithms(job, rows), dtype=pl.String))


def algorithm(text: str) -> str:
    """An algorithm's name as the models have it, however it is written."""
    return models.named(text)


POLICY = Policy(
    name="algorithm",
    summary="another algorithm or protocol for chosen collectives",
    source="Thakur, Rabenseifner, Gropp 2005, alpha-beta (Hockney) model; NCCL src/graph/tuning.cc",
    params=(
        Param("op", words, ("all_reduce",), "", "operations to change, joined by +"),
        Param(
            "algo",
            algorithm,
            "tree",
            "",
            "algorithm to use instead; auto: NCCL's choice; keep: as it was",
            ALGOS,
        ),
        Param(
            "protocol",
            str,
            recost.KEEP,
            "",
            "NCCL protocol to use; auto: its best; keep: as it was",
            (recost.KEEP, recost.AUTO, *models.nccl.PROTOCOLS),
        ),
        *transfers.WHERE,
        Param(
            "from",
            algorithm,
            recost.AUTO,
            "",
            "algorithm that ran; auto: what the trace says, else the usual one (ring)",
            (recost.AUTO, *models.ALGOS, *NCCL_ONLY),
        ),
        Param(
            "machine",
            str,
            recost.AUTO,
            "",
            "hosts for NCCL's model; auto: by the device",
            (recost.AUTO, *models.nccl_machines.machines()),
        ),
        Param("alpha", time_ns, None, "ns", "cost of a message (default: fitted from the trace)"),
        Param(
            "bandwidth",
            bandwidth_bytes_per_s,
            None,
            "bytes/s",
            "of a link, one direction (default: fitted from the trace)",
        ),
    ),
    assumptions=ASSUMPTIONS,
    apply=apply,
    stage=Stage.ALGORITHM,
    needs=("collectives with sizes, seen on all ranks of their communicators",),
    valid="sizes and ranks of the trace; a fabric where distance and shared links cost the same",
    checked="8 ranks, 0.822 us, 450 GB/s: ring and tree cross at 680 KiB (arithmetic on the forms)",
)
