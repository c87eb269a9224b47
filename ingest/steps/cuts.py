"""Where a rank's steps end, by its optimizer; and whether what lies between repeats exactly.

Two anchors that know nothing of each other must agree: the optimizer, which runs once a step, and
the sequence of collectives (operation, communicator, size), which between two runs of the optimizer
must be the same in every step, or in every m-th where steps take turns (an optimizer that runs in
each second step). The kernels between must be the same too, all but a few.
"""

from __future__ import annotations

from itertools import pairwise
from typing import NamedTuple

import numpy as np

from ..kineto.rawbatch import NULL
from .work import Work

MOST_KINDS = 4
"""Kinds of steps that may take turns."""
ALIKE = 0.9
"""Share of the kernels that two steps of a kind must have in common."""
ALIKE_ALONE = 0.98
"""The same where there are no collectives to compare."""
KINDS_ALIKE = 0.6
"""The same for two steps of different kinds: they run the same model."""
LONGEST_START = 1.25
"""What comes before the first end of a step has at most so many times the kernels of a step."""
MOST_COUNTED = 1 << 26
"""Steps times names that are counted at most (8 bytes each)."""
LATEST_NS = (1 << 63) - 1
"""The last moment there is: nothing ends after it."""
APART = 4
"""So many times more work lies between two steps' optimizers than within one's."""


class Cuts(NamedTuple):
    """The steps of a rank: bounds on the clock of `Work.when_ns`, each [begin, end)."""

    begin_ns: np.ndarray
    end_ns: np.ndarray


class Tokens(NamedTuple):
    """A rank's collectives in the order of `when_ns`: what each is, and its size (-1 unknown)."""

    when_ns: np.ndarray
    kind: np.ndarray
    size: np.ndarray


def find(work: Work, tokens: Tokens) -> Cuts | str:
    """The complete steps of a rank; or, in words, why there are none."""
    if not work.optimizer:
        return "no optimizer is seen (Optimizer.step ranges, or kernels named after one)"
    known = work.when_ns != NULL
    plain = np.sort(np.concatenate([work.when_ns[known & ~work.comm], tokens.when_ns]))
    ends = _bursts(work.optimizer, plain)
    if ends is None:
        return "the optimizer's work does not stand apart from the rest of a step"
    if len(ends) < 2:
        return "the optimizer runs only once: nothing repeats"
    begin = int(plain[0]) if len(plain) else ends[0]
    bounds = np.array([begin, *ends], np.int64)
    parts = [_slice(tokens, a, b) for a, b in pairwise(bounds)]
    if len(ends) * (int(work.name.max(initial=0)) + 1) > MOST_COUNTED:
        return "too many kinds of kernels run between too many runs of the optimizer"
    kernels = _kernels(work, bounds)
    counts = kernels.sum(axis=1)
    if len(ends) > 2 and counts[0] > LONGEST_START * counts[1:].max():
        return "the optimizer runs more often than once a step"
    turns = _turns(parts, kernels, bool(len(tokens.when_ns)))
    if turns is None:
        return "what lies between two runs of the optimizer does not repeat"
    first = 0 if _same(parts, kernels, 0, turns, bool(len(tokens.when_ns))) else 1
    if len(bounds) - 1 - first < (2 * turns if turns > 1 else 2):
        return "too few whole steps are in the trace to see them repeat"
    return Cuts(bounds[first:-1], bounds[first + 1 :])


def _bursts(pieces: list[tuple[int, int]], others: np.ndarray) -> list[int] | None:
    """Ends of the runs of the optimizer: pieces with little other work between are one run.

    None where runs do not stand apart. An end is a moment after the last piece.
    """
    starts = np.array([a for a, _ in pieces])
    stops = np.maximum.accumulate(np.array([b for _, b in pieces]))
    before = np.searchsorted(others, starts[1:], side="left")
    after = np.searchsorted(others, stops[:-1], side="right")
    gaps = np.maximum(before - after, 0)
    if not len(gaps) or gaps.max() == 0:
        return [_after(stops[-1])]
    far = gaps > gaps.max() / APART
    if gaps[~far].max(initial=0) * APART > gaps[far].min():
        return None
    last = [*np.flatnonzero(far).tolist(), len(pieces) - 1]
    return [_after(stops[i]) for i in last]


def _after(stop: np.int64) -> int:
    return min(int(stop) + 1, LATEST_NS)


def _slice(tokens: Tokens, a: int, b: int) -> Tokens:
    low, high = np.searchsorted(tokens.when_ns, [a, b], side="left")
    return Tokens(tokens.when_ns[low:high], tokens.kind[low:high], tokens.size[low:high])


def _kernels(work: Work, bounds: np.ndarray) -> np.ndarray:
    """int64[steps, names]: how often each name that does not communicate runs in each step."""
    at = np.searchsorted(bounds, work.when_ns, side="right") - 1
    use = (at >= 0) & (at < len(bounds) - 1) & (work.when_ns != NULL) & ~work.comm
    shape = len(bounds) - 1, int(work.name.max(initial=0)) + 1
    flat = np.bincount(at[use] * shape[1] + work.name[use], minlength=shape[0] * shape[1])
    return flat.reshape(shape)


def _turns(parts: list[Tokens], kernels: np.ndarray, sequenced: bool) -> int | None:
    """After how many steps all repeats; None where it does not. The first may be cut short."""
    n = len(parts)
    for m in range(1, MOST_KINDS + 1):
        pairs = range(0 if n == 2 else 1, n - m)
        if len(pairs) and all(_same(parts, kernels, i, m, sequenced) for i in pairs):
            related = all(
                _common(kernels, i, i + 1) >= KINDS_ALIKE for i in range(1, n - 1) if m > 1
            )
            return m if related else None
    return None


def _same(parts: list[Tokens], kernels: np.ndarray, i: int, m: int, sequenced: bool) -> bool:
    """Whether steps i and i + m are the same."""
    if i + m >= len(parts):
        return False
    a, b = parts[i], parts[i + m]
    if len(a.kind) != len(b.kind) or not np.array_equal(a.kind, b.kind):
        return False
    if ((a.size != b.size) & (a.size >= 0) & (b.size >= 0)).any():
        return False
    if not (len(a.kind) if sequenced else kernels[i].sum()):
        return False
    return _common(kernels, i, i + m) >= (ALIKE if sequenced else ALIKE_ALONE)


def _common(kernels: np.ndarray, i: int, j: int) -> float:
    """Share of the kernels of the larger of two steps that the other has too; 1 without any."""
    most = max(kernels[i].sum(), kernels[j].sum())
    return float(np.minimum(kernels[i], kernels[j]).sum() / most) if most else 1.0
