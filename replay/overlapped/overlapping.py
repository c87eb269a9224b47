"""Communication under computation: when buckets end, what is exposed, what chunks cost."""

from __future__ import annotations

import math

import numpy as np


def ends_ns(ready_ns: np.ndarray, took_ns: np.ndarray) -> np.ndarray:
    """When each of several transfers over one link ends, float64 [k].

    e_i = max(e_(i-1), r_i) + t_i (textbook recursion): one is ready at `ready_ns`, and takes
    `took_ns` of the link after those before it.
    """
    ready, took = np.broadcast_arrays(np.asarray(ready_ns, float), np.asarray(took_ns, float))
    done = np.cumsum(took)
    # The latest start that anything up to i forces on what comes after, less what was done by then.
    return np.maximum.accumulate(ready - (done - took)) + done


def buckets_ns(
    ready_ns: np.ndarray, size_bytes: np.ndarray, alpha_ns: float, bandwidth_bytes_per_s: float
) -> np.ndarray:
    """`ends_ns` of buckets that take alpha + size / bandwidth each."""
    size = np.asarray(size_bytes, float)
    return ends_ns(ready_ns, alpha_ns + size * 1e9 / bandwidth_bytes_per_s)


def exposed_ns(ends: np.ndarray, compute_end_ns: float) -> float:
    """What of them is left when computation has ended."""
    return max(0.0, float(np.max(ends, initial=-math.inf)) - compute_end_ns)


def chunked_ns(first_ns: float, second_ns: float, chunks: int, alpha_ns: float) -> float:
    """Two stages in a chain, each in as many chunks: (x + y)/K + (K-1)/K max(x, y) + K a (deduced).

    One chunk is the chain itself, and one more alpha.
    """
    longest = max(first_ns, second_ns)
    return (first_ns + second_ns + (chunks - 1) * longest) / chunks + chunks * alpha_ns


def best_chunks(first_ns: float, second_ns: float, alpha_ns: float, most: int = 4096) -> int:
    """The count that `chunked_ns` is least for: K = sqrt(min(x, y) / a), the better neighbour."""
    if alpha_ns <= 0:
        return most
    near = math.sqrt(min(first_ns, second_ns) / alpha_ns)
    around = {min(max(k, 1), most) for k in (math.floor(near), math.ceil(near))}
    return min(sorted(around), key=lambda k: chunked_ns(first_ns, second_ns, k, alpha_ns))


def least_ns(critical_path_ns: float, busiest_link_ns: float, compute_ns: float) -> float:
    """No schedule of the same work is shorter."""
    return max(critical_path_ns, busiest_link_ns, compute_ns)
