"""A GEMM and the collective next to it overlapped tile by tile, with a few SMs for communication.

T of groups of tiles is FlashOverlap's predictor (`tiles`): the GEMM keeps S-k SMs, and what
it has made is sent group by group. Also an all-gather and the GEMM on what it gathers. Neither can
be shorter than the longer of the two, so nothing gains more than a factor of 2 by overlap alone.
"""

from __future__ import annotations

import numpy as np

from ..overlapped import kernel_facts, tile_pairs
from ..overlapped.tile_pairs import GATHERS, OPS
from ..overlapped.tiles import ORDERS
from ..policy import BadParam, Param, Policy, ReplayJob, Stage, words
from ..retiming import transfers

NEUTRAL = {"groups": 1}

ASSUMPTIONS = (
    "tiles of a GEMM take equally long, and other ranks' tiles are there when one's own are",
    "memory traffic of what is sent slows the GEMM no further than by the SMs it gives up",
)
NO_GEMM = (
    "no reduction follows a GEMM, and no GEMM an all_gather, at once on the streams of all its "
    "ranks: there is nothing to overlap by tiles"
)
NO_TILES = (
    "no collective is next to a GEMM whose tiles are recorded: record kernels with their grids "
    "(Kineto's CUDA activities), or say tiles=thread blocks"
)


def apply(
    job: ReplayJob,
    *,
    op: tuple[str, ...],
    order: str,
    sms: int,
    groups: int,
    tiles: int,
    dim: tuple[str, ...],
    comm: tuple[str, ...],
) -> ReplayJob:
    """The job with GEMMs and collectives overlapped by tiles."""
    total, said = kernel_facts.sms(job)
    if total < 1:
        return job.note(
            warnings=(
                f"tile-overlap: {said}: nothing runs in tiles here; record the job on a device "
                "with SMs",
            )
        )
    _checked(op, sms, groups, tiles, total, said)
    job, rows = transfers.chosen(job, op=op, dim=dim, comm=comm)
    if not len(rows) or groups == 1:
        return job
    pairs = tile_pairs.pairs(job, rows, tiles)
    if not pairs:
        known = (kernel_facts.of(job).blocks > 0).any()
        return job.note(warnings=(NO_GEMM if known else NO_TILES,))
    used = rows[[p.row for p in pairs]]
    job, curves = tile_pairs.curves(job, used)
    way = tile_pairs.Way(total, sms, order, groups)
    dur = job.graph.dur_ns.copy()
    before = after = moved = 0
    least = 0.0
    for pair, curve, what in zip(pairs, curves, used["op"], strict=True):
        found = tile_pairs.overlapped(job.graph, pair, curve, way, what in GATHERS)
        if found is None:
            continue
        both = np.concatenate([pair.gemm, pair.transfer])
        before += int(dur[both].sum())
        dur[both] = np.rint(np.concatenate(found[:2])).astype(np.int64)
        least += found.least_ns
        after += int(dur[both].sum())
        moved += 1
    left = len(rows) - len(pairs)
    warned = []
    if left:
        warned.append(f"{left} of {len(rows)} collectives are next to no GEMM: left as measured")
    if moved < len(pairs):
        warned.append(
            f"{len(pairs) - moved} of {len(pairs)} GEMMs and collectives would not be faster "
            f"overlapped (by {order}, {sms} SMs for communication): left as measured"
        )
    job = job.note(warnings=tuple(warned))
    if not moved:
        return job
    return job.with_graph(dur_ns=dur).note(
        assumptions=(
            said,
            f"{moved} collectives overlap with the GEMM next to them: {before / after:.4g} times "
            "as fast as one after the other; at most "
            f"{before / least:.4g} times by overlap whose last (of a gather: first) group is as "
            "small",
            *ASSUMPTIONS,
        )
    )


def _checked(op, sms, groups, tile_count, total, said) -> None:
    for one in op:
        if one not in OPS:
            raise BadParam(f"policy tile-overlap: no tiles of {one!r}; op takes {', '.join(OPS)}")
    if not 0 <= sms < total:
        raise BadParam(f"policy tile-overlap: sms={sms}: 0 to {total - 1} of {said}")
    if groups < 0 or tile_count < 0:
        raise BadParam("policy tile-overlap: groups and tiles are 1 or more, or 0 for auto")


POLICY = Policy(
    name="tile-overlap",
    summary="a GEMM and the collective next to it overlapped tile by tile",
    source="FlashOverlap (arXiv 2504.19519) and its tuner's predictor; Entwine",
    params=(
        Param("op", words, OPS, "", "collectives to overlap with a GEMM, joined by +"),
        Param("order", str, "waves", "", "in which tiles are made", ORDERS),
        Param("sms", int, 2, "SMs", "for communication while the GEMM runs"),
        Param("groups", int, 0, "", "of tiles that are sent together; 0: the best, 1: no overlap"),
        Param("tiles", int, 0, "", "of a GEMM; 0: thread blocks, as recorded"),
        *transfers.WHERE,
    ),
    assumptions=ASSUMPTIONS,
    apply=apply,
    stage=Stage.SCHEDULE,
    needs=("kernels with their grids (tiles), on the streams' order", "collectives with sizes"),
    valid="one block of the GEMM an SM; groups within the calibrated sizes",
    checked=(
        "S=108, 8 SMs, 1,060 tiles, 1,000 us, 10+400 us: 1132.6 us, 1.245 times as fast; 2 SMs: "
        "1090.0 us, 1.294 times (FlashOverlap's predictor; Entwine reports 1.232, at most 1.433)"
    ),
)  # fmt: skip
