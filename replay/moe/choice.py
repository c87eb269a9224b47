"""Which of several ways an exchange should take, when models have known errors.

The argmin of calibrated models, but for the native way unless another is better by more than the
error: what is chosen then takes at most (1 + error) times as long as native did, wherever the
models are right to within the error (RailWave's selector is calibrated; this rule is ours).
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import NamedTuple

import numpy as np

NATIVE = "native"


def choose(times: Mapping[str, float], epsilon: float, native: str = NATIVE) -> str:
    """The way of the least calibrated time, if that times (1 + epsilon) is under native's."""
    best = min(times, key=lambda way: (times[way], way != native, way))
    return best if times[best] * (1 + epsilon) < times[native] else native


class Calibration(NamedTuple):
    """How measured times relate to a model's, by class of exchange."""

    ratio: Mapping[tuple, float]
    """Median of measured / model of a class."""
    error: float
    """The 90th percentile of |measured / (ratio model) - 1| over all classes."""
    n: int

    def of(self, key: tuple) -> float:
        """A class's ratio; of one that was not seen, the median of all (1 where there is none)."""
        values = list(self.ratio.values())
        return self.ratio.get(key, float(np.median(values)) if values else 1.0)


def calibrate(keys: list[tuple], measured: np.ndarray, model: np.ndarray) -> Calibration:
    """The calibration from exchanges that ran: their class, measured and modelled time (ns)."""
    ratios = np.asarray(measured, float) / np.asarray(model, float)
    by: dict[tuple, list[float]] = {}
    for key, ratio in zip(keys, ratios, strict=True):
        by.setdefault(key, []).append(float(ratio))
    middle = {key: float(np.median(values)) for key, values in by.items()}
    off = [abs(r / middle[k] - 1) for k, r in zip(keys, ratios, strict=True) if middle[k] > 0]
    return Calibration(middle, float(np.percentile(off, 90)) if off else 0.0, len(keys))


def size_class(size_bytes: float) -> int:
    """Powers of four: exchanges that differ by less are calibrated together."""
    return int(np.floor(np.log2(max(size_bytes, 1.0)) / 2))


def skew_class(max_over_mean: float) -> int:
    """0 up to 1.1, 1 up to 1.5, 2 up to 3, else 3."""
    return int(np.searchsorted([1.1, 1.5, 3.0], max_over_mean))
