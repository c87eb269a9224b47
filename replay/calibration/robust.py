"""Huber's regression of relative errors on one or two terms, with errors that clusters widen."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from ...ingest.compiled import compiled

HUBER = 1.345
"""In robust standard deviations: 95 % efficient where errors are normal (Huber 1964)."""

ROUNDS = 60

STUDENT = (12.71, 4.30, 3.18, 2.78, 2.57, 2.45, 2.36, 2.31, 2.26, 2.23)
"""Student's t that 97.5 % are under, of 1 to 10 degrees of freedom (tables)."""

NORMAL = 1.96


class Terms(NamedTuple):
    """Coefficients of the terms and their standard errors, [k] each.

    Errors are NaN where there are no more times than terms: nothing tells them then.
    """

    values: np.ndarray
    errors: np.ndarray


def regress(terms: np.ndarray, target: np.ndarray, cluster: np.ndarray | None = None) -> Terms:
    """The coefficients [k] (1 or 2) that bring `terms` [n, k] to `target` [n], robustly.

    Errors are Huber's sandwich (1967): they need no equal noise. Where `cluster` (int64 [n]) tells
    the times of more than one communicator apart, errors are at least those of the communicators
    taken as the samples, times g / (g - 1): what they differ by is no noise that averages out.
    Of few samples they are as much wider as Student's t is: two of them still hold 95 %.
    """
    terms, target = np.ascontiguousarray(terms), np.ascontiguousarray(target)
    n, k = terms.shape
    values, sigma = _huber(terms, target)
    if n <= k:
        return Terms(values, np.full(k, np.nan))
    residual = target - terms @ values
    pull = np.clip(residual, -HUBER * sigma, HUBER * sigma)
    inside = np.abs(residual) <= HUBER * sigma * (1 + 1e-9)
    if inside.sum() <= k:
        inside[:] = True
    # Messages and bytes are of different magnitudes: in units of each term, none counts as 0.
    unit = np.sqrt((terms**2).sum(axis=0))
    unit[unit == 0] = 1.0
    terms = terms / unit
    bread = np.linalg.pinv(terms[inside].T @ terms[inside])
    score = terms * pull[:, None]
    variance = np.diag(bread @ (score.T @ score) @ bread) * n / (n - k) * _wider(n - k) ** 2
    if cluster is not None:
        each, at = np.unique(cluster, return_inverse=True)
        if len(each) > 1:
            summed = np.column_stack([np.bincount(at, score[:, j]) for j in range(k)])
            among = np.diag(bread @ (summed.T @ summed) @ bread)
            variance = np.maximum(variance, among * len(each) / (len(each) - 1))
    return Terms(values, np.sqrt(variance) / unit)


def _wider(freedom: int) -> float:
    """How much wider than a normal's an interval of 95 % is."""
    if freedom <= len(STUDENT):
        return STUDENT[freedom - 1] / NORMAL
    return 1.0 + 2.4 / NORMAL / freedom  # within 0.5 % of the tables


@compiled
def _huber(terms: np.ndarray, target: np.ndarray) -> tuple[np.ndarray, float]:
    """Coefficients and the robust standard deviation of what is left, reweighted until still.

    That deviation leaves out the k - 1 smallest residuals: a line through two points has none.
    """
    n, k = terms.shape
    weight = np.ones(n)
    values = np.zeros(k)
    residual = np.empty(n)
    sigma = 1e-9
    for _ in range(ROUNDS):
        before = values.copy()
        aa = ab = bb = ay = by = 0.0
        for i in range(n):
            w = weight[i]
            a = terms[i, 0]
            aa += w * a * a
            ay += w * a * target[i]
            if k == 2:
                b = terms[i, 1]
                ab += w * a * b
                bb += w * b * b
                by += w * b * target[i]
        if k == 1:
            values[0] = ay / aa if aa > 0 else 0.0
        else:
            det = aa * bb - ab * ab
            if det <= 1e-14 * aa * bb:
                # Terms alike: shared out evenly, as the least-norm solution of scaled terms.
                values[0] = ay / aa / 2 if aa > 0 else 0.0
                values[1] = by / bb / 2 if bb > 0 else 0.0
            else:
                values[0] = (bb * ay - ab * by) / det
                values[1] = (aa * by - ab * ay) / det
        for i in range(n):
            said = terms[i, 0] * values[0]
            if k == 2:
                said += terms[i, 1] * values[1]
            residual[i] = abs(target[i] - said)
        if n > 64 or k == 1:
            middle = np.median(residual)
        else:
            middle = np.median(np.sort(residual)[min(k, n) - 1 :])
        sigma = max(1.4826 * middle, 1e-9)
        still = True
        for j in range(k):
            still &= abs(values[j] - before[j]) <= 1e-9 * abs(values[j])
        if still:
            break
        for i in range(n):
            weight[i] = min(1.0, HUBER * sigma / max(residual[i], 1e-12))
    return values, sigma
