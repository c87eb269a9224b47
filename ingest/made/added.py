"""What the parts of a rank's time come to, added up."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from . import compared, kernels, own
from .composition import Composed, together
from .ranks import OfRank
from .segmented import runs
from .walk import CLASSES, Stretches


class Added:
    """A rank, of which the parts are taken one after another; with one it is that one.

    `stretches` are those in which idle time is compared, where it is, `late` those of them in which
    the rank itself is late, and `first` the first step.
    """

    steps: Stretches
    stats: Callable[[], kernels.Stats]

    def __init__(
        self,
        stretches: compared.Stretches | None = None,
        first: compared.FirstStep | None = None,
        late: compared.Stretches | None = None,
    ):
        self.stretches = stretches
        self.late = late
        self._first = first
        self.idle_ns = np.zeros(0, np.int64)
        """int64[compared.IDLE, stretches]"""
        self.longest = np.zeros((5, 0), np.int64)
        """the longest gaps where the rank is late, as `own.of_gaps` has them"""
        self.n_gaps = 0
        self._n = 0
        self._worked: list[tuple[np.ndarray, np.ndarray]] = []
        self._covered: list[tuple[np.ndarray, np.ndarray]] = []
        self._idle: list[tuple[np.ndarray, ...]] = []
        self._composed: list[Callable[[], Composed]] = []

    def take(self, made: OfRank) -> None:
        """Adds the next part."""
        gaps, kind = made.walked.gaps, made.caused.kind
        if self.stretches is not None:
            first = self._first if not self._n else None
            idle_ns = compared.idle(self.stretches, gaps, kind, first, made.marks)
            self.idle_ns = self.idle_ns + idle_ns if self._n else idle_ns
            if self.late is not None:
                launch_ns = made.caused.launch_ns
                its = own.of_gaps(self.late, gaps, kind, launch_ns, first, made.marks)
                self.longest = own.longest(np.concatenate([self.longest, its], axis=1))
        self._covered.append((made.moments, made.walked.covered))
        self.steps, self.stats = made.stretches, made.stats
        self._worked.append((made.walked.ordinal, made.walked.ns))
        self._idle.append(
            _by(made.stretches.ordinal[gaps.stretch], kind, gaps.end_ns - gaps.start_ns)
        )
        self._composed.append(made.composed)
        self.n_gaps += len(gaps.start_ns)
        self._n += 1

    def worked(self) -> tuple[np.ndarray, np.ndarray]:
        """Ordinals in which anything is, and int64[ordinals, CLASSES] of them."""
        ordinal, at = np.unique(np.concatenate([o for o, _ in self._worked]), return_inverse=True)
        ns = np.zeros((len(ordinal), len(CLASSES)), np.int64)
        np.add.at(ns, at, np.concatenate([n for _, n in self._worked]))
        return ordinal, ns

    def covered(self) -> tuple[np.ndarray, np.ndarray]:
        """Moments, and int64[moments, UNIONS]: how long each ran before each of them."""
        moments, covered = zip(*self._covered, strict=True)
        return np.concatenate(moments), np.concatenate(covered)

    def idle(self) -> tuple[np.ndarray, ...]:
        """Ordinal, class and time of the gaps, in the order of the two."""
        return _by(*(np.concatenate(c) for c in zip(*self._idle, strict=True)))

    def composed(self) -> Composed:
        """What the rank's time is made of."""
        return together([made() for made in self._composed])


def _by(ordinal: np.ndarray, kind: np.ndarray, ns: np.ndarray) -> tuple[np.ndarray, ...]:
    by = runs(ordinal, kind)
    one = by.order[by.first]
    return ordinal[one], kind[one], by.total(ns)
