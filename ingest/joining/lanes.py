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

from .evidence import FEW_KNOWN, Channel, Lane, channels, repeats
from .rows import View
from .table import MOST_WORK, Table

FEW_SIZES, FEW_OF_STEP, ALIKE = 16, 4, 0.7
"""Pairs that sizes alone take at least, and in a step; share that two steps may have in common."""
RIVAL = 4.0
"""A shift wins only if every other is this many times worse."""
LEAST_SURPRISES = 2.0
"""Pairs that agree though they would not, were they of two steps: fewer are no evidence at all."""
LONG, LEAST_PART = 2_000, 200
"""Operations of a lane of which a part is laid first, and of the part at least."""
MOST_OF, HALF = 0.9, 0.5
"""Shares of the operations that both sources could have seen."""
NEIGHBOURS = 4
"""Operations before and after a moment among which its own is looked for."""
GUARD, ENDS = 5, 2
"""Pairs beside one that is off, and at the ends of lanes, that may fit by chance."""
STRAY = 0.02
"""Share of the pairs that may differ all the same."""
SIDEWAYS = (-3, -2, -1, 1, 2, 3)
"""Operations that one source may have lost, without a word, near the end of the other's."""


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
    table = Table(view, a, b)
    evidence = channels(view, a, b, offset_ns)
    for channel in evidence:
        if channel.moments and channel.constant is not None:
            near = _by_moment(table, channel, MOST_OF)
            if near is not None:
                return near
    known = _shifts_of(a, b, same)
    if len(b.rows) > LONG and not len(known):
        return _by_part(table, evidence, same, offset_ns)
    shifts = table.without_contradiction(known)
    overlap = table.overlap(shifts)
    if len(shifts) and len(known) and len(same[0]) >= FEW_KNOWN:
        return _pairs(table, None, int(shifts[0]), np.inf)
    reason = "open" if len(shifts) else "none"
    for channel in evidence:
        found = _decide(table, channel, shifts, overlap)
        if isinstance(found, tuple):
            return _pairs(table, channel, *found)
        reason = found if found != "open" else reason
        if channel.moments and channel.constant is not None:
            near = _by_moment(table, channel, HALF)
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


def _score(table: Table, channel: Channel, shifts: np.ndarray) -> Scores:
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
    table: Table, channel: Channel, shifts: np.ndarray, overlap: np.ndarray
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


def _by_part(
    table: Table,
    evidence: list[Channel],
    same: tuple[np.ndarray, np.ndarray],
    offset_ns: int | None,
) -> Laid | str:
    """As `lay`, for long lanes: a part of b finds the shift, which then must hold for all of it."""
    a, b = table.a, table.b
    size = min(LONG, max(LEAST_PART, MOST_WORK // (2 * len(table.slot))))
    low = (len(b.rows) - size) // 2
    part = Lane(b.rows[low : low + size], b.place[low : low + size], b.counted)
    found = lay(table.view, a, part, same, offset_ns)
    if isinstance(found, str):
        return found
    if found.offset_ns is not None:
        for channel in channels(table.view, a, b, found.offset_ns):
            if channel.moments:
                near = _by_moment(table, channel, HALF)
                if near is not None:
                    return near._replace(
                        offset_ns=found.offset_ns, spread_ns=found.spread_ns,
                        surprises=found.surprises,
                    )  # fmt: skip
    shift = _shifts_of(a, part, (found.a, found.b))
    if len(shift) != 1 or not len(table.without_contradiction(shift)):
        return found
    for channel in evidence:
        score = _score(table, channel, shift)
        if score.n[0] >= channel.few and score.distance[0] <= channel.worst:
            return _pairs(table, channel, int(shift[0]), found.surprises)
    return found


def _by_moment(table: Table, channel: Channel, least: float) -> Laid | None:
    """Pairs that are nearest to each other on one clock: sources that lost operations, too.

    Each must be far nearer than any other operation that it may be, and of those that both sources
    could have seen this share must pair: else the two clocks may not be one.
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
    if len(i) < FEW_KNOWN or len(i) < least * min(could, len(a)) or (np.diff(i) <= 0).any():
        return None
    return Laid(table.a.rows[i], table.b.rows[j], None, 0.0, np.inf)


def _surprises(table: Table, channel: Channel, shift: int) -> float:
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


def _pairs(table: Table, channel: Channel | None, shift: int, surprises: float) -> Laid:
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
    if channel is not None and not (channel.moments and channel.constant is not None):
        there = channel.has_a[i] & channel.has_b[j]
        good &= _between(there & ~good, lost_a or lost_b, not channel.moments)
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


def _between(off: np.ndarray, lossy: bool, by_chance: bool) -> np.ndarray:
    """The longest stretch without a pair that is off, less what may fit by chance at its ends.

    A pair that is off is where a source lost an operation, or lies a little behind it.
    """
    at = np.concatenate([[-1], np.flatnonzero(off), [len(off)]])
    k = int(np.argmax(np.diff(at)))
    low, high = int(at[k]) + 1, int(at[k + 1])
    end = ENDS if lossy and by_chance else 0
    inside = np.zeros(len(off), dtype=bool)
    low += GUARD if low > 0 else end
    high -= GUARD if high < len(off) else end
    inside[low : max(low, high)] = True
    return inside


def _tail(fits: np.ndarray) -> int:
    """Where the longest end that fits throughout begins."""
    bad = np.flatnonzero(~fits)
    return int(bad[-1]) + 1 if len(bad) else 0


def _by_sizes(table: Table, shifts: np.ndarray, overlap: np.ndarray) -> bool:
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
