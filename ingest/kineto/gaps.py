"""What stands between two values, compiled: learned as it is met, then known by one compare.

A writer of traces repeats itself: after the value of "ts" comes `, "dur": `, white space and all,
in a hundred thousand events. Such a gap (from one value's end to the next one's first byte, or to
the event's end) is parsed once, kept with what followed from it, and found again behind the same
gap. What is not found is parsed, so a trace that never repeats itself costs a little time only.
"""

# pyright cannot see through numba's decorators.
# pyright: reportCallIssue=false, reportGeneralTypeIssues=false

from __future__ import annotations

import numpy as np

from .scan_tables import (
    GAP_BUDGET,
    GAP_BYTES,
    GAP_FIELD,
    GAP_FIRST,
    GAP_GUESS,
    GAP_LENGTH,
    GAP_MASK,
    GAP_PAST,
    GAP_WHERE,
    N_GAPS,
)
from .vectors import equal, jit, rarely


@jit
def known_gap(buf, p, before, gaps, gap_texts):
    """The gap that stands at p, among those met behind the gap `before`; 0 where none does."""
    for k in range(GAP_FIRST, GAP_PAST):
        gap = gaps[before, k]
        if gap == 0:
            break
        mask = np.uint64(gaps[gap, GAP_MASK])
        if equal(buf, p, gap_texts, gap * GAP_BYTES) & mask == mask:
            if k > GAP_FIRST:
                # A step nearer to the front: the commonest come first.
                gaps[before, k] = gaps[before, k - 1]
                gaps[before, k - 1] = gap
            return gap
    return 0


@rarely
def learned_gap(buf, start, end, before, field, where, state, gaps, gap_texts):
    """The gap from start to end, met behind `before` and parsed; 0 where it is not kept."""
    length = end - start
    if length <= 0 or length > GAP_BYTES or before < 0 or state[GAP_BUDGET] <= 0:
        return 0
    state[GAP_BUDGET] -= 1
    mask = ~np.uint64(0) >> np.uint64(GAP_BYTES - length)
    gap = 1
    while gap < state[N_GAPS]:
        if (
            gaps[gap, GAP_LENGTH] == length
            and gaps[gap, GAP_FIELD] == field
            and gaps[gap, GAP_WHERE] == where
            and equal(buf, start, gap_texts, gap * GAP_BYTES) & mask == mask
        ):
            break
        gap += 1
    if gap == gaps.shape[0]:
        return 0
    if gap == state[N_GAPS]:
        state[N_GAPS] += 1
        for i in range(length):
            gap_texts[gap * GAP_BYTES + i] = buf[start + i]
        gaps[gap, GAP_MASK] = np.int64(mask)
        gaps[gap, GAP_LENGTH] = length
        gaps[gap, GAP_FIELD] = field
        gaps[gap, GAP_WHERE] = where
        gaps[gap, GAP_GUESS] = -1
    for k in range(GAP_PAST - 1, GAP_FIRST, -1):
        gaps[before, k] = gaps[before, k - 1]
    gaps[before, GAP_FIRST] = gap
    return gap
