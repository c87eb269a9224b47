"""An all-to-all of uneven blocks, from the rank-by-rank matrix of bytes.

`D[s, d]` is what rank s sends to rank d; what a rank keeps (the diagonal) costs nothing. By
counting at the ports: nothing ends before the busiest port has sent, or received, all of its
bytes (`port_bytes`).
"""

from __future__ import annotations

import numpy as np

from ...ingest.errors import UsageError
from .forms import NoModel, levels

ALGOS = ("direct", "pairwise", "bruck", "ring")


def matrix(bytes_of) -> np.ndarray:
    """The matrix as float64 [n, n] with an empty diagonal; raises UsageError for another shape."""
    d = np.array(bytes_of, np.float64)
    if d.ndim != 2 or d.shape[0] != d.shape[1]:
        raise UsageError(f"bytes by rank are a square matrix, not of shape {d.shape}")
    if not np.isfinite(d).all() or (d < 0).any():
        raise UsageError("bytes by rank are numbers of 0 or more")
    np.fill_diagonal(d, 0.0)
    return d


def even(n: int, size_bytes: float) -> np.ndarray:
    """The matrix of an even all-to-all: M/n from each to each."""
    return matrix(np.full((n, n), size_bytes / n))


def port_bytes(bytes_of) -> float:
    """The busiest port: the largest row or column sum. No schedule is faster than this over B."""
    d = matrix(bytes_of)
    return float(max(d.sum(axis=1).max(initial=0.0), d.sum(axis=0).max(initial=0.0)))


def waves(bytes_of) -> np.ndarray:
    """The largest block of each cyclic shift s -> s + w, w = 1 .. n-1: float64 [n-1]."""
    d = matrix(bytes_of)
    n = len(d)
    at = np.arange(n)
    return np.array([d[at, (at + w) % n].max() for w in range(1, n)])


def rounds(bytes_of) -> np.ndarray:
    """What the busiest port carries in each round of Bruck's algorithm: float64 [ceil(lg n)].

    A block from s to d lies, before round k, at s plus the bits of (d - s) below k, and moves on by
    2^k if that bit is set.
    """
    d = matrix(bytes_of)
    n = len(d)
    source, target = np.nonzero(d)
    far = (target - source) % n
    out = np.zeros(levels(n))
    for k in range(levels(n)):
        moves = far >> k & 1 == 1
        at = (source + (far & ((1 << k) - 1)))[moves] % n
        block = d[source[moves], target[moves]]
        sent = np.bincount(at, block, n)
        received = np.bincount((at + (1 << k)) % n, block, n)
        out[k] = max(sent.max(), received.max())
    return out


def ring_bytes(bytes_of) -> float:
    """The busiest edge of one ring that shifts every block the whole way to its rank."""
    d = matrix(bytes_of)
    n = len(d)
    source, target = np.nonzero(d)
    block = d[source, target]
    far = (target - source) % n
    # Edge e (from e to e+1) carries the blocks that start at or before it and end after it.
    change = np.zeros(2 * n + 1)
    np.add.at(change, source, block)
    np.add.at(change, source + far, -block)
    carried = np.cumsum(change)[: 2 * n]
    return float((carried[:n] + carried[n:]).max(initial=0.0))


def time_ns(algo: str, bytes_of, alpha_ns: float, bandwidth_bytes_per_s: float) -> float:
    """Time of an uneven all-to-all in ns, over ports of B each way.

    direct: all blocks at once on a fabric that does not block, `a + busiest port / B`; pairwise: a
    cyclic shift after another, each as long as its largest block (a barrier between, which is no
    less than what it takes without); bruck: a round after another; ring: `(n-1) a` and the busiest
    edge. With equal blocks each is its closed form of `forms`.
    """
    d = matrix(bytes_of)
    if algo not in ALGOS:
        raise NoModel(f"no model of an uneven all_to_all by {algo!r}; it has {', '.join(ALGOS)}")
    n = len(d)
    if n < 2:
        return 0.0
    per_byte = 1e9 / bandwidth_bytes_per_s
    if algo == "direct":
        return alpha_ns + port_bytes(d) * per_byte
    if algo == "pairwise":
        return (n - 1) * alpha_ns + float(waves(d).sum()) * per_byte
    if algo == "bruck":
        return levels(n) * alpha_ns + float(rounds(d).sum()) * per_byte
    return (n - 1) * alpha_ns + ring_bytes(d) * per_byte
