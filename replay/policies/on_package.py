"""Collectives on one package or wafer: direct or ring over die-to-die links, rows and meshes.

What a collective took is scaled by the on-package model over the form of the algorithm that ran:
direct (alpha + (n-1) S / (n g b) a pass) or in a ring, at the shares of alpha and b that tuned ones
reach; along a row or over a mesh by what its busiest link carries, in cycles of its routers or by
alpha and b of its links (`replay.models.mesh`). A thermal stall adds its length to each.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from ..calibration import calibrate
from ..models import NoModel, mesh
from ..models import on_package as model
from ..moe import demand
from ..policy import BadParam, Param, Policy, ReplayJob, Stage
from ..quantities import bandwidth_bytes_per_s, time_ns
from ..retiming import altered, by_group, link_rates, transfers

NEUTRAL = {"topology": "keep"}

TOPOLOGIES = ("direct", "ring", "row", "mesh", "keep")
PRICED = ("clock", "link")
SHARDS = "shards"
WORD_BYTES = 4
"""A wavelet of the mesh: 32 bits."""

ASSUMPTIONS = (
    "all ranks of a communicator are elements of one package, row by row, roots in a corner",
    "its links carry nothing else while a collective runs",
)


class Package(NamedTuple):
    """What the dies and their links are like."""

    topology: str
    pattern: str
    rows: int
    columns: int
    alpha: float
    link: float
    links: int
    clock: float
    by: str


def apply(
    job: ReplayJob,
    *,
    stall: float,
    latency_reached: float,
    bandwidth_reached: float,
    op: tuple[str, ...] = (),
    dim: tuple[str, ...] = (),
    comm: tuple[str, ...] = (),
    **of,
) -> ReplayJob:
    """The job with chosen collectives on a package."""
    package = Package(**of)
    if min(package.rows, package.columns, package.links) < 0:
        raise BadParam("policy on-package: rows, columns and links are 1 or more, or 0 for auto")
    if not (np.isfinite(package.clock) and package.clock > 0):
        raise BadParam(
            f"policy on-package: clock={package.clock:g}: cycles a second, above 0 (850e6)"
        )
    if stall < 0 or package.alpha < 0:
        raise BadParam("policy on-package: stall and alpha are times of 0 or more")
    if not (0 < latency_reached <= 1 and 0 < bandwidth_reached <= 1):
        raise BadParam(
            "policy on-package: latency_reached and bandwidth_reached are shares of the bounds, "
            "above 0 and at most 1 (0.78, 0.94)"
        )
    if package.topology != "mesh" and (package.rows or package.columns):
        raise BadParam(
            f"policy on-package: rows and columns are of a mesh, and topology={package.topology}: "
            "topology=mesh would work"
        )
    job, found = transfers.chosen(job, op=op, dim=dim, comm=comm)
    job, found = altered.untouched(job, found, "on-package")
    if not len(found):
        return job
    if package.topology in ("direct", "ring"):
        tuned = package._replace(
            alpha=package.alpha / latency_reached, link=package.link * bandwidth_reached
        )
    else:
        tuned = package
    counted, carried = link_rates.counted(job, found), np.full(len(found), np.nan)
    matrices = demand.told(job, found) if package.topology in ("row", "mesh") else {}
    told: dict[str, None] = {}

    def price(group: by_group.Group) -> np.ndarray | None:
        if package.topology == "keep":
            return None
        if package.topology in ("direct", "ring"):
            new, least = _direct(group, tuned), _least_direct(group, package)
            bare = _least_direct(group, tuned._replace(alpha=0.0))
        else:
            shape = _shape(package, group.n)
            new, least = _on_mesh(job, group, package, shape, matrices)
            bare = _rank_least(group, package, shape)
        old = group.time_ns()
        at = group.rows["at"].to_numpy()
        carried[at] = np.where(bare > 0, counted.share[at] * group.size_bytes * 1e9 / bare, np.nan)
        if len(told) < by_group.MOST_SAID and least is not None:
            most = int(np.argmax(group.size_bytes))
            told[
                f"{group.label}, {group.size_bytes[most]:.4g} bytes: {new[most] / 1e3:.4g} us "
                f"on the package, no less than {least[most] / 1e3:.4g} us by its links"
            ] = None
        return new / old

    job, ratio = by_group.ratios(job, found, price)
    job = altered.run_by(job, found["collective"].filter(ratio != 1), "on-package")
    notes = tuple(told)
    if stall:
        notes += (f"each collective stalls {stall / 1e6:.4g} ms (its slowest die throttles)",)
    wider = link_rates.ratio(counted, carried)
    added = np.full(len(found), stall)
    return transfers.scaled(job, found, ratio, added_ns=added, bandwidth_ratio=wider).note(
        assumptions=(*ASSUMPTIONS, *notes)
    )


def _direct(group: by_group.Group, of: Package) -> np.ndarray:
    """ns over links to all peers, or round a ring; raises NoModel."""
    if of.topology == "direct":
        return model.direct_ns(
            group.op, group.n, group.size_bytes, of.alpha, of.link, float(of.links)
        )
    passes = {"all_gather": 1, "reduce_scatter": 1, "all_reduce": 2}.get(group.op)
    if passes is None:
        raise NoModel(f"no ring form of {group.op} on a package")
    links = of.links or None
    return passes * model.all_gather_ns("ring", group.n, group.size_bytes, of.alpha, of.link, links)


def _least_direct(group: by_group.Group, of: Package) -> np.ndarray:
    links = min(of.links or group.n - 1, 2) if of.topology == "ring" else of.links
    return model.bounds(
        group.op, group.n, group.size_bytes, of.alpha, of.link, float(links)
    ).floor_ns


def _on_mesh(
    job: ReplayJob,
    group: by_group.Group,
    of: Package,
    shape: tuple[int, int],
    matrices: dict[int, np.ndarray],
) -> tuple[np.ndarray, np.ndarray | None]:
    """ns of each on rows x columns, and no less than what; raises NoModel."""
    if group.op in transfers.P2P:
        parts = [mesh.message(_apart(job, group, shape), group.size_bytes)]
    elif group.op == "all_to_all" and matrices:
        demands = (mesh.uneven(*shape, matrices[int(c)]) for c in group.rows["collective"])
        parts = [mesh.beside(tuple(demands))]
    else:
        parts = list(mesh.phases(group.op, *shape, group.size_bytes))
    if of.by == "link":
        least = None
        if not (group.op in transfers.P2P or (group.op == "all_to_all" and matrices)):
            least = mesh.bound_ns(group.op, *shape, group.size_bytes, of.alpha, of.link)
        return mesh.time_ns(tuple(parts), of.alpha, of.link), least
    words_each = group.size_bytes / WORD_BYTES
    names = model.PATTERNS if of.pattern == "auto" else (of.pattern,)
    shards = mesh.cycles(tuple(parts), model.RAMP_CYCLES, WORD_BYTES)
    each = [shards]
    if group.op == "all_reduce":
        each = [model.mesh_all_reduce_cycles(p, *shape, words_each) for p in names if p != SHARDS]
        each += [shards] if of.pattern in ("auto", SHARDS) else []
    elif group.op == "reduce" and of.pattern != SHARDS:
        each = [model.mesh_reduce_cycles(p, *shape, words_each) for p in names]
    elif group.op == "broadcast":
        each = [np.add(*(model.broadcast_cycles(p, words_each) for p in shape))]
    return np.minimum.reduce(each) * 1e9 / of.clock, None


def _rank_least(group: by_group.Group, of: Package, shape: tuple[int, int]) -> np.ndarray:
    """ns that a corner die needs for what it must send or take, by its links or its ramp."""
    links = sum(p > 1 for p in shape) if of.by == "link" else 1
    rate = of.link if of.by == "link" else WORD_BYTES * of.clock
    if group.op == "all_to_all" or group.op in transfers.P2P:
        # Of uneven demands, and of messages, any die may have the most: with all its links.
        links *= 2 if of.by == "link" else 1
    whole = group.op not in ("all_gather", "reduce_scatter", "all_to_all", "scatter", "gather")
    share = 1.0 if whole else (group.n - 1) / group.n
    return share * group.size_bytes * 1e9 / (links * rate)


def _apart(job: ReplayJob, group: by_group.Group, shape: tuple[int, int]) -> np.ndarray:
    """Hops of each message: between its two ranks, corner to corner where they are not known."""
    place = {int(r): i for i, r in enumerate(calibrate.ranks_of(job, group.comm))}
    far = shape[0] - 1 + shape[1] - 1
    ends = [[place[r] for r in ranks if r in place] for ranks in group.rows["ranks"].to_list()]
    return np.array([mesh.hops(*shape, *e) if len(e) == 2 else far for e in ends], float)


def _shape(of: Package, n: int) -> tuple[int, int]:
    """Rows and columns of n dies; raises NoModel where they are no such mesh."""
    if of.topology == "row":
        return 1, n
    rows, columns = of.rows, of.columns
    if not rows and not columns:
        side = next(r for r in range(int(n**0.5), 0, -1) if n % r == 0)
        return side, n // side
    rows = rows or (n // columns if n % columns == 0 else 0)
    columns = columns or (n // rows if rows and n % rows == 0 else 0)
    if rows * columns != n:
        raise NoModel(
            f"{n} ranks are no mesh of {of.rows or '?'} x {of.columns or '?'}: give rows and "
            "columns whose product they are"
        )
    return rows, columns


POLICY = Policy(
    name="on-package",
    summary="collectives on one package or wafer: direct, ring, row or mesh; thermal stalls",
    source="Luczynski et al. 2024 (arXiv 2404.15888); Maia 200 SDLA; wafer-scale optical stall",
    params=(
        Param("topology", str, "direct", "", "of the links; keep: stalls alone", TOPOLOGIES),
        Param(
            "pattern",
            str,
            "auto",
            "",
            "of reductions along a row; shards: all-reduce as reduce-scatter and all-gather",
            ("auto", *model.PATTERNS, SHARDS),
        ),
        Param(
            "by",
            str,
            "clock",
            "",
            "what prices rows and meshes: clock, a word a cycle; link, alpha a hop and bandwidth",
            PRICED,
        ),
        Param("rows", int, 0, "", "of the mesh; 0: as square as the ranks allow"),
        Param("columns", int, 0, "", "of the mesh; 0: the rest"),
        Param(
            "alpha", time_ns, 700.0, "ns", "of a message between dies, or a hop of a mesh (0.7us)"
        ),
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
        "meshes by link: all_to_all, scatter, gather, shifts of shards as simulated flow by flow; "
        "rows of 16: star, chain, tree, two-phase at 1, 16, 256 wavelets; 78 % and 94 % of bounds; "
        "a stall of 48 ms makes 17.1 ms 3.8 times as long and 28.2 ms 2.7 (published)"
    ),
)
