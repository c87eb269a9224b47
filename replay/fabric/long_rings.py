"""Long rings: what all of their rounds take, from the first of them.

Every round of a ring moves the same bytes between the same neighbours. Once its ranks have found
their pace a round takes as long as the one before, so that the time grows by as much a round.
Deduced; held to the whole simulation by tests.
"""

from __future__ import annotations

import numpy as np

from . import symmetry
from .flows import Links
from .links import LinkGraph
from .moves import moves
from .placed import Part, Setting, place
from .rounds import ordered

LONG_FLOWS = 100_000
"""Flows from which a ring is told from its first rounds."""

MOST_RANKS = 100_000

_WATCHED = (8, 16, 24)
"""Rounds that are simulated."""

_SETTLED = 1e-6
"""How much 8 to 16 and 16 to 24 may differ, of what they take."""


def long_ring_ns(
    graph: LinkGraph, links: Links, op: str, gpus: np.ndarray, size_bytes: float, setting: Setting
) -> float | None:
    """The time of a ring in ns; None for a short one, and where its rounds do not settle."""
    n = len(gpus)
    passes = {"all_reduce": 2, "all_gather": 1, "reduce_scatter": 1}.get(op, 0)
    rounds = passes * (n - 1)
    if rounds * n <= LONG_FLOWS or rounds <= _WATCHED[-1] or n > MOST_RANKS:
        return None
    early, middle, late = (_first_ns(graph, links, gpus, size_bytes, setting, k) for k in _WATCHED)
    before, after = middle - early, late - middle
    if abs(after - before) > _SETTLED * after:
        return None
    return late + after * (rounds - _WATCHED[2]) / (_WATCHED[2] - _WATCHED[1])


def _first_ns(graph, links, gpus, size_bytes: float, setting: Setting, rounds: int) -> float:
    n = len(gpus)
    rank = np.arange(n)
    made = moves(np.tile(rank, rounds), np.tile((rank + 1) % n, rounds), size_bytes / n,
                 np.repeat(np.arange(rounds), n))  # fmt: skip
    own, paths, moved, _ = place(graph, links, [Part(ordered(n, made), gpus)], setting)
    return symmetry.simulate_alike(own, paths, moved).time_ns
