"""The moves of an all-to-all: at once, in pairs, windows or waves, through Bruck, rings or levels.

What a rank keeps (the diagonal) does not move, and a pair that has nothing to say sends nothing.
"""

from __future__ import annotations

import numpy as np

from ..moe.waves import cyclic, native
from .moves import Moves, in_turn, moves
from .patterns import nested

WINDOW = 8
"""Messages that NCCL has under way at once: a batch of point-to-point operations of one kernel
(NCCL's src/init.cc and src/enqueue.cc, read)."""

Ordered = tuple[Moves, dict[str, int]]


def matrix(n: int, size) -> np.ndarray:
    """float64 [n, n] of what rank i sends to j: an even one from M, what a rank sends in all."""
    return np.full((n, n), size / n) if np.ndim(size) == 0 else np.asarray(size, np.float64)


def _in_order(n: int, size, order: np.ndarray) -> Moves:
    """Move k of each rank goes to `order[k, rank]`; no move where there is nothing to send."""
    demand = matrix(n, size)
    rnd, src = np.divmod(np.arange(order.size), n)
    dst = order.ravel()
    kept = (src != dst) & (demand[src, dst] > 0)
    src, dst = src[kept], dst[kept]
    return moves(src, dst, demand[src, dst], rnd[kept])


def all_at_once(n: int, size) -> Moves:
    """All messages at once, as kernels that push to every peer do."""
    return _in_order(n, size, cyclic(n))._replace(round=np.zeros(_count(n, size), np.int64))


def _count(n: int, size) -> int:
    demand = matrix(n, size)
    return int((demand > 0).sum() - (np.diag(demand) > 0).sum())


def pairwise(n: int, size) -> Moves:
    """One message at a time: sent to the rank k on, received from the rank k back."""
    return _in_order(n, size, cyclic(n))


def windowed(n: int, size, width: int = WINDOW, per_host: int = 0) -> Ordered:
    """NCCL's order (shifts of hosts and of places in a host), `width` messages under way."""
    _wide(width)
    if per_host and n % per_host:
        raise ValueError(f"{per_host} ranks a host do not divide {n}")
    return _in_order(n, size, native(n, per_host or None)), {"back": width}


def waves(n: int, size, width: int = 1, barrier: bool = False) -> Ordered:
    """Cyclic permutations, `width` under way; with a barrier all of them end before the next."""
    _wide(width)
    made = _in_order(n, size, cyclic(n))
    return made, ({"barrier": width} if barrier else {"back": width})


def bruck(n: int, size) -> Moves:
    """Round k moves the blocks whose distance has bit k set, 2^k ranks on."""
    block, rank = _even(size) / n, np.arange(n)
    return in_turn(
        *(
            moves(rank, (rank + (1 << k)) % n, block * sum(j >> k & 1 for j in range(n)))
            for k in range((n - 1).bit_length())
        )
    )


def ring(n: int, size) -> Moves:
    """Blocks shifted round one ring, one less in each round."""
    rnd, src = np.divmod(np.arange(n * (n - 1)), n)
    return moves(src, (src + 1) % n, _even(size) / n * (n - 1 - rnd), rnd)


def hierarchical(n: int, size, levels: tuple[int, ...] = ()) -> Moves:
    """Level by level, the innermost first: to each peer of a level what lies beyond it."""
    inside, out = 1, []
    for length in nested(n, levels):
        step, rank = np.divmod(np.arange(n * (length - 1)), n)
        at = rank // inside % length
        peer = rank + ((at + 1 + step) % length - at) * inside
        out.append(moves(rank, peer, _even(size) / length))
        inside *= length
    return in_turn(*out)


def _even(size) -> float:
    if np.ndim(size):
        raise ValueError("takes one size, not a matrix: direct, pairwise, windowed or waves would")
    return float(size)


def _wide(width: int) -> None:
    if width < 1:
        raise ValueError(f"width is {width}: 1 or more")
