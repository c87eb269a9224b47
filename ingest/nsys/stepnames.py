"""Which NVTX ranges are training steps: the outermost family of ranges named like iterations."""

from __future__ import annotations

import re

import numpy as np

MOST_NAME = 80

_NUMBERED = re.compile(
    r"(?:(?:train|training|global|main|model)[ _:./-]{0,3})?"
    r"(profilerstep|step|iteration|iter)"
    r"[ #:_=\[(-]{0,3}(\d{1,15})[\])]?"
)
_BARE = re.compile(r"(?:train|training|global)?[ _:./-]?(step|iteration)")


def step_of(name: str) -> tuple[str, int] | None:
    """(family, number) of a range's name; number -1 where it has none; None for other names.

    `ProfilerStep#4`, `step 12`, `iteration_3`, `train_step` and the like.
    """
    if len(name) > MOST_NAME:
        return None
    low = name.strip().lower()
    found = _NUMBERED.fullmatch(low)
    if found:
        return found.group(1), int(found.group(2))
    if _BARE.fullmatch(low):
        return low, -1
    return None


def choose(
    family: np.ndarray, thread: np.ndarray, number: np.ndarray, start: np.ndarray, end: np.ndarray
) -> tuple[np.ndarray, np.ndarray]:
    """(rows, step numbers) of the family and thread whose ranges cover the most time.

    Ranges that a range of the same family holds are repeats and left out; ranges without numbers
    are counted from 0 in order of time.
    """
    best: tuple[int, np.ndarray] | None = None
    keys = np.stack([family, thread], 1)
    for key in np.unique(keys, axis=0):
        rows = np.flatnonzero((keys == key).all(1))
        rows = rows[np.lexsort((-end[rows], start[rows]))]
        reach = np.maximum.accumulate(np.concatenate([[-(1 << 62)], end[rows][:-1]]))
        rows = rows[start[rows] >= reach]
        total = int((end[rows] - start[rows]).sum())
        if best is None or total > best[0]:
            best = total, rows
    if best is None:
        return np.empty(0, np.int64), np.empty(0, np.int64)
    rows = best[1]
    numbers = number[rows]
    return rows, np.where(numbers < 0, np.arange(len(rows)), numbers)
