"""Two lanes of operations and where they meet: which pairs a shift makes, which it may."""

from __future__ import annotations

import numpy as np

from ..matching.participations import code
from .evidence import Lane
from .rows import View, compatible

PROBES = 48
"""Operations of the shorter lane that rule shifts out before all are looked at."""
MOST_WORK = 100_000_000
"""Pairs that are looked at; lanes with more shifts than that are not told apart."""
MOST_KINDS = 4_000_000
"""Pairs of kinds of operations of which each is judged once."""


class Table:
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
