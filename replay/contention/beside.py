"""Computation beside communication, as recorded, carried over to a graph of other tasks."""

from __future__ import annotations

import numpy as np

from ..graph import TaskGraph
from ..steps import participations
from .sm_contention import Beside


def carried(was: Beside, graph: TaskGraph, place: np.ndarray) -> Beside:
    """What was recorded, for computations where they are in `graph`, beside its participations.

    `place` int64 [recorded n] says where the recorded tasks are (`edges.place`).
    """
    arrive, transfer = participations(graph)
    order = np.argsort(graph.rank[arrive], kind="stable")
    opens, closes = arrive[order], transfer[order]
    return was._replace(
        task=place[was.task],
        opens=opens,
        closes=closes,
        part_first=np.searchsorted(graph.rank[opens], np.arange(len(was.first))),
    )
