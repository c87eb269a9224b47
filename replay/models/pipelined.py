"""Segmented algorithms: a message cut in K pieces that follow each other down a chain or tree.

`T(K) = depth (a + M/KB) + (K-1) (a + period M/KB)`: the first piece pays the whole way, each
further one a period. K is the best for each size: `K* = sqrt((depth - period) M / (a B))`. The
double binary tree is Sanders, Speck and Träff's "Two-tree algorithms" (2009); that a rank sends two
pieces a period in an all-reduce is deduced here: its time tends to 2 M/B.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

import numpy as np

from .forms import levels


class Pipelined(NamedTuple):
    """A segmented algorithm of one operation."""

    op: str
    algo: str
    depth: Callable[[int], float]
    """n -> messages that the first piece takes, one after another."""
    period: float
    """Pieces that the busiest rank sends for each further one."""
    meaning: str
    needs: str = ""
    """As `Form.needs`."""


PIPELINED: tuple[Pipelined, ...] = (
    Pipelined("all_reduce", "double-tree", lambda n: 2 * levels(n), 2.0,
              "two binary trees, K pieces: 2h (a + M/KB) + (K-1) (a + 2M/KB), h = ceil(lg n); "
              "deduced"),
    Pipelined("broadcast", "double-tree", levels, 1.0,
              "two binary trees, K pieces: h (a + M/KB) + (K-1) (a + M/KB), h = ceil(lg n)"),
    Pipelined("reduce", "double-tree", levels, 1.0,
              "two binary trees, K pieces: h (a + M/KB) + (K-1) (a + M/KB), h = ceil(lg n)"),
    Pipelined("broadcast", "ring", lambda n: n - 1, 1.0,
              "a chain of K pieces: (n-2 + K) (a + M/KB)"),
    Pipelined("reduce", "ring", lambda n: n - 1, 1.0,
              "a chain of K pieces: (n-2 + K) (a + M/KB)"),
)  # fmt: skip

_TABLE = {(p.op, p.algo): p for p in PIPELINED}


def pipelined(op: str, algo: str) -> Pipelined | None:
    """The row of the table, or None."""
    return _TABLE.get((op, algo))


def time_of(
    row: Pipelined, n: int, size_bytes, alpha_ns, bandwidth_bytes_per_s, pieces
) -> np.ndarray:
    """T(K) in ns for `pieces` = K, float64 of the shape of both."""
    depth = row.depth(n)
    if not depth:
        return np.zeros(np.broadcast_shapes(np.shape(size_bytes), np.shape(pieces)))
    k = np.asarray(pieces, np.float64)
    wire = np.asarray(size_bytes, np.float64) * 1e9 / bandwidth_bytes_per_s / k
    return depth * (alpha_ns + wire) + (k - 1) * (alpha_ns + row.period * wire)


def best_pieces(row: Pipelined, n: int, size_bytes, alpha_ns, bandwidth_bytes_per_s) -> np.ndarray:
    """The K, a whole number of at least 1 and no more than one a byte, that takes least time."""
    size = np.asarray(size_bytes, np.float64)
    most = np.maximum(np.floor(size), 1.0)
    wire = (row.depth(n) - row.period) * size * 1e9 / bandwidth_bytes_per_s
    with np.errstate(over="ignore", divide="ignore", invalid="ignore"):
        ideal = np.sqrt(np.maximum(wire, 0.0) / alpha_ns)
    ideal = np.where(np.asarray(alpha_ns) > 0, ideal, np.where(wire > 0, most, 1.0))
    low = np.clip(np.floor(ideal), 1.0, most)
    high = np.clip(low + 1, 1.0, most)
    times = [
        time_of(row, n, size, alpha_ns, bandwidth_bytes_per_s, pieces) for pieces in (low, high)
    ]
    return np.where(times[1] < times[0], high, low)
