"""Two sources' operations on one communicator of one rank, laid side by side: the one shift.

The same operations repeat every step, so that names and sizes fit at many shifts, and two sources
may have seen different steps. A shift counts only with evidence that repeats in no other step:
moments that are a constant apart, durations that agree one by one, operations known to be the
same, or sizes that no two steps share. Whatever stays open is not joined.
"""

from __future__ import annotations

from collections import Counter
from typing import NamedTuple

import numpy as np

from .joining_evidence import FEW_KNOWN, Channel, Lane, channels, repeats
from .joining_rows import View, compatible
from .participations import code

FEW_SIZES, FEW_OF_STEP, ALIKE = 16, 4, 0.7
"""Pairs that sizes alone take at least, and in a step; share that two steps may have in common."""
RIVAL = 4.0
"""A shift wins only if every other is this many times worse."""
LEAST_SURPRISES = 2.0
"""Pairs that agree though they would not, were they of two steps: fewer are no evidence at all."""
NEIGHBOURS = 4
"""Operations before and after a moment among which its own is looked for."""
STRAY = 0.02
"""Share of the pairs that may differ all the same."""
SIDEWAYS = (-3, -2, -1, 1, 2, 3)
"""Operations that one source may have lost, without a word, near the end of the other's."""
PROBES = 48
MOST_WORK = 100_000_000
"""Pairs that are looked at; lanes with more shifts than that are not told apart."""
MOST_KINDS = 4_000_000


class Laid(NamedTuple):
    """Rows that are one operation; and, where moments told, what takes b's clock to a's."""

    a: np.ndarray
    b: np.ndarray
    offset_ns: int | None
    spread_ns: float
    surprises: float
    """pairs that agree though they would not, were they of two steps; infinite where all is sure"""


class Scores(NamedTuple):
    """Of each shift: pairs with evidence, their mean distance from the constant, and that."""

    n: np.ndarray
    distance: np.ndarray
    constant: np.ndarray


def lay(
    view: View, a: Lane, b: Lane, same: tuple[np.ndarray, np.ndarray], offset_ns: int | None
) -> Laid | str:
    """The pairs of the one shift that evidence tells apart from all others; else why there is none.

    `same` are rows of a and of b that are known to be one. `offset_ns` takes b's clock to a's
    where it is known. The reason is `none` (no shift without a contradiction), `open` (nothing
    tells shifts apart), or `apart` (the best shift's times do not agree).
    """
    if len(a.rows) < len(b.rows):
        back = lay(view, b, a, (same[1], same[0]), None if offset_ns is None else -offset_ns)
        if isinstance(back, str):
            return back
        offset = None if back.offset_ns is None else -back.offset_ns
        return Laid(back.b, back.a, offset, back.spread_ns, back.surprises)
    table = _Table(view, a, b)
    known = _shifts_of(a, b, same)
    shifts = table.without_contradiction(known)
    overlap = table.overlap(shifts)
    if len(shifts) and len(known) and len(same[0]) >= FEW_KNOWN:
        return _pairs(table, None, int(shifts[0]), np.inf)
    reason = "open" if len(shifts) else "none"
    for channel in channels(view, a, b, offset_ns):
        found = _decide(table, channel, shifts, overlap)
        if isinstance(found, tuple):
            return _pairs(table, channel, *found)
        reason = found if found != "open" else reason
        if channel.moments and channel.constant is not None:
            near = _by_moment(table, channel)
            if near is not None:
                return near
    if reason == "open" and _by_sizes(table, shifts, overlap):
        return _pairs(table, None, int(shifts[np.argmax(overlap)]), np.inf)
    return reason


def _shifts_of(a: Lane, b: Lane, same: tuple[np.ndarray, np.ndarray]) -> np.ndarray:
    """The shifts at which operations that are known to be one meet."""
    place = {int(r): int(p) for r, p in zip(a.rows, a.place, strict=True)} if len(same[0]) else {}
    other = {int(r): int(p) for r, p in zip(b.rows, b.place, strict=True)} if len(same[0]) else {}
    found = {
        place[i] - other[j]
        for i, j in zip(same[0].tolist(), same[1].tolist(), strict=True)
        if i in place and j in other
    }
    return np.array(sorted(found), dtype=np.int64)


class _Table:
    """Where b's operations meet a's at a shift (place of a less place of b); a is the longer."""

    def __init__(self, view: View, a: Lane, b: Lane) -> None:
        self.view, self.a, self.b = view, a, b
        self.low = int(a.place[0])
        self.slot = np.full(int(a.place[-1]) - self.low + 1, -1, dtype=np.int64)
        self.slot[a.place - self.low] = np.arange(len(a.place))
        told = (view.mask, view.dtype, view.size, view.in_bytes, view.out_bytes, view.peer)
        both = np.concatenate([a.rows, b.rows])
        kind = code(*(c[both] for c in told))
        self.kind_a, self.kind_b = kind[: len(a.rows)], kind[len(a.rows) :]
        self.fits_kind = None
        n = int(kind.max()) + 1
        if n * n <= MOST_KINDS:
            one = np.empty(n, dtype=np.int64)
            one[kind] = both
            x, y = np.divmod(np.arange(n * n), n)
            # of all rows of a kind one stands for all: when they were enqueued is judged later
            bare = view._replace(enqueued=np.full(len(view.enqueued), -1))
            self.fits_kind = compatible(bare, one[x], one[y]).reshape(n, n)

    def fit(self, i: np.ndarray, j: np.ndarray) -> np.ndarray:
        """Whether a[i] and b[j] may be one operation."""
        if self.fits_kind is None:
            return compatible(self.view, self.a.rows[i], self.b.rows[j])
        return self.fits_kind[self.kind_a[i], self.kind_b[j]]

    def meet(self, place: np.ndarray, shift: np.ndarray | int) -> np.ndarray:
        """Index in a that places of b have at shifts (broadcast); -1 for none."""
        at = place + shift - self.low
        inside = (at >= 0) & (at < len(self.slot))
        return np.where(inside, self.slot[np.where(inside, at, 0)], -1)

    def without_contradiction(self, known: np.ndarray) -> np.ndarray:
        """Shifts at which pairs meet and each may be one operation; only those known, if any."""
        a, b = self.a.place, self.b.place
        low, high = int(a[0]) - int(b[-1]), int(a[-1]) - int(b[0])
        if len(known):
            shifts = known if len(known) == 1 else known[:0]
        elif high - low > MOST_WORK // 4:
            return np.empty(0, np.int64)
        else:
            shifts = np.arange(low, high + 1)
        probes = np.unique(np.linspace(0, len(b) - 1, min(len(b), PROBES)).astype(np.int64))
        for j in probes.tolist():
            i = self.meet(b[j], shifts)
            met = np.flatnonzero(i >= 0)
            ok = np.ones(len(shifts), dtype=bool)
            ok[met] = self.fit(i[met], np.full(len(met), j))
            shifts = shifts[ok]
        if len(shifts) * len(b) > MOST_WORK:
            return shifts[:0]
        kept = [shifts[:0]]
        block = max(1, MOST_WORK // 50 // len(b))
        for lo in range(0, len(shifts), block):
            some = shifts[lo : lo + block]
            i = self.meet(b[None, :], some[:, None])
            row, j = np.nonzero(i >= 0)
            fits = self.fit(i[row, j], j)
            bad = np.bincount(row[~fits], minlength=len(some)) > 0
            kept.append(some[~bad & (np.bincount(row, minlength=len(some)) > 0)])
        return np.concatenate(kept)

    def overlap(self, shifts: np.ndarray) -> np.ndarray:
        """Pairs that meet at each shift."""
        return np.array([len(self.pairs(s)[0]) for s in shifts.tolist()], dtype=np.int64)

    def pairs(self, shift: int) -> tuple[np.ndarray, np.ndarray]:
        """Indices in a and b that meet at one shift."""
        i = self.meet(self.b.place, shift)
        return i[i >= 0], np.flatnonzero(i >= 0)


def _score(table: _Table, channel: Channel, shifts: np.ndarray) -> Scores:
    n = np.zeros(len(shifts), dtype=np.int64)
    distance, constant = np.full(len(shifts), channel.clip), np.zeros(len(shifts))
    for k, s in enumerate(shifts.tolist()):
        i, j = table.pairs(s)
        both = channel.has_a[i] & channel.has_b[j]
        i, j = i[both], j[both]
        n[k] = len(i)
        if len(i):
            middle = channel.constant
            if middle is None:
                middle = float(np.median(channel.a[i] - channel.b[j]))
            constant[k] = middle
            distance[k] = np.minimum(channel.off(i, j, middle), channel.clip).mean()
    return Scores(n, distance, constant)


def _decide(
    table: _Table, channel: Channel, shifts: np.ndarray, overlap: np.ndarray
) -> tuple[int, float] | str:
    """The shift that this evidence chooses and how surely, else why it chooses none."""
    if not len(shifts):
        return "none"
    score = _score(table, channel, shifts)
    enough = (score.n >= channel.few) & (4 * overlap >= overlap.max())
    if not enough.any():
        return "open"
    best = int(np.argmin(np.where(enough, score.distance, np.inf)))
    distance = max(float(score.distance[best]), channel.floor)
    if distance > channel.worst:
        return "apart"
    least = max(channel.few - 1, int(score.n[best]) // 8)
    rivals = (score.n >= least) & (np.arange(len(shifts)) != best)
    if (score.distance[rivals] < RIVAL * distance).any():
        return "open"
    sure = channel.moments and channel.constant is not None
    surprises = np.inf if sure else _surprises(table, channel, int(shifts[best]))
    return (int(shifts[best]), surprises) if surprises >= LEAST_SURPRISES else "open"


def _by_moment(table: _Table, channel: Channel) -> Laid | None:
    """Pairs that are nearest to each other on one clock: sources that lost operations, too.

    Each must be far nearer than any other operation that it may be, and most of those that both
    sources could have seen must pair: else the two clocks may not be one.
    """
    a, b = np.flatnonzero(channel.has_a), np.flatnonzero(channel.has_b)
    assert channel.constant is not None
    when_a, when_b = channel.a[a], channel.b[b] + channel.constant
    order = np.argsort(when_a, kind="stable")
    place = np.searchsorted(when_a[order], when_b)
    best = np.full(len(b), -1, dtype=np.int64)
    off, next_off = np.full(len(b), np.inf), np.full(len(b), np.inf)
    for k in range(-NEIGHBOURS, NEIGHBOURS):
        at = place + k
        inside = np.flatnonzero((at >= 0) & (at < len(a)))
        near = order[at[inside]]
        inside, near = (x[table.fit(a[near], b[inside])] for x in (inside, near))
        far = np.abs(when_a[near] - when_b[inside])
        better = far < off[inside]
        next_off[inside] = np.minimum(next_off[inside], np.where(better, off[inside], far))
        off[inside], best[inside] = (
            np.where(better, far, off[inside]),
            np.where(better, near, best[inside]),
        )
    good = (off <= channel.worst) & (next_off >= RIVAL * np.maximum(off, channel.floor))
    uses = np.bincount(best[good], minlength=len(a))
    good[good] = uses[best[good]] == 1
    i, j = a[best[good]], b[good]
    low, high = when_a.min() - channel.worst, when_a.max() + channel.worst
    could = int(((when_b >= low) & (when_b <= high)).sum())
    if len(i) < FEW_KNOWN or 2 * len(i) < min(could, len(a)) or (np.diff(i) <= 0).any():
        return None
    return Laid(table.a.rows[i], table.b.rows[j], None, 0.0, np.inf)


def _surprises(table: _Table, channel: Channel, shift: int) -> float:
    """How many pairs agree that would not, were they of two steps of the same program.

    Each pair agrees to within a distance at which a source's own steps often do not agree with
    each other. Without such, another step would fit as well, and what the other source saw may be
    that.
    """
    i, j = table.pairs(shift)
    both = channel.has_a[i] & channel.has_b[j]
    i, j = i[both], j[both]
    step_a, step_b = table.view.step[table.a.rows[i]], table.view.step[table.b.rows[j]]
    several = max(len(np.unique(s[s >= 0])) for s in (step_a, step_b)) > 1
    if not several and len(table.a.rows) < 2 * len(i):
        return 0.0
    apart = channel.a[i] - channel.b[j]
    off = np.abs(np.diff(apart) if channel.moments else apart)
    if len(off) < channel.few - 1:
        return 0.0
    near = max(channel.floor, float(np.quantile(off, 1 - STRAY)))
    alike = max(
        repeats(channel, values[there], kind[there], table.fits_kind, near)
        for values, there, kind in (
            (channel.a, channel.has_a, table.kind_a),
            (channel.b, channel.has_b, table.kind_b),
        )
    )
    return (1 - alike) * len(off) if alike >= 0 else 0.0


def _pairs(table: _Table, channel: Channel | None, shift: int, surprises: float) -> Laid:
    """The pairs of a shift that fit each by itself, without those that fit sideways as well."""
    i, j = table.pairs(shift)
    good = np.ones(len(i), dtype=bool)
    offset, spread, constant, limit = None, 0.0, 0.0, 0.0

    def fit(x: np.ndarray, y: np.ndarray) -> np.ndarray:
        if channel is None:
            return table.fit(x, y)
        there = channel.has_a[x] & channel.has_b[y]
        return table.fit(x, y) & there & (channel.off(x, y, constant) <= limit)

    if channel is not None:
        score = _score(table, channel, np.array([shift]))
        constant, spread = float(score.constant[0]), float(score.distance[0])
        limit = max(8 * spread, 10 * channel.floor)
        good = fit(i, j)
        if channel.moments:
            offset = channel.base_ns + round(constant)
    lost_a, lost_b = not table.a.counted, not table.b.counted
    for d in SIDEWAYS:
        # What a source lost without a gap shifts all that follows (or all that came before). Where
        # a has a gap there, b's own neighbour says whether that may be.
        other = table.meet(table.b.place[j], shift + d)
        beside = np.where(other >= 0, -1, j - d if lost_b else -1)
        fits = np.full(len(j), lost_b)
        have = np.flatnonzero(other >= 0)
        fits[have] = fit(other[have], j[have])
        have = np.flatnonzero((beside >= 0) & (beside < len(table.b.rows)))
        fits[have] = fit(i[have], beside[have])
        if (d < 0 and lost_a) or (d > 0 and lost_b):
            good[_tail(fits) :] = False
        if (d > 0 and lost_a) or (d < 0 and lost_b):
            good[: len(fits) - _tail(fits[::-1])] = False
    return Laid(table.a.rows[i[good]], table.b.rows[j[good]], offset, spread, surprises)


def _tail(fits: np.ndarray) -> int:
    """Where the longest end that fits throughout begins."""
    bad = np.flatnonzero(~fits)
    return int(bad[-1]) + 1 if len(bad) else 0


def _by_sizes(table: _Table, shifts: np.ndarray, overlap: np.ndarray) -> bool:
    """Whether sizes alone tell: one shift only, one lane within the other, no two steps alike."""
    best = int(np.argmax(overlap))
    if overlap[best] < max(FEW_SIZES, len(table.b.rows)):
        return False
    if (8 * np.delete(overlap, best) > overlap[best]).any():
        return False
    i, j = table.pairs(int(shifts[best]))
    return any(
        _steps_differ(table.kind_a[i], table.view.step[rows])
        for rows in (table.a.rows[i], table.b.rows[j])
    )


def _steps_differ(kind: np.ndarray, step: np.ndarray) -> bool:
    """Whether no two steps, of several, have most of their operations in common.

    The first and the last may have been seen in part only.
    """
    inner = [
        Counter(kind[step == s].tolist()) for s in np.unique(step[step >= 0]).tolist()[1:-1]
    ]  # fmt: skip
    if len(inner) < 2 or min(x.total() for x in inner) < FEW_OF_STEP:
        return False
    return all(
        (x & y).total() <= ALIKE * min(x.total(), y.total())
        for k, x in enumerate(inner)
        for y in inner[:k]
    )
