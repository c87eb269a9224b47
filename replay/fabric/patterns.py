"""The moves of classic algorithms, but all-to-all: rings, trees, doubling, halving, stars, levels.

Sources: Thakur, Rabenseifner and Gropp (2005) for trees, recursive doubling and halving with the
fold of ranks above a power of two; Patarasuk and Yuan (2009) for rings; Bruck et al. (1997).
"""

from __future__ import annotations

import math

import numpy as np

from .moves import Moves, backwards, in_turn, moves, rerooted


def shift_ring(n: int, size: float) -> Moves:
    """All-gather or reduce-scatter: n-1 rounds in which each sends a share to the next."""
    rnd, src = np.divmod(np.arange(n * (n - 1)), n)
    return moves(src, (src + 1) % n, size / n, rnd)


def all_reduce_ring(n: int, size: float) -> Moves:
    """A reduce-scatter, then an all-gather, round the ring."""
    return in_turn(shift_ring(n, size), shift_ring(n, size))


def broadcast_tree(n: int, size: float, root: int = 0) -> Moves:
    """Binomial: in each round all that have it send it to one that has not, the farthest first.

    So the last rounds, with most messages, are between neighbours.
    """
    out = []
    for k in reversed(range(_levels(n))):
        have = np.arange(0, n - (1 << k), 2 << k)
        out.append(moves(have, have + (1 << k), size))
    return rerooted(in_turn(*out), n, root)


def reduce_tree(n: int, size: float, root: int = 0) -> Moves:
    """A binomial broadcast in reverse."""
    return backwards(broadcast_tree(n, size, root))


def all_reduce_tree(n: int, size: float) -> Moves:
    """A reduction to rank 0, then a broadcast."""
    return in_turn(reduce_tree(n, size), broadcast_tree(n, size))


def recursive_doubling(n: int, size: float) -> Moves:
    """Whole vectors exchanged at distances 1, 2, 4, ...; what is above a power of two folds."""
    r = 1 << (n.bit_length() - 1)
    rank = np.arange(r)
    steps = (moves(rank, rank ^ (1 << k), size) for k in range(r.bit_length() - 1))
    return _folded(n, size, in_turn(*steps))


def all_reduce_halving_doubling(n: int, size: float) -> Moves:
    """Recursive halving, then doubling; what is above a power of two folds.

    Neighbours exchange halves first, so that most bytes stay near (as MPICH's all-reduce does).
    """
    r = 1 << (n.bit_length() - 1)
    halved = _halving(r, size, near_first=True)
    return _folded(n, size, in_turn(halved, backwards(halved)))


def _folded(n: int, size: float, inner: Moves) -> Moves:
    r = 1 << (n.bit_length() - 1)
    extra = np.arange(n - r)
    if not len(extra):
        return inner
    return in_turn(moves(extra + r, extra, size), inner, moves(extra, extra + r, size))


def _halving(r: int, size: float, *, near_first: bool = False) -> Moves:
    rank, steps = np.arange(r), range(r.bit_length() - 1)
    return in_turn(
        *(moves(rank, rank ^ (1 << k if near_first else r >> k + 1), size / (2 << k))
          for k in steps)
    )  # fmt: skip


def reduce_scatter_halving(n: int, size: float) -> Moves:
    """Exchanges at distances n/2, n/4, ... of halves, quarters, ..."""
    if n & (n - 1):
        raise ValueError(f"needs a power of two: {1 << (n.bit_length() - 1)} would work, and "
                         "ring or bruck for any number")  # fmt: skip
    return _halving(n, size)


def all_gather_doubling(n: int, size: float) -> Moves:
    """Recursive halving in reverse."""
    return backwards(reduce_scatter_halving(n, size))


def all_gather_bruck(n: int, size: float) -> Moves:
    """Round k brings up to 2^k shares from the rank 2^k further on."""
    rank = np.arange(n)
    return in_turn(
        *(
            moves(rank, (rank - (1 << k)) % n, size / n * min(1 << k, n - (1 << k)))
            for k in range(_levels(n))
        )
    )


def reduce_scatter_bruck(n: int, size: float) -> Moves:
    """Bruck's all-gather in reverse."""
    return backwards(all_gather_bruck(n, size))


def shares_to_all(n: int, size: float) -> Moves:
    """All-gather or reduce-scatter to all peers at once: a share from each to each."""
    src, off = np.divmod(np.arange(n * (n - 1)), max(n - 1, 1))
    return moves(src, (src + 1 + off) % n, size / n)


def all_reduce_direct(n: int, size: float) -> Moves:
    """Reduce-scatter, then all-gather, each to all peers at once."""
    return in_turn(shares_to_all(n, size), shares_to_all(n, size))


def parameter_server(n: int, size: float, root: int = 0) -> Moves:
    """All push to the server (`root`), then pull from it."""
    return in_turn(reduce_direct(n, size, root), broadcast_direct(n, size, root))


def broadcast_direct(n: int, size: float, root: int = 0) -> Moves:
    """The root to each at once."""
    return rerooted(moves(0, np.arange(1, n), size), n, root)


def reduce_direct(n: int, size: float, root: int = 0) -> Moves:
    """Each to the root at once."""
    return backwards(broadcast_direct(n, size, root))


def broadcast_chain(n: int, size: float, root: int = 0, pieces: int = 8) -> Moves:
    """Pieces that follow one another from rank to rank."""
    _some(pieces)
    piece, src = np.divmod(np.arange(pieces * (n - 1)), max(n - 1, 1))
    return rerooted(moves(src, src + 1, size / pieces, piece + src), n, root)


def reduce_chain(n: int, size: float, root: int = 0, pieces: int = 8) -> Moves:
    """A chain broadcast in reverse."""
    return backwards(broadcast_chain(n, size, root, pieces))


def broadcast_scatter_allgather(n: int, size: float, root: int = 0) -> Moves:
    """A binomial scatter, then shares round a ring (van de Geijn)."""
    return in_turn(scatter_tree(n, size, root), shift_ring(n, size))


def reduce_scatter_gather(n: int, size: float, root: int = 0) -> Moves:
    """The same in reverse: shares round a ring, then a binomial gather."""
    return backwards(broadcast_scatter_allgather(n, size, root))


def scatter_tree(n: int, size: float, root: int = 0) -> Moves:
    """Binomial: each passes on the half that lies beyond it."""
    out = []
    for k in reversed(range(_levels(n))):
        src = np.arange(0, n - (1 << k), 2 << k)
        out.append(moves(src, src + (1 << k), size / n * np.minimum(1 << k, n - src - (1 << k))))
    return rerooted(in_turn(*out), n, root)


def gather_tree(n: int, size: float, root: int = 0) -> Moves:
    """A binomial scatter in reverse."""
    return backwards(scatter_tree(n, size, root))


def scatter_direct(n: int, size: float, root: int = 0) -> Moves:
    """All shares at once from the root."""
    return rerooted(moves(0, np.arange(1, n), size / n), n, root)


def gather_direct(n: int, size: float, root: int = 0) -> Moves:
    """All shares at once to the root."""
    return backwards(scatter_direct(n, size, root))


def scatter_in_turn(n: int, size: float, root: int = 0) -> Moves:
    """A share after another from the root."""
    return rerooted(moves(0, np.arange(1, n), size / n, np.arange(n - 1)), n, root)


def gather_in_turn(n: int, size: float, root: int = 0) -> Moves:
    """A share after another to the root, which asks for the next when it has one."""
    return backwards(scatter_in_turn(n, size, root))


def send(n: int, size: float) -> Moves:
    """From the first rank to the second."""
    if n > 2:
        raise ValueError("a message has one sender and one receiver: 2 ranks would work")
    return moves(np.arange(n - 1), 1, size)


def barrier(n: int, size: float) -> Moves:
    """Word without bytes, from ranks at distances 1, 2, 4, ... (dissemination)."""
    rank = np.arange(n)
    return in_turn(*(moves(rank, (rank + (1 << k)) % n, 0.0) for k in range(_levels(n))))


def reduce_scatter_hierarchical(n: int, size: float, levels: tuple[int, ...] = ()) -> Moves:
    """Rings level by level, the innermost first, each over what the one inside it left."""
    inside, out = 1, []
    for length in nested(n, levels):
        rnd, rank = np.divmod(np.arange(n * (length - 1)), n)
        at = rank // inside % length
        out.append(moves(rank, rank + ((at + 1) % length - at) * inside,
                         size / inside / length, rnd))  # fmt: skip
        inside *= length
    return in_turn(*out)


def all_gather_hierarchical(n: int, size: float, levels: tuple[int, ...] = ()) -> Moves:
    """The same in reverse: the outermost ring first."""
    made = backwards(reduce_scatter_hierarchical(n, size, levels))
    return made._replace(src=made.dst, dst=made.src)


def all_reduce_hierarchical(n: int, size: float, levels: tuple[int, ...] = ()) -> Moves:
    """Reduce-scatter up the levels, all-gather back down them."""
    return in_turn(
        reduce_scatter_hierarchical(n, size, levels), all_gather_hierarchical(n, size, levels)
    )


def nested(n: int, levels: tuple[int, ...]) -> tuple[int, ...]:
    """The sizes of the levels; ValueError where they do not multiply to n."""
    if not levels or math.prod(levels) != n or min(levels) < 1:
        raise ValueError(f"levels {'+'.join(map(str, levels)) or 'none'} do not multiply to {n}")
    return tuple(levels)


def _levels(n: int) -> int:
    return (n - 1).bit_length()


def _some(pieces: int) -> None:
    if pieces < 1:
        raise ValueError(f"pieces is {pieces}: 1 or more")
