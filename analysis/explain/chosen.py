"""What is explained: one scenario of those that were tried, and one step of the job."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np

from ...ingest.errors import UsageError
from ...replay import steps as timing
from ...replay.graph import TaskGraph


class Step(NamedTuple):
    """A step to draw, and why that one."""

    step: int
    why: str


def scenario(policies: Sequence[Mapping[str, Any]]) -> int:
    """Which entry of a replay's result is drawn: of those with the most policies the shortest step.

    Several policies are tried alone and then together: together is drawn, and of a sweep's points
    the best. Raises UsageError where nothing was tried.
    """
    if not policies:
        raise UsageError("--explain draws what a policy changes: name one with --policy")
    together = [len(str(p["name"]).split(" + ")) for p in policies]
    most = max(together)
    best = [i for i, n in enumerate(together) if n == most]
    return min(best, key=lambda i: (policies[i]["step_ns"], i))


def step(graph: TaskGraph, asked: int | None = None) -> Step:
    """The step asked for, else the one whose measured time is the median (the lower of two)."""
    if asked is not None:
        return Step(asked, "as asked")
    steps, measured = timing.measured(graph)
    order = np.lexsort((steps, measured))
    at = order[(len(order) - 1) // 2]
    return Step(int(steps[at]), "the median" if len(steps) > 1 else "the only one")
