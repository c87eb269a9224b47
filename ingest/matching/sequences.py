"""Two ranks' operations on one communicator, laid side by side: offset of clocks, then pairs.

No sequence number is needed. The same operations in the same order repeat every step, so names
and sizes alone fit at many shifts; the moments at which operations end decide between them. A
collective ends on all its ranks at nearly the same moment, while the gaps between operations vary.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

SEND_LIKE = ("send", "recv", "send_recv", "all_to_all", "gather", "scatter")
OPS = (
    "all_reduce", "all_gather", "reduce_scatter", "broadcast", "reduce", "barrier", *SEND_LIKE,
)  # fmt: skip
ANY_OP = -1

CHUNKS = (64, 16)
"""Operations in the pieces of one sequence that are slid along the other: long ones are surer,
short ones find a place between lost operations."""
CLIP_NS = 5_000_000
"""A residual counts no more than this: one stray operation must not outweigh the others."""
WORST_SPREAD_NS = 200_000
"""Ends further apart than this on average do not 'nearly coincide'."""
WORST_SHARE = 0.1
"""Of host operations whose steps agree they may be this share of what one takes: over slow links
the ranks of a ring end one after another. Which shift is meant, the steps' numbers say then."""
RIVAL = 4.0
"""A shift wins only if the next best is this many times worse."""
FLOOR_NS = 2_000
"""Resolution of old traces (1 us) and then some: no spread is held to be better than this."""
NEAR_NS = 50_000
"""Ends of kernels on one clock closer than this are never called far apart."""
HOST_NEAR_NS = 20_000_000
"""The same for operations of the host, whose ends a busy scheduler notes late."""
SLACK_NS = 5_000
"""Doubt about an order of events on one clock: on a real host no rank was seen to end less than
6 us after the last had started."""
FEW = 5
"""Fewer pairs than this do not tell what distance of ends is typical."""


def op_mask(op: str | None) -> int:
    """Bits of the operations that a recorded name may stand for.

    A kernel called SendRecv carries point-to-point, all-to-all, gather and scatter alike.
    """
    if op == "send_recv":
        return sum(1 << OPS.index(o) for o in SEND_LIKE)
    return 1 << OPS.index(op) if op in OPS else ANY_OP


class Sequence(NamedTuple):
    """One rank's operations on one communicator in launch order; all arrays of one length."""

    start: np.ndarray
    """int64 ns"""
    end: np.ndarray
    """int64 ns"""
    mask: np.ndarray
    """int64, `op_mask` bits"""
    dtype: np.ndarray
    """int64 code, -1 where not known"""
    size: np.ndarray
    """int64 bytes of the whole operation, -1 where not known or not equal on all ranks"""
    step: np.ndarray
    """int64, -1 outside steps"""
    barrier: np.ndarray
    """bool: nobody can end before everybody has started"""
    near: np.ndarray
    """int64 ns, ends closer than this are never far apart: NEAR_NS or HOST_NEAR_NS"""


class Offset(NamedTuple):
    """What takes times of one clock to another: a constant, a rate, and how good the fit was."""

    offset_ns: int
    """to be added at `anchor_ns`"""
    rate: float
    """ns per ns, to be added times (t - anchor)"""
    anchor_ns: int
    spread_ns: float
    n: int


def compatible(a: Sequence, i: np.ndarray, b: Sequence, j: np.ndarray) -> np.ndarray:
    """Whether a[i] and b[j] may be one operation: op, dtype and size agree where both are known."""
    da, db = a.dtype[i], b.dtype[j]
    sa, sb = a.size[i], b.size[j]
    return (
        ((a.mask[i] & b.mask[j]) != 0)
        & ((da == db) | (da < 0) | (db < 0))
        & ((sa == sb) | (sa < 0) | (sb < 0))
    )


def find_offset(a: Sequence, b: Sequence) -> Offset | None:
    """The offset that takes b's clock to a's, from the one shift at which their ends coincide.

    Pieces of b slide along a. A shift is a candidate where nearly all pairs are compatible (and of
    the same step, where steps are known); after its constant is removed, its score is the mean
    distance of ends, clipped. Returns None where no shift is clearly better than every other.
    """
    if min(len(a.end), len(b.end)) < 3:
        return None
    found, m = [], 0
    for chunk in CHUNKS:
        m = min(len(b.end), chunk)
        apart = 7 if chunk == CHUNKS[0] else len(b.end) // m
        starts = np.unique(np.linspace(0, len(b.end) - m, max(1, min(7, apart))).astype(np.int64))
        found = [f for f in (_slide(a, b, int(lo), m) for lo in starts) if f is not None]
        if found:
            break
    # a short piece of a sequence needs another one, apart from it, to agree
    if not found or (m < min(len(b.end), CHUNKS[0]) and len(found) < 2):
        return None
    offset = np.array([f[0] for f in found], dtype=np.float64)
    when = np.array([f[1] for f in found], dtype=np.int64)
    spread = np.array([f[2] for f in found])
    best = int(np.argmin(spread))
    away = np.abs(when - when[best])
    agree = np.abs(offset - offset[best]) <= 2 * CLIP_NS / 5 + 2e-4 * away
    if 2 * int(agree.sum()) <= len(found):
        return None
    offset, when, spread = offset[agree], when[agree], spread[agree]
    anchor = int(when.min() + (when.max() - when.min()) // 2)
    rate = 0.0
    mid = float(np.median(offset))
    if len(when) >= 3 and when.max() - when.min() > 1_000_000_000:
        rate, mid = (float(v) for v in np.polyfit((when - anchor).astype(float), offset, 1))
    return Offset(round(mid), rate, anchor, float(np.median(spread)), len(found) * m)


def _slide(a: Sequence, b: Sequence, lo: int, m: int) -> tuple[float, int, float] | None:
    """Offset, time and score of the one good place of b[lo:lo+m] in a, or None."""
    least = min(3, m)
    n = len(a.end)
    column = np.arange(m)
    right = np.broadcast_to(lo + column, (1, m))
    scores, offsets, lengths, in_step = [], [], [], []
    for block in range(least - m, n - least + 1, 4096):
        shift = np.arange(block, min(block + 4096, n - least + 1))
        left = shift[:, None] + column
        valid = (left >= 0) & (left < n)
        left = np.clip(left, 0, n - 1)
        fits = valid & compatible(a, left, b, right)
        overlap = valid.sum(1)
        keep = fits.sum(1) >= 0.9 * overlap
        if not keep.any():
            continue
        left, fits, overlap = left[keep], fits[keep], overlap[keep]
        both = fits & (a.step[left] >= 0) & (b.step[right] >= 0)
        same = both & (a.step[left] == b.step[right])
        n_both = both.sum(1)
        barrier = fits & a.barrier[left] & b.barrier[right]
        enough = barrier.sum(1) >= least
        use = np.where(enough[:, None], barrier, fits)
        gap = (a.end[left] - b.end[right]).astype(np.float64)
        gap[~use] = np.nan
        middle = np.nanmedian(gap, axis=1)
        score = np.nanmean(np.minimum(np.abs(gap - middle[:, None]), CLIP_NS), axis=1)
        doubt = 2 * score + NEAR_NS
        start_b = b.start[right] + middle[:, None]
        end_b = b.end[right] + middle[:, None]
        late = (a.start[left] > end_b + doubt[:, None]) | (start_b > a.end[left] + doubt[:, None])
        broken = (late & barrier).sum(1) > 0.1 * np.maximum(barrier.sum(1), 1)
        score = np.where(broken, np.maximum(score, CLIP_NS), score)
        scores.append(score)
        offsets.append(middle)
        lengths.append(overlap)
        in_step.append((n_both >= 3) & (same.sum(1) >= 0.9 * n_both))
    if not scores:
        return None
    score, offset = np.concatenate(scores), np.concatenate(offsets)
    length, stepped = np.concatenate(lengths), np.concatenate(in_step)
    worst = WORST_SPREAD_NS
    if stepped.any():
        score, offset, length = score[stepped], offset[stepped], length[stepped]
        if (b.near[lo : lo + m] >= HOST_NEAR_NS).all():
            took = np.median(b.end[lo : lo + m] - b.start[lo : lo + m])
            worst = max(worst, min(WORST_SHARE * float(took), CLIP_NS / 2))
    best = int(np.argmin(score))
    spread = max(float(score[best]), FLOOR_NS)
    # a short overlap can be a rival, but is no evidence
    if spread > worst or 2 * length[best] < m:
        return None
    rivals = np.delete(score, best)
    if len(rivals) and float(rivals.min()) < RIVAL * spread:
        return None
    return float(offset[best]), int(b.end[lo + m // 2]), spread


class Pairs(NamedTuple):
    """Index in `a` for each operation of `b` (-1: none), and whether shifts tied."""

    index: np.ndarray
    ambiguous: bool


def align(a: Sequence, b: Sequence, error_ns: float) -> Pairs:
    """Pairs of two sequences on one clock (known to `error_ns`), in order, each used once.

    Between drops the n-th operation of b is the (n+k)-th of a, so that k is a step function of n:
    the cheapest one is taken, where a pair costs its distance of ends, an impossible pair (other
    op, dtype or size; one ends before the other has started; ends far apart) costs most, and a
    change of k costs two such. Impossible pairs are not returned.
    """
    none = Pairs(np.full(len(b.end), -1, dtype=np.int64), False)
    if len(a.end) == 0 or len(b.end) == 0:
        return none
    place = np.arange(len(b.end))
    nearest = np.searchsorted(np.maximum.accumulate(a.end), b.end)
    votes, counts = np.unique(
        np.concatenate([nearest - place, nearest - 1 - place]), return_counts=True
    )
    by_count = votes[np.lexsort((votes, -counts))][:8]
    states = np.unique(np.concatenate([by_count, by_count[:2] - 1, by_count[:2] + 1]))
    typical = _typical_gap(a, b, states, place)
    if typical is None:
        return none
    costs = np.stack([_cost(a, b, place, int(k), typical, error_ns) for k in states])
    total = costs.mean(1)
    best = int(np.lexsort((np.abs(states), total))[0])
    fits = costs[best].max() < 1
    path = np.full(len(place), best) if fits else _cheapest_path(costs, states)
    cost = costs[path, place]
    index = place + states[path]
    good = (cost < 1) & (index >= 0) & (index < len(a.end)) & ~_doubtful(costs, path)
    if _rival(costs, states, path, place, len(a.end), good):
        return Pairs(none.index, True)
    index = np.where(good, index, -1)
    return Pairs(_once(index, cost), False)


def farthest(
    typical_ns: float, transfer_ns: np.ndarray, near_ns: np.ndarray, error_ns: float
) -> np.ndarray:
    """How far apart ends of one collective may be (ns).

    The noise (5 times what is typical), and the transfer itself: ranks may be served one after
    another. `transfer_ns` counts from the last start to the first end.
    """
    return np.maximum(5 * typical_ns, near_ns) + np.maximum(transfer_ns, 0) + error_ns


def _typical_gap(a: Sequence, b: Sequence, states: np.ndarray, place: np.ndarray) -> float | None:
    """Median distance of ends at the shift where it is smallest (ns)."""
    best = None
    for k in states.tolist():
        j = place + k
        inside = (j >= 0) & (j < len(a.end))
        i, j = place[inside], j[inside]
        fits = compatible(a, j, b, i)
        i, j = i[fits], j[fits]
        if len(i) == 0 or 3 * len(i) < min(len(a.end), len(b.end)):
            continue
        gap = float(np.median(np.abs(a.end[j] - b.end[i])))
        if len(i) < FEW:
            gap = min(gap, NEAR_NS)
        best = gap if best is None else min(best, gap)
    return best


def _cost(
    a: Sequence, b: Sequence, place: np.ndarray, k: int, typical: float, error_ns: float
) -> np.ndarray:
    j = place + k
    inside = (j >= 0) & (j < len(a.end))
    j = np.clip(j, 0, len(a.end) - 1)
    gap = np.abs(a.end[j] - b.end)
    barrier = a.barrier[j] & b.barrier
    transfer = np.minimum(a.end[j], b.end) - np.maximum(a.start[j], b.start)
    longest = np.maximum(a.end[j] - a.start[j], b.end - b.start)
    near = np.maximum(a.near[j], b.near)
    far = farthest(typical, np.where(barrier, transfer, longest), near, error_ns)
    apart = transfer < -(SLACK_NS + error_ns)
    bad = ~compatible(a, j, b, place) | (gap > far) | (apart & barrier)
    return np.where(inside, np.where(bad, 1.0, 0.3 * np.minimum(gap / far, 1.0)), 0.25)


def _cheapest_path(costs: np.ndarray, states: np.ndarray) -> np.ndarray:
    """State of each operation: least total cost, a change of state costing 2 (Viterbi)."""
    n = costs.shape[1]
    back = np.empty((n, len(states)), dtype=np.int16)
    here = np.arange(len(states))
    total = costs[:, 0].copy()
    for i in range(1, n):
        jump = int(np.argmin(total))
        change = total[jump] + 2.0 < total
        back[i] = np.where(change, jump, here)
        total = np.where(change, total[jump] + 2.0, total) + costs[:, i]
    path = np.empty(n, dtype=np.int64)
    path[-1] = int(np.argmin(total))
    for i in range(n - 1, 0, -1):
        path[i - 1] = back[i, path[i]]
    return path


def _doubtful(costs: np.ndarray, path: np.ndarray) -> np.ndarray:
    """Operations around a change of state that would fit in the state on its other side, too.

    Where one of several alike operations in a row was dropped, time may not tell which.
    """
    out = np.zeros(len(path), dtype=bool)
    for at in np.flatnonzero(np.diff(path)).tolist():
        before, after = path[at], path[at + 1]
        i = at
        while i >= 0 and path[i] == before and costs[after, i] < 1:
            out[i] = True
            i -= 1
        i = at + 1
        while i < len(path) and path[i] == after and costs[before, i] < 1:
            out[i] = True
            i += 1
    return out


def _rival(
    costs: np.ndarray,
    states: np.ndarray,
    path: np.ndarray,
    place: np.ndarray,
    n_a: int,
    good: np.ndarray,
) -> bool:
    """Whether another shift is about as good on the operations that the chosen path pairs."""
    if not good.any():
        return False
    for s, k in enumerate(states.tolist()):
        other = good & (path != s) & (place + k >= 0) & (place + k < n_a)
        if 2 * int(other.sum()) < int(good.sum()):
            continue
        mine = costs[path[other], place[other]].mean()
        if costs[s, other].mean() < mine + 0.15:
            return True
    return False


def _once(index: np.ndarray, cost: np.ndarray) -> np.ndarray:
    """Each index at most once: the cheapest keeps it, the others get -1."""
    order = np.lexsort((np.arange(len(index)), cost, index))
    sorted_index = index[order]
    again = np.zeros(len(index), dtype=bool)
    again[1:] = (sorted_index[1:] == sorted_index[:-1]) & (sorted_index[1:] >= 0)
    out = index.copy()
    out[order[again]] = -1
    return out
