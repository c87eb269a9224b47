"""Costs over sizes: which algorithm is best where, and where two of them change places.

Works on any cost: `cost(name, sizes) -> ns [s]`, NaN where a name has none.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import NamedTuple

import numpy as np

from .closed import bisected

Cost = Callable[[str, np.ndarray], np.ndarray]

LOW, HIGH = 1.0, float(1 << 50)
"""Bytes between which ranges are looked for."""

AN_OCTAVE = 8
"""Sizes looked at a doubling."""


class Range(NamedTuple):
    """Sizes over which one is best: from_bytes up to to_bytes (None: no end that was found)."""

    name: str
    from_bytes: float
    to_bytes: float | None


def grid(low: float = LOW, high: float = HIGH, an_octave: int = AN_OCTAVE) -> np.ndarray:
    """Sizes from low to high, float64, evenly on a logarithmic scale."""
    count = max(2, round(np.log2(high / low) * an_octave) + 1)
    return np.geomspace(low, high, count)


def costs(cost: Cost, names: Sequence[str], sizes: np.ndarray) -> np.ndarray:
    """float64 [names, sizes]."""
    return np.array([cost(name, sizes) for name in names]).reshape(len(names), len(sizes))


def ranges(cost: Cost, names: tuple[str, ...], low: float = LOW, high: float = HIGH) -> list[Range]:
    """Which name costs least, by size; of equals the first. Ends are found to 1e-6 by halving.

    Ranges narrower than an eighth of a doubling may be missed.
    """
    sizes = grid(low, high)
    best = _best(costs(cost, names, sizes)).tolist()
    out = [Range(names[best[0]], 0.0, None)]
    for i in np.flatnonzero(np.diff(best)).tolist():
        at = _change(cost, names, float(sizes[i]), float(sizes[i + 1]))
        out[-1] = out[-1]._replace(to_bytes=at)
        out.append(Range(names[best[i + 1]], at, None))
    return out


def _best(times: np.ndarray) -> np.ndarray:
    return np.where(np.isnan(times), np.inf, times).argmin(axis=0)


def _change(cost: Cost, names: Sequence[str], low: float, high: float) -> float:
    first = _best(costs(cost, names, np.array([low])))[0]
    while high / low > 1 + 1e-6:
        middle = (low * high) ** 0.5
        if _best(costs(cost, names, np.array([middle])))[0] == first:
            low = middle
        else:
            high = middle
    return (low * high) ** 0.5


def crossing(cost: Cost, first: str, second: str) -> float | None:
    """The size at which two cost the same; None where one is never overtaken.

    Where they change places several times it is the first time, to the grid's resolution.
    """
    sizes = grid()
    pair = costs(cost, (first, second), sizes)
    sign = np.sign(pair[0] - pair[1])
    turns = np.flatnonzero(sign[:-1] * sign[1:] < 0)
    if not len(turns):
        return None
    i = turns[0]

    def difference(size: float) -> float:
        found = costs(cost, (first, second), np.array([size]))
        return float(found[0, 0] - found[1, 0])

    return bisected(difference, float(sizes[i]), float(sizes[i + 1]))
