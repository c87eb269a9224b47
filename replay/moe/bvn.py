"""Birkhoff-von Neumann: an exchange as one-to-one matchings that together meet the port bound."""

from __future__ import annotations

import numpy as np

from ...ingest.compiled import compiled


def decompose(matrix: np.ndarray) -> list[tuple[float, np.ndarray]]:
    """Matchings with their weights: (bytes, int64 [n] destination of each member, itself: idle).

    Weights add up to the busiest port W, so that all of them one after another take W / B. There
    are at most n^2 - 2n + 2 (Marcus and Ree 1959; Birkhoff 1946 for the existence). The rows and
    columns are first filled up to W with idle time, on the diagonal where that goes.
    """
    off = np.array(matrix, np.float64)
    np.fill_diagonal(off, 0.0)
    n = len(off)
    bound = max(off.sum(axis=0).max(initial=0.0), off.sum(axis=1).max(initial=0.0))
    if bound <= 0:
        return []
    real, idle = off.copy(), np.zeros((n, n))
    row, column = bound - off.sum(axis=1), bound - off.sum(axis=0)
    for i in range(n):
        idle[i, i] = min(row[i], column[i])
    row, column = row - idle.diagonal(), column - idle.diagonal()
    i = j = 0
    while i < n and j < n:
        move = min(row[i], column[j])
        idle[i, j] += move
        row[i], column[j] = row[i] - move, column[j] - move
        i, j = (i + 1, j) if row[i] <= column[j] else (i, j + 1)
    left = real + idle
    tiny = 1e-9 * bound
    to = np.full(n, -1, np.int64)
    out: list[tuple[float, np.ndarray]] = []
    while left.max() > tiny:
        to = np.where((to >= 0) & (left[np.arange(n), np.maximum(to, 0)] > tiny), to, -1)
        if not _match(left, to, tiny):
            break  # what rounding has left over
        weight = float(left[np.arange(n), to].min())
        left[np.arange(n), to] -= weight
        out.append((weight, to.copy()))
    return out


def carried(matchings: list[tuple[float, np.ndarray]], matrix: np.ndarray) -> np.ndarray:
    """Bytes that the matchings can carry between each two members, float64 [n, n]; idle on top."""
    n = len(matrix)
    out = np.zeros((n, n))
    for weight, to in matchings:
        out[np.arange(n), to] += weight
    return out


@compiled
def _match(left, to, tiny):  # pragma: no cover - compiled
    """Completes `to` to a perfect matching on entries > tiny, by augmenting paths (Kuhn 1955)."""
    n = len(to)
    back = np.full(n, -1, np.int64)
    for s in range(n):
        if to[s] >= 0:
            back[to[s]] = s
    via = np.empty(n, np.int64)
    queue = np.empty(n, np.int64)
    for start in range(n):
        if to[start] >= 0:
            continue
        seen = np.zeros(n, np.bool_)
        queue[0] = start
        head, tail, end = 0, 1, -1
        while head < tail and end < 0:
            s = queue[head]
            head += 1
            for d in range(n):
                if not seen[d] and left[s, d] > tiny:
                    seen[d] = True
                    via[d] = s
                    if back[d] < 0:
                        end = d
                        break
                    queue[tail] = back[d]
                    tail += 1
        if end < 0:
            return False
        while end >= 0:
            s = via[end]
            before = to[s]
            to[s], back[end] = end, s
            end = before
    return True
