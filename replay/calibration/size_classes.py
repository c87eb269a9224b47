"""Whether small and large collectives follow two lines, not one: as two protocols make them.

NCCL sends small buffers by protocols of low latency and low bandwidth (LL, LL128) and large ones by
one of high latency and full bandwidth (Simple). One line through both is too slow in the middle and
wrong at the ends. Two are taken only where they say more of sizes that they have not seen.
"""

from __future__ import annotations

import numpy as np

from ...ingest.compiled import compiled

MOST_GROUPS = 24
"""Sizes are told apart up to so many; more are grouped by quantiles."""

LEAST_GROUPS = 6
"""Two lines are four numbers: fewer sizes would follow any."""

OWN_LINE = 4
"""Sizes that a class needs for a line of its own, and a spread of SPREAD."""

SPREAD = 4
"""Sizes must differ by this factor for alpha and bandwidth to be told apart."""

LEAST_GAIN = 0.02
"""Two lines must be nearer to unseen sizes by so much of their time (log), at least."""

SURE = 2.0
"""And by so many standard errors of that gain over the sizes."""

FOLDS = 12


def groups(size: np.ndarray, took: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Sizes (or their bins) and the median time of each, ascending, at most MOST_GROUPS."""
    edges = np.unique(size)
    if len(edges) > MOST_GROUPS:
        edges = np.unique(np.quantile(size, np.arange(MOST_GROUPS) / MOST_GROUPS))
    at = np.searchsorted(edges, size, side="right") - 1
    order = np.argsort(at, kind="stable")
    cuts = np.flatnonzero(np.diff(at[order])) + 1
    sizes = np.array([np.exp(np.log(part).mean()) for part in np.split(size[order], cuts)])
    times = np.array([np.median(part) for part in np.split(took[order], cuts)])
    return sizes, times


def split_bytes(p: float, q: float, size: np.ndarray, took: np.ndarray) -> float | None:
    """The size that parts two classes of collectives of p messages and q sizes; None: one line.

    The criterion is leave-out error: each fold of sizes is told by both models from the other
    sizes' medians (the split chosen anew each time), and two lines must be nearer to them by
    LEAST_GAIN and by SURE standard errors. float64 `size` and `took`, [n].
    """
    if len(size) < LEAST_GROUPS or len(np.unique(size)) < LEAST_GROUPS:
        return None
    sizes, times = groups(size, took)
    if len(sizes) < LEAST_GROUPS:
        return None
    x = q * sizes
    gain, at = _compare(p, x, times)
    if at <= 0:
        return None
    mean, error = float(gain.mean()), float(gain.std(ddof=1) / np.sqrt(len(gain)))
    if mean < LEAST_GAIN or mean < SURE * error:
        return None
    return float(np.sqrt(sizes[at - 1] * sizes[at]))


def own(size: np.ndarray) -> bool:
    """Whether sizes tell a line of their own: enough of them, far enough apart."""
    return len(np.unique(size)) >= OWN_LINE and bool(size.max() >= SPREAD * size.min())


@compiled
def _compare(p: float, x: np.ndarray, t: np.ndarray) -> tuple[np.ndarray, int]:
    """How much nearer two lines are than one to each size left out; and the split of them all."""
    n = len(x)
    seen = np.ones(n)
    at = _best_split(p, x, t, seen)[0]
    gain = np.zeros(n)
    if at <= 0:
        return gain, 0
    folds = min(n, FOLDS)
    for fold in range(folds):
        for i in range(n):
            seen[i] = 0.0 if i % folds == fold else 1.0
        one = _line(p, x, t, seen, 0, n)
        cut, left, right = _best_split(p, x, t, seen)
        for i in range(fold, n, folds):
            single = _off(p, x[i], t[i], one)
            if cut <= 0:
                continue
            # A size left out beside the split belongs to the side whose sizes are nearer.
            gain[i] = single - _off(p, x[i], t[i], left if i < cut else right)
    return gain, at


@compiled
def _off(p: float, x: float, t: float, line: tuple[float, float]) -> float:
    said = p * line[0] + x * line[1]
    return min(abs(np.log(max(said, 1e-3 * t) / t)), 1.0)


@compiled
def _best_split(
    p: float, x: np.ndarray, t: np.ndarray, seen: np.ndarray
) -> tuple[int, tuple[float, float], tuple[float, float]]:
    """The split that leaves least (index of the first of the large ones), and both lines; or 0."""
    n = len(x)
    best = 0
    least = np.inf
    kept = ((0.0, 0.0), (0.0, 0.0))
    for at in range(2, n - 1):
        ok, left, right = _two(p, x, t, seen, at)
        if not ok:
            continue
        off = 0.0
        for i in range(n):
            if seen[i] > 0:
                off += _off(p, x[i], t[i], left if i < at else right)
        if off < least:
            least = off
            best = at
            kept = (left, right)
    return best, kept[0], kept[1]


@compiled
def _own(x: np.ndarray, seen: np.ndarray, first: int, last: int) -> bool:
    low = np.inf
    high = 0.0
    count = 0
    for i in range(first, last):
        if seen[i] > 0:
            count += 1
            low = min(low, x[i])
            high = max(high, x[i])
    return count >= OWN_LINE and high >= SPREAD * low


@compiled
def _two(
    p: float, x: np.ndarray, t: np.ndarray, seen: np.ndarray, at: int
) -> tuple[bool, tuple[float, float], tuple[float, float]]:
    """Both lines; a side without one of its own takes its slope (small) or alpha (large) over."""
    n = len(x)
    zero = (0.0, 0.0)
    own_left, own_right = _own(x, seen, 0, at), _own(x, seen, at, n)
    if not own_left and not own_right:
        return False, zero, zero
    left = _line(p, x, t, seen, 0, at) if own_left else zero
    right = _line(p, x, t, seen, at, n) if own_right else zero
    if own_right and (not own_left or left[1] <= 0):
        left = (_one(p, x, t, seen, 0, at, right[1], True), right[1])
    if not own_right:
        right = (left[0], _one(p, x, t, seen, at, n, left[0], False))
    fine = left[0] > 0 and right[0] >= 0 and left[1] > 0 and right[1] > 0
    return fine, left, right


@compiled
def _one(
    p: float, x: np.ndarray, t: np.ndarray, seen: np.ndarray, first: int, last: int,
    given: float, slope_given: bool,
) -> float:  # fmt: skip
    """The median alpha where the slope is given, or slope where alpha is."""
    found = np.empty(last - first)
    k = 0
    for i in range(first, last):
        if seen[i] > 0:
            found[k] = (t[i] - given * x[i]) / p if slope_given else (t[i] - p * given) / x[i]
            k += 1
    return np.median(found[:k]) if k else 0.0


@compiled
def _line(
    p: float, x: np.ndarray, t: np.ndarray, seen: np.ndarray, first: int, last: int
) -> tuple[float, float]:
    """alpha and slope, 0 or more, of about the least absolute relative errors (ten rounds)."""
    a = s = 0.0
    weight = seen.copy()
    for _ in range(10):
        aa = ab = bb = ay = by = 0.0
        for i in range(first, last):
            w = weight[i]
            u, v = p / t[i], x[i] / t[i]
            aa += w * u * u
            ab += w * u * v
            bb += w * v * v
            ay += w * u
            by += w * v
        det = aa * bb - ab * ab
        if det <= 1e-14 * aa * bb:
            return (0.0, by / bb) if bb > 0 else (0.0, 0.0)
        a, s = (bb * ay - ab * by) / det, (aa * by - ab * ay) / det
        if a < 0:
            a, s = 0.0, by / bb
        elif s < 0:
            a, s = ay / aa, 0.0
        for i in range(first, last):
            off = abs(p * a / t[i] + x[i] * s / t[i] - 1)
            weight[i] = seen[i] / max(off, 0.01)
    return a, s
