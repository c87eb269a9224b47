"""Tasks of a traced job that should take the same: the k-th of an operation in a step, by rank."""

from __future__ import annotations

import numpy as np

from ..codes import alike
from ..graph import TaskGraph
from .tables import nth


def of(graph: TaskGraph) -> np.ndarray:
    """int64 [n]: codes that tasks share which are alike.

    Host segments are counted by thread (the first, second, ... that a rank's calls came from).
    """
    _, like = alike(graph.step, graph.kind, graph.op, graph.extra["thread"])
    _, own = alike(graph.rank, like)
    place = nth(own, graph.start_ns)
    return alike(like, place)[1]
