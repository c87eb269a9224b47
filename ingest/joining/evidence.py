"""What tells which operations of two sources are one: moments, times of enqueueing, durations."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from .rows import View

FEW_MOMENTS, FEW_DURATIONS, FEW_KNOWN = 5, 8, 3
"""Pairs that each kind of evidence takes at least."""
WORST_SPREAD_NS, FLOOR_NS = 200_000.0, 2_000.0
"""Distance of moments from their constant, on average: at most; what is not told from none."""
WORST_RATIO, FLOOR_RATIO = 0.2, 0.005
"""The same for the natural logarithm of durations' ratios."""
SHORT_NS = 200_000.0
"""Durations are compared as if each were longer by this."""
CLIP_NS, CLIP_RATIO = 5_000_000.0, 2.0
MOST_REPEATS, MOST_LAG = 20_000, 1024
"""Operations, and how much later, among which a source's own repetition is looked for."""


class Lane(NamedTuple):
    """Operations of one source in order: rows of the view, and their places (ascending)."""

    rows: np.ndarray
    place: np.ndarray
    counted: bool
    """places are numbers of the source: what it lost leaves a gap"""


class Channel(NamedTuple):
    """One kind of evidence: a number of each row of a and of b, and whether it is there."""

    a: np.ndarray
    b: np.ndarray
    has_a: np.ndarray
    has_b: np.ndarray
    base_ns: int
    """what the numbers of a count from, less what those of b do"""
    constant: float | None
    """what a's numbers less b's must be; None: the same for all pairs"""
    moments: bool
    few: int
    floor: float
    worst: float
    clip: float

    def off(self, i: np.ndarray, j: np.ndarray, constant: float) -> np.ndarray:
        """How far pairs are from the constant."""
        return np.abs(self.a[i] - self.b[j] - constant)


def channels(view: View, a: Lane, b: Lane, offset_ns: int | None) -> list[Channel]:
    """Evidence that both lanes have, the surest first."""
    out = []
    clocks = np.unique(view.clock[np.concatenate([a.rows, b.rows])])
    one = len(clocks) == 1 and not view.process[a.rows[0]]
    constant = 0 if one else offset_ns
    for moment, there, fixed, few in (
        (view.end, view.timed, constant, FEW_MOMENTS),
        (view.start, view.timed, constant, FEW_MOMENTS),
        (view.enqueued, (view.enqueued >= 0) & one, 0, FEW_KNOWN),
    ):
        first, second = int(moment[a.rows[0]]), int(moment[b.rows[0]])
        out.append(
            Channel(
                (moment[a.rows] - first).astype(np.float64),
                (moment[b.rows] - second).astype(np.float64),
                there[a.rows], there[b.rows], first - second,
                None if fixed is None else float(fixed - (first - second)),
                True, few, FLOOR_NS, WORST_SPREAD_NS, CLIP_NS,
            )
        )  # fmt: skip
    took = view.duration
    # the clocks' resolution counts most for what is short
    log = np.log(np.maximum(took, 0) + SHORT_NS)
    out.append(
        Channel(
            log[a.rows], log[b.rows], took[a.rows] > 0, took[b.rows] > 0, 0, 0.0,
            False, FEW_DURATIONS, FLOOR_RATIO, WORST_RATIO, CLIP_RATIO,
        )
    )  # fmt: skip
    return [c for c in out if c.has_a.any() and c.has_b.any()]


def repeats(
    channel: Channel,
    values: np.ndarray,
    kind: np.ndarray,
    fits_kind: np.ndarray | None,
    near: float,
) -> float:
    """Share of a source's operations that agree with its own some operations later, at most.

    What must agree to within `near` are durations, or the time since the operation before. Of all
    distances in the order at which operations are alike, the best counts: a step, or several. -1
    where nothing repeats. `fits_kind[x, y]` says which kinds may be alike; else equal ones are.
    """
    values, kind = values[:MOST_REPEATS], kind[:MOST_REPEATS]
    if channel.moments:
        values, kind = np.diff(values), kind[1:]
    best = -1.0
    for k in range(1, min(len(values) - FEW_DURATIONS, MOST_LAG) + 1):
        pair = kind[k:], kind[:-k]
        like = pair[0] == pair[1] if fits_kind is None else fits_kind[pair]
        if like.sum() >= max(FEW_DURATIONS, 0.9 * len(like)):
            agree = np.abs(values[k:] - values[:-k])[like] <= near
            best = max(best, float(agree.mean()))
    return best
