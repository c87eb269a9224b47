"""The classic algorithms as one table of coefficients: `messages * alpha + volume * bytes / B`.

Each row is a pair of coefficients that depend on the number of ranks n alone. Reduction itself is
free. Sources: Thakur, Rabenseifner and Gropp, "Optimization of Collective Communication Operations
in MPICH" (2005), for trees, recursive doubling and halving with its fold for odd n, pairwise and
Bruck; Patarasuk and Yuan (2009) for the ring; Bruck et al. (1997) for the blocks of its
all-to-all; van de Geijn's scatter and all-gather for broadcasts. Rows marked "deduced" in their
meaning are worked out here and stand in none of these.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

from ...ingest.errors import UsageError


class Form(NamedTuple):
    """An algorithm of one operation: messages in a row, and their bytes a byte of size."""

    op: str
    algo: str
    messages: Callable[[int], float]
    """n -> how often alpha is paid."""
    volume: Callable[[int], float]
    """n -> bytes of those messages together, in sizes of the operation: what is sent one after
    another. In a tree each level sends on the whole vector only when it has it."""
    meaning: str
    power_of_two: bool = False
    """Stands for n = 1, 2, 4, 8, ... only."""

    @property
    def needs(self) -> str:
        """What it asks of the machine beyond links between ranks; empty where nothing."""
        return NEEDS.get(self.algo, "")


NEEDS = {
    "direct": "a fabric on which a rank reaches all others at once",
    "nvls": "a switch that multicasts and reduces",
    "parameter-server": "a server that all others reach at once",
}
"""Algorithms that not every machine can run."""


class NoModel(UsageError):
    """No closed form for this operation under this algorithm."""


def levels(n: int) -> int:
    """ceil(lg n): rounds in which one rank's word reaches n."""
    return (n - 1).bit_length()


def floor_power(n: int) -> int:
    """The largest power of two that is no more than n."""
    return 1 << (n.bit_length() - 1)


def _odd(n: int) -> int:
    """2 where n is no power of two: n - r ranks fold into a neighbour, and get the result last."""
    return 0 if floor_power(n) == n else 2


def _lg(n: int) -> int:
    return n.bit_length() - 1


def _bruck_volume(n: int) -> float:
    # Round k of Bruck moves the blocks j of 1..n-1 whose bit k is set (4, 4, 4 of 8 ranks): that
    # is (n >> k+1 << k) + max(0, n mod 2^(k+1) - 2^k) of them.
    whole = [(n >> k + 1 << k) + max(0, n % (2 << k) - (1 << k)) for k in range(levels(n))]
    return sum(whole) / n


def _share(n: int) -> float:
    return (n - 1) / n


def _rows() -> list[Form]:
    rows = [
        Form("all_reduce", "ring", lambda n: 2 * (n - 1), lambda n: 2 * _share(n),
             "reduce-scatter, then all-gather, round a ring: 2(n-1) a + 2(n-1)/n M/B"),
        Form("all_reduce", "tree", lambda n: 2 * levels(n), lambda n: 2 * levels(n),
             "up and down a binary tree, not segmented: 2 ceil(lg n) (a + M/B)"),
        Form("all_reduce", "recursive-doubling", lambda n: _lg(n) + _odd(n),
             lambda n: _lg(n) + _odd(n),
             "whole vectors exchanged at distances 1, 2, 4, ...: lg r (a + M/B), r = 2^floor(lg n);"
             " + 2 (a + M/B) where n > r"),
        Form("all_reduce", "halving-doubling", lambda n: 2 * _lg(n) + _odd(n),
             lambda n: 2 * _share(floor_power(n)) + _odd(n),
             "recursive halving, then doubling: 2 lg r a + 2(r-1)/r M/B, r = 2^floor(lg n); "
             "+ 2 (a + M/B) where n > r"),
        Form("all_reduce", "direct", lambda n: 2 * (n > 1), lambda n: 2 * _share(n),
             "reduce-scatter and all-gather, each to all peers at once: 2a + 2(n-1)/n M/B"),
        Form("all_reduce", "parameter-server", lambda n: 2 * (n > 1), lambda n: 2 * (n - 1),
             "all push to a server and pull from it: 2 (a + (n-1) M/B) at the server's port"),
        Form("all_reduce", "nvls", lambda n: 2 * (n > 1), lambda n: float(n > 1),
             "multicast and reduction in the switch (NVLS, SHARP): 2a + M/B; deduced"),
        Form("broadcast", "tree", levels, levels, "a binomial tree: ceil(lg n) (a + M/B)"),
        Form("broadcast", "scatter-allgather", lambda n: levels(n) + n - 1,
             lambda n: 2 * _share(n),
             "a binomial scatter, then a ring: (ceil(lg n) + n-1) a + 2(n-1)/n M/B"),
        Form("broadcast", "direct", lambda n: float(n > 1), lambda n: n - 1,
             "the root to each at once: a + (n-1) M/B at its port"),
        Form("broadcast", "nvls", lambda n: float(n > 1), lambda n: float(n > 1),
             "the switch multicasts: a + M/B; deduced"),
        Form("reduce", "tree", levels, levels, "a binomial tree: ceil(lg n) (a + M/B)"),
        Form("reduce", "scatter-allgather", lambda n: levels(n) + n - 1, lambda n: 2 * _share(n),
             "a reduce-scatter round a ring, then a binomial gather: (ceil(lg n) + n-1) a + "
             "2(n-1)/n M/B"),
        Form("reduce", "direct", lambda n: float(n > 1), lambda n: n - 1,
             "each to the root at once: a + (n-1) M/B at its port"),
        Form("reduce", "nvls", lambda n: float(n > 1), lambda n: float(n > 1),
             "the switch reduces: a + M/B; deduced"),
        Form("all_to_all", "pairwise", lambda n: n - 1, _share,
             "n-1 exchanges of one block: (n-1) (a + M/(nB))"),
        Form("all_to_all", "direct", lambda n: float(n > 1), _share,
             "all blocks at once on a fabric that does not block: a + (n-1)/n M/B"),
        Form("all_to_all", "bruck", levels, _bruck_volume,
             "ceil(lg n) rounds, round k moves the blocks whose bit k is set: lg n (a + M/2B) where"
             " n is a power of two"),
        Form("all_to_all", "ring", lambda n: n - 1, lambda n: (n - 1) / 2,
             "blocks shifted round one ring, one less each time: (n-1) a + (n-1)/2 M/B"),
        Form("barrier", "recursive-doubling", levels, lambda n: 0.0,
             "everybody hears of everybody in ceil(lg n) messages without bytes"),
    ]  # fmt: skip
    rows += [
        Form(op, "direct", lambda n: float(n > 1), lambda n: float(n > 1), "one message: a + M/B")
        for op in ("send", "recv", "send_recv")
    ]
    for op, what in (("reduce_scatter", "a partial sum"), ("all_gather", "a shard")):
        rows += [
            Form(op, "ring", lambda n: n - 1, _share,
                 f"n-1 shifts of {what} round a ring: (n-1) a + (n-1)/n M/B"),
            Form(op, "bruck", levels, _share,
                 "doubling distances and shares, any n: ceil(lg n) a + (n-1)/n M/B"),
            Form(op, "halving-doubling", _lg, _share,
                 "exchanges at distances n/2, n/4, ...: lg n a + (n-1)/n M/B", True),
            Form(op, "direct", lambda n: float(n > 1), _share,
                 "to all peers at once: a + (n-1)/n M/B"),
            Form(op, "nvls", lambda n: float(n > 1), _share,
                 "through the switch; a rank's own port still carries (n-1)/n: a + (n-1)/n M/B;"
                 " deduced"),
        ]  # fmt: skip
    for op in ("scatter", "gather"):
        rows += [
            Form(op, "tree", levels, _share,
                 "a binomial tree of halves: ceil(lg n) a + (n-1)/n M/B"),
            Form(op, "pairwise", lambda n: n - 1, _share,
                 "a shard after another at the root: (n-1) a + (n-1)/n M/B"),
            Form(op, "direct", lambda n: float(n > 1), _share,
                 "all shards at once at the root: a + (n-1)/n M/B"),
        ]  # fmt: skip
    return rows


FORMS: tuple[Form, ...] = tuple(_rows())
"""M, the size of an operation, is the whole buffer: what a rank holds before an all-reduce,
reduce-scatter or reduce, what it holds after an all-gather or broadcast, what a rank sends in an
all-to-all (its own block counted), what the root holds of a scatter or gather."""

_TABLE = {(f.op, f.algo): f for f in FORMS}


def linear(op: str, algo: str) -> Form | None:
    """The row of the table, or None."""
    return _TABLE.get((op, algo))
