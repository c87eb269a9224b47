"""Steps of a rank by annotations whose names say so."""

from __future__ import annotations

import numpy as np

from ..kineto.steps import HostSteps, host_steps
from ..nsys.stepnames import choose
from . import names
from .work import Work

MOST = 0.5
"""Share of the time from the first to the last that steps fill: less is a part of a step."""


def find(work: Work, pattern: str = "") -> tuple[HostSteps, bool] | None:
    """The steps on the host, and whether the annotations number them; None without such.

    `pattern` is the annotation that the user named; without it names that frameworks use count,
    where they come more than once and fill most of the time.
    """
    found = []
    for name, thread, start, end in work.annotations:
        told = names.forced(name, pattern) if pattern else names.known(name)
        if told is not None and end > start:
            found.append((*told, thread, start, end))
    if len(found) < (1 if pattern else 2):
        return None
    family, number, thread, start, end = zip(*found, strict=True)
    columns = [np.unique(family, return_inverse=True)[1], np.unique(thread, return_inverse=True)[1]]
    rows, numbers = choose(*columns, *(np.array(c, np.int64) for c in (number, start, end)))
    steps, _ = host_steps(numbers, np.array(start)[rows], np.array(end)[rows])
    if not pattern and _share(steps) < MOST:
        return None
    numbered = bool((np.array(number)[rows] >= 0).all())
    return (steps, numbered) if len(steps.number) > (0 if pattern else 1) else None


def _share(steps: HostSteps) -> float:
    """Share of the time between the first one's start and the last one's end that they fill."""
    whole = int(steps.end_ns.max() - steps.start_ns.min())
    return int((steps.end_ns - steps.start_ns).sum()) / whole if whole else 0.0
