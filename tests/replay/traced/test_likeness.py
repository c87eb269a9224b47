"""Tasks that are alike: held against the k-th of an operation in a step on each rank, by hand."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from retime.replay.graph import NULL
from retime.replay.traced import likeness

TASKS = st.lists(
    st.tuples(
        st.integers(-1, 2),  # step
        st.integers(0, 6),  # kind
        st.integers(-1, 3),  # op
        st.integers(-1, 2),  # thread
        st.sampled_from((-1, 0, 1, 7)),  # rank
        st.sampled_from((int(NULL), 0, 5, 9)),  # start
    ),
    max_size=40,
)


def columns(tasks):
    types = np.int64, np.int8, np.int32, np.int32, np.int32, np.int64
    rows = np.array(tasks, np.int64).reshape(-1, 6).T
    return [row.astype(t) for row, t in zip(rows, types, strict=True)]


def by_hand(tasks):
    """The codes: of (step, kind, op, thread) and the place on the rank, sorted."""
    places = []
    for i, (*kind, rank, start) in enumerate(tasks):
        own = [(t[5], j) for j, t in enumerate(tasks) if [*t[:5]] == [*kind, rank]]
        places.append((*kind, sorted(own).index((start, i))))
    codes = {place: code for code, place in enumerate(sorted(set(places)))}
    return [codes[place] for place in places]


@pytest.mark.parametrize("counters", [0, 1 << 16])
@settings(deadline=None)
@given(TASKS, st.booleans())
def test_the_kth_of_an_operation_in_a_step_on_each_rank(counters, tasks, in_time):
    if in_time:
        tasks = sorted(tasks, key=lambda t: t[5])
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(likeness, "COUNTERS", counters)
        assert likeness.of(*columns(tasks)).tolist() == by_hand(tasks)


def test_more_kinds_than_there_are_slots_at_first():
    tasks = [(step, 0, step % 7, -1, rank, step) for step in range(3000) for rank in (0, 1)]
    found = likeness.of(*columns(tasks))
    assert found.tolist() == [step for step in range(3000) for _ in (0, 1)]
