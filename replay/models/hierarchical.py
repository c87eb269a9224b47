"""Collectives level by level: inside a host, between hosts, and any further nesting.

An all-reduce is a reduce-scatter up the levels and an all-gather back down; each level works on
the share that the levels inside it left, so that L ranks of a host send M/L each. Textbook (two
levels: Thakur et al. 2005; Goyal et al. 2017); any nesting, ports and chunks are deduced.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import NamedTuple

import numpy as np

from ...ingest.errors import UsageError
from .forms import NoModel, levels

PASSES = {"all_reduce": 2, "reduce_scatter": 1, "all_gather": 1, "all_to_all": 1}
"""How often each level is passed: up and down, or once."""

OPS = (*PASSES, "broadcast", "reduce")


class Level(NamedTuple):
    """One level of the nesting, the innermost first: GPUs of a host, hosts of a rack, ..."""

    size: int
    """Groups of the level below that meet here (ranks, at the innermost)."""
    alpha_ns: float
    bandwidth_bytes_per_s: float
    """Of one port, one direction."""
    ports: int | None = None
    """Ports of one group at this level (a host's NICs); None: one for each of its ranks."""


def ranks(nesting: Sequence[Level]) -> int:
    """Ranks of the whole nesting."""
    return math.prod(level.size for level in nesting)


def stages_ns(op: str, nesting: Sequence[Level], size_bytes) -> np.ndarray:
    """Time of each level in ns, float64 [levels, *shape of size_bytes]: both ways for all_reduce.

    All-reduce, reduce-scatter, all-gather: `(s-1) a + (s-1)/s M/c / B` a pass, where c ranks are
    inside one of the s groups, and c > ports ranks share ports: times c / ports. All-to-all: the
    same with M for M/c, as every rank still holds all of its bytes at each level. Broadcast and
    reduce: `ceil(lg s) (a + M/B)`, one rank of a group at a time. M as in `forms.FORMS`. Raises
    NoModel for other operations, UsageError for a level of less than one.
    """
    if op not in OPS:
        raise NoModel(f"no hierarchical model of {op!r}; there are {', '.join(OPS)}")
    size = np.asarray(size_bytes, np.float64)
    inside, out = 1, []
    for level in nesting:
        if level.size < 1 or (level.ports is not None and level.ports < 1):
            raise UsageError("a level of a hierarchy has 1 group or more, and 1 port or more")
        s = level.size
        per_byte = 1e9 / level.bandwidth_bytes_per_s
        if op in PASSES:
            crowd = max(1.0, inside / level.ports) if level.ports else 1.0
            moved = size if op == "all_to_all" else size / inside
            one = (s - 1) * level.alpha_ns + (s - 1) / s * moved * crowd * per_byte
            out.append(PASSES[op] * one)
        else:
            out.append(levels(s) * (level.alpha_ns + size * per_byte))
        inside *= s
    return np.array(out).reshape(len(nesting), *size.shape)


def time_ns(op: str, nesting: Sequence[Level], size_bytes, chunks: int = 1) -> np.ndarray:
    """Time of the whole in ns, cut into `chunks` that follow each other through the levels.

    With K chunks each level pays its alphas K times, and all but the slowest level is paid for one
    chunk only: `sum t(M/K) + (K-1) max t(M/K)`; without alphas `max + (sum - max) / K`. Both
    passes of a level are one stage, as they go over the same links.
    """
    if chunks < 1:
        raise UsageError(f"{chunks} chunks: a collective is cut in 1 or more")
    size = np.asarray(size_bytes, np.float64)
    each = stages_ns(op, nesting, size / chunks)
    return each.sum(axis=0) + (chunks - 1) * each.max(axis=0)


def best_chunks(op: str, nesting: Sequence[Level], size_bytes: float, most: int = 1024) -> int:
    """The number of chunks, of 1, 2, 4, ... `most`, that takes least time for one size."""
    tried = [1 << k for k in range(most.bit_length())]
    return min(tried, key=lambda k: float(time_ns(op, nesting, size_bytes, k)))
