"""A GEMM and a collective overlapped by groups of tiles: when the last byte has moved.

The predictor is FlashOverlap's (`tune/search.py` of its repository, arXiv 2504.19519): k of S SMs
are the communication's, so that N tiles take W = ceil(N / (S-k)) waves instead of W0 = ceil(N / S),
and G' = G W / W0; groups of tiles are sent as they are done, one after another.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import NamedTuple

import numpy as np

Comm = Callable[[float], float]
"""Share of the collective's bytes -> ns that sending so much takes."""

ORDERS = ("waves", "destination", "row", "column")
"""How tiles follow each other: in groups of whole waves, re-ordered to be sent (FlashOverlap); by
destination with the rank's own shard last; row by row (own shard first, at worst); column by
column, where no shard is complete before the last tile."""


class Gemm(NamedTuple):
    """A GEMM that takes `took_ns` with all SMs, and the SMs that communication leaves it."""

    took_ns: float
    tiles: int
    sms: int
    held: int = 2

    @property
    def slowed_ns(self) -> float:
        """G': with the SMs that are left."""
        return self.took_ns * self._waves(self.sms - self.held) / self._waves(self.sms)

    @property
    def wave_ns(self) -> float:
        """One wave of it."""
        return self.slowed_ns / self._waves(self.sms - self.held)

    def _waves(self, sms: int) -> int:
        return math.ceil(self.tiles / sms)


def ends_ns(ready_ns: np.ndarray, took_ns: np.ndarray) -> np.ndarray:
    """When each of several transfers over one link ends, float64 [k].

    e_i = max(e_(i-1), r_i) + t_i (textbook recursion): one is ready at `ready_ns`, and takes
    `took_ns` of the link after those before it.
    """
    ready, took = np.broadcast_arrays(np.asarray(ready_ns, float), np.asarray(took_ns, float))
    done = np.cumsum(took)
    # The latest start that anything up to i forces on what comes after, less what was done by then.
    return np.maximum.accumulate(ready - (done - took)) + done


def overlapped_ns(gemm: Gemm, groups: Sequence[int], comm: Comm) -> float:
    """GEMM, then what it makes is sent: T of tiles in these groups. One group is G + comm.

    c_i = max(p_(i-1), c_(i-1)) + comm(g_(i-1)); p_i = p_(i-1) + G'/W ceil(g_i / (S-k)); the end is
    max(p, c) + comm(g_m).
    """
    if len(groups) == 1:
        return gemm.took_ns + comm(1.0)
    made = np.cumsum([gemm.wave_ns * math.ceil(g / (gemm.sms - gemm.held)) for g in groups])
    return float(ends_ns(made, np.array([comm(g / gemm.tiles) for g in groups]))[-1])


def gathered_ns(gemm: Gemm, groups: Sequence[int], comm: Comm) -> float:
    """What is gathered, then a GEMM on it, group by group: the same the other way (deduced)."""
    if len(groups) == 1:
        return comm(1.0) + gemm.took_ns
    there = np.cumsum([comm(g / gemm.tiles) for g in groups])
    took = [gemm.wave_ns * math.ceil(g / (gemm.sms - gemm.held)) for g in groups]
    return float(ends_ns(there, np.array(took))[-1])


def equal_groups(tiles: int, size: int) -> list[int]:
    """Groups of so many tiles, the last with the rest."""
    whole, rest = divmod(tiles, size)
    return [size] * whole + ([rest] if rest else [])


def candidates(tiles: int, left: int, most: int = 64) -> list[list[int]]:
    """Groups worth trying with `left` SMs: all in one, equally many whole waves, a small edge.

    The small first or last group is what is exposed: gathering, or sending. `most` counts of waves
    a group are tried, evenly spread.
    """
    waves = math.ceil(tiles / left)
    tried = [[tiles]]
    for each in np.unique(np.linspace(1, waves, min(waves, most)).round().astype(int)).tolist():
        groups = equal_groups(tiles, each * left)
        tried.append(groups)
        if groups[-1] > left:
            tried.append([*groups[:-1], groups[-1] - left, left])
        if groups[0] > left:
            tried.append([left, groups[0] - left, *groups[1:]])
    return tried


class Best(NamedTuple):
    """The groups for which GEMM and collective are soonest done on all ranks together."""

    groups: list[int]
    took_ns: np.ndarray
    """float64 [ranks]."""


def best_groups(
    gemms: Sequence[Gemm],
    comms: Sequence[Comm],
    tried: Sequence[list[int]],
    *,
    gathers: bool = False,
) -> Best:
    """Of the groups that are tried the best for the GEMM and collective of each rank."""
    time = gathered_ns if gathers else overlapped_ns
    made = [
        Best(g, np.array([time(gemm, g, comm) for gemm, comm in zip(gemms, comms, strict=True)]))
        for g in tried
    ]
    return min(made, key=lambda one: (one.took_ns.sum(), len(one.groups)))


def shards_ns(gemm: Gemm, comm: Comm, ranks: int, order: str) -> float:
    """GEMM, then each of n-1 shards sent to its rank as soon as all its tiles are done (deduced).

    By `destination` (own shard last) shard j is done at (j+1)/n G', j from 0; by `row` with the
    own shard first one later; by `column` all at the end.
    """
    done = np.arange(1, ranks) / ranks
    share = {"destination": done, "row": done + 1 / ranks, "column": np.ones(ranks - 1)}[order]
    ends = ends_ns(gemm.slowed_ns * share, np.full(ranks - 1, comm(1.0 / (ranks - 1))))
    return max(gemm.slowed_ns, float(ends[-1]))


def ceiling(gemm_ns: float, comm_ns: float, edge_ns: float) -> float:
    """How many times as fast as one after the other overlap may be: (G + R) / max(G + edge, R).

    `edge_ns` is what the last group (of a gather: the first) takes to send: nothing is computed
    beside it (arithmetic).
    """
    return (gemm_ns + comm_ns) / max(gemm_ns + edge_ns, comm_ns)
