"""Collectives as rounds of flows: who sends how much to whom, and what that waits for.

A message begins when both of its ends have done with their rounds before: all that each of them
sent and received there has ended. No barrier joins the ranks. Positions 0..n-1 are ranks of the
communicator, to be placed on GPUs. Sizes are M of `models.forms.FORMS`: the whole buffer; in an
all-to-all what a rank sends, its own block counted.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np

from ...ingest.errors import UsageError
from . import exchange, patterns, two_trees
from .moves import Moves


class Rounds(NamedTuple):
    """F flows of one collective; arrays are [F]. A flow from -1 to -1 is a join: nothing moves."""

    n: int
    src: np.ndarray
    dst: np.ndarray
    size_bytes: np.ndarray
    pred_ptr: np.ndarray
    """int64 [F + 1]; flow f waits for `pred[pred_ptr[f]:pred_ptr[f + 1]]`."""
    pred: np.ndarray

    @property
    def messages(self) -> int:
        """Flows that move something."""
        return int((self.src >= 0).sum())


class NoRounds(UsageError):
    """No decomposition of this operation by this algorithm, or not for so many ranks."""


Made = Callable[..., Any]

TABLE: dict[tuple[str, str], Made] = {
    ("all_reduce", "ring"): patterns.all_reduce_ring,
    ("all_reduce", "tree"): patterns.all_reduce_tree,
    ("all_reduce", "double-tree"): two_trees.all_reduce,
    ("all_reduce", "recursive-doubling"): patterns.recursive_doubling,
    ("all_reduce", "halving-doubling"): patterns.all_reduce_halving_doubling,
    ("all_reduce", "direct"): patterns.all_reduce_direct,
    ("all_reduce", "hierarchical"): patterns.all_reduce_hierarchical,
    ("all_reduce", "parameter-server"): patterns.parameter_server,
    ("reduce_scatter", "ring"): patterns.shift_ring,
    ("reduce_scatter", "bruck"): patterns.reduce_scatter_bruck,
    ("reduce_scatter", "halving-doubling"): patterns.reduce_scatter_halving,
    ("reduce_scatter", "direct"): patterns.shares_to_all,
    ("reduce_scatter", "hierarchical"): patterns.reduce_scatter_hierarchical,
    ("all_gather", "ring"): patterns.shift_ring,
    ("all_gather", "bruck"): patterns.all_gather_bruck,
    ("all_gather", "halving-doubling"): patterns.all_gather_doubling,
    ("all_gather", "direct"): patterns.shares_to_all,
    ("all_gather", "hierarchical"): patterns.all_gather_hierarchical,
    ("all_to_all", "direct"): exchange.all_at_once,
    ("all_to_all", "pairwise"): exchange.pairwise,
    ("all_to_all", "windowed"): exchange.windowed,
    ("all_to_all", "waves"): exchange.waves,
    ("all_to_all", "bruck"): exchange.bruck,
    ("all_to_all", "ring"): exchange.ring,
    ("all_to_all", "hierarchical"): exchange.hierarchical,
    ("broadcast", "tree"): patterns.broadcast_tree,
    ("broadcast", "scatter-allgather"): patterns.broadcast_scatter_allgather,
    ("broadcast", "direct"): patterns.broadcast_direct,
    ("broadcast", "ring"): patterns.broadcast_chain,
    ("broadcast", "double-tree"): two_trees.broadcast,
    ("reduce", "tree"): patterns.reduce_tree,
    ("reduce", "scatter-allgather"): patterns.reduce_scatter_gather,
    ("reduce", "direct"): patterns.reduce_direct,
    ("reduce", "ring"): patterns.reduce_chain,
    ("reduce", "double-tree"): two_trees.reduce,
    ("scatter", "tree"): patterns.scatter_tree,
    ("scatter", "pairwise"): patterns.scatter_in_turn,
    ("scatter", "direct"): patterns.scatter_direct,
    ("gather", "tree"): patterns.gather_tree,
    ("gather", "pairwise"): patterns.gather_in_turn,
    ("gather", "direct"): patterns.gather_direct,
    ("send", "direct"): patterns.send,
    ("recv", "direct"): patterns.send,
    ("send_recv", "direct"): patterns.send,
    ("barrier", "recursive-doubling"): patterns.barrier,
}

OPS = tuple(dict.fromkeys(op for op, _ in TABLE))


def algorithms(op: str) -> tuple[str, ...]:
    """The algorithms by which an operation can be taken apart; raises NoRounds."""
    here = tuple(algo for o, algo in TABLE if o == op)
    if not here:
        raise NoRounds(f"no rounds of operation {op!r}; there are rounds of {', '.join(OPS)}")
    return here


def decompose(op: str, algo: str, n: int, size_bytes, **options) -> Rounds:
    """The flows of one collective of n ranks.

    `size_bytes` is M, or for an all-to-all also the matrix float [n, n] of what rank i sends to j.
    Options of some: `root` (broadcast, reduce, scatter, gather, parameter-server; default 0),
    `levels` (hierarchical: sizes, innermost first), `pieces` (ring broadcast, double-tree),
    `width`, `barrier`, `per_host` (all-to-all in waves or windows). Raises NoRounds for a
    combination that there is not, a number of ranks it cannot take, or an option it has not.
    """
    made = TABLE.get((op, algo))
    if made is None:
        raise NoRounds(
            f"no rounds of {op} by algorithm {algo!r}; {op} works with {', '.join(algorithms(op))}"
        )
    if n < 1:
        raise NoRounds(f"a collective of {n} ranks has no rounds")
    size = np.asarray(size_bytes, np.float64)
    if not np.isfinite(size).all() or (size < 0).any():
        raise NoRounds("the size of a collective is 0 bytes or more")
    if size.ndim and (op != "all_to_all" or size.shape != (n, n)):
        raise NoRounds(
            f"{op} of {n} ranks takes one size"
            + (f", or a matrix of {n} x {n}, not {size.shape}" if op == "all_to_all" else "")
        )
    taken = made.__code__.co_varnames[2 : made.__code__.co_argcount]
    wrong = [o for o in options if o not in taken]
    if wrong:
        raise NoRounds(f"{op} by {algo} has no option {wrong[0]!r}; it takes {_listed(taken)}")
    try:
        found = made(n, size if size.ndim else float(size), **options)
    except ValueError as e:
        raise NoRounds(f"{op} by {algo} of {n} ranks: {e}") from e
    if isinstance(found, Moves):
        return ordered(n, found)
    if len(found) == 2:
        return ordered(n, found[0], **found[1])
    return Rounds(n, *found)


def _listed(names) -> str:
    return ", ".join(names) if names else "none"


def ordered(n: int, moves: Moves, *, back: int = 1, barrier: int = 0) -> Rounds:
    """Moves with what they wait for: those of both ends' rounds up to `back` before theirs.

    A flow of round k waits for all that touched its sender, and all that touched its receiver, in
    the last of the rounds <= k - back in which anything did. `barrier` g: all of rounds 0..g-1
    end before any of g..2g-1 begins, and so on (instead of the above).
    """
    f = len(moves.src)
    if barrier:
        key = moves.round // barrier
        group_of = np.unique(key, return_inverse=True)[1]
        groups = int(group_of.max(initial=-1)) + 1
        members = np.argsort(group_of, kind="stable")
        waits = [np.where(group_of > 0, group_of - 1, -1)]
    else:
        width = int(moves.round.max(initial=0)) + 2
        entry = np.concatenate([moves.src, moves.dst]) * width + np.tile(moves.round, 2)
        keys, group_of = np.unique(entry, return_inverse=True)
        groups = len(keys)
        members = np.argsort(group_of, kind="stable") % max(f, 1)
        waits = []
        for rank in (moves.src, moves.dst):
            before = np.searchsorted(keys, rank * width + moves.round - back, "right") - 1
            same = (before >= 0) & (moves.round >= back)
            same[same] = keys[before[same]] // width == rank[same]
            waits.append(np.where(same, before, -1))
    size = np.bincount(group_of, minlength=groups)
    first = np.cumsum(size) - size
    users = np.zeros(groups, np.int64)
    for w in waits:
        users += np.bincount(w[w >= 0], minlength=groups)
    # Where many wait for many, a join between them: a + b edges instead of a * b.
    joined = (size > 2) & (size * users > 2 * (size + users))
    join = np.full(groups, -1)
    join[joined] = f + np.arange(joined.sum())
    # What each flow waits for: groups, then joins or members.
    flow = np.concatenate([np.zeros(0, np.int64), *(np.flatnonzero(w >= 0) for w in waits)])
    group = np.concatenate([np.zeros(0, np.int64), *(w[w >= 0] for w in waits)])
    through = joined[group]
    plain_flow, plain = flow[~through], group[~through]
    owner = np.concatenate([
        flow[through], np.repeat(plain_flow, size[plain]), np.repeat(join[joined], size[joined]),
    ])  # fmt: skip
    pred = np.concatenate([
        join[group[through]], members[_spread(first[plain], size[plain])],
        members[_spread(first[joined], size[joined])],
    ])  # fmt: skip
    total = f + int(joined.sum())
    order = np.argsort(owner, kind="stable")
    ptr = np.zeros(total + 1, np.int64)
    np.cumsum(np.bincount(owner, minlength=total), out=ptr[1:])
    none = np.full(total - f, -1)
    return Rounds(
        n, np.concatenate([moves.src, none]), np.concatenate([moves.dst, none]),
        np.concatenate([moves.size_bytes, np.zeros(total - f)]), ptr, pred[order],
    )  # fmt: skip


def _spread(first: np.ndarray, size: np.ndarray) -> np.ndarray:
    """The numbers first[i] .. first[i] + size[i] - 1 of every i, one after another."""
    ends = np.cumsum(size)
    return np.repeat(first - (ends - size), size) + np.arange(ends[-1] if len(ends) else 0)
