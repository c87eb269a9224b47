"""Where overlapping slices go, and in which order their beginnings and ends are written."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from retime.analysis.export import lanes

SPANS = st.lists(st.tuples(st.integers(0, 2), st.integers(0, 30), st.integers(0, 12)), max_size=40)


def arrays(spans):
    group, start, dur = (np.array(c, np.int64) for c in zip(*spans, strict=True)) if spans else (
        np.empty(0, np.int64) for _ in range(3)
    )  # fmt: skip
    return group, start, start + dur


def placed(spans, nested=False):
    group, start, end = arrays(spans)
    return lanes.place(group, start, end, np.full(len(group), nested))


def test_what_overlaps_goes_beside():
    # The third fits behind the first; a slice that begins as another ends does not overlap it.
    assert placed([(0, 0, 10), (0, 5, 10), (0, 10, 5), (1, 5, 1)]).tolist() == [0, 1, 0, 0]


def test_what_lies_within_goes_beside_too_unless_nesting_is_meant():
    spans = [(0, 0, 10), (0, 2, 3), (0, 4, 8)]
    assert placed(spans).tolist() == [0, 1, 2]
    # The third ends after the first: no call of it.
    assert placed(spans, nested=True).tolist() == [0, 0, 1]


def test_beginnings_and_ends_of_a_track():
    # 0: [0, 10), in it 1: [2, 5) and 2: [5, 5); 3: [10, 10) behind it; 4 on another track.
    start, end = np.array([0, 2, 5, 10, 1]), np.array([10, 5, 5, 10, 3])
    order = lanes.marks(np.array([1, 1, 1, 1, 2]), start, end)
    assert order.tolist() == [0, 1, ~1, 2, ~2, ~0, 3, ~3, 4, ~4]


def test_one_order_of_time_puts_those_that_lead_first():
    start, end = np.array([5, 5, 0]), np.array([9, 8, 5])
    order = lanes.in_time(start, end, np.array([False, True, False]))
    assert order.tolist() == [2, ~2, 1, 0, ~1, ~0]


@pytest.mark.parametrize("nested", [False, True])
@given(spans=SPANS)
def test_a_lane_holds_no_two_that_cross(spans, nested):
    group, start, end = arrays(spans)
    lane = lanes.place(group, start, end, np.full(len(group), nested))
    for i in range(len(spans)):
        for j in range(i):
            if (group[i], lane[i]) == (group[j], lane[j]):
                apart = end[i] <= start[j] or end[j] <= start[i]
                within = (start[i] <= start[j] and end[j] <= end[i]) or (
                    start[j] <= start[i] and end[i] <= end[j]
                )
                assert apart or (nested and within)


@given(spans=SPANS)
def test_every_slice_begins_once_and_ends_once_and_what_began_last_ends_first(spans):
    group, start, end = arrays(spans)
    lane = lanes.place(group, start, end, np.ones(len(group), bool))
    order = lanes.marks(group * 100 + lane, start, end)
    stack, time, begun = [], None, set()
    for m in order.tolist():
        i = m if m >= 0 else ~m
        if not stack:
            time = None
        at = start[i] if m >= 0 else end[i]
        assert time is None or at >= time or not stack
        time = at
        if m >= 0:
            assert i not in begun
            begun.add(i)
            stack.append(i)
        else:
            assert stack.pop() == i
    assert not stack
    assert len(begun) == len(spans)
