"""How long each computation ran beside each collective, and what other SMs for it would change."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
import polars as pl

from .. import engine
from ..graph import TaskGraph
from . import sm_contention, sm_need
from .sm_contention import LEAST_KERNELS, MOST, Beside


class Pairs(NamedTuple):
    """Computations beside communication in the unchanged replay, one row a pair of them."""

    was: Beside
    start_ns: np.ndarray
    """int64 [n]: the unchanged replay."""
    end_ns: np.ndarray
    row: np.ndarray
    """int64 [p]: row of `was.task`."""
    collective: np.ndarray
    """int64 [p]."""
    together_ns: np.ndarray
    """float64 [p]; of all pairs of a computation together no more than it took."""
    took_ns: np.ndarray
    """float64 [k]: each computation."""
    slowdown: np.ndarray
    """float64 [k]: of each computation beside communication, by kernels of its name and shape."""


def pairs(graph: TaskGraph) -> Pairs | None:
    """The pairs of a recorded graph; None where no kernels or no communication are known."""
    start, end = engine.replay(graph)
    was = sm_contention.recorded(graph, start, end)
    if was is None:
        return None
    rows, parts, together = [], [], []
    for rank in range(len(was.first) - 1):
        a, b = was.first[rank], was.first[rank + 1]
        p, q = was.part_first[rank], was.part_first[rank + 1]
        if a == b or p == q:
            continue
        order = a + np.argsort(start[was.task[a:b]], kind="stable")
        begins, ends = start[was.task[order]], np.maximum.accumulate(end[was.task[order]])
        opens, closes = start[was.opens[p:q]], end[was.closes[p:q]]
        low = np.searchsorted(ends, opens, side="right")
        high = np.maximum(np.searchsorted(begins, closes, side="left"), low)
        count = high - low
        part = np.repeat(np.arange(q - p), count)
        at = np.arange(count.sum()) - np.repeat(np.cumsum(count) - count, count) + low[part]
        row = order[at]
        both = np.minimum(closes[part], end[was.task[row]]) - np.maximum(opens[part], begins[at])
        keep = both > 0
        rows.append(row[keep])
        parts.append(was.opens[p:q][part[keep]])
        together.append(both[keep].astype(np.float64))
    none = [np.empty(0, np.int64)]
    row = np.concatenate(rows or none)
    spent = np.concatenate(together or [np.empty(0)])
    total = np.bincount(row, spent, len(was.task))
    took = graph.dur_ns[was.task]
    over = np.maximum(1.0, np.divide(total, took, out=np.ones(len(total)), where=took > 0))
    spent = spent / over[row]
    slow = _by_shape(graph, was, np.minimum(total, took))
    opened = np.concatenate(parts or none)
    return Pairs(was, start, end, row, graph.collective[opened], spent, took.astype(float), slow)


class Back(NamedTuple):
    """What other SMs for communication make of the computation beside it."""

    ratio: np.ndarray
    """float64 [k]: new time over old of each computation of `was.task`."""
    slowdown: tuple[float, float]
    """Beside communication, mean over the time beside it: before and after."""
    meetings: int
    """Pairs of a kernel that SMs make faster, with its grid, and a collective that is known."""
    relieved: int
    """Pairs of a kernel that waits for memory and a collective that now takes less of it."""


class Kernels(NamedTuple):
    """What the computations of `Pairs` wait for, [k]."""

    blocks: np.ndarray
    """int64: the grid of those that SMs make faster (else 0)."""
    memory: np.ndarray
    """bool: those that wait for memory."""


class Held(NamedTuple):
    """What collectives hold, [collectives] by code; NaN where not known."""

    before: np.ndarray
    """float64: SMs."""
    now: np.ndarray
    memory: np.ndarray
    """float64: `sm_need.hbm_slowdown` of what they move now, over that of what they moved."""


def given_back(found: Pairs, kernels: Kernels, held: Held, sms: int, grid: str) -> Back:
    """Times of computations when collectives hold other SMs and memory bandwidth than they did.

    What ran beside a collective is scaled by `sm_need.slowdown` new over old, or by its share of
    memory, but not under what such kernels take beside none.
    """
    blocks = kernels.blocks
    grids = blocks[found.row]
    known = (grids > 0) & ~np.isnan(held.before[found.collective])
    less = held.memory[found.collective]
    relieved = kernels.memory[found.row] & (less < 1)
    waves = np.where(relieved, less, 1.0)
    both = np.stack([held.before[found.collective], held.now[found.collective]])
    for old, new in np.unique(both[:, known], axis=1).T:
        mine = known & (both[0] == old) & (both[1] == new)
        now = sm_need.slowdown(grids[mine], sms, new, grid)
        waves[mine] = now / sm_need.slowdown(grids[mine], sms, old, grid)
    slow = found.slowdown[found.row]
    after = np.maximum(1.0, slow * waves)
    took = found.took_ns
    more = np.bincount(found.row, found.together_ns * (after / slow - 1), len(took))
    mean = [1.0, 1.0]
    if found.together_ns.sum() > 0:
        mean = [float(np.average(x, weights=found.together_ns)) for x in (slow, after)]
    return Back(1 + more / took, (mean[0], mean[1]), int(known.sum()), int(relieved.sum()))


def together(found: Pairs, graph: TaskGraph) -> np.ndarray:
    """float64 [collectives]: part of each collective's time on its ranks that ran beside work."""
    many = int(graph.collective.max(initial=-1)) + 2
    spent = np.bincount(found.collective, found.together_ns, many)
    lasts = (found.end_ns[found.was.closes] - found.start_ns[found.was.opens]).astype(float)
    whole = np.bincount(graph.collective[found.was.opens], lasts, many)
    return np.minimum(1.0, np.divide(spent, whole, out=np.zeros(many), where=whole > 0))


def _by_shape(graph: TaskGraph, was: Beside, beside_ns: np.ndarray) -> np.ndarray:
    """float64 [k]: the slow-down of each computation's name and shape on its rank, else the job's.

    Where LEAST_KERNELS of them ran beside communication for half of their time, and as many beside
    none: the ratio of the medians, at least 1.
    """
    shape = graph.extra.get("shape", np.full(graph.n, -1))
    rows = pl.DataFrame(
        {
            "rank": graph.rank[was.task],
            "op": graph.op[was.task],
            "shape": shape[was.task],
            "dur": graph.dur_ns[was.task],
            "beside": beside_ns,
        }
    )
    under, alone = 2 * pl.col("beside") >= pl.col("dur"), pl.col("beside") == 0
    by = ("rank", "op", "shape")
    enough = (under.sum().over(by) >= LEAST_KERNELS) & (alone.sum().over(by) >= LEAST_KERNELS)
    ratio = pl.col("dur").filter(under).median().over(by) / pl.col("dur").filter(
        alone
    ).median().over(by)
    found = rows.select(pl.when(enough).then(ratio).fill_null(was.slowdown)).to_series()
    return np.clip(found.to_numpy(), 1.0, MOST)
