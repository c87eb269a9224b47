"""What a parameter is where the user leaves it out: what the job's fabric says, else the usual."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import TYPE_CHECKING

from ..policy import ReplayJob

if TYPE_CHECKING:
    from ..fabric.description import Fabric


def value(
    job: ReplayJob,
    name: str,
    given: float | None,
    of: Callable[[Fabric], float | None],
    usual: float,
) -> tuple[float, tuple[str, ...]]:
    """The value, and the assumption to say where the fabric gave it.

    `of` takes the figure out of a fabric; None, 0 and infinity say nothing.
    """
    if given is not None:
        return given, ()
    fabric = job.facts.get("fabric")
    found = None if fabric is None else of(fabric)
    if fabric is None or not found or not math.isfinite(found):
        return usual, ()
    return found, (f"{name} {found:.4g}, as fabric {fabric.name} has it",)
