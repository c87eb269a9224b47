"""Collectives on one package or wafer: direct or ring over die-to-die links, rows and meshes.

What a collective took is scaled by the on-package model over the form of the algorithm that ran:
all-gathers and reduce-scatters direct (alpha + (n-1) S / (n g b)) or in a ring, at the shares of
alpha and b that tuned ones reach; all-reduces and reductions along a row or over a mesh in cycles.
A thermal stall adds its length to each.
"""

from __future__ import annotations

import numpy as np

from ..models import on_package as model
from ..policy import BadParam, Param, Policy, ReplayJob, Stage
from ..quantities import bandwidth_bytes_per_s, time_ns
from ..retiming import altered, by_group, transfers

NEUTRAL = {"topology": "keep"}

TOPOLOGIES = ("direct", "ring", "row", "mesh", "keep")
WORD_BYTES = 4
"""A wavelet of the mesh: 32 bits."""

ASSUMPTIONS = (
    "all ranks of a communicator are elements of one package",
    "its links carry nothing else while a collective runs",
)


def apply(
    job: ReplayJob,
    *,
    topology: str,
    pattern: str,
    rows: int,
    columns: int,
    alpha: float,
    link: float,
    links: int,
    clock: float,
    stall: float,
    latency_reached: float,
    bandwidth_reached: float,
    op: tuple[str, ...] = (),
    dim: tuple[str, ...] = (),
    comm: tuple[str, ...] = (),
) -> ReplayJob:
    """The job with chosen collectives on a package."""
    if rows < 0 or columns < 0 or links < 0:
        raise BadParam("policy on-package: rows, columns and links are 1 or more, or 0 for auto")
    if not (np.isfinite(clock) and clock > 0):
        raise BadParam(f"policy on-package: clock={clock:g}: cycles a second, above 0 (850e6)")
    if stall < 0 or alpha < 0:
        raise BadParam("policy on-package: stall and alpha are times of 0 or more")
    if not (0 < latency_reached <= 1 and 0 < bandwidth_reached <= 1):
        raise BadParam(
            "policy on-package: latency_reached and bandwidth_reached are shares of the bounds, "
            "above 0 and at most 1 (0.78, 0.94)"
        )
    job, found = transfers.chosen(job, op=op, dim=dim, comm=comm)
    job, found = altered.untouched(job, found, "on-package")
    if not len(found):
        return job
    unfit: dict[str, None] = {}

    def price(group: by_group.Group) -> np.ndarray | None:
        if topology == "keep":
            return None
        n, size = group.n, group.size_bytes
        if topology in ("direct", "ring"):
            passes = {"all_gather": 1, "reduce_scatter": 1, "all_reduce": 2}.get(group.op)
            if passes is None:
                unfit[f"{group.label}: no {topology} form on a package: left as measured"] = None
                return None
            new = passes * model.all_gather_ns(
                topology, n, size, alpha / latency_reached, link * bandwidth_reached, links or None
            )
            return new / group.time_ns()
        shape = _shape(topology, rows, columns, n)
        if shape is None:
            unfit[
                f"{group.label}: {n} ranks are no mesh of {rows or '?'} x {columns or '?'}: "
                "give rows and columns whose product they are"
            ] = None
            return None
        words_each = size / WORD_BYTES
        names = model.PATTERNS if pattern == "auto" else (pattern,)
        if group.op == "all_reduce":
            each = [model.mesh_all_reduce_cycles(p, *shape, words_each) for p in names]
        elif group.op == "reduce":
            each = [model.mesh_reduce_cycles(p, *shape, words_each) for p in names]
        elif group.op == "broadcast":
            each = [np.add(*(model.broadcast_cycles(p, words_each) for p in shape))]
        else:
            unfit[f"{group.label}: no mesh form of it: left as measured"] = None
            return None
        return np.minimum.reduce(each) * 1e9 / clock / group.time_ns()

    job, ratio = by_group.ratios(job, found, price)
    job = altered.run_by(job, found["collective"].filter(ratio != 1), "on-package")
    notes = ()
    if stall:
        notes = (f"each collective stalls {stall / 1e6:.4g} ms (its slowest die throttles)",)
    wider = transfers.faster(ratio)
    added = np.full(len(found), stall)
    return transfers.scaled(job, found, ratio, added_ns=added, bandwidth_ratio=wider).note(
        assumptions=(*ASSUMPTIONS, *notes), warnings=tuple(unfit)
    )


def _shape(topology: str, rows: int, columns: int, n: int) -> tuple[int, int] | None:
    if topology == "row":
        return 1, n
    if not rows and not columns:
        side = next(r for r in range(int(n**0.5), 0, -1) if n % r == 0)
        return side, n // side
    rows = rows or (n // columns if n % columns == 0 else 0)
    columns = columns or (n // rows if rows and n % rows == 0 else 0)
    return (rows, columns) if rows * columns == n else None


POLICY = Policy(
    name="on-package",
    summary="collectives on one package or wafer: direct, ring, row or mesh; thermal stalls",
    source="Luczynski et al. 2024 (arXiv 2404.15888); Maia 200 SDLA; wafer-scale optical stall",
    params=(
        Param("topology", str, "direct", "", "of the links; keep: stalls alone", TOPOLOGIES),
        Param("pattern", str, "auto", "", "of reductions along a row", ("auto", *model.PATTERNS)),
        Param("rows", int, 0, "", "of the mesh; 0: as square as the ranks allow"),
        Param("columns", int, 0, "", "of the mesh; 0: the rest"),
        Param("alpha", time_ns, 700.0, "ns", "of a message between dies (0.7us)"),
        Param(
            "link", bandwidth_bytes_per_s, 50e9, "bytes/s", "of a die-to-die link, one direction"
        ),
        Param("links", int, 0, "", "of a die; 0: one to each peer"),
        Param("clock", float, 850e6, "1/s", "of the mesh's routers"),
        Param("stall", time_ns, 0.0, "ns", "that a thermal stall adds to each collective"),
        Param(
            "latency_reached",
            float,
            model.LATENCY_REACHED,
            "",
            "share of the latency bound that direct and ring reach; 1: all of it",
        ),
        Param(
            "bandwidth_reached", float, model.BANDWIDTH_REACHED, "", "share of the bandwidth bound"
        ),
        *transfers.WHICH,
    ),
    assumptions=ASSUMPTIONS,
    apply=apply,
    stage=Stage.ALGORITHM,
    needs=("collectives with sizes, seen on all their ranks",),
    valid="within 4 % of one wafer's machine for row and mesh; direct reaches 78 % of the latency "
    "and 94 % of the bandwidth bound where it is tuned",
    checked=(
        "rows of 16: star, chain, tree, two-phase at 1, 16, 256 wavelets; 78 % and 94 % of bounds; "
        "a stall of 48 ms makes 17.1 ms 3.8 times as long and 28.2 ms 2.7 (published)"
    ),
)
