"""Rows of two sources of a rank that share no number: by their order on communicators."""

from __future__ import annotations

from collections import Counter
from typing import NamedTuple

import numpy as np

from .evidence import Lane
from .lanes import Laid, lay
from .rows import ALL_REDUCE, BARRIER, NATIVE, Groups, View, by_function

AGREE_NS = 1_000_000
"""Offsets of one process's clock that communicators tell differ by less than this."""


SURPRISES = 12.0
"""Pairs that agree though they would not, were they of two steps: so many at least."""
MOST_SPAN = 50_000_000
"""Numbers further apart than this are no places."""


class Pair(NamedTuple):
    """Two communicators that may be one, and their operations that may be."""

    first: int
    """communicator of the first kind"""
    second: int
    """communicator of the second kind"""
    lanes: list[tuple[Lane, Lane]]


def by_order(view: View, groups: Groups, rank: int, first: int, second: int) -> Counter:
    """Joins rows of two kinds on a rank whose order on a communicator leaves one reading.

    Communicators of one name are laid side by side; those of the library and of the framework,
    which have names of their own, wherever their sizes allow. A communicator of the second kind
    that fits two of the first fits none. Returns why pairs of communicators stayed apart, counted:
    `none`, `open` or `apart` (see `lay`).
    """
    a = np.flatnonzero((view.rank == rank) & (view.kind == first) & ~view.many & (view.comm >= 0))
    b = np.flatnonzero((view.rank == rank) & (view.kind == second) & ~view.many & (view.comm >= 0))
    reasons: Counter = Counter()
    mate = groups.partner(second)
    pairs = _pairs(view, a, b, mate)
    laid: dict[tuple[int, int, int], Laid] = {}
    offset = None
    for again in (False, True):
        for pair in pairs:
            for k, (left, right) in enumerate(pair.lanes):
                old = laid.get((pair.first, pair.second, k))
                if again and old is not None and old.offset_ns is None:
                    continue
                have = mate[left.rows] >= 0
                same = left.rows[have], mate[left.rows[have]]
                found = lay(view, left, right, same, offset)
                if isinstance(found, str):
                    reasons[found] += not again
                elif len(found.a) and (old is None or len(found.a) > len(old.a)):
                    laid[(pair.first, pair.second, k)] = found
        offset = _agreed(laid)
        laid = _sure(_of_one_clock(laid, offset))
        if not any(x.offset_ns is not None for x in laid.values()):
            break
    laid = _of_one_communicator(view, laid)
    for found in laid.values():
        groups.link(found.a, found.b)
    return reasons


def _pairs(view: View, a: np.ndarray, b: np.ndarray, mate: np.ndarray) -> list[Pair]:
    """Pairs of communicators that may be one, with their lanes; those not wholly joined yet."""
    out = []
    firsts = [a[view.comm[a] == c] for c in np.unique(view.comm[a]).tolist()]
    seconds = [b[view.comm[b] == c] for c in np.unique(view.comm[b]).tolist()]
    shared = set(np.unique(view.comm[a]).tolist()) & set(np.unique(view.comm[b]).tolist())
    for x in firsts:
        for y in seconds:
            p, q = int(view.comm[x[0]]), int(view.comm[y[0]])
            if p != q and (p in shared or q in shared or not _named_apart(view, x, y)):
                continue
            sizes = [set(np.unique(view.group_size[z]).tolist()) - {-1} for z in (x, y)]
            if sizes[0] and sizes[1] and not sizes[0] & sizes[1]:
                continue
            if len(y) == (mate[x] >= 0).sum():
                continue
            out.append(Pair(p, q, _lanes(view, x, y)))
    return out


def _named_apart(view: View, a: np.ndarray, b: np.ndarray) -> bool:
    """Whether one of the two kinds names the library's communicators and the other does not."""
    native = [
        view.kinds[int(view.kind[x[0]])] in NATIVE
        or view.comms[int(view.comm[x[0]])][:5] == "nccl-"
        for x in (a, b)
    ]
    return native[0] != native[1]


def _lanes(view: View, a: np.ndarray, b: np.ndarray) -> list[tuple[Lane, Lane]]:
    """What is laid side by side: each operation for itself where one side's numbers count so."""
    each = by_function(view) & (view.seq >= 0) & ~view.p2p
    apart = bool(each[a].any() or each[b].any())
    together = a[~view.p2p[a]], b[~view.p2p[b]]
    if apart:
        masks = np.unique(view.mask[together[1]]).tolist()
        parts = [tuple(x[_may_be(view.mask[x], m)] for x in together) for m in masks]
    else:
        parts = [together]
    parts.append((a[view.p2p[a]], b[view.p2p[b]]))
    return [
        (_lane(view, x, each, apart), _lane(view, y, each, apart))
        for x, y in parts
        if len(x) and len(y)
    ]


def _may_be(mask: np.ndarray, wanted: int) -> np.ndarray:
    """Operations that the library may run as the one wanted: a barrier is an all-reduce to it."""
    barrier = (mask == BARRIER) & bool(wanted & ALL_REDUCE)
    return ((mask & wanted) != 0) | barrier


def _lane(view: View, rows: np.ndarray, each: np.ndarray, apart: bool) -> Lane:
    """Rows by their numbers where these can be places, else by their order."""
    seq = view.seq[rows]
    counts = bool((seq >= 0).all()) and bool((each[rows] == apart).all())
    if counts and not view.p2p[rows].any() and len(np.unique(seq)) == len(seq):
        order = np.argsort(seq, kind="stable")
        if int(seq[order[-1]]) - int(seq[order[0]]) <= MOST_SPAN:
            return Lane(rows[order], seq[order], True)
    return Lane(rows, np.arange(len(rows)), False)


def _agreed(laid: dict[tuple[int, int, int], Laid]) -> int | None:
    """The offset that most pairs' lanes agree on; None where they do not."""
    told = [(len(x.a), x.offset_ns) for x in laid.values() if x.offset_ns is not None]
    if not told:
        return None
    told.sort(key=lambda t: (-t[0], t[1]))
    best = told[0][1]
    near = sum(n for n, offset in told if abs(offset - best) <= AGREE_NS)
    return best if 2 * near > sum(n for n, _ in told) else None


def _of_one_clock(
    laid: dict[tuple[int, int, int], Laid], offset: int | None
) -> dict[tuple[int, int, int], Laid]:
    """Those whose offset is the agreed one: a process has one clock. None where nothing agrees."""
    return {
        k: x
        for k, x in laid.items()
        if x.offset_ns is None or (offset is not None and abs(x.offset_ns - offset) <= AGREE_NS)
    }


def _sure(laid: dict[tuple[int, int, int], Laid]) -> dict[tuple[int, int, int], Laid]:
    """Those that enough pairs speak for: lanes of two communicators, or of one clock, together."""
    timed = sum(x.surprises for x in laid.values() if x.offset_ns is not None)
    told: dict[tuple[int, int], float] = {}
    for (first, second, _), x in laid.items():
        more = x.surprises if x.offset_ns is None else 0.0
        told[(first, second)] = told.get((first, second), 0.0) + more
    return {
        k: x
        for k, x in laid.items()
        if (told[k[:2]] if x.offset_ns is None else timed) >= SURPRISES
    }


def _of_one_communicator(
    view: View, laid: dict[tuple[int, int, int], Laid]
) -> dict[tuple[int, int, int], Laid]:
    """Without communicators of the second kind that fit two of the first, and rows used twice."""
    firsts: dict[int, set[int]] = {}
    for first, second, _ in laid:
        firsts.setdefault(second, set()).add(first)
    one = {k: x for k, x in laid.items() if len(firsts[k[1]]) == 1}
    uses = np.zeros(len(view.at), dtype=np.int64)
    for x in one.values():
        np.add.at(uses, np.concatenate([x.a, x.b]), 1)
    return {k: x for k, x in one.items() if (uses[x.a] <= 1).all() and (uses[x.b] <= 1).all()}
