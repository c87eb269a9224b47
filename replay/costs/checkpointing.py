"""How often to save a checkpoint, and what saving and failing cost."""

from __future__ import annotations

import math

from ...ingest.errors import UsageError

FORMULAS = ("young", "daly", "availability")


def overhead(interval: float, save: float, restart: float, mtbf: float) -> float:
    """Time lost a unit of useful time: C/I + lambda (I/2 + R), lambda = 1/MTBF, any one unit.

    Saves cost C every I; a failure costs R and on average half an interval of work (book on AI
    infrastructure, ch. 10; first order in lambda I).
    """
    if interval <= 0:
        raise UsageError(f"a checkpoint interval of {interval:g} is not above 0")
    return save / interval + (interval / 2 + restart) / mtbf


def best_interval(save: float, restart: float, mtbf: float, formula: str = "young") -> float:
    """The interval of least overhead, in the unit of the arguments.

    young: sqrt(2 C M), the least of `overhead` (Young 1974). daly: the higher-order estimate
    sqrt(2 C M) (1 + sqrt(C / 2M) / 3 + (C / 2M) / 9) - C, and M where C is 2 M or more (Daly 2006).
    availability: C + sqrt(2 (M + R) C + C^2) from start to start of saves (arXiv 2410.18124).
    """
    if formula == "young":
        return math.sqrt(2 * save * mtbf)
    if formula == "daly":
        half = save / (2 * mtbf)
        if half >= 1:
            return mtbf
        return math.sqrt(2 * save * mtbf) * (1 + math.sqrt(half) / 3 + half / 9) - save
    if formula == "availability":
        return save + math.sqrt(2 * (mtbf + restart) * save + save**2)
    raise UsageError(f"no formula {formula!r} for an interval: there are {', '.join(FORMULAS)}")
