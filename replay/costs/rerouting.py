"""Another order or pattern for a collective, so that it keeps off links that others load.

A link that others load to rho keeps c (1 - rho). A ring moves at the pace of its slowest edge, so
the same ring in another order may never meet the loaded one (deduced; TE-CCL solves the general
problem as a multi-commodity flow).
"""

from __future__ import annotations

import numpy as np

MOST_MOVES = 64


def ring_edges(order: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Ends of the edges of a ring through members in an order, int64 [n] each."""
    return order, np.roll(order, -1)


def tree_edges(order: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Ends of the edges of a binary tree over members in an order (the first is the root)."""
    child = np.arange(1, len(order))
    return order[child], order[(child - 1) // 2]


def slowest(free: np.ndarray, edges: tuple[np.ndarray, np.ndarray], both: bool = False) -> float:
    """Free bandwidth of the slowest of the edges, bytes/s; `both`: used in both directions."""
    a, b = edges
    if not len(a):
        return np.inf
    there = float(free[a, b].min())
    return min(there, float(free[b, a].min())) if both else there


def best_ring(free: np.ndarray) -> np.ndarray:
    """An order of the members whose ring's slowest edge is as fast as reversals find, int64 [n].

    `free` float64 [n, n] is what each pair's path keeps, bytes/s. From the members' own order, the
    slowest edge is taken out by reversing the stretch behind it, while that makes it faster. The
    own order stays where nothing is gained.
    """
    n = len(free)
    order = np.arange(n)
    for _ in range(MOST_MOVES):
        a, b = ring_edges(order)
        along = free[a, b]
        worst = int(along.argmin())
        turned = np.roll(order, -worst - 1)
        # turned[-1] -> turned[0] is the slowest edge. Reversing turned[:j] makes the edges
        # turned[-1] -> turned[j - 1] and turned[0] -> turned[j], and runs inner ones backwards.
        back = free[turned[1:], turned[:-1]]
        inner = np.r_[np.inf, np.minimum.accumulate(back)][: n - 1]
        j = np.arange(1, n)
        joined = np.minimum(free[turned[-1], turned[j - 1]], free[turned[0], turned[j]])
        rest = np.minimum.accumulate(free[turned[:-1], turned[1:]][::-1])[::-1]
        kept = np.r_[rest[1:], np.inf]
        made = np.minimum(np.minimum(joined, inner), kept)
        made[-1] = -np.inf  # all of it reversed: the same ring, backwards
        at = int(made.argmax())
        if not made[at] > along[worst]:
            backwards = order[::-1]
            return backwards if slowest(free, ring_edges(backwards)) > along[worst] else order
        order = np.r_[turned[: at + 1][::-1], turned[at + 1 :]]
    return order


def split(free: np.ndarray) -> np.ndarray:
    """Shares of the bytes on parallel paths, by what is free of each: all end together."""
    free = np.asarray(free, np.float64)
    return free / free.sum()


def split_ns(size_bytes, free: np.ndarray) -> np.ndarray:
    """S over the free bandwidth of all parallel paths together, ns."""
    return np.asarray(size_bytes, np.float64) * 1e9 / float(np.sum(free))
